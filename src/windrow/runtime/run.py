"""Settings of a run on any host, and the command lines that its messages advise.

`RunSettings` is the only record of a run's options, and no host copies it. So a new option touches three files: its
field is here, the host reads it, and `cli/run.py` passes it (`client/run.py` too if Python has it).
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

HostName = Literal["stream", "realtime", "batch", "memory"]
ReplayHost = Literal["batch", "memory"]
Ended = Literal["end", "asked"]
"""Why a run ended: at the end of the input, or because it was asked to stop."""

OnStart = Callable[[Callable[[], None]], None]
"""A callback that receives the function that asks the run to stop."""

OnAlert = Callable[[Alert], None]


def shell_word(text: str) -> str:
    """Quote a text for a command line; a hidden value is written as its variable, which a shell expands."""
    if not HIDDEN_VALUES.are_in(text):
        return shlex.quote(text)
    return f'"{HIDDEN_VALUES.hide(_SPECIAL.sub(_ESCAPED, text))}"'


_SPECIAL: Final = re.compile(r'(["\\$`])')
_ESCAPED: Final = r"\\\1"


@dataclass(frozen=True)
class CommandLines:
    """Command lines for a pipeline by its `file`, and its `checkpoint` as named there (empty: the default one).

    `given` are options that the file is read with.
    """

    file: str
    checkpoint: str = ""
    given: str = ""

    def of(self, words: str) -> str:
        """Return ``windrow COMMAND FILE OPTIONS`` for ``COMMAND OPTIONS``; ``{c}`` is the option for the checkpoint."""
        name, _, options = words.partition(" ")
        option = f"--checkpoint {shell_word(self.checkpoint)}" if self.checkpoint else ""
        given = options.replace("{c}", option).strip()
        return " ".join(filter(None, ["windrow", name, self.pipeline, given]))

    @property
    def pipeline(self) -> str:
        """The file with the options that it is read with, as words of a command line."""
        return " ".join(filter(None, [shell_word(self.file), self.given]))


PLACEHOLDER: Final = CommandLines("PIPELINE")
"""Command lines of a pipeline without a file, or whose file is unknown."""


@dataclass(frozen=True)
class RunSettings:
    """Settings of a run on any host.

    A step reads at most `max_records` (None: the default of the host). Live, a step starts every `every` microseconds
    if there is input, earlier if there is much (`windrow.runtime.stream.steps`), and reads less if it would otherwise
    last longer than `step_time` microseconds. `fresh` first removes the checkpoint and the tables. A new checkpoint
    starts from `savepoint` if that is given, or with `backfill` from a batch run over all records in the log.

    `on_trouble` is called with each fault after which the run retries, and with lost records if `on_data_loss` is
    "continue"; `on_warning` with problems that do not stop the run, such as a followed file that cannot be read;
    `on_ready` when a query has started, also after a fault; `on_resume` when an existing checkpoint is locked and fits
    the pipeline; `on_lag` about once a second with the lag of a live run; `on_alert` with each alert that `watch`
    raises or resolves.

    A run gives up after `retry` seconds of faults without a step (None: a minute, on a cluster or in real time ten).
    `commands` are the command lines that alerts advise. With `has_company` other runs share this process, so the run
    takes a session of its own in their Spark.
    """

    checkpoint: Folder
    host: HostName = "stream"
    until_end: bool = False
    max_records: int | None = None
    every: int = 1_000_000
    step_time: int | None = None
    fresh: bool = False
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
"""Raises the alerts of a live run, whose record is in the history, from the calls of the observer."""


def require_end(settings: RunSettings, remedy: str = "add --until-end") -> None:
    """Raise InputError, which names a remedy, if the host only runs to the end of the input and the run is live."""
    if settings.host in {"batch", "memory"} and not settings.until_end:
        msg = f"the {settings.host} host reads to the end of the input: {remedy}, or run on the stream host"
        raise InputError(msg)
