"""A record that meets a defect in a worker of Spark's is a dead letter, and the run continues."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.runtime.runs import Runner
from tests.short_forms import ProcessPipeline

from windrow.engine.decode.decoder import DecodedBatch, Decoder
from windrow.model import (
    Decode,
    Delay,
    EventTime,
    Field,
    LogSource,
    LongType,
    Process,
    SqliteSink,
    StringType,
    TimestampType,
)

MARK = b"meets the defect of test_defects"


class Defective:
    """A process function; wherever it is unpickled, the decoder fails for batches with marked records."""

    def __call__(self, ctx: Any, record: Any) -> None:  # noqa: ANN401 - a user's
        ctx.emit(n=record["n"])

    def __reduce__(self) -> tuple[Any, ...]:
        return install, ()


def install() -> Defective:
    decode = vars(Decoder)["_decode"]

    def fail(self: Decoder, raw: pa.RecordBatch) -> DecodedBatch:
        if any(MARK in (value or b"") for value in raw.column("value").to_pylist()):
            msg = f"a defect at 0x{id(raw):x}"
            raise RuntimeError(msg)
        found: DecodedBatch = decode(self, raw)
        return found

    if decode.__name__ != fail.__name__:
        setattr(Decoder, "_decode", fail)  # noqa: B010 - it is private
    return Defective()


@pytest.mark.usefixtures("spark")
def test_marked_records_are_dead_letters(tmp_path: Path, runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Decoder, "_decode", vars(Decoder)["_decode"])  # restores it
    log = tmp_path / "log"
    log.mkdir()
    for partition in range(2):
        lines = [
            json.dumps({"t": number, "user": f"{MARK.decode() if number % 97 == 13 else ''}{number % 7}", "n": number})
            for number in range(300)
        ]
        (log / f"partition-{partition}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    decode = Decode((Field("user", StringType()), Field("t", TimestampType("seconds")), Field("n", LongType())))
    process = Process(Defective(), (), (Field("n", LongType()),))
    time, sink = EventTime("t", Delay(0)), SqliteSink(str(tmp_path / "t.db"), "r")
    pipeline = ProcessPipeline("p", LogSource(str(log)), decode, time, ("user",), process, sink, 2)
    assert runner.bounded(pipeline, max_records=250) == "end"
    with sqlite3.connect(sink.path) as database:
        dead = database.execute('SELECT "partition", "offset", reason FROM r_dead ORDER BY 1, 2').fetchall()
        late = database.execute("SELECT count(*) FROM r_late").fetchone()[0]
    bad = [number for number in range(300) if number % 97 == 13]
    reason = "internal: decode: RuntimeError: a defect at ..."
    assert dead == [(partition, number, reason) for partition in range(2) for number in bad]
    assert late == 0
    assert sum(report.internal for report in runner.reports) == len(dead)
    assert sum(report.records for report in runner.reports) == 2 * (300 - len(bad))
