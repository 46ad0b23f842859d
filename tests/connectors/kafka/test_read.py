"""What the reader makes of what a client says in the place of records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, Message

from windrow.connectors.kafka.read import Reader, _in_order
from windrow.engine.schema import RAW
from windrow.errors import InputError, RecordsLostError, SourceError
from windrow.testing.servers.kafka import Kafka


def batch(*places: tuple[int, int]) -> pa.RecordBatch:
    rows = [{"partition": partition, "offset": offset} for partition, offset in places]
    return pa.RecordBatch.from_pylist(rows, schema=RAW)


def test_records_come_in_the_order_of_their_offsets_with_gaps() -> None:
    at = {0: 5, 1: 0}
    _in_order(at, batch((0, 5), (1, 3), (0, 7), (1, 4)))
    assert at == {0: 8, 1: 5}


@pytest.mark.parametrize("places", [[(0, 4)], [(0, 5), (0, 5)], [(0, 7), (0, 6)], [(2, 0)]], ids=str)
def test_what_was_not_asked_for_is_an_error(places: list[tuple[int, int]]) -> None:
    with pytest.raises(SourceError, match="twice or out of order"):
        _in_order({0: 5}, batch(*places))


class Told:
    """A message of librdkafka's that is no record."""

    def __init__(self, code: int, partition: int | None, offset: int = -1) -> None:
        self._error, self._partition, self._offset = KafkaError(code), partition, offset

    def error(self) -> KafkaError:
        return self._error

    def partition(self) -> int | None:
        return self._partition

    def offset(self) -> int:
        return self._offset


@pytest.fixture
def reader() -> Reader:
    return Reader("spend", {"bootstrap.servers": "127.0.0.1:1"})


def test_an_error_of_no_partition_is_no_end(reader: Reader) -> None:
    at, short = {0: 5}, {0: 3}
    reader._hear(Told(KafkaError.GROUP_AUTHORIZATION_FAILED, None), at, short)  # type: ignore[arg-type]  # noqa: SLF001
    assert (at, short) == ({0: 5}, {0: 3})


def test_an_end_is_where_a_partition_has_come_to(reader: Reader) -> None:
    at: dict[int, int] = {0: 5, 1: 0}
    short: dict[int, int] = {}
    reader._hear(Told(KafkaError._PARTITION_EOF, 0, 9), at, short)  # type: ignore[arg-type]  # noqa: SLF001
    assert (at, short) == ({0: 9, 1: 0}, {0: 9})
    reader._give_up(1.0, short)  # noqa: SLF001 - it may know more in a moment
    with pytest.raises(RecordsLostError, match="partition 0 of spend now ends at offset 9"):
        reader._give_up(6.0, short)  # noqa: SLF001 - the same


def test_settings_that_no_client_takes_are_named() -> None:
    with pytest.raises(InputError, match=r"options of topic spend are wrong: .*fetch.max.bytes"):
        Reader("spend", {"bootstrap.servers": "127.0.0.1:1", "fetch.max.bytes": "10"})


def test_a_range_beyond_the_end_is_lost(kafka: Kafka, topic: Callable[..., str]) -> None:
    name = topic(1)
    kafka.produce(name, 0, [b"a", b"b"])
    with pytest.raises(RecordsLostError, match=f"partition 0 of {name}"):
        list(Reader(name, {"bootstrap.servers": kafka.servers}).read({0: (0, 5)}))


class Asked:
    """A client that notes how many messages it is asked for at a time."""

    def __init__(self, client: Consumer) -> None:
        self._client = client
        self.numbers: list[int] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the client has
        return getattr(self._client, name)

    def consume(self, number: int, seconds: float) -> list[Message]:
        self.numbers.append(number)
        return self._client.consume(number, seconds)


def test_a_client_is_not_asked_for_more_than_there_is_which_it_would_wait_for(
    kafka: Kafka, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(2)
    kafka.produce(name, 0, [b"a", b"b", b"beyond"])
    kafka.produce(name, 1, [b"c"])
    reader = Reader(name, {"bootstrap.servers": kafka.servers})
    asked = Asked(reader._consumer)  # noqa: SLF001 - there is no other way to see it
    monkeypatch.setattr(reader, "_consumer", asked)
    values = [value for one in reader.read({0: (0, 2), 1: (0, 1)}) for value in one.column("value").to_pylist()]
    assert sorted(values) == [b"a", b"b", b"c"]
    assert max(asked.numbers) == len(values)
