"""How a section of a pipeline is written: declared once, and read, printed and documented from that.

A `Spec` writes the values of one type in three forms: YAML (read with file and line), plain values in the shape of the
YAML, and the Python source of the fluent form. `Scalar` is one text or number, `Section` a mapping of keys, `OneOf` a
mapping whose one key is the kind, `Wrapped` a type around the value of another spec, `Each` a list, `Named` a mapping
of names. For editors, each has the JSON Schema (draft 7) of its YAML; what a schema cannot say, only `read` refuses.
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
"""Any value but null is a text too: ``2024`` and ``true``."""


def mapping_schema(values: Schema, **more: Any) -> Schema:  # noqa: ANN401 - plain JSON
    """Return the schema of a mapping with any keys."""
    return {"type": "object", "additionalProperties": values, **more}


def list_or_one(item: Schema, one: Schema | None = None) -> Schema:
    """Return the schema of what `each_item` reads: a list, or one name in its place."""
    return {"anyOf": [one or item, {"type": "array", "items": item}]}


_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


def _plain_text(doc: str) -> str:
    """Return a text of the reference without its links, which lead nowhere from an editor."""
    return _LINK.sub(r"\1", doc)


class Spec(ABC, Generic[T]):
    """How values of type T are written."""

    @abstractmethod
    def form(self) -> str:
        """Return the form of a value as the reference has it, such as ``duration or mapping``."""

    @abstractmethod
    def read(self, node: YamlNode) -> T:
        """Read a YAML node; raise PipelineError, with file:line, for all that is wrong with it."""

    @abstractmethod
    def plain(self, value: T) -> Any:  # noqa: ANN401 - mappings, lists, texts and numbers
        """Return mappings, lists, texts and numbers in the shape of the YAML."""

    @abstractmethod
    def python(self, value: T) -> str:
        """Return the Python source of the fluent form."""

    @abstractmethod
    def schema(self) -> Schema:
        """Return the JSON Schema of the YAML."""

    def mask(self, value: T) -> T:
        """Return the value with *** for its secrets."""
        return value

    def document(self, path: str) -> Iterator[str]:  # noqa: ARG002 - most have nothing below them
        """Yield the entries of the reference for what is below `path`: items of a Markdown list."""
        yield from ()


@dataclass(frozen=True)
class Scalar(Spec[T]):
    """One text or number: `read_node` reads it, `to_plain` gives what the YAML holds, and Python has its literal.

    `accepts` is its JSON Schema.
    """

    called: str
    read_node: Callable[[YamlNode], T]
    to_plain: Callable[[T], Any] = lambda value: value
    accepts: Schema = field(default_factory=lambda: TEXT_SCHEMA)

    def form(self) -> str:
        return self.called

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
    """A list of values of one spec; in Python the arguments of a call."""

    called: str
    item: Spec[T]

    def form(self) -> str:
        return self.called

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
"""How many nodes may stand above one that is read by a spec that contains itself."""


@dataclass(frozen=True)
class Deferred(Spec[T]):
    """A spec that is looked up when it is needed, so that it can be part of itself; `document` stops here.

    In a schema, `definition` is its name.
    """

    called: str
    get: Callable[[], Spec[T]]
    definition: str

    def form(self) -> str:
        return self.called

    def read(self, node: YamlNode) -> T:
        # by a YAML alias a node can be below itself
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
    """A type of one field, written as that field; `call` is its Python function ("" if the field's value will do)."""

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


def _no_mask(value: Any) -> Any:  # noqa: ANN401 - a value of any key
    return value


@dataclass(frozen=True)
class Key:
    """One key of a section.

    A key has a default unless it is `required`, or required where the key `unless` is left out. A value that equals the
    default is printed only if `shown`. `field` is the model's name if it differs; `positional` keys come first in
    Python, without their names. `hint` follows the message that the key is missing; `mask` hides a secret.
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
    mask: Callable[[Any], Any] = _no_mask
    note: str = ""

    @property
    def model_field(self) -> str:
        """The name of the model's field."""
        return self.field or self.name

    def read(self, fields: YamlMapping) -> ReadResult[Any]:
        """Read the key's value, or its default."""
        if self.required or (self.unless and self.unless not in fields):
            return fields.required(self.name, self.spec.read, self.hint)
        return fields.optional(self.name, self.spec.read, self.default)

    def is_printed(self, value: object) -> bool:
        """Whether the key is printed with this value."""
        return value is not None and (self.required or self.shown or value != self.default)

    def schema(self) -> Schema:
        """Return the JSON Schema of the value, with what the key means and its default."""
        schema = self.spec.schema()
        if self.doc:
            schema["description"] = _plain_text(self.doc)
        default = None if self.default in (None, ()) else self.spec.plain(self.default)
        if self.doc and default is not None and not isinstance(default, dict):
            schema["default"] = default
        return schema

    def document(self, section: str) -> Iterator[str]:
        """Yield the key's entry of the reference, and those of what is below it."""
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
            return "default none"
        return f"default `{str(self.spec.plain(self.default)).lower()}`"


def arguments(keys: Sequence[Key], parts: Mapping[str, Any]) -> str:
    """Return the Python arguments of a call for the values of some keys."""
    given = [key for key in keys if key.is_printed(parts[key.name])]
    ordered = sorted(given, key=lambda key: not key.positional)
    written = ((key, key.spec.python(parts[key.name])) for key in ordered)
    return ", ".join(text if key.positional else f"{key.name}={text}" for key, text in written)


@dataclass(frozen=True)
class Section(Spec[T]):
    """A value with keys: in YAML a mapping, in Python the call of a function with keyword arguments.

    `make` takes the keys by the model's field names. `parts` gives the values back by key; left out, they are the
    model's fields. `conflict` is given the keys that stand in the mapping (None for a value that is wrong) and returns
    what is wrong with them together. With `short`, the first key alone may stand for the whole mapping.
    """

    call: str
    make: Callable[..., T]
    keys: tuple[Key, ...]
    parts: Callable[[T], Mapping[str, Any]] | None = None
    conflict: Callable[[Mapping[str, Any]], str | None] = lambda _: None
    short: bool = False
    called: str = "mapping"

    def form(self) -> str:
        return self.called

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
        unless = {key.unless: [one.name for one in self.keys if one.unless == key.unless] for key in self.keys}
        for other, names in unless.items():
            if other:  # of the two, `conflict` refuses both
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
        """Return the value of each key."""
        if self.parts is not None:
            return self.parts(value)
        return {key.name: getattr(value, key.model_field) for key in self.keys}


@dataclass(frozen=True)
class Shapes(Spec[T]):
    """A mapping of one of several shapes: the first of which it has a key that no other has, else the last.

    A shape is the keys that only it has, the model's types, and the section.
    """

    shapes: tuple[tuple[tuple[str, ...], type[Any] | UnionType, Section[Any]], ...]

    def form(self) -> str:
        return "mapping"

    def read(self, node: YamlNode) -> T:
        there = node.keys
        found = [section for marks, _, section in self.shapes if there.intersection(marks)]
        return (found or [self.shapes[-1][2]])[0].read(node)  # type: ignore[no-any-return]

    def plain(self, value: T) -> Any:  # noqa: ANN401 - as above
        return self._section(value).plain(value)

    def python(self, value: T) -> str:
        return self._section(value).python(value)

    def schema(self) -> Schema:
        *marked, (_, _, last) = self.shapes
        schema = last.schema()
        for marks, _, section in reversed(marked):
            if marks:  # one without is printed, but not read
                there = {"anyOf": [{"required": [mark]} for mark in marks]}
                schema = {"if": there, "then": section.schema(), "else": schema}
        # an editor proposes these too: with them, it knows the shape
        marking = {key.name: key.schema() for marks, _, section in marked for key in section.keys if key.name in marks}
        return {
            "properties": {name: {"description": one.get("description", "")} for name, one in marking.items()}
        } | schema

    def mask(self, value: T) -> T:
        return self._section(value).mask(value)

    def document(self, path: str) -> Iterator[str]:
        for _, _, section in self.shapes:
            yield from section.document(path)

    def values(self, value: T) -> Mapping[str, Any]:
        """Return the value of each key."""
        return self._section(value).values(value)

    def _section(self, value: T) -> Section[T]:
        return next(section for _, type_, section in self.shapes if isinstance(value, type_))


@dataclass(frozen=True)
class Named(Spec[tuple[T, ...]]):
    """A mapping of names to values of one section, in the order of the file; each value has its name."""

    called: str
    item: Section[T] | Shapes[T]

    def form(self) -> str:
        return self.called

    def read(self, node: YamlNode) -> tuple[T, ...]:
        fields = YamlMapping(node)
        read = [(name, fields.attempt(self.item.read, entry)) for name, entry in fields]
        fields.check()
        return tuple(replace(result.value, name=name) for name, result in read)  # type: ignore[type-var]

    def plain(self, value: tuple[T, ...]) -> dict[str, Any]:
        return {self.item.values(one)["name"]: self.item.plain(one) for one in value}

    def python(self, value: tuple[T, ...]) -> str:
        written = (f"{self.item.values(one)['name']!r}: {self.item.python(one)}" for one in value)
        return f"{{{', '.join(written)}}}"

    def schema(self) -> Schema:
        return mapping_schema(self.item.schema())

    def mask(self, value: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(map(self.item.mask, value))

    def document(self, path: str) -> Iterator[str]:
        return self.item.document(f"{path}.NAME")


@dataclass(frozen=True)
class Kind(Generic[T]):
    """One of several kinds: the model's types, how they are written, and what they mean in words for `explain`."""

    types: tuple[type[T], ...]
    spec: Spec[T]
    words: Callable[[T], str]
    doc: str
    python_only: bool = False
    note: str = ""

    def document(self, path: str) -> Iterator[str]:
        """Yield the kind's entry of the reference, and those of its keys."""
        yield f"- `{path}` ({', '.join(filter(None, [self.spec.form(), self.note]))}): {self.doc}"
        yield from self.spec.document(path)


@dataclass(frozen=True)
class OneOf(Spec[T]):
    """One of several kinds of value: in YAML a mapping whose one key is the kind, such as ``{tumbling: 5m}``.

    `scalar` is the kind that is written without a key: ``10m`` for a fixed delay. `what` is said in messages.
    """

    what: str
    kinds: Mapping[str, Kind[Any]]
    scalar: Kind[Any] | None = None

    def form(self) -> str:
        return f"{self.scalar.spec.form()} or mapping" if self.scalar else "mapping"

    def read(self, node: YamlNode) -> T:
        if self.scalar is not None and node.is_scalar:
            return self._read_scalar(self.scalar, node)
        readers = {name: kind.spec.read for name, kind in self.kinds.items() if not kind.python_only}
        return read_one_of(node, self.what, readers)  # type: ignore[no-any-return]

    def _read_scalar(self, scalar: Kind[Any], node: YamlNode) -> T:
        try:
            return scalar.spec.read(node)  # type: ignore[no-any-return]
        except PipelineError as exc:
            name = node.node.value
            if node.is_null or name not in self.kinds:
                raise
            msg = f"{node.called}: {name} needs settings; write a mapping such as {{{name}: ...}}"
            raise node.error(msg) from exc

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
        """Return what the value means, in words for `explain`."""
        return self.kind_of(value)[1].words(value)

    def document(self, path: str) -> Iterator[str]:
        for name, kind in self.kinds.items():
            if not kind.python_only:
                yield from kind.document(f"{path}.{name}")

    def kind_of(self, value: T) -> tuple[str, Kind[Any]]:
        """Return the kind of a value and its key ("" for the kind that is written without one)."""
        if self.scalar is not None and isinstance(value, self.scalar.types):
            return "", self.scalar
        for name, kind in self.kinds.items():
            if isinstance(value, kind.types):
                return name, kind
        msg = f"{type(value).__name__} is not a {self.what}"
        raise TypeError(msg)


_WIDTH = 110


def call_by_names(call: str, values: Sequence[tuple[str, str]]) -> str:
    """Return the Python source of a call with keyword arguments, each on its own line if they are longer than one.

    Names that are not Python names, or that Python would normalise, are passed by ``**``.
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
    """Return the spec of one of a few texts."""
    called = _either([f"`{option}`" for option in options])
    return Scalar(called, lambda node: node.choice(options), accepts={"enum": list(options)})


def _either(options: Sequence[str]) -> str:
    return f"{', '.join(options[:-1])} or {options[-1]}"


def each_item(node: YamlNode, read: Callable[[YamlNode], T]) -> tuple[T, ...]:
    """Read each item of a list of names, or the one name that stands in its place; all their problems are reported."""
    if not node.is_list:
        if not node.is_scalar:
            raise node.wrong_kind(expected="a name or a list of names")
        return (read(node),)
    return node.each(read)


def _no_yaml(node: YamlNode) -> object:
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
CODE: Scalar[object] = Scalar("Python code", _no_yaml, code_name)
"""A function or object of the user's; printed by its name."""
