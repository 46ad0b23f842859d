"""Data types, and the fields of a record: decoded from its bytes, or derived from decoded fields.

A type is printed as in a pipeline file, ``decimal(12,2)``. The type of an optional field, which a record may lack, has
a question mark. An array is ``array<long>`` or ``array<struct<sku string, qty long>>``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

from windrow.errors import PipelineError


@dataclass(frozen=True)
class StringType:
    """Text: a JSON string without U+0000."""

    def __str__(self) -> str:
        return "string"


@dataclass(frozen=True)
class BooleanType:
    """True or false, as in JSON."""

    def __str__(self) -> str:
        return "boolean"


@dataclass(frozen=True)
class LongType:
    """A 64-bit integer."""

    def __str__(self) -> str:
        return "long"


@dataclass(frozen=True)
class DoubleType:
    """A finite 64-bit IEEE 754 number."""

    def __str__(self) -> str:
        return "double"


@dataclass(frozen=True)
class DecimalType:
    """An exact number of `precision` digits, `scale` of them after the point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True)
class TimestampType:
    """A point in time: whole units since the epoch, or ISO 8601 text (`unit` is ``iso``)."""

    unit: Literal["seconds", "millis", "micros", "iso"]

    def __str__(self) -> str:
        return "timestamp" if self.unit == "iso" else f"timestamp_{self.unit}"


SimpleType = StringType | BooleanType | LongType | DoubleType | DecimalType | TimestampType


@dataclass(frozen=True)
class JsonListType(StringType):
    """Text that is a JSON array, as `collect_list` returns it; some sinks can write it as an array of `element`.

    Elements can be null. Decimals are text with all digits, and times are in ISO 8601.
    """

    element: SimpleType


@dataclass(frozen=True)
class StructType:
    """A JSON object that is an element of an array; its fields have names and types, but no aliases or paths."""

    fields: tuple[Field, ...]

    def __str__(self) -> str:
        return f"struct<{', '.join(f'{_quote(field.name)} {field.type_text}' for field in self.fields)}>"


@dataclass(frozen=True)
class ArrayType:
    """A JSON array; with `optional`, an element can be null."""

    element: SimpleType | StructType
    optional: bool = False

    def __str__(self) -> str:
        return f"array<{self.element}{_OPTIONAL if self.optional else ''}>"


DataType = SimpleType | ArrayType

MAX_PRECISION = 38
_OPTIONAL = "?"
_SIMPLE: dict[str, SimpleType] = {
    str(simple): simple
    for simple in (
        StringType(),
        BooleanType(),
        LongType(),
        DoubleType(),
        TimestampType("seconds"),
        TimestampType("millis"),
        TimestampType("micros"),
        TimestampType("iso"),
    )
}
_SYNONYMS = {
    **dict.fromkeys(("int", "integer", "int32", "int64", "bigint", "smallint", "tinyint", "short"), "long"),
    **dict.fromkeys(("varchar", "text", "str", "char", "utf8", "uuid"), "string"),
    **dict.fromkeys(("float", "float32", "float64", "real", "number"), "double"),
    **dict.fromkeys(("datetime", "date", "timestamptz", "timestamp_iso"), "timestamp"),
    **dict.fromkeys(("timestamp_ms", "timestamp_milli"), "timestamp_millis"),
    **dict.fromkeys(("timestamp_us", "timestamp_micro"), "timestamp_micros"),
    **dict.fromkeys(("timestamp_s", "epoch"), "timestamp_seconds"),
    "bool": "boolean",
    "numeric": "decimal(12,2)",
    "decimal": "decimal(12,2)",
    "money": "decimal(12,2)",
}
"""Names of types in SQL, Spark, Arrow or Python, and windrow's name for them."""
TYPE_NAMES = tuple(_SIMPLE)
"""The types of a single value, except decimals."""
_DECIMAL = re.compile(r"decimal\s*\(\s*([0-9]{1,3})\s*,\s*([0-9]{1,3})\s*\)")


def parse_type(text: str, others: Sequence[str] = ()) -> SimpleType:
    """Parse the type of a single value, as its `str` prints it; raise PipelineError for other text.

    The message lists these types, and the `others` that are allowed in the same place.
    """
    if text in _SIMPLE:
        return _SIMPLE[text]
    decimal = _DECIMAL.fullmatch(text)
    if decimal:
        precision, scale = int(decimal[1]), int(decimal[2])
        if 1 <= precision <= MAX_PRECISION and scale <= precision:
            return DecimalType(precision, scale)
        msg = f"{text!r}: a decimal has 1 to {MAX_PRECISION} digits, and its scale is at most its precision"
        raise PipelineError(msg)
    meant = _SYNONYMS.get(text.partition("(")[0].strip().lower()) or next(
        iter(difflib.get_close_matches(text.lower(), _SIMPLE, n=1)), None
    )
    if meant:
        digits = text.partition("(")[2]
        meant = f"decimal({digits}" if digits and meant.startswith("decimal") else meant
        msg = f"{text!r} is not a type; did you mean {meant}?"
        raise PipelineError(msg)
    word = text.partition("[")[0].strip().lower()
    if _ARRAY in others and (word in {"array", "list"} or text.rstrip().endswith("[]")):
        element = word if word in _SIMPLE else "string"
        msg = f"{text!r} is not a type; did you mean array<{element}>?"
        raise PipelineError(msg)
    msg = f"{text!r} is not a type; expected one of {', '.join((*_SIMPLE, 'decimal(PRECISION,SCALE)', *others))}"
    raise PipelineError(msg)


@dataclass(frozen=True)
class Field:
    """A field of a record. An `optional` field is null if a record does not have it.

    The field is looked up under its name (or in nested objects at `path`), and then under each name in `alias`; the
    first that a record has is used. With `tombstones`, a record with a key but no value (a tombstone) is read as a
    record with its key, or the column of its key that has the field's name, in this field.
    """

    name: str
    type: DataType
    optional: bool = False
    alias: tuple[str, ...] = ()
    tombstones: bool = False
    path: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which a record without nested objects may have the field."""
        return (self.name, *self.alias)

    @property
    def paths(self) -> tuple[tuple[str, ...], ...]:
        """The paths at which a record may have the field, in the order in which they are tried."""
        return (self.path or (self.name,), *((name,) for name in self.alias))

    @property
    def type_text(self) -> str:
        """The type as in a pipeline file, with a question mark if the field is optional."""
        return f"{self.type}{_OPTIONAL if self.optional else ''}"


@dataclass(frozen=True)
class Decode:
    """The fields of a record, which is a JSON object; its other fields are ignored."""

    fields: tuple[Field, ...]

    def field(self, name: str) -> Field:
        """Return the field with this name; raise KeyError if it does not exist."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)

    @property
    def tombstone_fields(self) -> tuple[Field, ...]:
        """The fields into which the key of a tombstone is read; empty if tombstones are dead letters."""
        return tuple(field for field in self.fields if field.tombstones)


def parse_field_type(text: str) -> tuple[DataType, bool]:
    """Parse a type, as `Field.type_text` prints it, and whether the field is optional; raise PipelineError otherwise.

    An array is ``array<string>`` or ``array<struct<sku string, price decimal(12,2)?>>``. Names that are not plain words
    are quoted in backquotes, and a backquote in a name is doubled.
    """
    if _NESTED.match(text):
        return _NestedType(text).read()
    return parse_type(text.removesuffix(_OPTIONAL), (_ARRAY, _STRUCTS)), text.endswith(_OPTIONAL)


_ARRAY = "array<TYPE>"
_STRUCT = "struct<NAME TYPE, ...>"
_STRUCTS = f"array<{_STRUCT}>"
_NESTED = re.compile(r"\s*(?:array|struct|list|record|row)\s*<")
_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|\w+(?:\s*\([^()<>]*\))?|\S|$)")


def _quote(name: str) -> str:
    return name if _WORD.fullmatch(name) else f"`{name.replace('`', '``')}`"


class _NestedType:
    """Parses the text of an array's type, word by word."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _TOKEN.findall(text)
        self._at = 0

    def read(self) -> tuple[DataType, bool]:
        type_, optional = self._type(_ARRAY, _STRUCTS), self._takes(_OPTIONAL)
        if isinstance(type_, StructType):
            self._refuse(
                "a struct can only be the element of an array; a field in an object has a path, {type: T, path: a.b}"
            )
        if self._tokens[self._at]:
            self._refuse(f"{self._tokens[self._at]!r} is not expected here")
        return type_, optional

    def _type(self, *others: str) -> DataType | StructType:
        word = self._next()
        if not self._takes("<"):
            return parse_type(word, others)
        match word:
            case "array":
                element = self._type(_STRUCT)
                if isinstance(element, ArrayType):
                    self._refuse("the elements of an array cannot be arrays, only structs with arrays")
                made: ArrayType | StructType = ArrayType(element, self._takes(_OPTIONAL))
            case "struct":
                fields = [self._field()]
                while self._takes(","):
                    fields.append(self._field())
                made = StructType(tuple(fields))
            case _:
                meant = "array" if word == "list" else "struct"
                self._refuse(f"{word!r} is not a type; did you mean {meant}<...>?")
        if not self._takes(">"):
            before = self._tokens[self._at]
            self._refuse(f"a '>' or a comma is missing {f'before {before!r}' if before else 'at the end'}")
        return made

    def _field(self) -> Field:
        word = self._next()
        name = word[1:-1].replace("``", "`") if len(word) > 1 and word.startswith("`") else word
        if word == name and not _WORD.fullmatch(name):
            self._refuse(f"{word!r} is not the name of a field; put it in `backquotes`")
        if self._takes(":"):
            self._refuse(f"a field and its type are not separated by a colon: write {name} TYPE")
        type_ = self._type(_ARRAY, _STRUCTS)
        if isinstance(type_, StructType):
            self._refuse(f"{name!r} is a struct in a struct; only arrays of structs can be in one")
        return Field(name, type_, self._takes(_OPTIONAL))

    def _next(self) -> str:
        word: str = self._tokens[self._at]
        if not word:
            self._refuse("the text ends too early")
        self._at += 1
        return word

    def _takes(self, word: str) -> bool:
        taken: bool = self._tokens[self._at] == word
        self._at += taken
        return taken

    def _refuse(self, why: str) -> NoReturn:
        msg = f"{self._text!r}: {why}"
        raise PipelineError(msg)


@dataclass(frozen=True)
class Derive:
    """A field that an SQL expression computes from decoded fields; it can be a key or be aggregated, as these can."""

    name: str
    sql: str
