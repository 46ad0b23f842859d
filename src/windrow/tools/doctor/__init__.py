"""Review of a pipeline, its run, checkpoint, tables and log, by rules.

A rule is a function from the facts to its findings; `RULES` holds them in the order in which they are reported. The
first line of its docstring is its title and what it looks at, the next paragraph says what is serious or advice.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from windrow.tools.doctor.facts import Examined, Finding
from windrow.tools.doctor.results import (
    dead_letters,
    delay,
    guarantee,
    late_policy,
    lost_records,
    tables,
    verdicts,
    warnings,
)
from windrow.tools.doctor.running import (
    backpressure,
    clocks,
    connections,
    retention,
    run_state,
    secrets,
    versions,
    watched,
    watermark,
)
from windrow.tools.doctor.state import checkpoint, hot_keys, parallelism, place, window_state

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
        """What it is called for people."""
        return self._doc[0].partition(":")[0]

    @property
    def question(self) -> str:
        """What it looks at."""
        return " ".join(self._doc[0].partition(": ")[2].split()).rstrip(".")

    def when(self, severity: Literal["Serious", "Advice"]) -> str:
        """Return what it finds serious, or gives advice about; empty for nothing."""
        match = re.search(rf"{severity}: (.+?)(?= Advice: |$)", " ".join(self._doc[1].split()))
        return "" if match is None else match[1].rstrip(".")

    @property
    def _doc(self) -> list[str]:
        return (inspect.getdoc(self.check) or "").split("\n\n")


RULES: Final = tuple(
    map(
        Rule,
        (
            # results
            warnings,
            guarantee,
            tables,
            late_policy,
            delay,
            verdicts,
            dead_letters,
            lost_records,
            # state
            window_state,
            checkpoint,
            place,
            hot_keys,
            parallelism,
            # running
            run_state,
            backpressure,
            watermark,
            watched,
            retention,
            clocks,
            # the machine and its connections
            secrets,
            connections,
            versions,
        ),
    )
)


def review(examined: Examined) -> list[Finding]:
    """Return what the rules find, in their order."""
    return [replace(finding, rule=rule.name, title=rule.title) for rule in RULES for finding in rule.check(examined)]
