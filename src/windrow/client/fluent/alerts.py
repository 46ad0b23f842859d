"""Alerts about a run, for the argument `alerts` of `to` and `graph`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TypeAlias

from windrow import model as m
from windrow.client.arguments import checked
from windrow.errors import PipelineError, each_error, join_errors

Limits: TypeAlias = Mapping[str, str | float | timedelta] | str | float | timedelta
"""The limits of an alert by name, its first limit alone, or ``"off"``."""


@checked
def alerts(
    *,
    lag: Limits | None = None,
    no_step: Limits | None = None,
    watermark_stuck: Limits | None = None,
    latency: Limits | None = None,
    late_spike: Limits | None = None,
    expired_share: Limits | None = None,
    dead_letters: Limits | None = None,
    internal_errors: Limits | None = None,
    sink_errors: Limits | None = None,
    checkpoint: Limits | None = None,
    backpressure: Limits | None = None,
    partition_idle: Limits | None = None,
    hot_key: Limits | None = None,
    webhook: str | None = None,
    command: str | Sequence[str] | None = None,
) -> m.Alerts:
    """Set the limits of alerts, and where they are sent: ``wr.alerts(latency="30s", lag={"records": 100_000})``.

    An alert that is left out has its default limits; ``"off"`` turns it off. Names are as in a pipeline file, with
    ``_`` for ``-`` in an alert.

    Each alert is posted as JSON to the URL `webhook`; `command`, a program with its arguments, gets it on stdin. Both
    may refer to secrets, ``"${ALERTS_URL}"``; in a command, ``$${`` stands for the characters ``${``.
    """
    arguments = dict(locals())
    # few programs set alerts, so few load what reads sections
    from windrow.authoring.printing.plain import yaml_text  # noqa: PLC0415
    from windrow.authoring.sections.alerts import ALERTS  # noqa: PLC0415 - the same
    from windrow.declare.yaml_node import compose  # noqa: PLC0415 - the same

    given = {name.replace("_", "-"): _plain(value) for name, value in arguments.items() if value is not None}
    try:
        return ALERTS.read(replace(compose(yaml_text(given), "alerts"), name="alerts"))
    except PipelineError as exc:
        raise join_errors([PipelineError(error.message) for error in each_error(exc)]) from exc


def _plain(value: object) -> object:
    """Return a value in the form that it has in a pipeline file."""
    match value:
        case timedelta():
            return m.format_duration(value // timedelta(microseconds=1))
        case Mapping():
            return {str(name): _plain(item) for name, item in value.items()}
        case str() | float() | int():
            return value
        case Sequence():
            return [_plain(item) for item in value]
        case _:
            return str(value)
