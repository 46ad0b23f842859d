"""Checks of names and fields: the pipeline's name, decoded and derived fields, and the columns of the results."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

from windrow import model as m
from windrow.authoring.checks.base import ResultSpec, derived_field, result_names
from windrow.declare.findings import Finding, error, is_name, warning
from windrow.errors import PipelineError
from windrow.expressions import Decoded, constant_failure

_PIPELINE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def pipeline_name(graph: m.Graph) -> Iterator[Finding]:
    """The name marks the pipeline's rows and checkpoint, so it is plain."""
    if not _PIPELINE_NAME.fullmatch(graph.name):
        yield error(
            "name", f"{graph.name!r} must be 1 to 100 letters, digits, '.', '_' or '-', a letter or digit first"
        )


def decode_fields(node: m.SourceNode) -> Iterator[Finding]:
    """There are fields, with printable names of their own that differ by more than case; times are always there."""
    if not node.decode.fields:
        yield error("decode", "is empty; name the fields that a record must have, with their types")
    seen: dict[str, str] = {}
    for field in node.decode.fields:
        where = f"decode.{field.name}"
        if not is_name(field.name):
            yield error(where, f"{field.name!r} is not a valid name; it must be printable, without spaces around it")
        if field.name.startswith("__"):
            yield error(
                where,
                f"{field.name!r} begins with two underscores, which windrow reserves for its own columns; rename it",
            )
        other = seen.setdefault(field.name.lower(), field.name)
        if other is not field.name:
            yield error(
                where, f"{field.name!r} and {other!r} are the same column in SQL, which ignores case; keep one of them"
            )
        if field.optional and field.name in {node.time.field, node.time.sent}:
            yield error(where, f"a record without {field.name!r} has no event time: it cannot be optional")
    for field in node.decode.fields:
        for index, name in enumerate(field.alias):
            other = seen.setdefault(name.lower(), name)
            if other is not name:
                yield error(
                    f"decode.{field.name}.alias.{index}",
                    f"{name!r} is the name of two fields (or differs from {other!r} in case only); keep one of them",
                )


def tombstones(node: m.SourceNode) -> Iterator[Finding]:
    """The key of a tombstone is in one field, of a type that its text can be, and any other field can be null."""
    keys = [field for field in node.decode.fields if field.tombstones]
    for field in keys:
        where = f"decode.{field.name}.tombstones"
        if field is not keys[0]:
            yield error(where, f"{keys[0].name!r} holds the key of a tombstone already; keep one of them")
        if not isinstance(field.type, m.StringType | m.LongType) and node.source.format != "debezium":
            yield error(where, f"{field.name!r} is a {field.type}, and the key of a record is text; use string or long")
    # the times are the log timestamp, and records may lack a punctuation's field anyway
    mark = node.time.watermark.field if isinstance(node.time.watermark, m.Punctuated) else None
    filled = {node.time.field, node.time.sent, mark}
    # of a row that Debezium tells the deletion of, any column can be null
    given = [field for field in node.decode.fields if node.source.format != "debezium" or field.path]
    for field in given:
        if keys and not field.tombstones and not field.optional and field.name not in filled:
            message = (
                f"a tombstone has only its key ({keys[0].name!r}) and its log timestamp; make {field.name!r} optional: "
                f'"{field.type}?"'
            )
            yield error(f"decode.{field.name}", message)


def changes_of_rows(node: m.SourceNode) -> Iterator[Finding]:
    """Of Debezium's changes, those of rows count: they carry no watermarks, and no device has sent them."""
    if node.source.format != "debezium":
        return
    for part, name in (("punctuated", None), ("sent", node.time.sent)):
        if name or (part == "punctuated" and isinstance(node.time.watermark, m.Punctuated)):
            yield error(f"time.{part}", "does not apply to changes of rows (`format: debezium`); leave it out")


def short_fields(node: m.SourceNode) -> Iterator[Finding]:
    """A short form has no `table` for changes of rows, and no `flat_map` for arrays."""
    if node.source.format == "debezium" and not any(field.path == ("op",) for field in node.decode.fields):
        yield warning("decode", EVERY_CHANGE)
    for field in node.decode.fields:
        if isinstance(field.type, m.ArrayType):
            message = "an array needs a flat_map, which only a file with sources and streams can have"
            yield error(f"decode.{field.name}", message)


EVERY_CHANGE: Final = (
    "each change of a row counts here, also an update or a deletion. For the rows themselves make a `table` of the "
    "source; to tell the changes apart decode their operation, op: {type: string, path: op}, which is c, u, r or d"
)


def _array(where: str, type_: m.ArrayType) -> Iterator[Finding]:
    """The fields of a struct have names as those of a record."""
    if not isinstance(type_.element, m.StructType):
        return
    seen: set[str] = set()
    for field in type_.element.fields:
        if not is_name(field.name) or field.name.startswith("__"):
            yield error(
                where,
                f"{field.name!r} is not a valid name; it is printable, and does not begin with two underscores",
            )
        if field.name.lower() in seen:
            yield error(where, f"there are two fields {field.name!r} in {type_.element} (SQL ignores case)")
        seen.add(field.name.lower())
        if isinstance(field.type, m.ArrayType):
            yield from _array(where, field.type)


def nested_fields(node: m.SourceNode) -> Iterator[Finding]:
    """Arrays are for graphs, and paths have names."""
    for field in node.decode.fields:
        where = f"decode.{field.name}"
        if isinstance(field.type, m.ArrayType):
            yield from _array(where, field.type)
        if not all(field.path):
            yield error(f"{where}.path", "is names with a dot between them, such as customer.id")
        if field.path and field.tombstones:
            yield error(f"{where}.path", "the key of a tombstone is in no object; leave the path out")


def derived_fields(records: Decoded, own: Collection[m.Derive] | None = None) -> Iterator[Finding]:
    """Derived fields have names of their own, and expressions over the decoded fields alone.

    Only those of a node's `own` are checked, if these are given: the others are its source's.
    """
    seen = {field.name.lower(): field.name for field in records.decode.fields}
    for derived in records.derive:
        where = f"derive.{derived.name}"
        if not is_name(derived.name):
            yield error(where, f"{derived.name!r} is not a valid name; it must be printable, without spaces around it")
        if derived.name.startswith("__"):
            yield error(
                where,
                f"{derived.name!r} begins with two underscores, which windrow reserves for its own columns; rename it",
            )
        other = seen.get(derived.name.lower())
        if other is not None:
            yield error(where, f"there is a field {other!r} already (SQL ignores case); give this one another name")
        seen[derived.name.lower()] = derived.name
        if own is not None and derived not in own:
            continue
        made = derived_field(records, derived)
        if isinstance(made, PipelineError):
            yield error(where, f"{made.message}{_of_another(records, derived)}")
            continue
        failure = constant_failure(made, records.decode.fields)
        if failure is not None:
            message = f"{derived.sql!r} fails whatever the fields hold, so all records become dead letters: {failure}"
            yield warning(where, message)


def _of_another(records: Decoded, derived: m.Derive) -> str:
    """Say so if an expression has another derived field's name in it."""
    words = set(re.findall(r"\w+", derived.sql))
    others = [other.name for other in records.derive if other is not derived and other.name in words]
    return f"; a derived field can use only decoded fields, and {others[0]!r} is a derived one" if others else ""


RESERVED = ("window_start", "window_end", "pane", "revision", "op", "epoch", "seq")
"""The columns that the result table and its changelog have of themselves."""

_LONGEST_COLUMN = 63


def result_columns(spec: ResultSpec) -> Iterator[Finding]:
    """Keys and results are columns: their names fit a database, and differ by more than case."""
    seen: dict[str, str] = {}
    keys = [(f"key.{index}", name) for index, name in enumerate(dict.fromkeys(spec.key))]
    for where, name in keys + result_names(spec):
        if not is_name(name) or len(name.encode(errors="replace")) > _LONGEST_COLUMN:
            yield error(where, f"{name!r} cannot name a column; use at most {_LONGEST_COLUMN} printable characters")
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
