"""Keys of records as values of JSON: an object with the columns of the key, or a single value.

Nothing in a topic says how its keys are encoded. Unless the pipeline does, the bytes of a key decide: with a registry,
a key that begins with a zero byte and an id has the schema with that id. A key that is a JSON object or a JSON string,
in an object with its schema or not, is read as JSON, and all other keys are text.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from windrow import model as m
from windrow.engine.decode.field_columns import DatumReader
from windrow.engine.decode.json_text import parse_json
from windrow.engine.decode.registry import MAGIC, PREFIX
from windrow.engine.decode.values import MalformedError, NumberText, PlainText

_WHOLE: Final = {1: ">b", 2: ">h", 4: ">i", 8: ">q"}
"""The form of a whole number in big-endian order, by its number of bytes."""
_OPENS_JSON: Final = ("{", '"')
_ENVELOPE: Final = {"schema", "payload"}


@dataclass(frozen=True)
class KeyReader:
    """Reads keys in a format, or in the format that their bytes have if it is None.

    The `reader` reads Avro or Protobuf; without a format, only keys with the id of a schema.
    """

    format: m.KeyFormat | None = None
    reader: DatumReader | None = None

    def read(self, key: bytes) -> object:
        """Return the value of a key, as `parse_json` does; raise MalformedError if the key is not in the format."""
        if self.format == "text" or (self.format is None and not self._has_id(key)):
            return self.of_text(_text(key))
        try:
            return _without_envelope(self._read(key))
        except MalformedError as exc:
            kind, _, rest = str(exc).partition(": ")
            msg = f"{kind}: the key: {rest}"
            raise MalformedError(msg) from exc

    def of_text(self, text: str) -> object:
        """Return the value of a key that is text."""
        if self.format is None and text.startswith(_OPENS_JSON):
            try:
                return _without_envelope(parse_json(text.encode()))
            except MalformedError:
                return PlainText(text)
        return PlainText(text)

    @property
    def is_text(self) -> bool:
        """Whether a key that cannot be JSON and has no zero byte is text."""
        return self.format in {None, "text"}

    def _has_id(self, key: bytes) -> bool:
        return self.reader is not None and len(key) >= PREFIX and key[0] == MAGIC

    def _read(self, key: bytes) -> object:
        if self.reader is not None:
            return self.reader.parse_any(key)
        if self.format == "json":
            return parse_json(key)
        form = _WHOLE.get(len(key))
        if form is None:
            msg = f"malformed: {len(key)} bytes, and a binary number has 1, 2, 4 or 8"
            raise MalformedError(msg)
        return NumberText(struct.unpack(form, key)[0])


ANY_KEY: Final = KeyReader()
"""Reads keys that are text or JSON."""


def key_of_line(key: object) -> object:
    """Return the key in the line of a tombstone in an embedded log; a text is read as a key of a topic."""
    return ANY_KEY.of_text(key) if isinstance(key, str) and not isinstance(key, NumberText) else key


def _text(key: bytes) -> str:
    try:
        return key.decode("utf-8")
    except UnicodeDecodeError as exc:
        msg = f"malformed: the key is not UTF-8 at byte {exc.start}"
        raise MalformedError(msg) from exc


def _without_envelope(value: object) -> object:
    """Return a value without the schema that Kafka Connect's JSON converter may put beside it."""
    return value["payload"] if isinstance(value, Mapping) and value.keys() == _ENVELOPE else value
