"""Review of a pipeline, its run, checkpoint, tables and log, by rules.

A rule is a function from the facts to its findings; `RULES` holds them in the order in which they are reported. The
first line of its docstring is its title and its question, the next paragraph says which findings are serious or advice.
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
    """A rule by its function."""

    check: Callable[[Examined], Iterable[Finding]]

    @property
    def name(self) -> str:
        """The name of the rule: that of its function, in kebab case."""
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
        """Return when its findings have this severity; empty if they never do."""
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
    """Return the findings of the rules, in their order."""
    return [replace(finding, rule=rule.name, title=rule.title) for rule in RULES for finding in rule.check(examined)]
