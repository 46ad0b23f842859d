"""The section `alerts`: the alerts that a run can raise, with their limits and receivers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windrow import model as m
from windrow.declare.spec import DURATION, FRACTION, NAMES, NUMBER, TEXT, Key, Schema, Section, Spec
from windrow.declare.yaml_node import YamlNode
from windrow.model.alerts import field_of
from windrow.model.references import mask_arguments, mask_webhook

_OFF = "off"


class _Switch(Spec[m.AlertLimit | m.Off]):
    """The limits of an alert, or ``off`` to disable it."""

    def __init__(self, limits: Section[Any]) -> None:
        self._limits = limits

    def form(self) -> str:
        return "mapping or `off`"

    def read(self, node: YamlNode) -> m.AlertLimit | m.Off:
        if node.is_scalar and node.node.value == _OFF:
            return m.OFF
        return self._limits.read(node)  # type: ignore[no-any-return]

    def plain(self, value: m.AlertLimit | m.Off) -> Any:  # noqa: ANN401 - plain YAML
        return _OFF if isinstance(value, m.Off) else self._limits.plain(value)

    def python(self, value: m.AlertLimit | m.Off) -> str:
        return repr(self.plain(value))

    def schema(self) -> Schema:
        return {"anyOf": [{"const": _OFF}, self._limits.schema()]}

    def document(self, path: str) -> Iterator[str]:
        return self._limits.document(path)


def _limits(default: m.AlertLimit | m.Off) -> _Switch:
    """Return the spec of an alert's limits, with their defaults; YAML may give only the value of the first key."""
    keys: list[Key] = []
    make = m.LatencyLimit if isinstance(default, m.Off) else type(default)
    for name, spec, doc in _LIMIT_KEYS[make]:
        field = {"for": "span"}.get(name, name)
        known = getattr(default if isinstance(default, make) else make, field, None)
        required = isinstance(default, m.Off) and known is None
        # the first key may be written alone, so it is always printed
        keys.append(Key(name, spec, doc, known, required, shown=not keys, field=field))
    return _Switch(Section("", make, tuple(keys), short=True))


_LASTS = ("for", DURATION, "the minimum duration of the condition.")
_OVER = ("for", DURATION, "the measured period.")
_LIMIT_KEYS: dict[type[m.AlertLimit], tuple[tuple[str, Spec[Any], str], ...]] = {
    m.LagLimit: (
        ("time", DURATION, "the age of the last record read, by its log timestamp, if there is one."),
        ("records", NUMBER, "the number of unread records. Either limit raises the alert."),
        _LASTS,
    ),
    m.TimeLimit: (_LASTS,),
    m.LatencyLimit: (("p99", DURATION, "the limit for 99 % of the records, from log timestamp to commit."), _OVER),
    m.SpikeLimit: (
        ("times", FRACTION, "the factor over the share of the previous week."),
        ("share", FRACTION, "the minimum share, 0 to 1."),
        _OVER,
    ),
    m.RecentLimit: (_OVER,),
    m.ShareLimit: (("share", FRACTION, "the share, 0 to 1."), _OVER),
    m.CheckpointLimit: (("savepoint", DURATION, "the maximum age of the newest savepoint."),),
}
"""The keys of the limits of each kind."""
_DETAILS: dict[m.AlertName, str] = {
    "no-step": "; by default for 2 minutes, or 10 triggers (`run --every`) if that is longer",
    "latency": ". It has no default: give the limit that you promise",
    "expired-share": ", so no result has them",
    "dead-letters": ": many, or any for a reason that this pipeline has not met before",
    "internal-errors": " of windrow or a library, and not because of their content",
    "backpressure": " (`run --every`)",
    "partition-idle": ", while others do",
}
"""What the reference adds to the condition of an alert (`windrow.model.ALERT_CONDITIONS`)."""


def _keys() -> Iterator[Key]:
    for name in m.ALERT_NAMES:
        default = getattr(m.DEFAULT_ALERTS, field_of(name))
        note = "off by default" if isinstance(default, m.Off) else "on by default"
        meaning = f"{m.ALERT_CONDITIONS[name]}{_DETAILS.get(name, '')}."
        yield Key(name, _limits(default), meaning, default, field=field_of(name), note=note)
    yield Key(
        "webhook",
        TEXT,
        "a URL that receives each alert as JSON, by POST. It may contain a [secret](../guides/security.md), `${NAME}`"
        " or `${file:PATH}`.",
        mask=mask_webhook,
    )
    yield Key(
        "command",
        NAMES,
        "a program and its arguments, run without a shell, with the same JSON on stdin. Arguments may contain secrets"
        " too; `$${` stands for the characters `${`.",
        default=(),
        mask=mask_arguments,
    )


class _AlertsSection(Section[m.Alerts]):
    """The `alerts` section, whose alert names have underscores in Python, and whose limits are mappings there."""

    def python(self, value: m.Alerts) -> str:
        given = [f"{name.replace('-', '_')}={limit!r}" for name, limit in self.plain(value).items()]
        return f"wr.alerts({', '.join(given)})"


ALERTS: Section[m.Alerts] = _AlertsSection("wr.alerts", m.Alerts, tuple(_keys()))
ALERTS_KEY = Key(
    "alerts",
    ALERTS,
    "the [alerts](../guides/alerts.md) that a run raises, their limits and receivers.",
    default=m.DEFAULT_ALERTS,
    note="optional",
)


def alert_words(alerts: m.Alerts) -> str:
    """Describe the limits and receivers of alerts, one clause per line; "" if all are the defaults."""
    if alerts == m.DEFAULT_ALERTS:
        return ""
    shown = ALERTS.mask(alerts)
    lines = []
    for name, limit in shown.limits.items():
        keys = (
            (key, spec, getattr(limit, "span" if key == "for" else key)) for key, spec, _ in _LIMIT_KEYS[type(limit)]
        )
        given = ", ".join(f"{key} {spec.plain(value)}" for key, spec, value in keys if value is not None)
        lines.append(f"{name}: {given}" if given else name)
    lines.append(f"off: {', '.join(name for name in m.ALERT_NAMES if name not in shown.limits) or 'none'}")
    receivers = [f"the webhook {shown.webhook}"] if shown.webhook is not None else []
    receivers += [f"the command {' '.join(shown.command)}"] if shown.command else []
    return "\n".join([*lines, f"sent to {' and '.join(['the log', *receivers])}"])
