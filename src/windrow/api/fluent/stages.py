"""The stages of a pipeline, from a stream to a sink; every step returns a new value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, overload

from windrow.api.checks.validate import require_valid
from windrow.api.fluent.length import Length, micros
from windrow.errors import PipelineError
from windrow.model import (
    DEFAULT_KEY_GROUPS,
    Aggregate,
    DataType,
    Decode,
    Delay,
    Emit,
    EventTime,
    Field,
    Function,
    Pipeline,
    Punctuated,
    Sink,
    Source,
    Window,
    parse_type,
)


@dataclass(frozen=True)
class Stream:
    """Records as bytes."""

    source: Source

    def decode(self, /, **fields: str | DataType) -> Decoded:
        """Say which fields a record, a JSON object, must have, with their types: ``amount="decimal(12,2)"``."""
        return Decoded(self.source, Decode(tuple(Field(name, _type(name, type_)) for name, type_ in fields.items())))


@dataclass(frozen=True)
class Decoded:
    """Records with fields."""

    source: Source
    fields: Decode

    @overload
    def event_time(self, field: str, *, delay: Length, future: Length | None = None) -> Timed: ...

    @overload
    def event_time(self, field: str, *, punctuated: str, future: Length | None = None) -> Timed: ...

    def event_time(
        self,
        field: str,
        *,
        delay: Length | None = None,
        punctuated: str | None = None,
        future: Length | None = None,
    ) -> Timed:
        """Say which field holds event time, and what moves the watermark.

        Args:
            field: a field of a timestamp type.
            delay: how far out of order records come; the watermark is that far behind the greatest event time.
            punctuated: in place of `delay`, the field by which records carry the watermark.
            future: a record whose event time is further than this ahead of its log timestamp is a dead letter.

        Raises:
            PipelineError: neither or both of `delay` and `punctuated` are given, or a duration is none.
        """
        guard = None if future is None else micros(future, "time.future")
        if punctuated is not None and delay is None:
            return Timed(self, EventTime(field, Punctuated(punctuated), guard))
        if delay is not None and punctuated is None:
            return Timed(self, EventTime(field, Delay(micros(delay, "time.delay")), guard))
        msg = "time: give either delay (how far out of order records come) or punctuated"
        raise PipelineError(msg)


@dataclass(frozen=True)
class Timed:
    """Records with an event time."""

    decoded: Decoded
    time: EventTime

    def key_by(self, *names: str) -> Keyed:
        """Say for which fields results are kept."""
        return Keyed(self, names)


@dataclass(frozen=True)
class Keyed:
    """Records with a key."""

    timed: Timed
    key: tuple[str, ...]

    def window(self, window: Window) -> Windowed:
        """Say how event time is cut: `windrow.tumbling`."""
        return Windowed(self, window)


@dataclass(frozen=True)
class Windowed:
    """Records of a key in a window."""

    keyed: Keyed
    cut: Window

    def aggregate(self, /, **results: Function) -> Aggregated:
        """Name the results: ``total=wr.sum("amount")``."""
        return Aggregated(self, tuple(Aggregate(name, function) for name, function in results.items()))


@dataclass(frozen=True)
class Aggregated:
    """Results of a key in a window."""

    windowed: Windowed
    aggregates: tuple[Aggregate, ...]

    def emit(
        self,
        *,
        lateness: Length = "0s",
        late: Literal["each", "batch"] = "each",
        mode: Literal["retract"] = "retract",
        at_end: Literal["fire", "hold"] = "fire",
    ) -> Emitted:
        """Say when results are written, and what late records do.

        Args:
            lateness: for how long after its end (by the watermark) late records revise a window.
            late: one revision for each late record, or one a step.
            mode: revisions take the old row back and give the new one.
            at_end: at the end of a bounded input, windows that are still open fire, or stay open.
        """
        return Emitted(self, Emit(micros(lateness, "emit.lateness"), late, mode, at_end))

    def to(self, sink: Sink, *, name: str | None = None, key_groups: int = DEFAULT_KEY_GROUPS) -> Pipeline:
        """Write to a sink, and leave `emit` at its defaults; see `Emitted.to`."""
        return Emitted(self, Emit()).to(sink, name=name, key_groups=key_groups)


@dataclass(frozen=True)
class Emitted:
    """Changes of results."""

    aggregated: Aggregated
    how: Emit

    def to(self, sink: Sink, *, name: str | None = None, key_groups: int = DEFAULT_KEY_GROUPS) -> Pipeline:
        """Write to a sink, and so complete the pipeline.

        Args:
            sink: `windrow.sqlite` or `windrow.postgres`.
            name: the pipeline's name; left out, the table's.
            key_groups: the upper bound of parallelism, which stays as it is for the pipeline's life.

        Raises:
            PipelineError: the pipeline as a whole means nothing; all that is wrong, at once.
        """
        windowed = self.aggregated.windowed
        timed = windowed.keyed.timed
        return require_valid(
            Pipeline(
                name=sink.table if name is None else name,
                source=timed.decoded.source,
                decode=timed.decoded.fields,
                time=timed.time,
                key=windowed.keyed.key,
                window=windowed.cut,
                aggregates=self.aggregated.aggregates,
                emit=self.how,
                sink=sink,
                key_groups=key_groups,
            )
        )


def _type(name: str, type_: str | DataType) -> DataType:
    if not isinstance(type_, str):
        return type_
    try:
        return parse_type(type_)
    except PipelineError as exc:
        msg = f"decode.{name}: {exc.message}"
        raise PipelineError(msg) from exc
