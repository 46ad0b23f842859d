"""Checks of names, fields and keys: the pipeline's name, decoded and derived fields, result columns, and key groups."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from windrow import model as m
from windrow.authoring.checks.base import (
    ResultSpec,
    derived_field,
    is_field,
    is_misspelt,
    name_problems,
    no_field,
    result_names,
    type_of,
)
from windrow.declare.findings import Finding, error, is_name, warning
from windrow.errors import PipelineError
from windrow.expressions import Decoded, Expression, WindowSpec, constant_failure

_PIPELINE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def pipeline_name(graph: m.Graph) -> Iterator[Finding]:
    """Check the pipeline's name, which identifies its rows and its checkpoint."""
    if not _PIPELINE_NAME.fullmatch(graph.name):
        yield error(
            "name", f"{graph.name!r} must be 1 to 100 letters, digits, '.', '_' or '-', a letter or digit first"
        )


def decode_fields(node: m.SourceNode) -> Iterator[Finding]:
    """Check that there are fields with valid names that differ by more than case, and that times are not optional."""
    if not node.decode.fields:
        yield error("decode", "is empty; list the fields that a record must have, with their types")
    seen: dict[str, str] = {}
    for field in node.decode.fields:
        where = f"decode.{field.name}"
        yield from (error(where, problem) for problem in name_problems(field.name))
        other = seen.setdefault(field.name.lower(), field.name)
        if other is not field.name:
            yield error(
                where, f"{field.name!r} and {other!r} are the same column in SQL, which ignores case; keep one of them"
            )
        if field.optional and field.name in {node.time.field, node.time.sent}:
            yield error(
                where, f"a record without {field.name!r} would have no event time, so the field cannot be optional"
            )
    for field in node.decode.fields:
        for index, name in enumerate(field.alias):
            other = seen.setdefault(name.lower(), name)
            if other is not name:
                yield error(
                    f"decode.{field.name}.alias.{index}",
                    f"{name!r} is the name of two fields (or differs from {other!r} only in case); keep one of them",
                )


def tombstones(node: m.SourceNode) -> Iterator[Finding]:
    """Check the fields that hold the key of a tombstone, and that all other fields can be null."""
    keys = [field for field in node.decode.fields if field.tombstones]
    key_format = node.source.key_format if isinstance(node.source, m.KafkaSource) else None
    for field in keys:
        where = f"decode.{field.name}.tombstones"
        if field is not keys[0] and key_format in {"text", "binary"}:
            message = f"{keys[0].name!r} already holds the key of a tombstone, a single value ({key_format})"
            yield error(where, f"{message}; keep one of them")
        if isinstance(field.type, m.ArrayType):
            yield error(where, f"{field.name!r} is an {field.type}, but the columns of a key are single values")
        if field.name in {node.time.field, node.time.sent}:
            yield error(where, f"{field.name!r} of a tombstone is its log timestamp, not a part of its key")
    format_ = node.source.format
    has_schema = isinstance(format_, m.SchemaFormat) and not isinstance(format_.schema, m.Registry)
    if keys and key_format is None and has_schema:
        message = (
            "need the format of the keys, as the schema in `format` is that of the values: write key_format: text for "
            "the source, or the schema of the keys"
        )
        yield error(f"decode.{keys[0].name}.tombstones", message)
    if node.source.format == "debezium" and key_format is not None:
        yield error("source.kafka.key_format", "does not apply to `format: debezium`, whose keys are JSON; remove it")
    # times are the log timestamp, and records may lack the field of a punctuated watermark
    mark = node.time.watermark.field if isinstance(node.time.watermark, m.Punctuated) else None
    outside = {field.name for field in node.decode.fields if field.paths[0][0] in node.source.outside}
    filled = {node.time.field, node.time.sent, mark, *outside}
    # any column of a deleted row can be null in Debezium
    given = [field for field in node.decode.fields if node.source.format != "debezium" or field.path]
    for field in given:
        if keys and not field.tombstones and not field.optional and field.name not in filled:
            message = (
                f"a tombstone has only its key ({', '.join(repr(key.name) for key in keys)}) and its log timestamp; "
                f"make {field.name!r} optional: "
                f'"{field.type}?"'
            )
            yield error(f"decode.{field.name}", message)


def outside_fields(node: m.SourceNode) -> Iterator[Finding]:
    """Check the types of the fields that a record has outside its value, which changes of rows cannot have."""
    numbers = m.LongType | m.DoubleType | m.DecimalType
    for field, path in ((given, path) for given in node.decode.fields for path in given.paths):
        name = path[0]
        if name not in node.source.outside:
            continue
        if node.source.format == "debezium":
            yield error(f"decode.{field.name}", f"a change of a row (`format: debezium`) has no {name!r}; remove it")
        elif name in {m.PARTITION, m.OFFSET} and not isinstance(field.type, numbers):
            yield error(f"decode.{field.name}", f"is a {field.type}, but {name!r} is a number; use long")
        elif name == m.HEADERS:
            yield from _headers(field, path)
        elif name == m.LOG_TIME and not isinstance(field.type, m.TimestampType | m.LongType):
            yield error(f"decode.{field.name}", f"is a {field.type}, but {name!r} is a time; use timestamp_millis")


def _headers(field: m.Field, path: Sequence[str]) -> Iterator[Finding]:
    """Check a field with a path that leads to the headers of records."""
    _, *names = path
    if not names and not isinstance(field.type, m.StringType):
        message = f"is a {field.type}, but {m.HEADERS!r} is a JSON object; use string, or path: {m.HEADERS}.NAME"
        yield error(f"decode.{field.name}", message)
    elif len(names) > 1:
        whole = ".".join(names).strip("'\"").replace("'", "''")
        message = (
            f"leads into the header {names[0]!r}, but a header is text; decode {m.HEADERS} as a string, and derive "
            f"{m.HEADERS}->>'{whole}'"
        )
        yield error(f"decode.{field.name}.path", message)


def changes_of_rows(node: m.SourceNode) -> Iterator[Finding]:
    """Check that a Debezium source sets neither `punctuated` nor `sent`.

    Row changes carry neither watermarks nor sending times.
    """
    if node.source.format != "debezium":
        return
    parts = {"punctuated": isinstance(node.time.watermark, m.Punctuated), "sent": node.time.sent}
    for part, given in parts.items():
        if given:
            yield error(f"time.{part}", "does not apply to changes of rows (`format: debezium`); remove it")


def short_fields(node: m.SourceNode) -> Iterator[Finding]:
    """Check fields that need a graph: a short form has no `table` for row changes and no `flat_map` for arrays."""
    if node.source.format == "debezium" and not any(field.path == ("op",) for field in node.decode.fields):
        yield warning("decode", EVERY_CHANGE)
    for field in node.decode.fields:
        if isinstance(field.type, m.ArrayType):
            message = "an array needs a flat_map, which only a file with sources and streams can have"
            yield error(f"decode.{field.name}", message)


EVERY_CHANGE: Final = (
    "every change of a row is a record here, including updates and deletions. For the rows themselves, make a `table` "
    "of the source; to distinguish changes, decode their operation, op: {type: string, path: op}, which is c, u, r or "
    "d"
)


def _array(where: str, type_: m.ArrayType) -> Iterator[Finding]:
    """Check the names of the fields of structs in an array."""
    if not isinstance(type_.element, m.StructType):
        return
    seen: set[str] = set()
    for field in type_.element.fields:
        yield from (error(where, problem) for problem in name_problems(field.name))
        if field.name.lower() in seen:
            yield error(where, f"there are two fields {field.name!r} in {type_.element} (SQL ignores case)")
        seen.add(field.name.lower())
        if isinstance(field.type, m.ArrayType):
            yield from _array(where, field.type)


def nested_fields(node: m.SourceNode) -> Iterator[Finding]:
    """Check the names of struct fields in arrays, and the paths of nested fields."""
    for field in node.decode.fields:
        where = f"decode.{field.name}"
        if isinstance(field.type, m.ArrayType):
            yield from _array(where, field.type)
        if not all(field.path):
            yield error(f"{where}.path", "must be names separated by dots, such as customer.id")


def derived_fields(records: Decoded, own: Collection[m.Derive] | None = None) -> Iterator[Finding]:
    """Check that derived fields have unique names, and that their expressions use only decoded fields.

    If `own` is given, only these expressions are checked, because the source derives the other fields.
    """
    seen = {field.name.lower(): field.name for field in records.decode.fields}
    for derived in records.derive:
        where = f"derive.{derived.name}"
        yield from (error(where, problem) for problem in name_problems(derived.name))
        other = seen.get(derived.name.lower())
        if other is not None:
            yield error(where, f"a field {other!r} already exists (SQL ignores case); choose a different name")
        seen[derived.name.lower()] = derived.name
        if own is not None and derived not in own:
            continue
        made = derived_field(records, derived)
        if isinstance(made, PipelineError):
            words = set(re.findall(r"\w+", derived.sql))
            others = (field.name for field in records.derive if field is not derived and field.name in words)
            hint = next(
                (f"; a derived field can use only decoded fields, and {name!r} is derived" for name in others), ""
            )
            yield error(where, f"{made.message}{hint}")
            continue
        failure = constant_failure(made, records.decode.fields)
        if failure is not None:
            message = (
                f"{derived.sql!r} fails for all values of its fields, so all records become dead letters: {failure}"
            )
            yield warning(where, message)


RESERVED = (*m.WINDOW_BOUNDS, "pane", "revision", "op", "epoch", "seq")
"""The columns that every result table and changelog has."""

_LONGEST_COLUMN = 63


def result_columns(spec: ResultSpec) -> Iterator[Finding]:
    """Check that key and result names are valid as columns in a database, and differ by more than case."""
    seen: dict[str, str] = {}
    keys = [(f"key.{index}", name) for index, name in enumerate(dict.fromkeys(spec.key))]
    for where, name in keys + result_names(spec):
        if not is_name(name) or len(name.encode(errors="replace")) > _LONGEST_COLUMN:
            yield error(
                where, f"{name!r} is not a valid name for a column; use at most {_LONGEST_COLUMN} printable characters"
            )
        if name.startswith("__"):
            yield error(
                where, f"{name!r} begins with two underscores, which windrow reserves for its own columns; rename it"
            )
        folded = name.lower()
        if folded in RESERVED:
            yield error(where, f"{name!r} is a column that every result has ({', '.join(RESERVED)}); use another name")
        elif folded in seen:
            yield error(
                where, f"{name!r} and {seen[folded]!r} are the same column in SQL, which ignores case; rename one"
            )
        seen[folded] = name


_NAME_IT = "an expression needs a name here, such as {domain: \"split_part(url, '/', 3)\"}"


def key_fields(spec: ResultSpec) -> Iterator[Finding]:
    """Check that the key lists existing fields once each, without doubles. A process or rules require a key."""
    if not spec.key and isinstance(spec.node, m.ProcessNode):
        yield error(
            "key", "is empty, but a process keeps its state by key; list the fields of the key, such as [user_id]"
        )
    if not spec.key and isinstance(spec.node, m.RulesNode):
        yield error("key", "is empty, but rules see the records of one key; list the fields of the key, such as [card]")
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
    """Check that the field of a punctuated watermark is not in the key."""
    mark = spec.time.watermark
    if isinstance(mark, m.Punctuated) and mark.field in spec.key:
        yield error("key", f"{mark.field!r} holds the watermark, which records may lack; remove it from the key")


def no_key(spec: WindowSpec, *, is_read: bool) -> Iterator[Finding]:
    """Warn if there is no key: a single task then processes all records, unless `salt` spreads the work."""
    if spec.key or spec.key_groups == 1 or spec.node.salt > 1:
        return
    message = "is empty, so all records are in one key group, and one core computes their results"
    can_be_salted = not isinstance(spec.node.window, m.Session | m.Global) and spec.node.emit.early is None
    if can_be_salted and not is_read:
        message += f"; if there are many, pre-aggregate them with salt: {min(4, spec.key_groups)}"
    yield warning("key", message)


def null_keys(spec: ResultSpec, sink: m.Sink) -> Iterator[Finding]:
    """Warn if a derived key can be null, because such a record becomes a dead letter."""
    for index, name in enumerate(spec.key):
        for derived in spec.derive:
            made = derived_field(spec, derived) if derived.name == name else None
            if isinstance(made, Expression) and made.nullable:
                message = (
                    f"{name!r} can be null, and a record with a null key goes to {sink.companion('dead')}; "
                    f"to keep it, derive another value: coalesce({derived.sql}, ...)"
                )
                yield warning(f"key.{index}", message)


_MOST_KEY_GROUPS = 32_768


def key_groups(graph: m.Graph) -> Iterator[Finding]:
    """Check the number of key groups; warn if it is smaller than the number of cores."""
    groups, cores = graph.key_groups, os.cpu_count() or 1
    if not 1 <= groups <= _MOST_KEY_GROUPS:
        yield error("key_groups", f"must be 1 to {_MOST_KEY_GROUPS}, not {groups}")
    elif groups < cores:
        message = f"{groups} key groups use at most {groups} of this machine's {cores} cores; use at least {cores}"
        yield warning("key_groups", message)


def salt(spec: WindowSpec) -> Iterator[Finding]:
    """Check the number of key groups per key, and that salted windows have neither sessions nor early panes.

    Salted records are merged only once per window.
    """
    if not 1 <= spec.node.salt <= max(spec.key_groups, 1):
        yield error("salt", f"must be 1 to key_groups ({spec.key_groups}), not {spec.node.salt}")
    if spec.node.salt <= 1:
        return
    if isinstance(spec.node.window, m.Session | m.Global):
        kind = "sessions" if isinstance(spec.node.window, m.Session) else "a global window"
        yield error("salt", f"applies to tumbling, hopping, cumulate and calendar windows, not to {kind}; remove it")
    if spec.node.emit.early is not None:
        message = (
            "spreads a key's records over several key groups, but early panes need them in one; remove one of the two"
        )
        yield error("salt", message)
