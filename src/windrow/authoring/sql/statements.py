"""Translate the statements of a pipeline in SQL: input and output tables, views, INSERTs and settings.

The result is the document of a graph, with `sources`, `streams` and `sinks`. It is the document of a short form if the
only INSERT is a window over the only table. Options set the YAML keys with the same names.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeGuard

import yaml
from sqlglot import exp

from windrow.authoring.sections.connectors import SINK, SOURCE, own_kinds
from windrow.authoring.sql.names import Options, Stream, duration
from windrow.authoring.sql.nodes import Nodes, key_of
from windrow.authoring.sql.queries import Queries
from windrow.authoring.sql.syntax import STATEMENT, Script, Setting
from windrow.declare.yaml_node import YamlNode
from windrow.errors import PipelineError, call_all

_WINDOW_OPTIONS = ("emit", "salt", "lookup", "deduplicate")
_TYPES = {
    exp.DataType.Type.TEXT: "string",
    exp.DataType.Type.VARCHAR: "string",
    exp.DataType.Type.BOOLEAN: "boolean",
    exp.DataType.Type.BIGINT: "long",
    exp.DataType.Type.DOUBLE: "double",
    exp.DataType.Type.DECIMAL: "decimal",
    exp.DataType.Type.TIMESTAMP: "timestamp",
    exp.DataType.Type.TIMESTAMPNTZ: "timestamp",
}
_INSTANTS = {"0": "timestamp_seconds", "3": "timestamp_millis", "6": "timestamp_micros"}
_TYPE_HINT = (
    "a column is STRING, BOOLEAN, BIGINT, DOUBLE, DECIMAL(p, s), TIMESTAMP (ISO 8601 text), TIMESTAMP_LTZ(0), (3) or "
    "(6) (seconds, milliseconds or microseconds since the epoch), or an ARRAY of these or of STRUCT<name type, ...>"
)


def compose_sql(text: str, file: str) -> YamlNode:
    """Translate a pipeline in SQL to the document of a YAML file; raise PipelineError, with line and column."""
    script = Script(text, file)
    statements = script.parse()
    if not statements:
        msg = "the file is empty"
        raise PipelineError(msg, script.place(0))
    return YamlNode(_Statements(script).document(statements), file)


class _Statements:
    """Translates the statements of one script to a document."""

    def __init__(self, script: Script) -> None:
        self.script, self.nodes = script, Nodes(script)
        self.root, self.sources, self.streams, self.sinks = (self.nodes.mapping(0) for _ in range(4))
        self.queries = Queries(script, self.nodes, self.streams)
        self.outputs: dict[str, exp.Create] = {}

    def document(self, statements: list[exp.Expr]) -> yaml.MappingNode:
        tables = [statement for statement in statements if _is_table(statement)]
        call_all(partial(self._table, table) for table in tables)
        # an invalid view is unknown to later statements, so only the first error of views and INSERTs is reported
        for statement in statements:
            if not _is_table(statement):
                self._statement(statement)
        for name, create in self.outputs.items():
            msg = f"nothing is inserted into {name}: write INSERT INTO {name} SELECT ..., or remove the table"
            self.script.refuse(create.this, msg)
        return self._single() or self._graph()

    def _statement(self, statement: exp.Expr) -> None:
        match statement:
            case Setting():
                name, value = statement.args["this"], statement.args["expression"]
                at = self.script.start(name)
                value_node = self.nodes.option(value.this, self.script.start(value))
                if name.this.partition(".")[0] not in ("name", "mode", "key_groups", "alerts"):
                    msg = f"{name.this!r} is not a setting; settings are name, mode, key_groups and alerts.NAME"
                    self.script.refuse(name, msg)
                self.nodes.put(self.root, name.this.split("."), value_node, at)
            case exp.Create() if statement.args["kind"] == "VIEW":
                self._view(statement)
            case exp.Insert():
                self._insert(statement)
            case _:
                msg = "a pipeline in SQL has only SET, CREATE TABLE, CREATE VIEW and INSERT INTO ... SELECT"
                raise PipelineError(msg, self.script.place(statement.meta[STATEMENT]))

    def _table(self, create: exp.Create) -> None:
        if isinstance(create.this, exp.Schema):
            self._source(create)
            return
        name = self._name(create.this)
        if name in self.outputs:
            self.script.refuse(create.this, f"the table {name} is created twice")
        self.outputs[name] = create

    def _name(self, table: exp.Expr) -> str:
        if not isinstance(table, exp.Table):
            self.script.refuse(table, "give a name here")
        (name,) = self.script.parts(table, "this name", "this")
        if not isinstance(name, exp.Identifier):
            self.script.refuse(table, "give a name here")
        return str(name.this)

    def _options(self, create: exp.Create) -> Options:
        options: Options = {}
        properties = create.args.get("properties")
        for expression in properties.expressions if properties else ():
            if isinstance(expression, exp.TemporaryProperty):
                msg = "remove TEMPORARY: all tables and views belong to this pipeline only"
                self.script.refuse(create.this, msg)
            if not isinstance(expression, exp.Property) or not isinstance(expression.this, exp.Literal):
                self.script.refuse(expression, "options are WITH ('name' = 'value', ...)")
            value = expression.args["value"]
            if not isinstance(value, exp.Literal):
                self.script.refuse(expression, "the value of an option is text in single quotes")
            name, at = expression.this.this, self.script.start(expression.this)
            if name in options:
                self.script.refuse(expression, f"the option {name!r} is given twice")
            options[name] = (self.nodes.option(value.this, self.script.start(value)), at)
        return options

    def _connector(self, options: Options, create: exp.Create, kinds: str) -> str:
        if "connector" not in options:
            self.script.refuse(create.this, f"the table has no 'connector'; give {kinds}")
        node, at = options.pop("connector")
        if not isinstance(node, yaml.ScalarNode):
            msg = f"'connector' must be {kinds}"
            raise PipelineError(msg, self.script.place(at))
        return str(node.value)

    def _source(self, create: exp.Create) -> None:
        schema, _, _ = self.script.parts(create, "CREATE TABLE", "this", "kind", "properties")
        name, at = self._name(schema.this), self.script.start(schema.this)
        options = self._options(create)
        kind = self._connector(options, create, own_kinds(SOURCE))
        source, connector, decode = (self.nodes.mapping(at) for _ in range(3))
        self.nodes.put(source, ["source", kind], connector, at)
        self.nodes.put(source, ["decode"], decode, at)
        fields, key = self._schema(source, decode, schema.expressions)
        table = self.nodes.mapping(at)
        for option, (value, where) in options.items():
            match option.partition(".")[0]:
                case "decode":
                    self._decode(decode, option, value, where)
                case "table" if key:
                    self.nodes.put(table, option.split("."), value, where)
                case "table":
                    msg = f"{option!r} needs a table with a key: give it PRIMARY KEY (...) NOT ENFORCED"
                    raise PipelineError(msg, self.script.place(where))
                case "time" | "lateness":
                    self.nodes.put(source, option.split("."), value, where)
                case _:
                    self.nodes.put(connector, _path(option), value, where)
        if key:
            changes = f"{name}_changes"
            self.nodes.put(table, ["from"], self.nodes.text(changes, at), at)
            self.nodes.put(table, ["table", "key"], self.nodes.texts(key, at), at)
            self.nodes.put(self.streams, [name], table, at)
        self.nodes.put(self.sources, [changes if key else name], source, at)
        time = key_of(source, "time")
        field = key_of(time, "field") if isinstance(time, yaml.MappingNode) else None
        called = field.value if isinstance(field, yaml.ScalarNode) else None
        self.queries.add(Stream(name, tuple(fields), called, is_table=bool(key)), schema.this)

    def _schema(
        self, source: yaml.MappingNode, decode: yaml.MappingNode, columns: list[exp.Expr]
    ) -> tuple[list[str], list[str]]:
        """Translate the columns of a table; return their names, and the columns of the primary key."""
        decoded: list[str] = []
        key: list[str] = []
        for column in columns:
            match column:
                case exp.ColumnDef():
                    decoded.append(column.name)
                    self._column(source, decode, column)
                case exp.WatermarkColumnConstraint():
                    at = self.script.start(column)
                    self.nodes.put(source, ["time", "field"], self.nodes.text(column.this.name, at), at)
                    self._watermark(source, column, column.this.name)
                case exp.PrimaryKey():
                    key += self._primary_key(column)
                case exp.Identifier():
                    self.script.refuse(column, f"the column {column.name} has no type; {_TYPE_HINT}")
                case _:
                    msg = "an input table has only columns, WATERMARK FOR and PRIMARY KEY (...)"
                    self.script.refuse(column, msg)
        return decoded, key

    def _column(self, source: yaml.MappingNode, decode: yaml.MappingNode, column: exp.ColumnDef) -> None:
        at = self.script.start(column)
        _, kind, constraints = self.script.parts(column, "a column", "this", "kind", "constraints")
        optional = ""
        for constraint in constraints or ():
            of = constraint.args.get("kind")
            if isinstance(of, exp.NotNullColumnConstraint):
                optional = "?" if of.args.get("allow_null") else ""
            elif isinstance(of, exp.ComputedColumnConstraint) and kind is None:
                (computed,) = self.script.parts(of, "a computed column", "this")
                text = self.script.source_text(computed)
                self.nodes.put(source, ["derive", column.name], self.nodes.text(text, at), at)
                return
            else:
                self.script.refuse(column, f"only NULL or NOT NULL can follow the type of the column {column.name}")
        self.nodes.put(decode, [column.name], self.nodes.text(self._type(kind, column) + optional, at), at)

    def _type(self, kind: exp.Expr, column: exp.Expr) -> str:
        type_ = kind.this if isinstance(kind, exp.DataType) else None
        sizes = [expression.name for expression in kind.expressions if isinstance(expression, exp.DataTypeParam)]
        if type_ == exp.DataType.Type.TIMESTAMPLTZ and len(sizes) == 1 and sizes[0] in _INSTANTS:
            return _INSTANTS[sizes[0]]
        if type_ == exp.DataType.Type.DECIMAL and len(sizes) in (1, 2):
            return f"decimal({','.join([*sizes, '0'][:2])})"
        if type_ == exp.DataType.Type.ARRAY and len(kind.expressions) == 1:
            return f"array<{self._type(kind.expressions[0], column)}>"
        if type_ == exp.DataType.Type.STRUCT and kind.expressions:
            fields = []
            for field in kind.expressions:
                _, field_type = self.script.parts(field, "a field of a STRUCT", "this", "kind")
                fields.append(f"{field.name} {self._type(field_type, column)}")
            return f"struct<{', '.join(fields)}>"
        if type_ not in _TYPES or sizes or type_ == exp.DataType.Type.DECIMAL:
            msg = f"the column {column.name} has the unsupported type {kind.sql('duckdb')}; {_TYPE_HINT}"
            self.script.refuse(column, msg)
        return _TYPES[type_]

    def _watermark(self, source: yaml.MappingNode, clause: exp.WatermarkColumnConstraint, time: str) -> None:
        expression = clause.args["expression"]
        at = self.script.start(expression)
        match expression:
            case exp.Column() if expression.name == time:
                self.nodes.put(source, ["time", "delay"], self.nodes.text("0s", at), at)
            case exp.Column():
                self.nodes.put(source, ["time", "punctuated"], self.nodes.text(expression.name, at), at)
            case exp.Sub(this=exp.Column() as field, expression=exp.Interval() as delay) if field.name == time:
                text = duration(self.script, delay)
                self.nodes.put(source, ["time", "delay"], self.nodes.text(text, at), at)
            case _:
                msg = (
                    f"the watermark must be {time}, {time} - INTERVAL '10' MINUTES, or another column that carries it; "
                    "for other delays remove WATERMARK, and give 'time.field' and keys such as "
                    "'time.delay.adaptive.target' in WITH"
                )
                self.script.refuse(expression, msg)

    def _primary_key(self, key: exp.PrimaryKey) -> list[str]:
        columns, options = self.script.parts(key, "PRIMARY KEY", "expressions", "options")
        if any(str(option).upper() != "NOT ENFORCED" for option in options or ()):
            self.script.refuse(key, "a primary key must be NOT ENFORCED: a later record replaces the row")
        return [column.name for column in columns]

    def _decode(self, decode: yaml.MappingNode, option: str, value: yaml.Node, at: int) -> None:
        name, *rest = option.split(".")[1:] or [""]
        for index, (key, node) in enumerate(decode.value):
            if key.value == name and rest:
                if isinstance(node, yaml.ScalarNode):
                    made = self.nodes.mapping(at)
                    self.nodes.put(made, ["type"], node, at)
                    decode.value[index] = (key, made)
                self.nodes.put(decode.value[index][1], rest, value, at)
                return
        msg = (
            f"{option!r} does not refer to a column of the table: write 'decode.COLUMN.alias', '.path' or '.tombstones'"
        )
        raise PipelineError(msg, self.script.place(at))

    def _view(self, create: exp.Create) -> None:
        named, query, _, _ = self.script.parts(create, "CREATE VIEW", "this", "expression", "kind", "properties")
        if query is None:
            self.script.refuse(named, "a SELECT is missing after this name")
        options = self._options(create)
        name = self._name(named)
        self.queries.add(self.queries.query(query, name, options), named, name)

    def _insert(self, insert: exp.Insert) -> None:
        named, query = self.script.parts(insert, "INSERT", "this", "expression")
        if query is None:
            self.script.refuse(named, "a SELECT is missing after this name")
        name = self._name(named)
        at = self.script.start(named)
        if name not in self.outputs:
            msg = (
                f"there is no output table {name!r}, or an INSERT before this writes it: each output table has one "
                f"INSERT, and is created without columns, CREATE TABLE {name} WITH ('connector' = 'sqlite', ...)"
            )
            self.script.refuse(named, msg)
        create = self.outputs.pop(name)
        self.script.parts(create, "CREATE TABLE", "this", "kind", "properties")
        options = self._options(create)
        kind = self._connector(options, create, own_kinds(SINK))
        connector = self.nodes.mapping(self.script.start(create.this))
        of_query: Options = {}
        for option, (value, where) in options.items():
            if option.partition(".")[0] in _WINDOW_OPTIONS:
                of_query[option] = (value, where)
            else:
                self.nodes.put(connector, _path(option), value, where)
        stream = self.queries.query(query, name, of_query)
        sink = self.nodes.mapping(at)
        self.nodes.put(sink, ["from"], self.nodes.text(stream.name, at), at)
        self.nodes.put(sink, ["sink", kind], connector, at)
        self.nodes.put(self.sinks, [f"to_{name}"], sink, at)

    def _single(self) -> yaml.MappingNode | None:
        """Return the document as a short form if the only stream is a window over the only table, or None."""
        if not len(self.sources.value) == len(self.streams.value) == len(self.sinks.value) == 1:
            return None
        (key, source), (_, stream), (_, sink) = (node.value[0] for node in (self.sources, self.streams, self.sinks))
        read: Any = key_of(stream, "from")
        if key_of(stream, "window") is None or read.value != key.value or key_of(source, "lateness") is not None:
            return None
        parts = [pair for node in (source, stream, sink) for pair in node.value if pair[0].value != "from"]
        self.root.value += parts
        return self.root

    def _graph(self) -> yaml.MappingNode:
        for name, node in (("sources", self.sources), ("streams", self.streams), ("sinks", self.sinks)):
            self.nodes.put(self.root, [name], node, 0)
        return self.root


def _is_table(statement: exp.Expr) -> TypeGuard[exp.Create]:
    return isinstance(statement, exp.Create) and statement.args["kind"] == "TABLE"


def _path(option: str) -> list[str]:
    """Split an option of a connector into a path of keys; the names of the client's own options may contain dots."""
    return option.split(".", 1) if option.startswith("options.") else option.split(".")
