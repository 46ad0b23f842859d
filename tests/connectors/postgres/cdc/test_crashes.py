"""Each change is in the log exactly once, wherever what follows the table is killed."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.connectors.postgres.cdc.conftest import Change, LogShop, Shop
from tests.waiting import join

from windrow.connectors import follower
from windrow.connectors.kafka.producer import TransactionalProducer
from windrow.connectors.log.store import LogStore
from windrow.connectors.postgres.cdc import server
from windrow.connectors.postgres.cdc.stream import ChangeStream
from windrow.model import LogSource


class Killed(BaseException):
    """What a process that is killed does not come to."""


POINTS: list[tuple[Any, str]] = [
    (os, "pwrite"),
    (os, "fsync"),
    (Path, "rename"),
    (LogStore, "note"),
    (ChangeStream, "acknowledge"),
    (server, "drop_slot"),
    (server, "make_publication"),
    (server, "create_slot"),
    (server, "mark_end"),
    (TransactionalProducer, "start"),
    (TransactionalProducer, "begin"),
    (TransactionalProducer, "send"),
    (TransactionalProducer, "commit"),
]
"""All that leaves something behind, here or in the database."""


_LEFT: deque[Producer] = deque(maxlen=20)
"""Clients of those that were killed, until others are: librdkafka ends the whole process (an assertion that txn_req_cnt
> 0) where a client is destroyed while the broker is asked to take a partition into its transaction."""


@contextmanager
def killed_at(point: int, *, is_after: bool, points: Sequence[tuple[Any, str]] = POINTS) -> Iterator[None]:
    """Raise Killed at a call of `points`, counted from 0, before it or after it; of a write the half is written."""
    calls = 0

    def guarded(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - those of the real one
            nonlocal calls
            calls += 1
            if calls - 1 != point:
                return real(*args, **options)
            if name == "pwrite" and not is_after:
                real(args[0], args[1][: len(args[1]) // 2], args[2])
            elif is_after:
                real(*args, **options)
            raise Killed

        return call

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in points:
            patch.setattr(owner, name, guarded(name, getattr(owner, name)))
        # who is killed aborts no transaction
        patch.setattr(TransactionalProducer, "abandon", lambda producer: _LEFT.append(producer.client))
        yield


OPERATIONS = st.tuples(st.sampled_from("cccuudk"), st.integers(1, 6), st.integers(0, 99))
TRANSACTIONS = st.lists(st.lists(OPERATIONS, min_size=1, max_size=4), max_size=4)


@pytest.fixture(params=["shop", pytest.param("topic_shop", marks=pytest.mark.long)])
def any_shop(request: pytest.FixtureRequest, database: str) -> Shop:  # noqa: ARG001 - it tells which service is needed
    """A table that is followed into a log, or into a topic."""
    made: Shop = request.getfixturevalue(request.param)
    return made


def killed(shop: Shop, point: int, *, is_after: bool) -> bool:
    """Follow the table to its end; return whether that was killed."""
    with killed_at(point, is_after=is_after):
        try:
            shop.follow().update()
        except Killed:
            return True
    return False


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=TRANSACTIONS, after=TRANSACTIONS, points=st.lists(st.tuples(st.integers(0, 12), st.booleans())))
def test_each_change_is_there_once(
    any_shop: Shop, before: list[list[Change]], after: list[list[Change]], points: list[tuple[int, bool]]
) -> None:
    shop = any_shop
    shop.restart()
    for transaction in before:
        shop.change(transaction)
    for point, is_after in points[::2]:
        killed(shop, point, is_after=is_after)
    shop.follow().update()
    has_snapshot = len(shop.records())
    in_log = len(shop.changes())
    shop.done = shop.done[len(shop.done) - in_log :]
    for transaction in after:
        shop.change(transaction)
        for point, is_after in points[1::2]:
            killed(shop, point, is_after=is_after)
    shop.follow().update()
    assert shop.replica() == shop.table()
    assert shop.changes() == shop.done
    assert len(shop.records()) == has_snapshot + len(shop.done) - in_log


@pytest.mark.parametrize("is_after", [False, True])
def test_every_point_of_a_first_run_and_of_a_later_one(any_shop: Shop, *, is_after: bool) -> None:
    shop = any_shop
    for has_log in (False, True):
        point = 0
        while True:
            shop.restart()
            shop.change([("c", 1, 10), ("c", 2, 20)])
            if has_log:
                shop.follow().update()
            shop.done = []
            shop.change([("u", 1, 11), ("d", 2, None), ("c", 3, 30)])
            was_killed = killed(shop, point, is_after=is_after)
            shop.change([("u", 3, 31)])
            shop.follow().update()
            assert shop.replica() == shop.table(), point
            changes = shop.changes()
            assert changes == shop.done[len(shop.done) - len(changes) :], point
            assert not has_log or changes == shop.done, point
            if not was_killed:
                break
            point += 1
        assert point > 3


def test_what_a_power_cut_takes_is_written_again_to_the_byte(shop: LogShop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "ACKNOWLEDGE_SECONDS", math.inf)  # a part is never noted before the rest has come
    shop.change([("c", 1, 10)])
    shop.follow().update()
    file = shop.log / "partition-0.jsonl"
    noted = file.stat().st_size
    shop.change([("u", 1, 11), ("c", 2, 20)])
    shop.change([("d", 1, None)])
    not_noted: list[tuple[Any, str]] = [(LogStore, "note")]
    with killed_at(0, is_after=False, points=not_noted), pytest.raises(Killed):
        shop.follow().update()
    written = file.read_bytes()
    assert len(written) > noted
    for left in (noted, noted + 1, len(written) - 1):
        os.truncate(file, left)
        with killed_at(0, is_after=False, points=not_noted), pytest.raises(Killed):
            shop.follow().update()
        assert file.read_bytes() == written
    shop.follow().update()
    assert file.read_bytes() == written


def test_a_snapshot_among_writers_is_consistent_with_the_stream(any_shop: Shop) -> None:
    shop = any_shop
    stop = threading.Event()

    def write(seed: int) -> None:
        random = Random(seed)
        with psycopg.connect(shop.url) as sql:
            while not stop.is_set():
                for _ in range(random.randint(1, 3)):
                    id_ = random.randint(1, 50) * 4 + seed
                    if random.random() < 0.3:
                        sql.execute("DELETE FROM orders WHERE id = %s", (id_,))
                    else:
                        sql.execute(
                            "INSERT INTO orders AS o VALUES (%s, 1) "
                            "ON CONFLICT (id) DO UPDATE SET amount = o.amount + 1",
                            (id_,),
                        )
                sql.rollback() if random.random() < 0.1 else sql.commit()

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            shop.follow().update()
    finally:
        stop.set()
        for thread in threads:
            join(thread)
    shop.follow().update()
    assert len(shop.changes()) > 10
    assert shop.replica() == shop.table()


CHILD = """
import sys, threading
from windrow.model import KafkaSource, LogSource, PostgresCdcSource
from windrow.connectors.postgres.cdc.follow import FollowedTables
into = LogSource(*sys.argv[3:]) if len(sys.argv) == 4 else KafkaSource(*sys.argv[3:])
FollowedTables(PostgresCdcSource(*sys.argv[1:3], into)).follow(threading.Event(), print)
"""


def test_a_process_that_is_killed_again_and_again(any_shop: Shop) -> None:
    shop = any_shop
    random = Random(7)
    shop.follow().update()
    for _ in range(4):
        into = shop.source.into
        where = [into.path] if isinstance(into, LogSource) else [into.servers, into.topic]
        command = [sys.executable, "-c", CHILD, shop.url, "orders", *where]
        with subprocess.Popen(command) as child:
            size = len(shop.records())
            deadline = time.monotonic() + 30
            while len(shop.records()) < size + 50 and time.monotonic() < deadline:
                ops = [(random.choice("cccuudk"), random.randint(1, 40), random.randint(0, 99)) for _ in range(5)]
                shop.change(ops)
            child.send_signal(signal.SIGKILL)
    shop.follow().update()
    assert shop.changes() == shop.done
    assert shop.replica() == shop.table()
