"""Settings of a run on any host, and the command lines that its messages recommend.

`RunSettings` is the only record of a run's options, and no host copies it. A new option therefore touches three files:
its field is added here, the host reads it, and `cli/run.py` passes it (as does `client/run.py` if Python offers it).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from windrow import model as m
from windrow.errors import HIDDEN_VALUES, InputError
from windrow.runtime.settings import AS_GIVEN, SparkOptions
from windrow.telemetry.folders import Folder
from windrow.telemetry.reports import Alert, Observer, OnLag, OnTrouble

if TYPE_CHECKING:
    from windrow.connectors.source import OnDataLoss
    from windrow.telemetry.history import RunRecord

MAX_BYTES: Final = 256 << 20
"""Default number of bytes of the records of a step."""

HostName = Literal["stream", "realtime", "batch", "memory"]
ReplayHost = Literal["batch", "memory"]
Ended = Literal["end", "asked"]
"""Why a run ended: at the end of the input, or because it was asked to stop."""

OnStart = Callable[[Callable[[], None]], None]
"""A callback that receives the function that asks the run to stop."""

OnAlert = Callable[[Alert], None]


def shell_word(text: str) -> str:
    """Quote a text for a command line; a hidden value is written as its variable, which the shell expands."""
    if not HIDDEN_VALUES.are_in(text):
        return shlex.quote(text)
    return f'"{HIDDEN_VALUES.hide(_SPECIAL.sub(_ESCAPED, text))}"'


_SPECIAL: Final = re.compile(r'(["\\$`])')
_ESCAPED: Final = r"\\\1"


@dataclass(frozen=True)
class CommandLines:
    """Command lines for a pipeline in `file`, with the `checkpoint` to pass (empty: the default one).

    `given` are the options with which the file is read.
    """

    file: str
    checkpoint: str = ""
    given: str = ""

    def of(self, words: str) -> str:
        """Return ``windrow COMMAND FILE OPTIONS`` for ``COMMAND OPTIONS``, with ``{c}`` as the checkpoint option."""
        name, _, options = words.partition(" ")
        option = f"--checkpoint {shell_word(self.checkpoint)}" if self.checkpoint else ""
        given = options.replace("{c}", option).strip()
        return " ".join(filter(None, ["windrow", name, self.pipeline, given]))

    @property
    def pipeline(self) -> str:
        """The file and the options with which it is read, quoted for a command line."""
        return " ".join(filter(None, [shell_word(self.file), self.given]))


PLACEHOLDER: Final = CommandLines("PIPELINE")
"""Command lines for a pipeline that has no file, or whose file is unknown."""


@dataclass(frozen=True)
class RunSettings:
    """Settings of a run on any host.

    A step reads at most `max_records` records (None: the host's default) of about `max_bytes` bytes in total; a larger
    record is a step of its own. In a live run, a step starts every `every` microseconds if there is input, or earlier
    if there is a lot of it (`windrow.runtime.stream.steps`). It reads fewer records if it would otherwise last longer
    than `step_time` microseconds. `fresh` first removes the checkpoint and the tables. The followed tables in `recopy`
    are first copied again. A new checkpoint starts from `savepoint` if given, or, with `backfill`, from a batch run
    over all records in the log.

    `on_trouble` is called for each fault after which the run retries, and for lost records if `on_data_loss` is
    "continue". `on_warning` is called for problems that do not stop the run, such as a followed file that cannot be
    read, and `on_ready` when a query has started, including after a fault. `on_resume` is called when an existing
    checkpoint is locked and fits the pipeline, `on_lag` about once a second with the lag of a live run, and `on_alert`
    for each alert that `watch` raises or resolves.

    A run gives up after `retry` seconds of faults without a completed step (None: one minute, or ten on a cluster or in
    real time). `commands` are the command lines that alerts recommend. With `has_company`, other runs share this
    process, so the run uses its own session in their Spark application.
    """

    checkpoint: Folder
    host: HostName = "stream"
    until_end: bool = False
    max_records: int | None = None
    max_bytes: int = MAX_BYTES
    every: int = 1_000_000
    step_time: int | None = None
    fresh: bool = False
    recopy: tuple[str, ...] = ()
    savepoint: Folder | None = None
    backfill: bool = False
    spark: SparkOptions = AS_GIVEN
    on_trouble: OnTrouble = lambda _: None
    on_warning: Callable[[str], None] = lambda _: None
    on_resume: Callable[[], None] = lambda: None
    on_ready: Callable[[], None] = lambda: None
    on_lag: OnLag = lambda _: None
    on_alert: OnAlert = lambda _: None
    watch: Watch = lambda *_: nullcontext(Observer())
    retry: float | None = None
    on_data_loss: OnDataLoss = "stop"
    commands: CommandLines = PLACEHOLDER
    has_company: bool = False


Watch = Callable[[m.Graph, RunSettings, "RunRecord"], AbstractContextManager[Observer]]
"""Returns an observer that raises the alerts of a live run, given its pipeline, settings and history record."""


def require_end(settings: RunSettings, remedy: str = "add --until-end") -> None:
    """Raise InputError, with a remedy, if the run is live but its host can only run to the end of the input."""
    if settings.host in {"batch", "memory"} and not settings.until_end:
        msg = f"the {settings.host} host reads to the end of the input: {remedy}, or run on the stream host"
        raise InputError(msg)
