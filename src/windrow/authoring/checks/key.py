"""Checks of the key, the number of key groups, and salt."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from windrow.authoring.checks.base import derived_field, is_field, is_misspelt, no_field, type_of
from windrow.declare.findings import Finding, error, warning
from windrow.expressions import Expression
from windrow.model import AnyPipeline, DoubleType, Global, Pipeline, ProcessPipeline, RulesPipeline, Session

_NAME_IT = "an expression needs a name here, such as {domain: \"split_part(url, '/', 3)\"}"


def key_fields(pipeline: AnyPipeline) -> Iterator[Finding]:
    """The key is of decoded fields, each once, and none a double; a process needs one."""
    if not pipeline.key and isinstance(pipeline, ProcessPipeline):
        yield error("key", "is empty, and a process keeps its state by key; name its fields, such as [user_id]")
    if not pipeline.key and isinstance(pipeline, RulesPipeline):
        yield error("key", "is empty, and rules see the records of a key; name its fields, such as [card]")
    for index, name in enumerate(pipeline.key):
        where = f"key.{index}"
        type_ = type_of(pipeline, name)
        if not is_field(pipeline, name):
            word = is_misspelt(pipeline, name)
            yield error(where, no_field(pipeline, name) if word else f"{name!r} is not a field; {_NAME_IT}")
        if isinstance(type_, DoubleType):
            yield error(
                where, f"{name!r} is a double, and equal doubles can differ in text; use a decimal, long or string"
            )
        if any(field.name == name and field.optional for field in pipeline.decode.fields):
            yield error(
                where,
                f"{name!r} is optional, and a key must not be null; derive a key: coalesce({name}, ...)",
            )
        if name in pipeline.key[:index]:
            yield error(where, f"{name!r} is given twice in the key; keep one of them")


ALL_MEET: Final = "is empty, so all records meet in one key group, and one core computes their results"


def no_key(pipeline: Pipeline) -> Iterator[Finding]:
    """Without a key all records meet in one task, which salt relieves."""
    if pipeline.key or pipeline.key_groups == 1 or pipeline.salt > 1:
        return
    spread = f"; if they are many, spread them before, with salt: {min(4, pipeline.key_groups)}"
    yield warning("key", ALL_MEET + (spread if _can_be_salted(pipeline) else ""))


def null_keys(pipeline: AnyPipeline) -> Iterator[Finding]:
    """A record whose derived key is null belongs to no key."""
    for index, name in enumerate(pipeline.key):
        for derived in pipeline.derive:
            made = derived_field(pipeline, derived) if derived.name == name else None
            if isinstance(made, Expression) and made.nullable:
                message = (
                    f"{name!r} can be null, and a record for which it is goes to {pipeline.sink.companion('dead')}; "
                    f"if it should not, give it another value there: coalesce({derived.sql}, ...)"
                )
                yield warning(f"key.{index}", message)


_MOST_KEY_GROUPS = 32_768


def key_groups(pipeline: AnyPipeline) -> Iterator[Finding]:
    """Key groups are the upper bound of parallelism, for the pipeline's life."""
    groups, cores = pipeline.key_groups, os.cpu_count() or 1
    if not 1 <= groups <= _MOST_KEY_GROUPS:
        yield error("key_groups", f"must be 1 to {_MOST_KEY_GROUPS}, not {groups}")
    elif groups < cores:
        message = f"{groups} key groups use at most {groups} of this machine's {cores} cores; give at least {cores}"
        yield warning("key_groups", message)


def _can_be_salted(pipeline: Pipeline) -> bool:
    """Whether the windows of a pipeline can be made of the parts of several key groups."""
    return not isinstance(pipeline.window, Session | Global) and pipeline.emit.early is None


def salt(pipeline: Pipeline) -> Iterator[Finding]:
    """A key's parts come together window by window, and nothing looks at them before."""
    if not 1 <= pipeline.salt <= max(pipeline.key_groups, 1):
        yield error("salt", f"must be 1 to key_groups ({pipeline.key_groups}), not {pipeline.salt}")
    if pipeline.salt <= 1:
        return
    if isinstance(pipeline.window, Session | Global):
        kind = "sessions" if isinstance(pipeline.window, Session) else "a global window"
        yield error("salt", f"is for tumbling, hopping, cumulate and calendar windows, not for {kind}; leave it out")
    if pipeline.emit.early is not None:
        yield error(
            "salt",
            "spreads a key's records over several key groups, but early panes need them in one; leave one out",
        )
