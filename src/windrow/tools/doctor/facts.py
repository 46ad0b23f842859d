"""Facts about a pipeline, its run, checkpoint, tables, logs and machine, which the doctor's rules judge."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from windrow import model as m
from windrow.errors import HIDDEN_VALUES
from windrow.model.references import MASK, mask_arguments, mask_option, mask_url, mask_webhook, references_in
from windrow.runtime.run import CommandLines
from windrow.telemetry.health import GOING
from windrow.telemetry.history import RunRecord
from windrow.telemetry.reports import StepReport
from windrow.telemetry.status import RunStatus

if TYPE_CHECKING:
    from windrow.connectors.sink import Follows, Run
    from windrow.connectors.source import Loss
    from windrow.tools.tune.disorder import Disorder

Severity = Literal["serious", "advice", "fine", "unknown"]
"""`unknown` is a rule that could not look, so it has neither passed nor failed."""


@dataclass(frozen=True)
class Finding:
    """A finding of a rule: what was `found`, `why` it matters, and the commands or settings `to_do` about it.

    `where` is the path of a setting in the pipeline, such as ``time.delay``, or empty.
    """

    severity: Severity
    found: str
    why: str = ""
    to_do: tuple[str, ...] = ()
    where: str = ""
    rule: str = ""
    title: str = ""


def _finding(severity: Severity, found: str, why: str = "", to_do: tuple[str, ...] = (), where: str = "") -> Finding:
    hide = HIDDEN_VALUES.hide
    return Finding(severity, hide(found), hide(why), tuple(map(hide, to_do)), where)


def serious(found: str, why: str, *to_do: str, where: str = "") -> Finding:
    """Return a finding that should be corrected before anyone relies on the results."""
    return _finding("serious", found, why, to_do, where)


def advice(found: str, why: str, *to_do: str, where: str = "") -> Finding:
    """Return a finding that is worth considering."""
    return _finding("advice", found, why, to_do, where)


def fine(found: str) -> Finding:
    """Return a finding that all is well."""
    return _finding("fine", found)


def unknown(found: str, *to_do: str) -> Finding:
    """Return a finding that a rule could not be checked, and what would make it possible."""
    return _finding("unknown", found, to_do=to_do)


@dataclass(frozen=True)
class Unknown:
    """Stands for a fact that is not known, and says why."""

    why: str


BUSY: Final = 0.8
"""Share of the time spent in steps from which on there is little room for more records."""
LEAST_FREE: Final = 1_000_000_000
"""Bytes on a disk below which there is little room for a run."""


@dataclass(frozen=True)
class Disk:
    """The disk that holds a folder: the type of its file system, and its free and total bytes.

    `is_temporary` is True if a restart can empty the folder. `device` is equal for folders on the same disk.
    """

    path: str
    kind: str
    free: int
    total: int
    is_temporary: bool
    device: int = 0


@dataclass(frozen=True)
class Machine:
    """This machine: cores, memory in bytes (None if unknown), and versions by name (None if not installed).

    `unmet` lists windrow's requirements that the installed packages do not meet. `temporary` is the disk for temporary
    files.
    """

    cores: int
    memory: int | None
    versions: Mapping[str, str | None]
    unmet: tuple[str, ...]
    temporary: Disk


@dataclass(frozen=True)
class RunFacts:
    """The history of a run: its status, its last processes, and the sum of all its steps (None if there are none).

    `options` are the words of the command line if the process runs on this machine. `state_bytes` are known state sizes
    after steps, oldest first. `stands` is how long the low watermark has not moved (microseconds, None if unknown).
    """

    status: RunStatus
    processes: tuple[RunRecord, ...]
    total: StepReport | None
    options: tuple[str, ...] | None = None
    state_bytes: tuple[int, ...] = ()
    stands: int | None = None

    @property
    def is_going(self) -> bool:
        """Whether a process is known to be running."""
        return self.status.state in GOING

    @property
    def counts(self) -> StepReport | Unknown:
        """The sum of all steps, or Unknown if there are none or the run counts only offsets."""
        if self.total is None:
            return Unknown("no step was committed")
        return Unknown("a realtime run reports offsets only") if self.total.only_offsets else self.total


@dataclass(frozen=True)
class CheckpointFacts:
    """A checkpoint: its run, last epoch (None before the first step), size in bytes, and damage (or None).

    `differs` describes how the pipeline differs from the one that wrote the checkpoint, or is None. `run` is None if
    the checkpoint cannot be read.
    """

    run: Run | None
    follows: Follows | None = None
    epoch: int | None = None
    size: int = 0
    damage: str | None = None
    differs: str | None = None


@dataclass(frozen=True)
class Restored:
    """The state of a checkpoint or savepoint: epoch, bytes, keys, open windows, and the seconds it took to read."""

    epoch: int
    bytes: int
    keys: int
    windows: int
    seconds: float


@dataclass(frozen=True)
class Damaged:
    """A checkpoint or savepoint that could not be restored, and why."""

    why: str


@dataclass(frozen=True)
class TableFacts:
    """The tables of a sink: the run that owns them, its last epoch, and where they do not fit the pipeline (`misfits`).

    `lost` is the number of losses in the clock journal, `dead` the number of dead letters, and `redriven` the number of
    dead letters that were redriven.
    """

    owner: Run | None
    epoch: int | None
    key: tuple[str, ...]
    misfits: tuple[str, ...] = ()
    lost: int = 0
    dead: int = 0
    redriven: int = 0


@dataclass(frozen=True)
class Retention:
    """The retention of a topic in microseconds and in bytes per partition; None means that there is no limit.

    `is_appended` is True if log timestamps come from the broker and not from the producers.
    """

    time: int | None
    bytes: int | None
    is_compacted: bool
    is_appended: bool


@dataclass(frozen=True)
class LogFacts:
    """The log of a source: its number of partitions, number of records (None if not counted), and retention.

    If `retention` is None, only `windrow log` deletes records; `is_cut` is True if it has done so.
    """

    partitions: int
    records: int | None = None
    retention: Retention | None = None
    is_cut: bool = False


@dataclass(frozen=True)
class Examined:
    """All facts gathered about a pipeline at the time `now` (microseconds).

    `warnings` are the warnings of `windrow check` as (path, message) pairs. `savepoints` maps the paths of savepoints
    beside the checkpoint to what was read from them. `logs` and `tables` are keyed by the names of sources and sinks.
    `lost` are records that the next run would miss. `leaks` are files that contain a secret, and `readable` says which
    secrets and folders other users can read or write.
    """

    graph: m.Graph
    now: int
    commands: CommandLines
    machine: Machine
    place: Disk | None
    run: RunFacts | Unknown
    checkpoint: CheckpointFacts | Unknown
    restored: Restored | Damaged | Unknown
    disorder: Disorder | Unknown
    savepoints: Mapping[str, Restored | Damaged] = field(default_factory=dict)
    logs: Mapping[str, LogFacts | Unknown] = field(default_factory=dict)
    tables: Mapping[str, TableFacts | Unknown] = field(default_factory=dict)
    lost: tuple[Loss, ...] | Unknown = ()
    warnings: tuple[tuple[str, str], ...] = ()
    leaks: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()

    def command(self, words: str) -> str:
        """Return the command line ``windrow COMMAND FILE OPTIONS``, in which ``{c}`` stands for the checkpoint."""
        return self.commands.of(words)

    def setting(self, path: str, value: str) -> str:
        """Return a setting as a line of YAML, with a note if a run must resume from a savepoint to adopt it."""
        *sections, name = path.split(".")
        text = f"{name}: {value}"
        for section in reversed(sections):
            text = f"{section}: {{{text}}}"
        has_run = isinstance(self.checkpoint, CheckpointFacts) and not self.is_realtime
        return f"{text}    # then resume from a savepoint" if has_run else text

    @property
    def is_realtime(self) -> bool:
        """Whether the pipeline runs in real time."""
        return self.graph.mode == "realtime"

    @property
    def total(self) -> StepReport | Unknown:
        """The sum of all steps of the run, or Unknown if there are none or the run counts only offsets."""
        return self.run if isinstance(self.run, Unknown) else self.run.counts

    def path(self, source: str, setting: str) -> str:
        """Return the path of a source's setting in the pipeline file."""
        return setting if self.graph.is_short else f"sources.{source}.{setting}"


@dataclass(frozen=True)
class SecretSetting:
    """A setting that may contain a secret: the option `name`, or a `url`, `webhook` or `command`."""

    path: str
    name: str
    text: str

    @property
    def has_secret(self) -> bool:
        """Whether the setting contains a secret in plain text."""
        match self.name:
            case "url":
                return mask_url(self.text) != self.text
            case "webhook":
                return mask_webhook(self.text) != self.text and not references_in(self.text)
            case "command":
                return MASK in mask_arguments((self.text,))[0] and MASK not in self.text
            case name:
                return mask_option(name, self.text) != self.text and not references_in(self.text)

    @property
    def references(self) -> list[str]:
        """The references that stand for a secret, but not those for a user name or a host."""
        match self.name:
            case "url":
                known = references_in(self.text)
                marked = self.text
                for number, reference in enumerate(known):
                    marked = marked.replace(reference, f"_{number}_", 1)
                masked = mask_url(marked)
                hidden = {number for number in range(len(known)) if f"_{number}_" not in masked}
                return [name for number, name in enumerate(known) if number in hidden or name == self.text]
            case "webhook" | "command":
                return references_in(self.text)
            case "sasl.jaas.config":
                return references_in(" ".join(_JAAS_PASSWORD.findall(self.text)))
            case name:
                return references_in(self.text) if mask_option(name, "x") == MASK else []


_JAAS_PASSWORD: Final = re.compile(r'password\s*=\s*"([^"]*)"')


def secret_settings(graph: m.Graph) -> Iterator[SecretSetting]:
    """Yield the settings of a pipeline that may contain a secret."""
    for node in graph.sources:
        log, source = node.source.records, node.source
        where = f"{'' if graph.is_short else f'sources.{node.name}.'}source.{source.section}"
        if isinstance(source, m.PostgresCdcSource):
            yield SecretSetting(f"{where}.url", "url", source.url)
        if isinstance(log, m.KafkaSource):
            yield from (SecretSetting(f"{where}.options.{name}", name, text) for name, text in log.options)
            yield from _of_registries(where, log.registries)
    for sink in graph.sinks:
        where = f"{'' if graph.is_short else f'sinks.{sink.name}.'}sink.{sink.sink.section}"
        if isinstance(sink.sink, m.PostgresSink):
            yield SecretSetting(f"{where}.url", "url", sink.sink.url)
        if isinstance(sink.sink, m.KafkaSink):
            yield from (SecretSetting(f"{where}.options.{name}", name, text) for name, text in sink.sink.options)
            yield from _of_registries(where, sink.sink.registries)
    if graph.alerts.webhook is not None:
        yield SecretSetting("alerts.webhook", "webhook", graph.alerts.webhook)
    for number, argument in enumerate(graph.alerts.command):
        yield SecretSetting(f"alerts.command.{number}", "command", argument)


def _of_registries(where: str, registries: Mapping[str, m.Registry]) -> Iterator[SecretSetting]:
    for setting, registry in registries.items():
        at = f"{where}.{setting}"
        yield SecretSetting(f"{at}.url", "url", registry.url)
        yield from (SecretSetting(f"{at}.options.{name}", name, text) for name, text in registry.options)


MICROS: Final = 1_000_000
MINUTE, DAY = 60 * MICROS, 86_400 * MICROS
