"""Specs declare the syntax of each section of a pipeline; the reader, printers and reference are derived from them.

A `Spec` reads values of one type from YAML (errors have file and line), and converts them to plain values with the
structure of the YAML, and to Python source in the fluent form. It also has the JSON Schema (draft 7) of its YAML, for
editors. `read` checks more than a schema can express.

The kinds of spec are `Scalar` for a text or number, `Section` for a mapping of keys, `OneOf` for a mapping whose only
key is the kind of value, `Wrapped` for a type around the value of another spec, `Each` for a list, and `Named` for a
mapping of names.
"""

from __future__ import annotations

import keyword
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import UnionType
from typing import Any, Generic, TypeVar

from windrow import model as m
from windrow.declare.python_code import code_name
from windrow.declare.yaml_node import ReadResult, YamlMapping, YamlNode, read_one_of
from windrow.errors import PipelineError

T = TypeVar("T")

Schema = dict[str, Any]
TEXT_SCHEMA: Schema = {"type": ["string", "number", "boolean"], "minLength": 1}
"""Any value except null is also a text: ``2024`` and ``true``."""


def mapping_schema(values: Schema, **more: Any) -> Schema:  # noqa: ANN401 - plain JSON
    """Return the JSON Schema of a mapping with arbitrary keys."""
    return {"type": "object", "additionalProperties": values, **more}


def list_or_one(item: Schema, single: Schema | None = None) -> Schema:
    """Return the JSON Schema for `each_item`: a list, or a single item in its place."""
    return {"anyOf": [single or item, {"type": "array", "items": item}]}


_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


def _plain_text(doc: str) -> str:
    """Remove the links from a text of the reference, because they do not work in an editor."""
    return _LINK.sub(r"\1", doc)


class Spec(ABC, Generic[T]):
    """The syntax of values of type T; `called` describes it in the reference, such as ``duration or mapping``."""

    called: str

    def form(self) -> str:
        """Return the description of the syntax for the reference."""
        return self.called

    @abstractmethod
    def read(self, node: YamlNode) -> T:
        """Read a YAML node; raise a PipelineError, with file:line, that contains all errors in it."""

    @abstractmethod
    def plain(self, value: T) -> Any:  # noqa: ANN401 - mappings, lists, texts and numbers
        """Return the value as mappings, lists, texts and numbers with the structure of the YAML."""

    @abstractmethod
    def python(self, value: T) -> str:
        """Return the Python source of the value in the fluent form."""

    @abstractmethod
    def schema(self) -> Schema:
        """Return the JSON Schema of the YAML."""

    def mask(self, value: T) -> T:
        """Return the value with its secrets replaced by ***."""
        return value

    def document(self, path: str) -> Iterator[str]:  # noqa: ARG002 - most have no keys
        """Yield the reference entries of the keys below `path`, as items of a Markdown list."""
        yield from ()


@dataclass(frozen=True)
class Scalar(Spec[T]):
    """A text or number, which is a literal in Python.

    `read_node` reads it, `to_plain` returns its plain value, and `accepts` is its JSON Schema.
    """

    called: str
    read_node: Callable[[YamlNode], T]
    to_plain: Callable[[T], Any] = lambda value: value
    accepts: Schema = field(default_factory=lambda: TEXT_SCHEMA)

    def read(self, node: YamlNode) -> T:
        return self.read_node(node)

    def plain(self, value: T) -> Any:  # noqa: ANN401 - as above
        return self.to_plain(value)

    def python(self, value: T) -> str:
        return repr(self.plain(value))

    def schema(self) -> Schema:
        accepts = dict(self.accepts)
        return accepts if self.accepts == TEXT_SCHEMA else {"anyOf": [accepts, {"$ref": "#/definitions/variable"}]}


@dataclass(frozen=True)
class Each(Spec[tuple[T, ...]]):
    """A list of values with the same spec; in Python, the values are arguments of a call."""

    called: str
    item: Spec[T]

    def read(self, node: YamlNode) -> tuple[T, ...]:
        return node.each(self.item.read)

    def plain(self, value: tuple[T, ...]) -> list[Any]:
        return [self.item.plain(part) for part in value]

    def python(self, value: tuple[T, ...]) -> str:
        return ", ".join(map(self.item.python, value))

    def schema(self) -> Schema:
        return {"type": "array", "items": self.item.schema()}

    def document(self, path: str) -> Iterator[str]:
        return self.item.document(f"{path}.N")


_DEEPEST = 42
"""The maximum depth of a node that is read by a recursive spec."""


@dataclass(frozen=True)
class Deferred(Spec[T]):
    """A spec that is looked up when it is used, which allows recursive specs. `document` does not descend into it.

    `definition` is the name of the spec in a JSON Schema.
    """

    called: str
    get: Callable[[], Spec[T]]
    definition: str

    def read(self, node: YamlNode) -> T:
        # a YAML alias can put a node below itself
        if any(node.node is above for above in node.above) or len(node.above) > _DEEPEST:
            msg = f"{node.called} is nested too deeply"
            raise node.error(msg)
        return self.get().read(node)

    def plain(self, value: T) -> Any:  # noqa: ANN401 - as above
        return self.get().plain(value)

    def python(self, value: T) -> str:
        return self.get().python(value)

    def schema(self) -> Schema:
        return {"$ref": f"#/definitions/{self.definition}"}


@dataclass(frozen=True)
class Wrapped(Spec[T]):
    """A type with a single field, written as the value of that field.

    `call` is the Python function that makes it; it is "" if Python also has the plain value.
    """

    call: str
    make: Callable[[Any], T]
    field: str
    inner: Spec[Any]

    def form(self) -> str:
        return self.inner.form()

    def read(self, node: YamlNode) -> T:
        return self.make(self.inner.read(node))

    def plain(self, value: T) -> Any:  # noqa: ANN401 - as above
        return self.inner.plain(getattr(value, self.field))

    def python(self, value: T) -> str:
        inner = self.inner.python(getattr(value, self.field))
        return f"{self.call}({inner})" if self.call else inner

    def schema(self) -> Schema:
        return self.inner.schema()

    def document(self, path: str) -> Iterator[str]:
        return self.inner.document(path)


@dataclass(frozen=True)
class Key:
    """A key of a section.

    A key has a default unless it is `required`, or required if the key `unless` is missing. A value that equals the
    default is printed only if `shown`. `field` is the name in the model if it differs from the key. In Python,
    `positional` keys come first, without their names. `hint` is appended to the error message for a missing key, and
    `mask` hides secrets.
    """

    name: str
    spec: Spec[Any]
    doc: str
    default: Any = None
    required: bool = False
    unless: str = ""
    shown: bool = False
    field: str = ""
    positional: bool = False
    hint: str = ""
    mask: Callable[[Any], Any] = lambda value: value
    note: str = ""

    @property
    def model_field(self) -> str:
        """The name of the field in the model."""
        return self.field or self.name

    def read(self, fields: YamlMapping) -> ReadResult[Any]:
        """Read the value of the key, or return its default."""
        if self.required or (self.unless and self.unless not in fields):
            return fields.required(self.name, self.spec.read, self.hint)
        return fields.optional(self.name, self.spec.read, self.default)

    def is_printed(self, value: object) -> bool:
        """Return True if the key is printed when it has this value."""
        return value is not None and (self.required or self.shown or value != self.default)

    def schema(self) -> Schema:
        """Return the JSON Schema of the value, including the key's description and default."""
        schema = self.spec.schema()
        if self.doc:
            schema["description"] = _plain_text(self.doc)
        default = None if self.default in (None, ()) else self.spec.plain(self.default)
        if self.doc and default is not None and not isinstance(default, dict):
            schema["default"] = default
        return schema

    def document(self, section: str) -> Iterator[str]:
        """Yield the reference entry of the key, and the entries of the keys below it."""
        path = f"{section}.{self.name}" if section else self.name
        if self.doc:
            yield f"- `{path}` ({self.spec.form()}, {self._need(section)}): {self.doc}"
        yield from self.spec.document(path)

    def _need(self, section: str) -> str:
        if self.note:
            return self.note
        if self.required:
            return "required"
        if self.unless:
            return f"required unless `{section}.{self.unless}` is given"
        if self.default is None or self.default == ():
            return "optional"
        return f"default `{str(self.spec.plain(self.default)).lower()}`"


def arguments(keys: Sequence[Key], parts: Mapping[str, Any]) -> str:
    """Return the Python arguments of a call; `parts` maps the names of the keys to their values."""
    given = [key for key in keys if key.is_printed(parts[key.name])]
    ordered = sorted(given, key=lambda key: not key.positional)
    texts = ((key, key.spec.python(parts[key.name])) for key in ordered)
    return ", ".join(text if key.positional else f"{key.name}={text}" for key, text in texts)


@dataclass(frozen=True)
class Section(Spec[T]):
    """A value with several keys, written as a mapping in YAML and as a function call with keyword arguments in Python.

    The function `make` builds the value from arguments with the model's field names. `parts` returns the values of keys
    that are not fields of the object (or not items, if it is a mapping). `conflict` takes the keys that are present,
    with None for an invalid value, and returns an error message if they cannot be combined. With `short`, the value of
    the first key can be written in place of the mapping.
    """

    call: str
    make: Callable[..., T]
    keys: tuple[Key, ...]
    parts: Callable[[T], Mapping[str, Any]] | None = None
    conflict: Callable[[Mapping[str, Any]], str | None] = lambda _: None
    short: bool = False
    called: str = "mapping"

    def read(self, node: YamlNode) -> T:
        if self.short and node.is_scalar:
            first, *others = self.keys
            values = {key.model_field: key.default for key in others}
            return self.make(**{first.model_field: first.spec.read(node)} | values)
        fields = YamlMapping(node, tuple(key.name for key in self.keys))
        read = [(key, key.read(fields)) for key in self.keys]
        given = {
            key.name: None if isinstance(result.result, PipelineError) else result.result
            for key, result in read
            if key.name in fields
        }
        wrong = self.conflict(given)
        if wrong is not None:
            fields.problem(node.error(f"{node.called} {wrong}"))
        fields.check()
        return self.make(**{key.model_field: result.value for key, result in read})

    def plain(self, value: T) -> Any:  # noqa: ANN401 - as above
        parts = self.values(value)
        plain = {key.name: key.spec.plain(parts[key.name]) for key in self.keys if key.is_printed(parts[key.name])}
        return next(iter(plain.values())) if self.short and len(plain) == 1 else plain

    def python(self, value: T) -> str:
        return f"{self.call}({arguments(self.keys, self.values(value))})"

    def schema(self) -> Schema:
        required = [key.name for key in self.keys if key.required]
        schema: Schema = {"type": "object", "properties": {key.name: key.schema() for key in self.keys}}
        schema |= {"additionalProperties": False} | ({"required": required} if required else {})
        for other in {key.unless for key in self.keys} - {""}:  # `conflict` refuses both
            names = [key.name for key in self.keys if key.unless == other]
            schema["oneOf"] = [{"required": names}, {"required": [other]}]
        return {"anyOf": [self.keys[0].spec.schema(), schema]} if self.short else schema

    def mask(self, value: T) -> T:
        parts = self.values(value)
        masked: Any = value
        for key in self.keys:
            part = parts[key.name]
            hidden = None if part is None else key.mask(key.spec.mask(part))
            if hidden != part:
                masked = replace(masked, **{key.model_field: hidden})
        return masked  # type: ignore[no-any-return]

    def document(self, path: str) -> Iterator[str]:
        for key in self.keys:
            yield from key.document(path)

    def values(self, value: T) -> Mapping[str, Any]:
        """Map the name of each key to its value."""
        parts = self.parts(value) if self.parts else {}
        return {key.name: parts[key.name] if key.name in parts else _field(value, key.model_field) for key in self.keys}


def _field(value: Any, name: str) -> Any:  # noqa: ANN401 - of any section
    return value[name] if isinstance(value, Mapping) else getattr(value, name)


@dataclass(frozen=True)
class Shapes(Spec[T]):
    """A mapping with one of several shapes: the first shape with a distinguishing key in the mapping, or the last.

    Each shape is a tuple of its distinguishing keys, its types in the model, and its section.
    """

    shapes: tuple[tuple[tuple[str, ...], type[Any] | UnionType, Section[Any]], ...]
    called: str = "mapping"

    def read(self, node: YamlNode) -> T:
        found = [section for marks, _, section in self.shapes if node.keys.intersection(marks)]
        return (found or [self.shapes[-1][2]])[0].read(node)  # type: ignore[no-any-return]

    def plain(self, value: T) -> Any:  # noqa: ANN401 - as above
        return self._section(value).plain(value)

    def python(self, value: T) -> str:
        return self._section(value).python(value)

    def schema(self) -> Schema:
        *marked, (_, _, last) = self.shapes
        schema = last.schema()
        for marks, _, section in reversed(marked):
            if marks:  # a shape without marks is printed, but not read
                is_marked = {"anyOf": [{"required": [mark]} for mark in marks]}
                schema = {"if": is_marked, "then": section.schema(), "else": schema}
        # editors propose these keys too, which then determine the shape
        keys = (key for marks, _, section in marked for key in section.keys if key.name in marks)
        return {"properties": {key.name: {"description": key.schema().get("description", "")} for key in keys}} | schema

    def mask(self, value: T) -> T:
        return self._section(value).mask(value)

    def document(self, path: str) -> Iterator[str]:
        for _, _, section in self.shapes:
            yield from section.document(path)

    def _section(self, value: T) -> Section[T]:
        return next(section for _, type_, section in self.shapes if isinstance(value, type_))


@dataclass(frozen=True)
class Named(Spec[tuple[T, ...]]):
    """A mapping of names to values of one section, in the order of the file; each value stores its name as `name`."""

    called: str
    item: Section[T] | Shapes[T]

    def read(self, node: YamlNode) -> tuple[T, ...]:
        fields = YamlMapping(node)
        read = [(name, fields.attempt(self.item.read, entry)) for name, entry in fields]
        fields.check()
        return tuple(replace(result.value, name=name) for name, result in read)  # type: ignore[type-var]

    def plain(self, value: tuple[T, ...]) -> dict[str, Any]:
        return {item.name: self.item.plain(item) for item in value}  # type: ignore[attr-defined]

    def python(self, value: tuple[T, ...]) -> str:
        items = (f"{item.name!r}: {self.item.python(item)}" for item in value)  # type: ignore[attr-defined]
        return f"{{{', '.join(items)}}}"

    def schema(self) -> Schema:
        return mapping_schema(self.item.schema())

    def mask(self, value: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(map(self.item.mask, value))

    def document(self, path: str) -> Iterator[str]:
        return self.item.document(f"{path}.NAME")


@dataclass(frozen=True)
class Kind(Generic[T]):
    """One of several kinds of value: its types in the model, its syntax, and its description in words for `explain`."""

    types: tuple[type[T], ...]
    spec: Spec[T]
    words: Callable[[T], str]
    doc: str
    python_only: bool = False
    note: str = ""

    def document(self, path: str) -> Iterator[str]:
        """Yield the reference entry of the kind, and the entries of its keys."""
        yield f"- `{path}` ({', '.join(filter(None, [self.spec.form(), self.note]))}): {self.doc}"
        yield from self.spec.document(path)


@dataclass(frozen=True)
class OneOf(Spec[T]):
    """One of several kinds of value: in YAML, a mapping whose only key is the kind, such as ``{tumbling: 5m}``.

    The kind in `scalar` is written without a key, such as ``10m`` for a fixed delay. Messages call the value `what`.
    """

    what: str
    kinds: Mapping[str, Kind[Any]]
    scalar: Kind[Any] | None = None

    def form(self) -> str:
        return f"{self.scalar.spec.form()} or mapping" if self.scalar else "mapping"

    def read(self, node: YamlNode) -> T:
        if self.scalar is not None and node.is_scalar:
            try:
                return self.scalar.spec.read(node)  # type: ignore[no-any-return]
            except PipelineError as exc:
                name = node.node.value
                if node.is_null or name not in self.kinds:
                    raise
                msg = f"{node.called}: {name} needs settings; write a mapping such as {{{name}: ...}}"
                raise node.error(msg) from exc
        readers = {name: kind.spec.read for name, kind in self.kinds.items() if not kind.python_only}
        return read_one_of(node, self.what, readers)  # type: ignore[no-any-return]

    def plain(self, value: T) -> Any:  # noqa: ANN401 - as above
        name, kind = self.kind_of(value)
        return {name: kind.spec.plain(value)} if name else kind.spec.plain(value)

    def python(self, value: T) -> str:
        return self.kind_of(value)[1].spec.python(value)

    def schema(self) -> Schema:
        kinds = {
            name: kind.spec.schema() | {"description": _plain_text(kind.doc)}
            for name, kind in self.kinds.items()
            if not kind.python_only
        }
        schema = {"type": "object", "properties": kinds, "additionalProperties": False}
        schema |= {"minProperties": 1, "maxProperties": 1}
        return {"anyOf": [self.scalar.spec.schema(), schema]} if self.scalar else schema

    def mask(self, value: T) -> T:
        return self.kind_of(value)[1].spec.mask(value)  # type: ignore[no-any-return]

    def words(self, value: T) -> str:
        """Describe the value in words, for `explain`."""
        return self.kind_of(value)[1].words(value)

    def document(self, path: str) -> Iterator[str]:
        for name, kind in self.kinds.items():
            if not kind.python_only:
                yield from kind.document(f"{path}.{name}")

    def kind_of(self, value: T) -> tuple[str, Kind[Any]]:
        """Return the key and the kind of a value; the key is "" for the kind that is written without a key."""
        if self.scalar is not None and isinstance(value, self.scalar.types):
            return "", self.scalar
        for name, kind in self.kinds.items():
            if isinstance(value, kind.types):
                return name, kind
        msg = f"{type(value).__name__} is not a {self.what}"
        raise TypeError(msg)


_WIDTH = 110


def call_by_names(call: str, values: Sequence[tuple[str, str]]) -> str:
    """Return the Python source of a call with keyword arguments, one per line if they do not fit on one line.

    Names that are not identifiers, or that Python would normalise, are passed with ``**``.
    """
    if all(name.isascii() and name.isidentifier() and not keyword.iskeyword(name) for name, _ in values):
        begin, parts, end = f"{call}(", [f"{name}={value}" for name, value in values], ")"
    else:
        begin, parts, end = f"{call}(**{{", [f"{name!r}: {value}" for name, value in values], "})"
    line = f"{begin}{', '.join(parts)}{end}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([begin, *(f"        {part}," for part in parts), f"    {end}"])


def choice(*options: T) -> Scalar[T]:
    """Return the spec of a text that must be one of the options."""
    *first, last = (f"`{option}`" for option in options)
    called = f"{', '.join(first)} or {last}"
    return Scalar(called, lambda node: node.choice(options), accepts={"enum": list(options)})


def each_item(node: YamlNode, read: Callable[[YamlNode], T]) -> tuple[T, ...]:
    """Read each item of a list, or a single item without a list; raise the errors of all as one PipelineError."""
    if not node.is_list:
        if not node.is_scalar:
            raise node.wrong_kind(expected="a name or a list of names")
        return (read(node),)
    return node.each(read)


def no_yaml(node: YamlNode) -> Any:  # noqa: ANN401 - never returns
    """Raise TypeError, because this value exists only in Python."""
    msg = f"{node.called} has no YAML form"
    raise TypeError(msg)


TEXT = Scalar("text", YamlNode.text)
NUMBER = Scalar("whole number", YamlNode.number, accepts={"type": "integer"})
FRACTION = Scalar("number", YamlNode.fraction, accepts={"type": "number"})
DURATION = Scalar(
    "duration", YamlNode.duration, m.format_duration, {"type": "string", "pattern": f"^{m.DURATION_PATTERN}$"}
)
FLAG = Scalar("`true` or `false`", lambda node: node.choice(("true", "false")) == "true", accepts={"type": "boolean"})
FIELD_NAME = Scalar("name of a field", YamlNode.text)
NAMES: Scalar[tuple[str, ...]] = Scalar(
    "name or list of names", lambda node: each_item(node, YamlNode.text), list, list_or_one(TEXT_SCHEMA)
)
CODE: Scalar[object] = Scalar("Python code", no_yaml, code_name)
"""A user's function or object, printed by its name."""
