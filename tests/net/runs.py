"""Plays cases, and holds what they give to what was recorded."""

from __future__ import annotations

import contextlib
import json
import lzma
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from click.testing import CliRunner
from tests.net import adapter
from tests.net.cases import HERE, Case
from tests.net.feeds import Feed, Lost, Told, digest, make

import windrow
from windrow.cli import main

Lines = dict[str, list[str]]
"""Of each table its columns and its rows, a JSON array each."""

Answers = dict[str, Lines]
"""Of each case its tables."""

_TABLE = "net"
_PARTS = ("", "_changes", "_late", "_dead", "_clocks")
# in the order in which they were written, but for the result, which is a set
_ORDER = {"": "1, 2, 3, 4", "_changes": "epoch, seq"}


class OtherError(AssertionError):
    """An answer is another than recorded; the message says in which case, table and row."""


def expected(group: str) -> Answers:
    """Return what was recorded for a group."""
    path = _file(group)
    answers: Answers = json.loads(lzma.decompress(path.read_bytes())) if path.exists() else {}
    return answers


def keep(group: str, answers: Answers) -> int:
    """Write what is expected of a group from now on; return the file's bytes."""
    text = json.dumps(answers, indent=0, ensure_ascii=True)
    path = _file(group)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    return path.stat().st_size


def compare(case: str, was: Lines, now: Lines) -> None:
    """Raise OtherError at the first table, and in it the first row, that differs."""
    if was == now:
        return
    if was.get("feed", now.get("feed")) != now.get("feed"):
        msg = f"{case}: its log is not the one that was recorded: the generator in feeds.py gives something else"
        raise OtherError(msg)
    others = [table for table in {**was, **now} if was.get(table, []) != now.get(table, [])]
    table = others[0]
    one, other = was.get(table, []), now.get(table, [])
    pairs = enumerate(zip(one, other, strict=False))
    at = next((at for at, (row, new) in pairs if row != new), min(len(one), len(other)))
    columns = (one or other)[0]
    msg = (
        f"{case}: {table!r} differs in row {at} (of {len(one) - 1} expected, {len(other) - 1} now)\n"
        f"  columns  {columns}\n"
        f"  expected {one[at] if at < len(one) else 'no such row'}\n"
        f"  now      {other[at] if at < len(other) else 'no such row'}\n"
        f"  tables that differ: {', '.join(others)}"
    )
    raise OtherError(msg)


def play(case: Case, folder: Path) -> Lines:
    """Return all that a case gives on the memory host, working in an empty folder."""
    feed = make(case.log)
    with _in(case, folder):
        if len(case.pipelines) > 1:
            return {"feed": [digest(feed)], **_upgraded(case, feed)}
        pipeline = windrow.load(case.pipelines[0]).graph
        adapter.write(pipeline, adapter.play_in_memory(pipeline, feed, case.log.known))
        found = {"feed": [digest(feed)], **_tables(_TABLE)}
        if case.replay or case.run is not None:
            _write_log(feed)
        half = _offsets(case, feed[: len(feed) // 2])
        for number, options in enumerate(case.replay):
            into = f"{_TABLE}_{number}"
            _windrow(
                "replay",
                case.pipelines[0],
                "--host",
                "memory",
                "--into",
                into,
                *(_upto(half) if one == "half" else one for one in options),
            )
            found |= _tables(into, f"replay {number} ")
        if case.run is not None:
            _windrow("run", case.pipelines[0], "--host", "memory", "--until-end", "--fresh", *case.run)
            found |= _tables(_TABLE, "run ")
        return found


def play_on_spark(case: Case, folder: Path, host: Literal["stream", "batch"]) -> Lines:
    """Return the tables that a case gives on Spark."""
    feed = make(case.log)
    with _in(case, folder):
        pipeline = windrow.load(case.pipelines[0]).graph
        adapter.write(pipeline, adapter.play_on_spark(host, pipeline, feed))
        return {"feed": [digest(feed)], **_tables(_TABLE)}


def play_story(path: Path) -> Lines:
    """Return the rows that a story gives on the memory host, each behind the number of its step."""
    found: Lines = {}
    for number, rows in enumerate(adapter.play_story(path)):
        _add(found, number, rows)
    return found


def can_be_on_spark(case: Case) -> bool:
    """Return whether Spark can play it: no savepoint, no steps of a command, and nothing only the memory host is told.

    A partition that is silent all the time is in no file of the log.
    """
    is_told = case.log.joins or case.log.lose or any((begin, end) == (0, 1) for _, begin, end in case.log.silent)
    return len(case.pipelines) == 1 and case.run is None and not is_told


@contextlib.contextmanager
def _in(case: Case, folder: Path) -> Iterator[None]:
    with contextlib.chdir(folder):
        for name, text in case.files.items():
            Path(name).write_text(text)
        yield


def _upgraded(case: Case, feed: Feed) -> Lines:
    """Run the first half of the log, and the other half by another pipeline from the savepoint of the first."""
    _write_log(feed)
    half = len(feed) // 2
    offsets = _offsets(case, feed[:half])
    options = ("--to", _upto(offsets), "--savepoint", "savepoint", "--into", _TABLE + "_first")
    _windrow("replay", case.pipelines[0], "--host", "memory", *options)
    found: Lines = _tables(_TABLE + "_first", "before ")
    pipeline = windrow.load(case.pipelines[1]).graph
    for number, output in enumerate(adapter.play_upgraded(pipeline, feed[half:], Path("savepoint"), offsets)):
        _add(found, number, {f"after {name}": rows for name, rows in adapter.rows_of(output).items()})
    return found


def _offsets(case: Case, feed: Feed) -> dict[int, int]:
    """Return the offsets behind a part of the log."""
    offsets = dict.fromkeys(case.log.known, 0)
    for step in feed:
        for partition, _ in _records(step):
            offsets[partition] = offsets.get(partition, 0) + 1
    return offsets


def _upto(offsets: dict[int, int]) -> str:
    return ",".join(f"{partition}={offset}" for partition, offset in offsets.items())


def _records(step: Any) -> Sequence[tuple[int, bytes]]:  # noqa: ANN401
    return () if isinstance(step, Told | Lost) else step


def _write_log(feed: Feed) -> None:
    Path("log").mkdir()
    lines: dict[int, list[bytes]] = {}
    for step in feed:
        for partition, value in _records(step):
            lines.setdefault(partition, []).append(value + b"\n")
    for partition, values in lines.items():
        Path(f"log/partition-{partition}.jsonl").write_bytes(b"".join(values))


def _windrow(*words: str) -> None:
    result = CliRunner().invoke(main, [*words, "--json"])
    if result.exit_code:
        msg = f"windrow {' '.join(words)}: {result.output}"
        raise OtherError(msg)


def _tables(table: str, prefix: str = "") -> Lines:
    """Return the tables of a pipeline from `net.db`, and how they were made."""
    found: Lines = {}
    with contextlib.closing(sqlite3.connect("net.db")) as db:
        for part in _PARTS:
            cursor = db.execute(f"SELECT * FROM {table}{part} ORDER BY {_ORDER.get(part, 'rowid')}")
            found[prefix + "net" + part] = [_line([one[0] for one in cursor.description]), *map(_line, cursor)]
        made = db.execute("SELECT sql FROM sqlite_master WHERE tbl_name LIKE ? ORDER BY sql", (f"{table}%",))
        found[prefix + "schema"] = ["sql", *(row[0] for row in made if row[0])]
    return found


def _add(found: Lines, number: int, rows: adapter.Rows) -> None:
    for name, (header, *values) in rows.items():
        lines = found.setdefault(name, [_line(["step", *header])])
        lines += [_line([number, *row]) for row in values]


def _line(values: Iterable[Any]) -> str:
    return json.dumps(list(values), ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:  # noqa: ANN401
    return value.hex() if isinstance(value, bytes) else str(value)


def _file(group: str) -> Path:
    return HERE / "expected" / f"{group}.json.xz"
