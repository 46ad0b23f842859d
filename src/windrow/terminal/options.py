"""Option types of the command line: durations, folders, tables, times, and points in a log."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import click

from windrow import model as m
from windrow.errors import InputError, PipelineError
from windrow.runtime.settings import SparkOptions
from windrow.telemetry.folders import Folder, folder_of

F = TypeVar("F", bound=Callable[..., Any])


class _Duration(click.ParamType[int]):
    """Text like 10m, in microseconds."""

    name = "duration"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it; fail as click does."""
        if isinstance(value, int):
            return value
        try:
            micros = m.parse_duration(value)
        except PipelineError as exc:
            self.fail(exc.message, param, ctx)
        if micros > m.MAX_DURATION:
            self.fail(f"{value!r} is longer than a hundred years (36500d)", param, ctx)
        return micros


DURATION = _Duration()


_SHARE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?%")


class _Share(click.ParamType[float]):
    """Text like 0.1%, as a fraction."""

    name = "share"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it; fail as click does."""
        if isinstance(value, float):
            return value
        match = _SHARE.fullmatch(value)
        if match is None or float(match[1]) > 100:  # noqa: PLR2004 - percent
            self.fail(f"{value!r} is not a share; write a percentage such as 0.1%", param, ctx)
        return float(match[1]) / 100


SHARE = _Share()


class _Address(click.ParamType[tuple[str, int]]):
    """``HOST:PORT``, or ``:PORT`` on loopback."""

    name = "address"

    def convert(
        self, value: str | tuple[str, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Read it; fail as click does."""
        if isinstance(value, tuple):
            return value
        host, colon, port = value.rpartition(":")
        if not colon or not port.isdecimal():
            self.fail(f"{value!r} is not an address; write 0.0.0.0:8080, or :8080 for this machine alone", param, ctx)
        return host.strip("[]") or "127.0.0.1", int(port)


ADDRESS = _Address()


class _Folder(click.ParamType[Path]):
    """A folder on a disk, which need not exist."""

    name = "path"

    def convert(self, value: str | Path, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Read it; fail as click does."""
        if not str(value):
            self.fail("it must not be empty; name a folder, or leave out the option", param, ctx)
        return Path(value)


class _StateFolder(click.ParamType["Folder"]):
    """The folder of a checkpoint or savepoint, which need not exist: a path, or the URL of an object store."""

    name = "path"

    def convert(self, value: str | Folder, param: click.Parameter | None, ctx: click.Context | None) -> Folder:
        """Read it; fail as click does."""
        if not isinstance(value, str):
            return value
        if not value:
            self.fail("it must not be empty; name a folder, or leave out the option", param, ctx)
        return folder_of(value)


class _Table(click.ParamType[str]):
    """The name of a table."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read it; fail as click does."""
        if not value:
            self.fail("it must not be empty; name a table, or leave out the option", param, ctx)
        return value


_SETTING = re.compile(r"(spark\.[^=\s]+)=(.*)", re.DOTALL)


def spark_options(function: F) -> F:
    """Add ``--master`` and ``--conf``, which the function takes as one `spark`."""

    @wraps(function)
    def with_options(*, master: str | None, conf: tuple[str, ...], **others: Any) -> Any:  # noqa: ANN401 - any command
        return function(spark=SparkOptions(master, dict(map(_setting, conf))), **others)

    conf = click.option("--conf", metavar="KEY=VALUE", multiple=True, help="Setting of Spark; may be repeated.")
    help_ = "Spark master URL; without it the one that Spark was given (spark-submit), or local[*]."
    return cast("F", click.option("--master", help=help_)(conf(with_options)))


def _setting(text: str) -> tuple[str, str]:
    match = _SETTING.fullmatch(text)
    if match is None:
        msg = f"--conf {text!r} is not a setting of Spark: write --conf spark.NAME=VALUE"
        raise InputError(msg)
    return match[1], match[2]


_KAFKA = "kafka://"


@dataclass(frozen=True)
class LogTarget:
    """A log to write: a topic if `servers` are given, else a folder."""

    name: str
    servers: str | None

    @staticmethod
    def read(text: str, servers: str | None = None) -> LogTarget:
        """Read a folder, or ``kafka://HOST:PORT/TOPIC``; fail as click does."""
        if not text:
            msg = "TARGET is empty: name a folder, or a topic as kafka://HOST:PORT/TOPIC"
            raise click.UsageError(msg)
        if not text.startswith(_KAFKA):
            return LogTarget(text, servers)
        address, _, topic = text.removeprefix(_KAFKA).partition("/")
        if servers is not None:
            msg = f"the broker's address is in {text} already: leave out --kafka-servers"
            raise click.UsageError(msg)
        if not address or not topic or "/" in topic:
            msg = f"{text} is not kafka://HOST:PORT/TOPIC"
            raise click.UsageError(msg)
        return LogTarget(topic, address)

    def __str__(self) -> str:
        return self.name if self.servers is None else f"{_KAFKA}{self.servers}/{self.name}"


FOLDER = _Folder()
STATE_FOLDER = _StateFolder()
TABLE = _Table()


_OFFSETS = re.compile(r"[^,=]+=\d+(,[^,=]+=\d+)*")

Offsets = dict[int | str, int]


def parse_offsets(text: str) -> Offsets | None:
    """Read ``0=100,1=250`` or ``SOURCE/0=100``: partition and next offset; None for anything else."""
    if not _OFFSETS.fullmatch(text):
        return None
    pairs = (part.partition("=") for part in text.split(","))
    return {int(name) if name.isdecimal() else name: int(offset) for name, _, offset in pairs}


class _Time(click.ParamType[int]):
    """A time, as microseconds."""

    name = "time"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it; fail as click does."""
        time = value if isinstance(value, int) else m.parse_time(value)
        if time is None:
            self.fail(f"{value!r} is not a time; write 2026-01-31 or 2026-01-31T10:05 (UTC)", param, ctx)
        return time


class _Point(click.ParamType[str | int | Offsets]):
    """A parameter type: one of some words (returned as is), a time (microseconds), or offsets."""

    name = "point"
    words: ClassVar[tuple[str, ...]] = ()
    others: ClassVar[tuple[str, ...]] = ("offsets (0=100,1=250)",)

    def convert(
        self, value: str | int | Offsets, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | int | Offsets:
        """Read it; fail as click does."""
        if not isinstance(value, str) or value in self.words:
            return value
        found = self.read(value)
        if found is None:
            self.fail(f"{value!r} is not one of {', '.join((*self.words, *self.others))}", param, ctx)
        return found

    def read(self, text: str) -> int | Offsets | None:
        """Read a value that is not one of the words."""
        return parse_offsets(text)


class _Begin(_Point):
    words = ("beginning",)
    others = ("a time (2026-01-31T10:05, UTC)", "offsets (0=100,1=250)")

    def read(self, text: str) -> int | Offsets | None:
        """Read a time or offsets."""
        return parse_offsets(text) or m.parse_time(text)


class _End(_Point):
    words = ("live", "end")


TIME = _Time()
BEGIN = _Begin()
END = _End()
