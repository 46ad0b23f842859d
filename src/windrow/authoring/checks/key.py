"""Checks of the key, the number of key groups, and salt."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from windrow import model as m
from windrow.authoring.checks.base import ResultSpec, derived_field, is_field, is_misspelt, no_field, type_of
from windrow.declare.findings import Finding, error, warning
from windrow.expressions import Expression, WindowSpec

_NAME_IT = "an expression needs a name here, such as {domain: \"split_part(url, '/', 3)\"}"


def key_fields(spec: ResultSpec) -> Iterator[Finding]:
    """The key is of decoded fields, each once, and none a double; a process needs one."""
    if not spec.key and isinstance(spec.node, m.ProcessNode):
        yield error("key", "is empty, and a process keeps its state by key; name its fields, such as [user_id]")
    if not spec.key and isinstance(spec.node, m.RulesNode):
        yield error("key", "is empty, and rules see the records of a key; name its fields, such as [card]")
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
            yield error(
                where,
                f"{name!r} is optional, and a key must not be null; derive a key: coalesce({name}, ...)",
            )
        if name in spec.key[:index]:
            yield error(where, f"{name!r} is given twice in the key; keep one of them")


def watermark_key(spec: ResultSpec) -> Iterator[Finding]:
    """The field of a punctuated watermark is no key."""
    mark = spec.time.watermark
    if isinstance(mark, m.Punctuated) and mark.field in spec.key:
        yield error("key", f"{mark.field!r} holds the watermark, and records may lack it; leave it out of the key")


_ALL_MEET: Final = "is empty, so all records meet in one key group, and one core computes their results"


def no_key(spec: WindowSpec, *, is_read: bool) -> Iterator[Finding]:
    """Without a key all records meet in one task, which salt relieves."""
    if spec.key or spec.key_groups == 1 or spec.node.salt > 1:
        return
    spread = f"; if they are many, spread them before, with salt: {min(4, spec.key_groups)}"
    yield warning("key", _ALL_MEET + (spread if _can_be_salted(spec) and not is_read else ""))


def null_keys(spec: ResultSpec, sink: m.Sink) -> Iterator[Finding]:
    """A record whose derived key is null belongs to no key."""
    for index, name in enumerate(spec.key):
        for derived in spec.derive:
            made = derived_field(spec, derived) if derived.name == name else None
            if isinstance(made, Expression) and made.nullable:
                message = (
                    f"{name!r} can be null, and a record for which it is goes to {sink.companion('dead')}; "
                    f"if it should not, give it another value there: coalesce({derived.sql}, ...)"
                )
                yield warning(f"key.{index}", message)


_MOST_KEY_GROUPS = 32_768


def key_groups(graph: m.Graph) -> Iterator[Finding]:
    """Key groups are the upper bound of parallelism, for the pipeline's life."""
    groups, cores = graph.key_groups, os.cpu_count() or 1
    if not 1 <= groups <= _MOST_KEY_GROUPS:
        yield error("key_groups", f"must be 1 to {_MOST_KEY_GROUPS}, not {groups}")
    elif groups < cores:
        message = f"{groups} key groups use at most {groups} of this machine's {cores} cores; give at least {cores}"
        yield warning("key_groups", message)


def _can_be_salted(spec: WindowSpec) -> bool:
    """Whether the windows of a pipeline can be made of the parts of several key groups."""
    return not isinstance(spec.node.window, m.Session | m.Global) and spec.node.emit.early is None


def salt(spec: WindowSpec) -> Iterator[Finding]:
    """A key's parts come together window by window, and nothing looks at them before."""
    if not 1 <= spec.node.salt <= max(spec.key_groups, 1):
        yield error("salt", f"must be 1 to key_groups ({spec.key_groups}), not {spec.node.salt}")
    if spec.node.salt <= 1:
        return
    if isinstance(spec.node.window, m.Session | m.Global):
        kind = "sessions" if isinstance(spec.node.window, m.Session) else "a global window"
        yield error("salt", f"is for tumbling, hopping, cumulate and calendar windows, not for {kind}; leave it out")
    if spec.node.emit.early is not None:
        yield error(
            "salt",
            "spreads a key's records over several key groups, but early panes need them in one; leave one out",
        )
