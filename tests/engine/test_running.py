"""Running results: a row for each key, written anew with each record."""

import json

from tests.engine.outputs import play

import windrow as wr
from windrow.engine.changelog import StepOutput

RUNNING = (
    wr.log("data/spend")
    .decode(user="string", t="timestamp_millis", amount="long")
    .event_time("t", delay="1m")
    .key_by("user")
    .running(total=wr.sum("amount"), n=wr.count())
    .to(wr.sqlite("spend.db", table="spend"))
    .graph
)


def record(user: str, amount: int) -> tuple[int, bytes]:
    return 0, json.dumps({"user": user, "t": amount, "amount": amount}).encode()


def test_each_record_writes_the_row_of_its_key_anew() -> None:
    records = [record("A", 5), record("B", 1), record("A", 2), record("A", -9)]
    for steps in ([records], [[one] for one in records]):
        changes = StepOutput.concat(play(RUNNING, steps, "fire")).changes.to_pylist()
        told = {
            user: [
                (row["op"], row["pane"], row["revision"], row["total"], row["n"])
                for row in changes
                if row["user"] == user and row["op"] != "update_before"
            ]
            for user in ("A", "B")
        }
        # at the end of the input there is nothing new
        assert told == {
            "A": [
                ("insert", "early", 0, 5, 1),
                ("update_after", "early", 1, 7, 2),
                ("update_after", "early", 2, -2, 3),
            ],
            "B": [("insert", "early", 0, 1, 1)],
        }
