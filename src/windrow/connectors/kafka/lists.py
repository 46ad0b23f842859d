"""Lists of rules in a Kafka topic: the keys whose latest record has a value, at the start and as they change."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from windrow import model as m
from windrow.connectors.kafka.client import Admin
from windrow.connectors.kafka.options import TIMEOUT, client_options
from windrow.connectors.kafka.read import Tail
from windrow.errors import SourceError, SourceUnavailableError

_BEGIN_SECONDS = 30.0
"""Seconds without a record after which reading a list to its end fails."""
_RECORDS = 10_000


class ListTopic:
    """The entries of a list that is kept in a topic, which is read to its current end when the list is opened.

    A key that cannot be an entry is skipped, and `wrong` has a message with its location. Writing null with that key
    removes the message. Raise SourceError if the topic cannot be read.
    """

    def __init__(self, spec: m.TopicList, source: m.KafkaSource) -> None:
        self._spec = spec
        settings = client_options(source)
        admin = Admin(spec.topic, settings, TIMEOUT)
        ranges = admin.offsets(admin.partitions())
        self._entries: dict[bytes, str] = {}
        self._wrong: dict[bytes, str] = {}
        self._tails: list[Tail] = []
        for partition, (first, end) in ranges.items():
            tail = Tail(spec.topic, partition, settings, "windrow")
            self._tails.append(tail)
            tail.seek(first)
            self._read(tail, end)

    @property
    def entries(self) -> frozenset[str]:
        """The current entries."""
        return frozenset(self._entries.values())

    @property
    def wrong(self) -> tuple[str, ...]:
        """One message for each key that cannot be an entry, with the location of its last record."""
        return tuple(self._wrong.values())

    @property
    def warning(self) -> str | None:
        """A warning about the keys that cannot be entries, or None."""
        return _warning(self.wrong)

    def poll(self) -> bool:
        """Read new records without waiting; return whether there were any."""
        return sum([self._take(tail, 0.0) for tail in self._tails]) > 0

    def close(self) -> None:
        """Disconnect from the brokers."""
        for tail in self._tails:
            tail.close()

    def _read(self, tail: Tail, end: int) -> None:
        deadline = time.monotonic() + _BEGIN_SECONDS
        while tail.next < end:
            if self._take(tail, 0.05):
                deadline = time.monotonic() + _BEGIN_SECONDS
            elif time.monotonic() > deadline:
                msg = f"the list {self._spec.name!r}: topic {self._spec.topic} returns no records"
                raise SourceUnavailableError(msg)

    def _take(self, tail: Tail, seconds: float) -> int:
        batch = tail.poll(_RECORDS, seconds)
        if batch is None:
            return 0
        count: int = batch.num_rows
        rows = zip(*(batch.column(name).to_pylist() for name in ("partition", "offset", "key", "value")), strict=True)
        for partition, offset, key, value in rows:
            name = key or b""
            self._entries.pop(name, None)
            self._wrong.pop(name, None)
            if value is not None:
                try:
                    self._entries[name] = self._entry(key)
                except (ValueError, LookupError, TypeError):
                    self._wrong[name] = self._problem(partition, offset)
        return count

    def _entry(self, key: bytes | None) -> str:
        text = (key or b"").decode()
        if self._spec.field is None:
            if not text:
                raise ValueError(text)
            return text
        entry = json.loads(text)[self._spec.field]
        if not isinstance(entry, str | int) or isinstance(entry, bool):
            raise TypeError(entry)
        return str(entry)

    def _problem(self, partition: int, offset: int) -> str:
        field = self._spec.field
        wanted = "a text" if field is None else f"a JSON object with a text or whole number as {field!r}"
        return (
            f"the list {self._spec.name!r}: the key of partition {partition}, offset {offset} of topic "
            f"{self._spec.topic} is not {wanted}, so it is not an entry; write null with that key, then the right key"
        )


def read_list(spec: m.TopicList, source: m.KafkaSource) -> ListTopic:
    """Read a list to the end of its topic and disconnect; raise SourceError if the topic cannot be read."""
    topic = ListTopic(spec, source)
    topic.close()
    return topic


class ListWatch:
    """Follows lists during a run, and warns once for each record whose key cannot be an entry.

    The lists are read when the watch is created. Raise SourceError if a topic cannot be read.
    """

    def __init__(self, lists: Iterable[m.TopicList], source: m.KafkaSource, on_warning: Callable[[str], None]) -> None:
        self._on_warning = on_warning
        self._reported: set[str] = set()
        self._topics: list[ListTopic] = []
        try:
            for spec in lists:
                self._topics.append(ListTopic(spec, source))
        except SourceError:
            self.close()
            raise
        self._report()

    def look(self) -> None:
        """Read new records and issue warnings. Errors are ignored here, because the tasks report unreadable topics."""
        for topic in self._topics:
            with suppress(SourceError):
                topic.poll()
        self._report()

    def close(self) -> None:
        """Disconnect from the brokers."""
        for topic in self._topics:
            topic.close()

    def _report(self) -> None:
        for topic in self._topics:
            new = [message for message in topic.wrong if message not in self._reported]
            self._reported.update(new)
            warning = _warning(new)
            if warning is not None:
                self._on_warning(warning)


def _warning(wrong: Sequence[str]) -> str | None:
    if not wrong:
        return None
    return wrong[0] + (f" (and {len(wrong) - 1:,} more of its keys)" if len(wrong) > 1 else "")
