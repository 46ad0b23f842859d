"""The state of following tables of a PostgreSQL database."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from windrow.connectors.follower import FollowState, Place
from windrow.connectors.postgres.cdc.records import ChangePlace


@dataclass(frozen=True)
class TableState:
    """A table, as of its copy: its oid, the columns that identify its rows, and the version of the publication.

    `columns` are its columns and their types, and `partitions` the versions of its partitions. All are empty in the
    state of an older version, and `partitions` None in that of one that did not know them.
    """

    table: str
    relation: int = 0
    key: tuple[str, ...] = ()
    published: str = ""
    columns: tuple[tuple[str, str], ...] = ()
    partitions: tuple[str, ...] | None = None

    @staticmethod
    def read(plain: dict[str, Any]) -> TableState:
        """Return the state of a JSON object; raise TypeError if it is not one of a table."""
        columns = tuple((name, type_) for name, type_ in plain.get("columns", ()))
        partitions = None if plain.get("partitions") is None else tuple(plain["partitions"])
        return TableState(**{**plain, "key": tuple(plain.get("key", ())), "columns": columns, "partitions": partitions})


@dataclass(frozen=True)
class SlotState(FollowState):
    """The slot, publication and tables that are followed, and the position of the log or topic.

    `commit` and `number` are the place of the last change in it, both 0 until a change follows the copy. No LSN after
    `confirmed` has been confirmed to the slot. It is 0 until the tables are copied. `is_recopied` is True while they
    are copied again, and `has_others` if the log also has changes of tables that are no longer followed.
    """

    slot: str
    publication: str
    tables: tuple[TableState, ...]
    commit: int = 0
    number: int = 0
    confirmed: int = 0
    is_recopied: bool = False
    has_others: bool = False

    @staticmethod
    def read(plain: dict[str, Any]) -> SlotState:
        """Return the state of a JSON object, as `as_json` writes it; raise TypeError if it is not one of a state."""
        own = {name: plain[name] for name in _OF_TABLE if name in plain}
        given = {name: value for name, value in plain.items() if name not in own}
        tables = (TableState.read(own),) if own else tuple(map(TableState.read, given.pop("tables")))
        return SlotState(tables=tables, **given)

    def as_json(self) -> dict[str, Any]:
        """Return the state as an object of JSON; that of a single table has no `tables`."""
        plain = asdict(self)
        for name in ("is_recopied", "has_others"):
            if not plain[name]:
                del plain[name]
        if len(self.tables) > 1:
            return plain
        (table,) = plain.pop("tables") or ({"table": ""},)
        order = ("slot", "publication", "table", "commit", "number", "confirmed")
        plain |= table
        return {**{name: plain[name] for name in order}, **plain}

    @property
    def names(self) -> tuple[str, ...]:
        """The qualified names of the tables."""
        return tuple(table.table for table in self.tables)

    @property
    def called(self) -> str:
        """The tables' name in messages."""
        return f"the table{'s' * (len(self.tables) > 1)} {', '.join(self.names)}"

    @property
    def place(self) -> ChangePlace:
        return ChangePlace(self.commit, self.number)

    def reached(self, place: Place, confirmed: int) -> SlotState:
        commit, number = place
        return replace(self, commit=commit, number=number, confirmed=confirmed)


_OF_TABLE = ("table", "relation", "key", "published", "columns", "partitions")
