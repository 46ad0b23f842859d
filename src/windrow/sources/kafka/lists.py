"""Lists of rules in a Kafka topic: the keys of records that have a value, now and as they change."""

from __future__ import annotations

import json
import time

from windrow.errors import InputError, SourceUnavailableError
from windrow.model import KafkaSource, TopicList
from windrow.sources.kafka.client import Admin
from windrow.sources.kafka.options import TIMEOUT, client_options
from windrow.sources.kafka.read import Tail

_BEGIN_SECONDS = 30.0
"""Seconds without a record after which a list that is not read to its end is given up."""
_RECORDS = 10_000


class ListTopic:
    """The entries of a list, as far as its topic is read; to open it is to read it to the end that it has then.

    Raise SourceError if the topic cannot be read, and InputError, with the record's place, for a key that is no entry.
    A record with a null value is of a key that is not an entry, whatever it looks like, so it mends a wrong one.
    """

    def __init__(self, given: TopicList, source: KafkaSource) -> None:
        self._given = given
        settings = client_options(source)
        admin = Admin(given.topic, settings, TIMEOUT)
        ranges = admin.offsets(admin.partitions())
        self._entries: dict[bytes, str] = {}
        self._wrong: dict[bytes, InputError] = {}
        self._tails: list[Tail] = []
        for partition, (first, end) in ranges.items():
            tail = Tail(given.topic, partition, settings, "windrow")
            self._tails.append(tail)
            tail.seek(first)
            self._read(tail, end)
        self._require_right()

    @property
    def entries(self) -> frozenset[str]:
        """The entries."""
        return frozenset(self._entries.values())

    def poll(self) -> bool:
        """Read the records that have come, without waiting; return whether there were any."""
        count = sum([self._take(tail, 0.0) for tail in self._tails])
        if count:
            self._require_right()
        return count > 0

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
                    self._wrong[name] = self._error(partition, offset)
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

    def _error(self, partition: int, offset: int) -> InputError:
        field = self._given.field
        wanted = "a text" if field is None else f"a JSON object with a text or whole number as {field!r}"
        return InputError(
            f"the list {self._given.name!r}: the key of partition {partition}, offset {offset} of topic "
            f"{self._given.topic} is not {wanted}; write null with that key, and the right one"
        )

    def _require_right(self) -> None:
        for error in self._wrong.values():
            raise error


def topic_entries(given: TopicList, source: KafkaSource) -> frozenset[str]:
    """Return the entries of a list as of the end of its topic; raise as `ListTopic` does."""
    topic = ListTopic(given, source)
    try:
        return topic.entries
    finally:
        topic.close()
