"""How the bytes of a record become fields."""

from __future__ import annotations

from dataclasses import dataclass

from windrow.model.types import DataType, parse_type

_MAY_LACK = "?"


@dataclass(frozen=True)
class Field:
    """A field of a record. An `optional` one is null where a record does not have it.

    A record may have it under another name, one of `alias`; of several names the first that is there counts.
    """

    name: str
    type: DataType
    optional: bool = False
    alias: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a record may have it under, in the order in which they are looked for."""
        return (self.name, *self.alias)

    @property
    def type_text(self) -> str:
        """The type as a pipeline has it: with a question mark where the field is optional."""
        return f"{self.type}{_MAY_LACK if self.optional else ''}"


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


def parse_field_type(text: str) -> tuple[DataType, bool]:
    """Read a type as `Field.type_text` writes it, and whether the field is optional; raise PipelineError else."""
    return parse_type(text.removesuffix(_MAY_LACK)), text.endswith(_MAY_LACK)
