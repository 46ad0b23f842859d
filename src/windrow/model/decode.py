"""How the bytes of a record become fields."""

from __future__ import annotations

from dataclasses import dataclass

from windrow.model.types import DataType


@dataclass(frozen=True)
class Field:
    """A field that every good record has."""

    name: str
    type: DataType


@dataclass(frozen=True)
class Decode:
    """A record is a JSON object that holds these fields; what else it holds is ignored."""

    fields: tuple[Field, ...]

    def field(self, name: str) -> Field:
        """Return the field of that name; raise KeyError if there is none."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)
