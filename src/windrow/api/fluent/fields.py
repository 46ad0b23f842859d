"""What `decode` takes for a field that has more than a type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windrow.errors import PipelineError
from windrow.model import DataType, Field, parse_field_type


@dataclass(frozen=True)
class FieldType:
    """A field without its name."""

    type: str | DataType
    alias: tuple[str, ...] = ()

    def named(self, name: str) -> Field:
        """Return the field of that name; raise PipelineError if its type is none."""
        if not isinstance(self.type, str):
            return Field(name, self.type, alias=self.alias)
        try:
            type_, optional = parse_field_type(self.type)
        except PipelineError as exc:
            msg = f"decode.{name}: {exc.message}"
            raise PipelineError(msg) from exc
        return Field(name, type_, optional, self.alias)


def field(type_: str | DataType, *, alias: Sequence[str] = ()) -> FieldType:
    """Give a field other names that records may have it under: ``amount=wr.field("decimal(12,2)", alias=["amt"])``."""
    if isinstance(alias, str):
        msg = f"alias is a list of names: [{alias!r}]"
        raise PipelineError(msg)
    return FieldType(type_, tuple(alias))
