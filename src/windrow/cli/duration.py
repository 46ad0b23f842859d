"""A duration as a command line's option."""

from __future__ import annotations

import click

from windrow.errors import PipelineError
from windrow.model import parse_duration


class _Duration(click.ParamType[int]):
    """Text like 10m, in microseconds."""

    name = "duration"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it; fail as click does."""
        if isinstance(value, int):
            return value
        try:
            return parse_duration(value)
        except PipelineError as exc:
            self.fail(exc.message, param, ctx)


DURATION = _Duration()
