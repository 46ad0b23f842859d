"""The state of following a PostgreSQL table."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from windrow.connectors.follower import FollowState, Place
from windrow.connectors.postgres.cdc.records import ChangePlace


@dataclass(frozen=True)
class SlotState(FollowState):
    """The slot, publication and table that are followed, and the position of the log or topic.

    `commit` and `number` are the place of the last change in it, both 0 if there is none after the copy. No LSN after
    `confirmed` has been confirmed to the slot. It is 0 until the table is copied.

    `relation` is the table's oid, `key` the columns that identify its rows, and `published` the version of the
    publication's definition, all as of the copy. They are empty in an older state. `is_recopied` is True while the
    table is copied again.
    """

    slot: str
    publication: str
    table: str
    commit: int = 0
    number: int = 0
    confirmed: int = 0
    relation: int = 0
    key: tuple[str, ...] = ()
    published: str = ""
    is_recopied: bool = False

    @staticmethod
    def read(plain: dict[str, Any]) -> SlotState:
        """Return the state of a JSON object; raise TypeError if it is not one of a state."""
        return SlotState(**{**plain, "key": tuple(plain.get("key", ()))})

    def as_json(self) -> dict[str, Any]:
        plain = asdict(self)
        if not self.is_recopied:
            del plain["is_recopied"]
        return plain

    @property
    def place(self) -> ChangePlace:
        return ChangePlace(self.commit, self.number)

    def reached(self, place: Place, confirmed: int) -> SlotState:
        commit, number = place
        return replace(self, commit=commit, number=number, confirmed=confirmed)
