"""Lists of rules in a Kafka topic: the keys of records that have a value, now and as they change."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from windrow import model as m
from windrow.connectors.kafka.client import Admin
from windrow.connectors.kafka.options import TIMEOUT, client_options
from windrow.connectors.kafka.read import Tail
from windrow.errors import SourceError, SourceUnavailableError

_BEGIN_SECONDS = 30.0
"""Seconds without a record after which a list that is not read to its end is given up."""
_RECORDS = 10_000


class ListTopic:
    """The entries of a list, as far as its topic is read; to open it is to read it to the end that it has then.

    A key that cannot be an entry is none, and no reason to stop: `wrong` has its place. Null with that key mends it.
    Raise SourceError if the topic cannot be read.
    """

    def __init__(self, given: m.TopicList, source: m.KafkaSource) -> None:
        self._given = given
        settings = client_options(source)
        admin = Admin(given.topic, settings, TIMEOUT)
        ranges = admin.offsets(admin.partitions())
        self._entries: dict[bytes, str] = {}
        self._wrong: dict[bytes, str] = {}
        self._tails: list[Tail] = []
        for partition, (first, end) in ranges.items():
            tail = Tail(given.topic, partition, settings, "windrow")
            self._tails.append(tail)
            tail.seek(first)
            self._read(tail, end)

    @property
    def entries(self) -> frozenset[str]:
        """The entries."""
        return frozenset(self._entries.values())

    @property
    def wrong(self) -> tuple[str, ...]:
        """What is wrong with each key that cannot be an entry, with the place of its last record."""
        return tuple(self._wrong.values())

    def poll(self) -> bool:
        """Read the records that have come, without waiting; return whether there were any."""
        return sum([self._take(tail, 0.0) for tail in self._tails]) > 0

    def close(self) -> None:
        """Leave the broker."""
        for tail in self._tails:
            tail.close()

    def _read(self, tail: Tail, end: int) -> None:
        deadline = time.monotonic() + _BEGIN_SECONDS
        while tail.next < end:
            if self._take(tail, 0.05):
                deadline = time.monotonic() + _BEGIN_SECONDS
            elif time.monotonic() > deadline:
                msg = f"the list {self._given.name!r}: topic {self._given.topic} gives no records"
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
        if self._given.field is None:
            if not text:
                raise ValueError(text)
            return text
        entry = json.loads(text)[self._given.field]
        if not isinstance(entry, str | int) or isinstance(entry, bool):
            raise TypeError(entry)
        return str(entry)

    def _problem(self, partition: int, offset: int) -> str:
        field = self._given.field
        wanted = "a text" if field is None else f"a JSON object with a text or whole number as {field!r}"
        return (
            f"the list {self._given.name!r}: the key of partition {partition}, offset {offset} of topic "
            f"{self._given.topic} is not {wanted}, and no entry; write null with that key, and the right one"
        )


@dataclass(frozen=True)
class ListContents:
    """The entries of a list, and what is wrong with keys that cannot be entries."""

    entries: frozenset[str]
    wrong: tuple[str, ...]

    @property
    def warning(self) -> str | None:
        """The warning about keys that cannot be entries."""
        return _warning(self.wrong)


def read_list(given: m.TopicList, source: m.KafkaSource) -> ListContents:
    """Return the contents of a list as of the end of its topic; raise as `ListTopic` does."""
    topic = ListTopic(given, source)
    try:
        return ListContents(topic.entries, topic.wrong)
    finally:
        topic.close()


class ListWatch:
    """Follows lists beside the tasks of a run, and warns of keys that cannot be entries, once of each record.

    To open it is to read the lists; raise as `ListTopic` does then.
    """

    def __init__(self, lists: Iterable[m.TopicList], source: m.KafkaSource, on_warning: Callable[[str], None]) -> None:
        self._on_warning = on_warning
        self._reported: set[str] = set()
        self._topics: list[ListTopic] = []
        try:
            for one in lists:
                self._topics.append(ListTopic(one, source))
        except SourceError:
            self.close()
            raise
        self._report()

    def look(self) -> None:
        """Warn of what has come; the tasks report a topic that cannot be read."""
        for topic in self._topics:
            with suppress(SourceError):
                topic.poll()
        self._report()

    def close(self) -> None:
        """Leave the broker."""
        for topic in self._topics:
            topic.close()

    def _report(self) -> None:
        for topic in self._topics:
            new = [one for one in topic.wrong if one not in self._reported]
            self._reported.update(new)
            warning = _warning(new)
            if warning is not None:
                self._on_warning(warning)


def _warning(wrong: Sequence[str]) -> str | None:
    if not wrong:
        return None
    return wrong[0] + (f" (and {len(wrong) - 1:,} more of its keys)" if len(wrong) > 1 else "")
