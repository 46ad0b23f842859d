"""Code of a user's that misbehaves in Spark's Python processes, and what is said of an error of theirs."""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NoReturn

import pytest
from pyspark.errors import PySparkException
from tests.graphs import Runnable, as_graph

import windrow as wr
from windrow.errors import (
    CheckpointError,
    EngineError,
    PipelineError,
    RunError,
    SetupError,
    SinkError,
    SourceUnavailableError,
    WorkerLostError,
)
from windrow.model import LongType
from windrow.runtime.spark import worker_daemon
from windrow.runtime.spark.errors import fault_of, translate_spark_error
from windrow.runtime.spark.transport import pickle_pipeline, unpickle_pipeline


class NoTextError(Exception):
    def __str__(self) -> str:
        msg = "no text"
        raise ValueError(msg)


def exits(*_: object) -> NoReturn:
    sys.exit(0)


def interrupts(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def is_unavailable(*_: object) -> NoReturn:
    """Raise what a stream takes for a fault that passes, of a source."""
    msg = "mine"
    raise SourceUnavailableError(msg)


def has_no_text(*_: object) -> NoReturn:
    raise NoTextError


def cannot_be_encoded(*_: object) -> NoReturn:
    """Raise what a worker cannot send to Java."""
    msg = "\ud800"
    raise ValueError(msg)


class Exits:
    """An aggregate whose step ends the process."""

    returns = LongType()

    def zero(self) -> int:
        return 0

    def step(self, state: int, columns: object) -> int:
        exits(state, columns)

    def merge(self, one: int, other: int) -> int:
        return one + other

    def finish(self, state: int) -> int:
        return state


class NotLoaded:
    """A function that can be sent, and not be loaded."""

    def __call__(self, ctx: wr.Context, record: object) -> None: ...

    def __getstate__(self) -> dict[str, int]:
        return {"n": 1}

    def __setstate__(self, state: object) -> None:
        is_unavailable(state)


def made(folder: Path, code: Any) -> Runnable:  # noqa: ANN401 - a function, or an aggregate
    """Return a pipeline of one record with a user's code."""
    (folder / "log").mkdir()
    (folder / "log" / "partition-0.jsonl").write_text(json.dumps({"k": "a", "t": 0, "n": 1}) + "\n")
    records = wr.log(folder / "log").decode(k="string", t="timestamp_millis", n="long").event_time("t", delay="1s")
    keyed = records.key_by("k")
    sink = wr.sqlite(folder / "o.db", table="o")
    if isinstance(code, Exits):
        return keyed.window(wr.tumbling("1h")).aggregate(n=wr.custom(code, "n")).to(sink, name="p").graph
    return keyed.process(code, returns={"n": "long"}).to(sink, name="p").graph


PLACE = "failed at partition 0, offset 0 of log, key k='a': "
CASES: list[tuple[Callable[..., object] | Exits, str]] = [
    (cannot_be_encoded, rf"cannot_be_encoded {PLACE}ValueError: \\ud800 \("),
    (exits, rf"exits {PLACE}SystemExit: 0 \("),
    (interrupts, rf"interrupts {PLACE}KeyboardInterrupt \("),
    (is_unavailable, rf"is_unavailable {PLACE}SourceUnavailableError: mine \("),
    (has_no_text, rf"has_no_text {PLACE}NoTextError: its __str__ raised"),
    (NotLoaded(), "cannot be loaded in one of Spark's Python processes: SourceUnavailableError: mine"),
    (Exits(), r"the aggregate 'n' failed in step\(\): SystemExit: 0 \("),
]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("host", ["stream", "batch"])
@pytest.mark.parametrize(
    ("code", "said"),
    [pytest.param(*case, marks=() if number in {0, 3} else pytest.mark.long) for number, case in enumerate(CASES)],
)
def test_a_run_on_spark_ends_with_one_error_that_says_where(
    code: Callable[..., object] | Exits, said: str, host: Literal["stream", "batch"], tmp_path: Path
) -> None:
    pipeline = made(tmp_path, code)
    checkpoint = tmp_path / "checkpoint" if host == "stream" else None
    with pytest.raises(RunError, match=said) as raised:
        wr.Pipeline(as_graph(pipeline)).run(host, progress=False, checkpoint=checkpoint)
    # so it is not tried again
    assert type(raised.value) is RunError


def test_code_that_cannot_be_sent_or_loaded_is_told(tmp_path: Path) -> None:
    class NotSent(NotLoaded):
        def __getstate__(self) -> dict[str, int]:
            msg = "mine"
            raise RuntimeError(msg)

    sent = made(tmp_path, NotLoaded())
    with pytest.raises(
        RunError, match=r"the functions of the pipeline cannot be loaded .*: SourceUnavailableError: mi"
    ):
        unpickle_pipeline(pickle_pipeline(as_graph(sent)))
    (tmp_path / "other").mkdir()
    with pytest.raises(PipelineError, match=r"cannot be sent to Spark's workers \(mine\)"):
        pickle_pipeline(as_graph(made(tmp_path / "other", NotSent())))


FAILED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: \
Task 0 in stage 1.0 failed 1 times, most recent failure: \
Lost task 0.0 in stage 1.0 (TID 2) (localhost executor driver): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/spark/worker.py", line 10, in main
    process()
    ~~~~~~~^^
  File "/mine/beside.py", line 2, in <module>
    raise OwnError("no
luck")
beside.OwnError: no luck

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/mine/beside.py", line 5, in <module>
    sys.exit(3)
SystemExit: 3

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
Caused by: {cause}
"""


def test_an_error_in_python_is_told_by_its_last_line() -> None:
    error = translate_spark_error(PySparkException(FAILED.format(cause="java.io.IOException: closed")))
    assert type(error) is EngineError
    assert (
        str(error) == "the stream stopped: SystemExit: 3\nwhat was committed stays; start again to continue from there"
    )


def test_a_python_that_has_ended_is_told_with_what_may_have_ended_it() -> None:
    error = translate_spark_error(
        PySparkException("Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).")
    )
    assert type(error) is WorkerLostError
    assert "exited unexpectedly (crashed).; this happens if the machine runs out of memory, or" in str(error)


def test_an_executor_whose_python_lacks_windrow_is_named() -> None:
    module = worker_daemon.__name__
    said = f"EOFException occurred while reading the port number from {module}'s stdout."
    error = translate_spark_error(PySparkException(f"java.io.IOException: {said}"), host="node1")
    assert type(error) is SetupError
    assert "the executor on node1 has a Python without windrow or without its dependencies" in str(error)


def test_a_process_without_descriptors_is_a_fault_that_passes() -> None:
    no_fork = 'java.io.IOException: Cannot run program "python3": error=24, Too many open files'
    for exc in (PySparkException(f"Caused by: {no_fork}"), OSError(errno.EMFILE, "Too many open files")):
        error = translate_spark_error(exc)
        assert type(error) is WorkerLostError
        assert "the driver has no file descriptors or threads left: raise its limits (ulimit -n" in str(error)
    cut = CheckpointError("the checkpoint cannot be written")
    cut.__cause__ = OSError(errno.EMFILE, "Too many open files")
    assert isinstance(fault_of(cut), WorkerLostError)
    assert fault_of(CheckpointError("it is damaged")) is None
    failed = SinkError("the table was dropped")
    assert fault_of(failed) is failed
