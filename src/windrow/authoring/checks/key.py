"""Checks of the key, the number of key groups, and salt."""

from __future__ import annotations

import os
from collections.abc import Iterator

from windrow import model as m
from windrow.authoring.checks.base import ResultSpec, derived_field, is_field, is_misspelt, no_field, type_of
from windrow.declare.findings import Finding, error, warning
from windrow.expressions import Expression, WindowSpec

_NAME_IT = "an expression needs a name here, such as {domain: \"split_part(url, '/', 3)\"}"


def key_fields(spec: ResultSpec) -> Iterator[Finding]:
    """The key has decoded or derived fields, each once, no doubles; processes and rules need a key."""
    if not spec.key and isinstance(spec.node, m.ProcessNode):
        yield error("key", "is empty, but a process keeps its state by key; name its fields, such as [user_id]")
    if not spec.key and isinstance(spec.node, m.RulesNode):
        yield error("key", "is empty, but rules see the records of a key; name its fields, such as [card]")
    for index, name in enumerate(spec.key):
        where = f"key.{index}"
        type_ = type_of(spec, name)
        if not is_field(spec, name):
            word = is_misspelt(spec, name)
            yield error(where, no_field(spec, name) if word else f"{name!r} is not a field; {_NAME_IT}")
        if isinstance(type_, m.DoubleType):
            yield error(
                where, f"{name!r} is a double, and equal doubles can differ in text; use a decimal, long or string"
            )
        if any(field.name == name and field.optional for field in spec.decode.fields):
            yield error(where, f"{name!r} is optional, but a key must not be null; derive a key: coalesce({name}, ...)")
        if name in spec.key[:index]:
            yield error(where, f"{name!r} is given twice in the key; keep one of them")


def watermark_key(spec: ResultSpec) -> Iterator[Finding]:
    """The field of a punctuated watermark is not in the key."""
    mark = spec.time.watermark
    if isinstance(mark, m.Punctuated) and mark.field in spec.key:
        yield error("key", f"{mark.field!r} holds the watermark, which records may lack; remove it from the key")


def no_key(spec: WindowSpec, *, is_read: bool) -> Iterator[Finding]:
    """Without a key, one task processes all records; salt spreads the work."""
    if spec.key or spec.key_groups == 1 or spec.node.salt > 1:
        return
    message = "is empty, so all records are in one key group, and one core computes their results"
    can_be_salted = not isinstance(spec.node.window, m.Session | m.Global) and spec.node.emit.early is None
    if can_be_salted and not is_read:
        message += f"; if there are many, pre-aggregate them with salt: {min(4, spec.key_groups)}"
    yield warning("key", message)


def null_keys(spec: ResultSpec, sink: m.Sink) -> Iterator[Finding]:
    """A record whose derived key is null is a dead letter."""
    for index, name in enumerate(spec.key):
        for derived in spec.derive:
            made = derived_field(spec, derived) if derived.name == name else None
            if isinstance(made, Expression) and made.nullable:
                message = (
                    f"{name!r} can be null, and such a record goes to {sink.companion('dead')}; "
                    f"to keep it, derive another value: coalesce({derived.sql}, ...)"
                )
                yield warning(f"key.{index}", message)


_MOST_KEY_GROUPS = 32_768


def key_groups(graph: m.Graph) -> Iterator[Finding]:
    """The number of key groups is valid, and does not limit parallelism below the number of cores."""
    groups, cores = graph.key_groups, os.cpu_count() or 1
    if not 1 <= groups <= _MOST_KEY_GROUPS:
        yield error("key_groups", f"must be 1 to {_MOST_KEY_GROUPS}, not {groups}")
    elif groups < cores:
        message = f"{groups} key groups use at most {groups} of this machine's {cores} cores; give at least {cores}"
        yield warning("key_groups", message)


def salt(spec: WindowSpec) -> Iterator[Finding]:
    """Salted windows are merged per window, so they have no sessions and no early panes."""
    if not 1 <= spec.node.salt <= max(spec.key_groups, 1):
        yield error("salt", f"must be 1 to key_groups ({spec.key_groups}), not {spec.node.salt}")
    if spec.node.salt <= 1:
        return
    if isinstance(spec.node.window, m.Session | m.Global):
        kind = "sessions" if isinstance(spec.node.window, m.Session) else "a global window"
        yield error("salt", f"is for tumbling, hopping, cumulate and calendar windows, not for {kind}; remove it")
    if spec.node.emit.early is not None:
        message = (
            "spreads a key's records over several key groups, but early panes need them in one; remove one of the two"
        )
        yield error("salt", message)
