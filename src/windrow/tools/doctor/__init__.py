"""Rule-based review of a pipeline, its run, checkpoint, tables and log.

A rule is a function that takes the gathered facts and yields findings. `RULES` holds the rules in the order in which
they are reported. The first line of a rule's docstring is its title and the question it answers. The next paragraph
says which findings are serious and which are advice.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from windrow.tools.doctor import results, running, state
from windrow.tools.doctor.facts import Examined, Finding

__all__ = ["RULES", "Examined", "Finding", "Rule", "review"]


@dataclass(frozen=True)
class Rule:
    """A rule, defined by its function and that function's docstring."""

    check: Callable[[Examined], Iterable[Finding]]

    @property
    def name(self) -> str:
        """The name of the rule: the name of its function in kebab case."""
        return self.check.__name__.replace("_", "-")

    @property
    def title(self) -> str:
        """The title of the rule."""
        return self._doc[0].partition(":")[0]

    @property
    def question(self) -> str:
        """The question that the rule answers."""
        return " ".join(self._doc[0].partition(": ")[2].split()).rstrip(".")

    def when(self, severity: Literal["Serious", "Advice"]) -> str:
        """Return the condition for findings of this severity, or an empty text if the rule has none."""
        match = re.search(rf"{severity}: (.+?)(?= Advice: |$)", " ".join(self._doc[1].split()))
        return "" if match is None else match[1].rstrip(".")

    @property
    def _doc(self) -> list[str]:
        return (inspect.getdoc(self.check) or "").split("\n\n")


_RESULTS: Final = (
    *(results.warnings, results.guarantee, results.tables, results.late_policy),
    *(results.delay, results.verdicts, results.dead_letters, results.lost_records),
)
_STATE: Final = (state.window_state, state.checkpoint, state.place, state.hot_keys, state.parallelism)
_RUNNING: Final = (
    *(running.run_state, running.backpressure, running.watermark, running.watched, running.retention, running.clocks),
    *(running.secrets, running.connections, running.versions),
)
RULES: Final = tuple(map(Rule, (*_RESULTS, *_STATE, *_RUNNING)))


def review(examined: Examined) -> list[Finding]:
    """Return the findings of all rules, in the order of `RULES`."""
    return [replace(finding, rule=rule.name, title=rule.title) for rule in RULES for finding in rule.check(examined)]
