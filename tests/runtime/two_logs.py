"""Graphs over two logs, purchases and returns of the same users, and what is in their tables afterwards."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tests.runtime.spend import HOUR, KEY_GROUPS, MINUTE, Files, Log, Value, event, events, spend

from windrow.model import (
    Aggregate,
    ArrayType,
    Count,
    Decode,
    DeduplicateNode,
    Delay,
    Derive,
    Emit,
    Field,
    FlatMapNode,
    Graph,
    JoinNode,
    LogSource,
    LongType,
    LookupNode,
    SelectNode,
    SinkNode,
    SourceNode,
    SqliteSink,
    StreamNode,
    StringType,
    StructType,
    Sum,
    TableJoinNode,
    TableNode,
    Tumbling,
    WindowNode,
)
from windrow.runtime.launch import launch
from windrow.runtime.run import HostName, RunSettings

Logs = tuple[Log, Log]
"""Purchases, in three partitions, and returns, in two."""
Values = tuple[Sequence[Value], Sequence[Value]]

PLAIN = spend(LogSource("unused"), SqliteSink("unused.db", "unused"))
ITEMS = Field("items", ArrayType(StructType((Field("sku", StringType()), Field("n", LongType())))), optional=True)


@dataclass(frozen=True)
class Case:
    """A graph over two logs: its streams, and the stream that each of its tables has.

    `lateness` is that of purchases and of returns. `filled` are tables beside the others that hold something, `kinds`
    some of the state that it keeps.
    """

    name: str
    values: Values
    lateness: tuple[int, int | None]
    streams: tuple[StreamNode, ...]
    tables: Mapping[str, str]
    changelogs: tuple[str, ...]
    filled: tuple[str, ...] = ()
    kinds: frozenset[str] = frozenset()
    decode: Decode = PLAIN.decode

    def graph(self, logs: Logs, folder: Path, key_groups: int = KEY_GROUPS, idle: int | None = None) -> Graph:
        """Return the graph with its tables in a folder; a partition of returns is `idle` after so many microseconds."""
        later = replace(PLAIN.time, watermark=Delay(30 * MINUTE), idle=idle)
        bought, returned = (log.source for log in logs)
        path = str(folder / "graph.db")
        return Graph(
            "graph",
            (
                SourceNode("bought", bought, self.decode, PLAIN.time, lateness=self.lateness[0]),
                SourceNode("returned", returned, self.decode, later, lateness=self.lateness[1]),
                *self.streams,
                *(
                    SinkNode(f"to_{table}", stream, SqliteSink(path, table, changelog=table in self.changelogs))
                    for table, stream in self.tables.items()
                ),
            ),
            key_groups,
        )

    def run(
        self, host: HostName, logs: Logs, folder: Path, max_records: int, at_end: Literal["fire", "hold"] = "fire"
    ) -> dict[str, list[Any]]:
        """Run to the end of the logs, with a checkpoint in the folder; return the tables."""
        folder.mkdir(exist_ok=True)
        options = RunSettings(folder / "checkpoint", host, until_end=True, max_records=max_records)
        launch(self.graph(logs, folder).ending(at_end), options, lambda _: None, lambda _: None)
        return self.read(folder)

    def read(self, folder: Path) -> dict[str, list[Any]]:
        """Return the rows of all tables; of changelogs without the numbers of steps and of rows."""
        names = [name for table in self.tables for name in (table, f"{table}_late", f"{table}_dead")]
        found = {name: query(folder, f'SELECT * FROM "{name}"') for name in names}
        for name in self.changelogs:
            rows = query(folder, f"SELECT * FROM {name}_changes")
            found[f"{name}_changes"] = sorted((row[2:] for row in rows), key=repr)
        return found


def open_logs(folder: Path) -> Logs:
    """Return empty logs of three and of two partitions."""
    return Files(folder / "bought", 3), Files(folder / "returned", 2)


def fill(logs: Logs, values: Values, *parts: slice) -> None:
    """Append parts of the values to both logs, or all of them."""
    for part in parts or (slice(None),):
        for log, own in zip(logs, values, strict=True):
            log.append(own[part])


def query(folder: Path, sql: str) -> list[Any]:
    """Return the sorted rows of a query over the tables in a folder."""
    with closing(sqlite3.connect(folder / "graph.db")) as db:
        return sorted(db.execute(sql).fetchall(), key=repr)


def with_items(values: Iterable[Value]) -> list[Value]:
    """Give each record up to two items, and some none; those that are no JSON objects stay."""
    kinds = [b'[{"sku": "a", "n": 2}, {"sku": "b", "n": 1}]', b'[{"sku": "c", "n": 5}]', b"[]", b"null"]
    return [
        (partition, value[:-1] + b', "items": ' + kinds[number % 4] + b"}" if value and value[-1:] == b"}" else value)
        for number, (partition, value) in enumerate(values)
    ]


TOTAL = (Aggregate("total", Sum("amount")), Aggregate("back", Sum("amount_right")), Aggregate("rows", Count()))
BOUGHT = events(900, duplicate_share=0.1)
RETURNED = [*events(300, partitions=2, seed=7), (0, event(30, "x" * 3000)), (1, b"{")]


def _united() -> Case:
    """Both without copies per user and 5 minutes, these per hour; purchases alone, and their items; all as rows."""
    emit = Emit(lateness=HOUR)
    total = (Aggregate("total", Sum("total")), Aggregate("events", Sum("events")), Aggregate("rows", Count()))
    sold = (Aggregate("n", Sum("n")), Aggregate("rows", Count()))
    return Case(
        "united",
        (with_items(BOUGHT), with_items(events(300, partitions=2, seed=7, duplicate_share=0.1))),
        (2 * HOUR, HOUR),
        (
            SelectNode("moved", ("bought", "returned"), select=("user_id", "event_time", "amount")),
            DeduplicateNode("unique", "moved", ("user_id", "event_time", "amount"), HOUR),
            WindowNode("minutes", "unique", PLAIN.key, Tumbling(5 * MINUTE), PLAIN.aggregates[:2], emit),
            WindowNode("hours", "minutes", PLAIN.key, Tumbling(HOUR), total, Emit()),
            WindowNode("purchases", "bought", PLAIN.key, Tumbling(5 * MINUTE), PLAIN.aggregates, emit),
            FlatMapNode("items", "bought", "items", position="line"),
            WindowNode("sold", "items", (), Tumbling(HOUR), sold, Emit(lateness=2 * HOUR)),
        ),
        {
            "minutes": "minutes",
            "hours": "hours",
            "bought": "purchases",
            "all": "moved",
            "items": "items",
            "sold": "sold",
        },
        ("hours", "sold"),
        ("minutes_late", "minutes_dead"),
        frozenset({"unique/keys"}),
        Decode((*PLAIN.decode.fields, ITEMS)),
    )


def _joined() -> Case:
    """Purchases with the returns of the user in the next half hour: as rows, per hour, with more, and pairs alone."""
    near = JoinNode("near", "bought", "returned", PLAIN.key, PLAIN.key, 0, 30 * MINUTE, "left")
    return Case(
        "joined",
        (BOUGHT, RETURNED),
        (45 * MINUTE, 45 * MINUTE),
        (
            near,
            replace(near, name="both", how="full", before=5 * MINUTE),
            replace(near, name="pair", how="inner"),
            SelectNode("large", ("returned",), "amount > 150", (Derive("u", "user_id"),), ("u", "amount")),
            SelectNode("slim", ("near",), select=("user_id", "event_time", "event_time_right")),
            JoinNode("again", "slim", "large", PLAIN.key, ("u",), 0, 10 * MINUTE, "left"),
            WindowNode("hours", "near", PLAIN.key, Tumbling(HOUR), TOTAL, Emit()),
            WindowNode("pairs", "pair", PLAIN.key, Tumbling(HOUR), TOTAL, Emit(lateness=HOUR)),
        ),
        {"returned": "near", "both": "both", "again": "again", "hours": "hours", "pairs": "pairs"},
        ("returned", "hours"),
        ("returned_late",),
        frozenset({"near/left", "near/right", "pair/left", "both/right"}),
    )


def _looked_up() -> Case:
    """Purchases with the user's last return, as of event time and of the order; per hour; and joins of tables."""
    found = LookupNode("found", "bought", "last", PLAIN.key, PLAIN.key, "left", revise=2 * HOUR)
    pairs = TableJoinNode("pairs", "amounts", "last", PLAIN.key, PLAIN.key)
    return Case(
        "looked up",
        (BOUGHT, RETURNED),
        (45 * MINUTE, None),
        (
            TableNode("last", "returned", PLAIN.key, "amount > 60"),
            TableNode("amounts", "bought", (*PLAIN.key, "amount")),
            found,
            replace(found, name="noted", as_of="order", revise=None),
            pairs,
            replace(pairs, name="all", left="last", right="amounts", how="full"),
            SelectNode("both", ("all",), select=("user_id", "event_time", "event_time_right")),
            WindowNode("hours", "found", PLAIN.key, Tumbling(HOUR), TOTAL, Emit()),
        ),
        {name: name for name in ("found", "noted", "last", "pairs", "both", "hours")},
        ("found", "pairs", "hours"),
        ("found_late", "last_dead"),
        frozenset({"last/versions", "found/versions", "found/left", "noted/versions", "pairs/left"}),
    )


UNITED, JOINED, LOOKED_UP = _united(), _joined(), _looked_up()

MIXED = Case(
    "mixed",
    (BOUGHT, RETURNED),
    (45 * MINUTE, 24 * HOUR),
    (
        *(one for one in JOINED.streams if one.name == "near"),
        *(one for one in LOOKED_UP.streams if one.name in {"last", "amounts", "found", "pairs", "hours"}),
    ),
    {"near": "near", "found": "found", "pairs": "pairs", "hours": "hours"},
    ("near", "found", "pairs", "hours"),
    ("found_late", "near_dead"),
)
"""Purchases with the returns near them and with the user's last return, the latter per hour, and a join of tables."""
