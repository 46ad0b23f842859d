"""Option types of the command line: durations, folders, tables, times, and points in a log."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import click

from windrow import model as m
from windrow.errors import InputError, PipelineError
from windrow.runtime.settings import SparkOptions
from windrow.telemetry.folders import Folder, folder_of

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

Offsets = dict[int | str, int]


class OptionType(click.ParamType[T]):
    """The type of an option whose text is parsed by a function, which raises InputError or PipelineError."""

    def __init__(self, name: str, read: Callable[[str], T]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: str | T, param: click.Parameter | None, ctx: click.Context | None) -> T:
        """Parse a text; report invalid text as click does."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except (InputError, PipelineError) as exc:
            self.fail(exc.message, param, ctx)


class _StateFolder(OptionType[Any]):
    """The type of `STATE_FOLDER`. Errors of an object store keep their class, which `--json` prints."""

    def convert(self, value: str | Folder, param: click.Parameter | None, ctx: click.Context | None) -> Folder:
        """Check that the text is not empty, and open the folder."""
        return folder_of(super().convert(value, param, ctx)) if isinstance(value, str) else value


def _read_duration(text: str) -> int:
    """Parse a duration such as ``10m``, in microseconds."""
    micros = m.parse_duration(text)
    if micros > m.MAX_DURATION:
        msg = f"{text!r} is longer than a hundred years (36500d)"
        raise InputError(msg)
    return micros


_SIZES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parse_size(text: str) -> int:
    """Parse a size such as ``500M`` as a number of bytes; units are powers of 1024, and the default unit is bytes."""
    size = text.lower().removesuffix("b").removesuffix("i")
    number = size.rstrip("kmgt")
    if not number.isdecimal() or size[len(number) :] not in _SIZES:
        msg = f"{text!r} is not a size; write a whole number and a unit, such as 500M or 2G"
        raise InputError(msg)
    return int(number) * _SIZES[size[len(number) :]]


def _read_share(text: str) -> float:
    """Parse a percentage such as ``0.1%`` as a fraction."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?%", text)
    if match is None or float(match[1]) > 100:  # noqa: PLR2004 - percent
        msg = f"{text!r} is not a share; write a percentage such as 0.1%"
        raise InputError(msg)
    return float(match[1]) / 100


def _read_address(text: str) -> tuple[str, int]:
    """Parse ``HOST:PORT``, or ``:PORT`` for the loopback address."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal():
        msg = f"{text!r} is not an address; write 0.0.0.0:8080, or :8080 for this machine alone"
        raise InputError(msg)
    return host.strip("[]") or "127.0.0.1", int(port)


def _read_time(text: str) -> int:
    """Parse a time, in microseconds."""
    time = m.parse_time(text)
    if time is None:
        msg = f"{text!r} is not a time; write 2026-01-31 or 2026-01-31T10:05 (UTC)"
        raise InputError(msg)
    return time


def parse_offsets(text: str) -> Offsets | None:
    """Parse ``0=100,1=250`` or ``SOURCE/0=100`` as the next offset of each partition; return None for other text."""
    if not re.fullmatch(r"[^,=]+=\d+(,[^,=]+=\d+)*", text):
        return None
    pairs = (part.partition("=") for part in text.split(","))
    return {int(name) if name.isdecimal() else name: int(offset) for name, _, offset in pairs}


def _read_begin(text: str) -> str | int | Offsets:
    found = text if text == "beginning" else parse_offsets(text) or m.parse_time(text)
    if found is None:
        msg = f"{text!r} is not one of beginning, a time (2026-01-31T10:05, UTC), offsets (0=100,1=250)"
        raise InputError(msg)
    return found


def _read_end(text: str) -> str | Offsets:
    found = text if text in {"live", "end"} else parse_offsets(text)
    if found is None:
        msg = f"{text!r} is not one of live, end, offsets (0=100,1=250)"
        raise InputError(msg)
    return found


def _not_empty(noun: str, read: Callable[[str], T]) -> Callable[[str], T]:
    def read_text(text: str) -> T:
        if not text:
            msg = f"it must not be empty; give a {noun}, or leave out the option"
            raise InputError(msg)
        return read(text)

    return read_text


DURATION: Final = OptionType("duration", _read_duration)
SIZE: Final = OptionType("size", parse_size)
SHARE: Final = OptionType("share", _read_share)
ADDRESS: Final = OptionType("address", _read_address)
FOLDER: Final = OptionType("path", _not_empty("folder", Path))
STATE_FOLDER: Final = _StateFolder("path", _not_empty("folder", str))
"""The folder of a checkpoint or savepoint, which need not exist: a path, or the URL of an object store."""
TABLE: Final = OptionType("text", _not_empty("table", str))
TIME: Final = OptionType("time", _read_time)
BEGIN: Final = OptionType("point", _read_begin)
END: Final = OptionType("point", _read_end)

_SETTING = re.compile(r"(spark\.[^=\s]+)=(.*)", re.DOTALL)


def spark_options(function: F) -> F:
    """Add ``--master`` and ``--conf``, which the function receives together as `spark`."""

    @wraps(function)
    def with_options(*, master: str | None, conf: tuple[str, ...], **others: Any) -> Any:  # noqa: ANN401 - any command
        return function(spark=SparkOptions(master, dict(map(_setting, conf))), **others)

    conf = click.option("--conf", metavar="KEY=VALUE", multiple=True, help="Setting of Spark; may be repeated.")
    help_ = "Spark master URL.  [default: the one that spark-submit sets, or local[*]]"
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
    """A log to write to: a Kafka topic if `servers` is set, otherwise the folder of an embedded log."""

    name: str
    servers: str | None

    @staticmethod
    def read(text: str, servers: str | None = None) -> LogTarget:
        """Parse a folder, or ``kafka://HOST:PORT/TOPIC``; raise UsageError for an invalid target."""
        if not text:
            msg = "TARGET is empty: give a folder, or a topic as kafka://HOST:PORT/TOPIC"
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
