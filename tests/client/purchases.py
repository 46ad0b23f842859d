"""The pipeline and the log of docs/guides/python.md, and of the examples in docstrings."""

from __future__ import annotations

import json
from pathlib import Path

import windrow as wr

PURCHASES = [
    ("A", "10:00", "5.00"),
    ("B", "10:02", "3.00"),
    ("A", "10:04", "2.00"),
    ("B", "10:06", "1.00"),
    ("A", "10:01", "1.00"),
]
"""User, event time and amount; the last one is late."""


def write_purchases(folder: Path) -> None:
    folder.mkdir(parents=True)
    lines = [
        json.dumps({"user_id": user, "event_time": f"2026-01-01T{at}:00Z", "amount": amount})
        for user, at, amount in PURCHASES
    ]
    (folder / "partition-0.jsonl").write_text("".join(f"{line}\n" for line in lines))


def spend(log: str = "data/spend", database: str = "spend.db", **options: str) -> wr.Pipeline:
    return (
        wr.log(log)
        .decode(user_id="string", event_time="timestamp", amount="decimal(12,2)")
        .event_time("event_time", delay=options.get("delay", "1m"), future="1h")
        .key_by("user_id")
        .window(wr.tumbling("5m"))
        .aggregate(total=wr.sum("amount"), events=wr.count())
        .emit(lateness="10m")
        .to(wr.sqlite(database, table="spend"))
    )
