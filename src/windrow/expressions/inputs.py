"""Inputs of a pipeline's operators: derived fields, and the columns that aggregates read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final, Generic, TypeGuard, TypeVar

from windrow import model as m
from windrow.errors import PipelineError
from windrow.expressions.analyse import Expression, analyse
from windrow.expressions.engine import quote
from windrow.expressions.syntax import is_column

N_co = TypeVar("N_co", bound=m.KeyedNode | m.SinkNode, covariant=True)


@dataclass(frozen=True)
class OperatorSpec(Generic[N_co]):
    """The specification of an operator: its node, and the records that the node reads.

    The records have the fields of `decode`, and the node adds the fields of `derive` (which include those of the source
    if the node reads a source). The format of `source` is JSON if the records have already been decoded. Records are
    partitioned into `key_groups` by the fields of `partition_key`, which are those of `key` or, if `readers_key` is not
    empty, those of the key of the nodes that read the node's stream. A record has expired if it is `lateness`
    microseconds or more behind the watermark. If `has_id` is true, several records can have the same place in a log. If
    a sink's table has a key for its rows, it is `row_key`.
    """

    pipeline: str
    node: N_co
    source: m.Source
    decode: m.Decode
    derive: tuple[m.Derive, ...]
    time: m.EventTime
    key: tuple[str, ...]
    key_groups: int
    lateness: int = 0
    has_id: bool = False
    row_key: tuple[str, ...] = ()
    readers_key: tuple[str, ...] = ()

    @property
    def partition_key(self) -> tuple[str, ...]:
        """The fields that determine the key group of a record."""
        return self.readers_key or self.key

    @property
    def is_partitioned_by_ids(self) -> bool:
        """Whether most keys are expected to occur once, unlike those of results."""
        return not (self.readers_key or isinstance(self.node, m.ResultNode))


AnySpec = OperatorSpec[m.KeyedNode | m.SinkNode]
WindowSpec = OperatorSpec[m.WindowNode]
ProcessSpec = OperatorSpec[m.ProcessNode]
RulesSpec = OperatorSpec[m.RulesNode]
Decoded = m.SourceNode | AnySpec
"""A specification of records: their source, decoded and derived fields, event time and key, which may be empty."""


def is_window_spec(spec: object) -> TypeGuard[WindowSpec]:
    """Return True if the node of a spec aggregates records in windows."""
    return isinstance(spec, OperatorSpec) and isinstance(spec.node, m.WindowNode)


@dataclass(frozen=True)
class Computed:
    """A column computed by an expression, called `label` in errors; it must not be null if it is a `key`.

    If `most` is given, a record becomes a dead letter if the value is null, less than 1 or greater than `most`.
    """

    name: str
    label: str
    expression: Expression
    key: bool = False
    most: int | None = None


@dataclass(frozen=True)
class Argument:
    """A column that an aggregate reads; records in which it is null (or false, for a condition) do not count."""

    column: str
    type: m.DataType
    nullable: bool


def derived(pipeline: Decoded) -> tuple[Computed, ...]:
    """Return the derived fields; raise PipelineError for an invalid expression.

    The other functions of this module that analyse expressions raise it, too.
    """
    absent = _absent(pipeline)
    return tuple(
        Computed(
            derive.name, derive.name, analyse(derive.sql, pipeline.decode.fields, absent), derive.name in pipeline.key
        )
        for derive in pipeline.derive
    )


def record_fields(pipeline: Decoded) -> tuple[m.Field, ...]:
    """Return the fields of a record, first the decoded ones and then the derived ones."""
    return (*pipeline.decode.fields, *(m.Field(column.name, column.expression.type) for column in derived(pipeline)))


def key_of(spec: AnySpec) -> tuple[m.Field, ...]:
    """Return the fields of the key, in order."""
    fields = {field.name: field for field in record_fields(spec)}
    return tuple(fields[name] for name in spec.key)


def nullable_fields(pipeline: Decoded) -> frozenset[str]:
    """Return the names of the fields that can be null."""
    optional = {column.name for column in derived(pipeline) if column.expression.nullable and not column.key}
    return _absent(pipeline) | optional


def computed(pipeline: Decoded) -> tuple[Computed, ...]:
    """Return all computed columns, each after the columns from which it is computed."""
    if not is_window_spec(pipeline):
        return derived(pipeline)
    return (*derived(pipeline), *computed_arguments(pipeline), *own_gap(pipeline))


GAP: Final = "__gap"
"""The column with a record's own gap, in microseconds."""


def own_gap(spec: WindowSpec) -> tuple[Computed, ...]:
    """Return the column with each record's own session gap, if there is one, or no column.

    A gap must be greater than 0 and at most the gap of the window.
    """
    window = spec.node.window
    if not isinstance(window, m.Session) or window.by is None:
        return ()
    given = analyse(window.by, record_fields(spec), nullable_fields(spec))
    if not isinstance(given.type, m.LongType | m.DoubleType | m.DecimalType):
        msg = f"{window.by!r} is a {given.type}, but a gap must be a number of seconds, such as minutes * 60"
        raise PipelineError(msg)
    seconds = f"({given.sql})"
    most = f"{window.gap // _SECOND}.{window.gap % _SECOND:06d}"
    sql = f"""CASE
        WHEN {seconds} > {most} THEN {window.gap + 1}
        WHEN {seconds} < 0 THEN 0
        ELSE CAST(round({seconds} * {_SECOND}) AS BIGINT)
    END"""
    micros = replace(given, sql=sql, type=m.LongType(), nullable=True)
    return (Computed(GAP, "window.session.gap", micros, most=window.gap),)


_SECOND: Final = 1_000_000


def computed_arguments(spec: WindowSpec) -> tuple[Computed, ...]:
    """Return the columns, computed over `record_fields`, that only aggregates read."""
    fields, nullable = record_fields(spec), nullable_fields(spec)
    names = {field.name for field in fields}
    columns: dict[str, Computed] = {}
    for aggregate in spec.node.aggregates:
        if aggregate.where is not None and analyse(aggregate.where, fields, nullable).type != m.BooleanType():
            msg = f"{aggregate.where!r} is not a condition; write one that is true or false, such as kind = 'buy'"
            raise PipelineError(msg)
        given = [
            analyse(_quote_field(text, names), fields, nullable).type for text in aggregate_inputs(aggregate.function)
        ]
        for text, type_ in zip_longest(_texts(aggregate, names), given):
            if text not in names and text not in columns:
                expression = analyse(text, fields, nullable, otherwise=type_)
                columns[text] = Computed(f"__e{len(columns)}", aggregate.name, expression)
    return tuple(columns.values())


def arguments(spec: WindowSpec) -> tuple[tuple[Argument, ...], ...]:
    """Return the arguments of each aggregate; the argument of a count is its condition, if it has one."""
    fields, nullable = record_fields(spec), nullable_fields(spec)
    known = {field.name: Argument(field.name, field.type, field.name in nullable) for field in fields}
    names = set(known)
    for column in computed_arguments(spec):
        expression = column.expression
        known[expression.text] = Argument(column.name, expression.type, expression.nullable)
    return tuple(tuple(known[text] for text in _texts(aggregate, names)) for aggregate in spec.node.aggregates)


def _texts(aggregate: m.Aggregate, names: Iterable[str]) -> tuple[str, ...]:
    """Return an aggregate's arguments as expressions that are null where its condition is not true.

    Without a condition, a field is returned as its plain name.
    """
    if isinstance(aggregate.function, m.Count):
        if aggregate.where is None:
            return ()
        # a field with the name of a value, such as true, needs double quotes in a condition
        is_value = aggregate.where in names and not is_column(aggregate.where, frozenset(names))
        return (f"({aggregate.where})" if is_value else aggregate.where,)
    of = aggregate_inputs(aggregate.function)
    if aggregate.where is None:
        return of
    # an argument is computed only where the condition is true, so it cannot fail elsewhere
    return tuple(f"CASE WHEN ({aggregate.where}\n) THEN ({_quote_field(text, names)}\n) END" for text in of)


def aggregate_inputs(function: m.Function) -> tuple[str, ...]:
    """Return the fields or expressions that an aggregate reads."""
    match function:
        case m.Count() | m.Formula():
            return ()
        case m.Custom(_, of):
            return of
        case m.MaxBy(of, measure) | m.MinBy(of, measure) | m.TopKBy(of, measure) | m.BottomKBy(of, measure):
            return of, measure
        case _:
            return (function.of,)


def _quote_field(text: str, names: Iterable[str]) -> str:
    return quote(text) if text in names else text


def _absent(pipeline: Decoded) -> frozenset[str]:
    """Return the decoded fields that a record may lack.

    These are the optional fields, the punctuation, and the columns of a row change.
    """
    lacking = {field.name for field in pipeline.decode.fields if field.optional}
    if pipeline.source.format == "debezium":
        # the log may have only the key of a deleted row
        lacking.update(field.name for field in pipeline.decode.fields if not field.path)
    if isinstance(pipeline.time.watermark, m.Punctuated):
        lacking.add(pipeline.time.watermark.field)
    return frozenset(lacking - {pipeline.time.field, pipeline.time.sent, *pipeline.key})
