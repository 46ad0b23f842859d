"""A row whose record a topic does not take is a dead letter; its earlier revision is deleted."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any, Literal

import pytest
from tests.contracts.steps import FIELDS, change, step
from tests.contracts.steps import pipeline as pipeline_into
from tests.graphs import sink_spec_of
from tests.short_forms import Pipeline

from windrow.connectors.kafka.rows import KafkaRecord, KafkaRecords
from windrow.model import Aggregate, Decode, Field, KafkaSink, Max, StringType

LIMIT = 1_000
LONG = "x" * LIMIT
WHY = r"refused: Kafka: a record of 1,5\d\d bytes, where topic spend takes 1,000: at window .*, user=A"


def revisions(*texts: str, mode: str) -> list[list[list[Any]]]:
    """The changes of a row that has these texts, one after another, revision by revision."""
    found = [[change("insert", 0, "A", texts[0])]]
    for revision, (before, after) in enumerate(pairwise(texts), 1):
        removed = [change("update_before", 0, "A", before, revision=revision - 1)] if mode == "retract" else []
        found.append([*removed, change("update_after", 0, "A", after, revision=revision)])
    return found


def model_of(form: Literal["json", "debezium"] = "json") -> Pipeline:
    sink = KafkaSink("localhost:1", "spend", format=form)
    decode = Decode((*FIELDS, Field("text", StringType())))
    return pipeline_into(sink, decode=decode, aggregates=(Aggregate("newest", Max("text")),))


def written(model: Pipeline, steps: Sequence[list[list[Any]]]) -> tuple[list[KafkaRecord], list[KafkaRecord], int]:
    """The changes and dead letters that steps write, and the number of rows that they report as refused."""
    records, refused = KafkaRecords(sink_spec_of(model), {"spend": LIMIT}), list[Any]()
    made = [record for rows in steps for record in records.of(step(model, rows), refused)]
    changes, dead = ([record for record in made if record.topic == topic] for topic in ("spend", "spend.dead"))
    return changes, dead, sum(letters.num_rows for letters in refused)


@pytest.mark.parametrize("is_one", [False, True])
@pytest.mark.parametrize("mode", ["retract", "accumulate"])
def test_a_record_that_is_too_large_is_a_dead_letter(mode: str, is_one: bool) -> None:  # noqa: FBT001 - a parameter
    model = model_of()
    steps = revisions("a", LONG, "b", "c", LONG, LONG, "d", mode=mode)
    changes, dead, refused = written(model, [list(chain(*steps))] if is_one else steps)
    found = [
        (value["op"], value["newest"], value["revision"]) for value in (json.loads(one.value or b"") for one in changes)
    ]
    is_known = mode == "retract"
    assert found == [
        ("insert", "a", 0),
        ("delete", "a" if is_known else None, 1),
        ("update_after", "b", 2),
        ("update_after", "c", 3),
        ("delete", "c" if is_known else None, 4),
        *([] if is_known else [("delete", None, 5)]),
        ("update_after", "d", 6),
    ]
    assert refused == len(dead) == 3
    for letter in dead:
        reason = dict(letter.headers)["reason"]
        assert isinstance(reason, bytes)
        assert re.fullmatch(WHY, reason.decode())
        assert json.loads(letter.value or b"")["newest"] == LONG
    assert len({change.key for change in changes}) == 1


def test_a_first_revision_that_is_too_large_is_not_deleted() -> None:
    changes, dead, _ = written(model_of("debezium"), revisions(LONG, "a", mode="retract"))
    assert [json.loads(change.value or b"")["op"] for change in changes] == ["u"]
    assert len(dead) == 1


def test_a_key_that_is_too_large_is_never_written() -> None:
    steps = [[change("insert", 0, LONG, "a")], [change("update_after", 0, LONG, "b", revision=1)]]
    changes, dead, refused = written(model_of(), steps)
    assert changes == []
    assert refused == len(dead) == 2
