"""Findings of a pipeline: errors, and warnings of likely mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from windrow import model as m
from windrow.authoring.checks import Finding, validate
from windrow.engine.lists import list_problems
from windrow.errors import HIDDEN_VALUES


class Findings(list[Finding]):
    """A list of findings, displayed with one finding per line, as by `windrow check`."""

    @property
    def errors(self) -> list[Finding]:
        """The errors; a pipeline with an error cannot run."""
        return [finding for finding in self if finding.level == "error"]

    @property
    def warnings(self) -> list[Finding]:
        """The warnings of likely mistakes."""
        return [finding for finding in self if finding.level == "warning"]

    @property
    def summary(self) -> str:
        """``ok`` if there are no errors, and the numbers of errors and warnings."""
        return summary([finding.level for finding in self])

    def __repr__(self) -> str:
        return "\n".join([*(f"{finding.level}: {finding.text}" for finding in self), self.summary])

    def _repr_html_(self) -> str:
        from windrow.terminal.display import html_lines, html_table  # noqa: PLC0415 - it loads rich

        rows = [(finding.level, finding.where, finding.message) for finding in self]
        table = html_table(("level", "where", "message"), rows, (False, False, False)) if rows else ""
        return table + html_lines(self.summary)


def summary(levels: Sequence[str]) -> str:
    """Return the number of findings at each level, after ``ok`` if there are no errors."""
    counts = [(level, levels.count(level)) for level in ("error", "warning")]
    parts = [f"{number} {level}{'s' if number > 1 else ''}" for level, number in counts if number]
    return ", ".join(parts if "error" in levels else ["ok", *parts])


def find(graph: m.Graph) -> Findings:
    """Return the findings of all rules; if there are no errors, add errors for lists that cannot be read here."""
    found = Findings(validate(graph))
    if not found.errors:
        found.extend(Finding("error", where, message) for where, message in list_problems(graph))
    return Findings(replace(finding, message=HIDDEN_VALUES.hide_in_message(finding.message)) for finding in found)
