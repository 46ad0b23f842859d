"""The relay of an outbox: each row reaches the log once, in order, whenever the relay dies."""

from __future__ import annotations

import json
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from decimal import Decimal
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from tests.contracts.steps import RUN, change, pipeline, step
from tests.faults.windrow_process import WindrowProcess
from tests.graphs import as_graph, sink_spec_of
from tests.short_forms import Pipeline

from windrow.connectors.kafka.append import KafkaAppender
from windrow.connectors.log.append import LogAppender
from windrow.connectors.open_sources import open_source
from windrow.connectors.postgres.outbox import Outbox, OutboxLag
from windrow.connectors.postgres.sink import PostgresTables, create_statements
from windrow.connectors.sink import Run
from windrow.errors import InputError, SinkError, SourceError, SourceUnavailableError
from windrow.model import KafkaSource, LogSource, PostgresSink
from windrow.testing.servers.kafka import Kafka
from windrow.tools.relay import outbox as relay
from windrow.tools.relay.outbox import Target, open_relay, outbox_sink

pytestmark = pytest.mark.service
USERS = "ABCDEFG"


@pytest.fixture
def model(database: str) -> Pipeline:
    return pipeline(PostgresSink(database, "spend", outbox=True))


@pytest.fixture
def sink(model: Pipeline) -> PostgresSink:
    return outbox_sink(as_graph(model), None)


@pytest.fixture
def log(tmp_path: Path) -> LogSource:
    return new_log(tmp_path / "log")


def new_log(folder: Path) -> LogSource:
    folder.mkdir()
    for partition in range(3):
        (folder / f"partition-{partition}.jsonl").touch()
    return LogSource(str(folder))


def fill(model: Pipeline, *sizes: int, run: Run = RUN) -> None:
    """Commit steps with so many changes."""
    tables = PostgresTables(sink_spec_of(model))
    last = tables.open(run)
    for epoch, size in enumerate(sizes, 0 if last is None else last + 1):
        rows = [change("insert", 5 * epoch, USERS[at % 7] + str(at // 7), Decimal(at), at) for at in range(size)]
        tables.commit(epoch, step(model, rows))
    tables.close()


def query(sink: PostgresSink, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(sink.url, autocommit=True) as db:
        cursor = db.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def sent(target: Target) -> list[dict[str, Any]]:
    """The records in a log, partition by partition."""
    source = open_source(target)
    batches = [one for partition in source.partitions() for one in source.read_from(partition, 0)]
    return [json.loads(value) for one in batches for value in one.column("value").to_pylist()]


def check(target: Target, expected: int) -> None:
    """Each of the rows is in the log once; those of a partition are in the order of commits."""
    records = sent(target)
    ids = [one["_outbox"] for one in records]
    assert sorted(ids) == list(range(1, expected + 1))
    falls = sum(later < earlier for earlier, later in pairwise(ids))
    assert falls < len(open_source(target).partitions())


def empty(sink: PostgresSink, target: Target, on_trouble: Callable[[str], None] = pytest.fail) -> int:
    """Relay until the outbox is empty; return how many rows were sent."""
    return relay.run(
        sink,
        target,
        until_empty=True,
        every=0,
        stop=threading.Event(),
        report=60,
        on_report=lambda *_: None,
        on_trouble=on_trouble,
    )


def test_rows_are_the_changes_with_the_key_and_value_of_a_topic(
    model: Pipeline, sink: PostgresSink, log: LogSource
) -> None:
    fill(model, 2)
    start, end = "2026-01-01T00:00:00.000000Z", "2026-01-01T00:05:00.000000Z"
    keys = [json.dumps({"window_start": start, "window_end": end, "user": user}) for user in ("A0", "B0")]
    rows = query(sink, "SELECT id, aggregatetype, aggregateid, type, epoch FROM spend_outbox ORDER BY id")
    assert rows == [(at, "spend", key.replace(" ", ""), "insert", 0) for at, key in enumerate(keys, 1)]
    assert empty(sink, log) == 2
    (record, _) = sorted(sent(log), key=lambda one: one["_outbox"])
    result = {"window_start": start, "window_end": end, "user": "A0", "total": "0.00", "events": 0}
    change_ = {"op": "insert", "pane": "on_time", "revision": 0}
    assert record == {"_relay": record["_relay"], "_outbox": 1} | change_ | result
    assert query(sink, "SELECT count(*) FROM spend_outbox") == [(0,)]
    assert query(sink, "SELECT count(*) FROM windrow_relays") == [(0,)]


def test_a_step_that_is_repeated_is_not_in_the_outbox_twice(model: Pipeline, sink: PostgresSink) -> None:
    tables = PostgresTables(sink_spec_of(model))
    tables.open(RUN)
    revised = [
        change("insert", 0, "A", Decimal(1), 1),
        change("update_before", 0, "A", Decimal(1), 1),
        change("update_after", 0, "A", Decimal(2), 2, revision=1),
        change("delete", 0, "A", Decimal(2), 2, revision=1),
    ]
    for _ in range(2):
        tables.commit(0, step(model, revised))
    tables.close()
    types = query(sink, "SELECT type FROM spend_outbox ORDER BY id")
    assert types == [("insert",), ("update_after",), ("delete",)]


def test_a_fresh_start_drops_the_outbox_and_the_place_of_its_relay(
    model: Pipeline, sink: PostgresSink, log: LogSource
) -> None:
    fill(model, 3)
    send_and_die(sink, log)
    PostgresTables(sink_spec_of(model)).clear()
    assert query(sink, "SELECT to_regclass('spend_outbox')::text") == [(None,)]
    fill(model, 2, run=Run(RUN.pipeline, "run-2"))
    assert empty(sink, log) == 2
    assert len(sent(log)) == 5


def test_a_run_can_begin_to_have_an_outbox(model: Pipeline, sink: PostgresSink, log: LogSource) -> None:
    assert isinstance(model.sink, PostgresSink)
    fill(pipeline(PostgresSink(model.sink.url, "spend")), 3)
    fill(model, 2)
    assert empty(sink, log) == 2


def test_a_role_that_may_not_create_tables_relays_with_those_of_the_ddl(database: str, log: LogSource) -> None:
    role = f"relay_{uuid.uuid4().hex[:12]}"
    model = pipeline(PostgresSink(database.replace("postgres@", f"{role}@"), "spend", outbox=True))
    sink, lines = outbox_sink(as_graph(model), None), create_statements([sink_spec_of(model)])
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN".encode())
        try:
            for line in lines:
                admin.execute(line.encode())
            fill(model, 3)
            assert empty(sink, log) == 3
            check(log, 3)
            admin.execute(b"DROP TABLE windrow_relays")
            with pytest.raises(
                SinkError,
                match=rf"table 'windrow_relays' does not exist, and user '{role}' may not create it: GRANT CREATE ON "
                rf'SCHEMA "public" TO "{role}", or have the statements of `windrow explain --ddl` executed',
            ):
                empty(sink, log)
        finally:
            admin.execute(f"DROP OWNED BY {role}".encode())
            admin.execute(f"DROP ROLE {role}".encode())


class Died(BaseException):
    """The relay is killed: nothing that it would do about an error is done."""


def send_and_die(sink: PostgresSink, target: Target, *, deletes: bool = True) -> None:
    """Send the next rows with a relay that dies, before or after it deletes them."""

    def died(*_: object) -> None:
        raise Died

    with suppress(Died), open_relay(sink, target) as one:
        if not deletes:
            one.rows.delete = died  # type: ignore[method-assign, assignment]
        one.send()
        raise Died


POINTS = [
    *((Outbox, name) for name in ("sending", "begin", "rows", "delete", "end")),
    (LogAppender, "_append"),
    (KafkaAppender, "append"),
    (KafkaAppender, "_commit"),
]


@pytest.fixture
def die_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that has the relay die before or after the n-th of the calls that matter from then on."""
    left = [-1]

    def reached() -> None:
        left[0] -= 1
        if left[0] == -1:
            raise Died

    def dying(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - any function
            reached()
            found = function(*args, **named)
            reached()
            return found

        return call

    for owner, name in POINTS:
        monkeypatch.setattr(owner, name, dying(getattr(owner, name)))
    monkeypatch.setattr(relay, "BATCH", 4)
    monkeypatch.setattr("windrow.connectors.kafka.append.KafkaAppender.__exit__", lambda *_: None)

    def die(number: int) -> None:
        left[0] = number if number >= 0 else -1

    return die


def dies_everywhere(
    model: Pipeline, sink: PostgresSink, targets: Iterator[Target], die_at: Callable[[int], None], every: int = 1
) -> int:
    """Relay again and again, killed at a later point each time, and check each log; return the number of points."""
    fill(model)
    for number in count(step=every):
        target = next(targets)
        query(sink, "TRUNCATE spend_outbox RESTART IDENTITY")
        fill(model, 5, 4)
        die_at(number)
        try:
            empty(sink, target)
        except Died:
            pass
        else:
            return number
        # it dies once more, at a point that the number chooses, and a last one comes to the end
        die_at(random.Random(number).randrange(12))
        try:
            empty(sink, target)
        except Died:
            die_at(-1)
            fill(model, 2)
            empty(sink, target)
            check(target, 11)
        else:
            check(target, 9)
    raise AssertionError


def test_a_relay_to_a_log_can_die_anywhere(
    model: Pipeline, sink: PostgresSink, tmp_path: Path, die_at: Callable[[int], None]
) -> None:
    logs = (new_log(tmp_path / str(number)) for number in count())
    assert dies_everywhere(model, sink, logs, die_at) > 20


def test_a_relay_to_a_topic_can_die_anywhere(
    model: Pipeline, sink: PostgresSink, kafka: Kafka, topic: Callable[..., str], die_at: Callable[[int], None]
) -> None:
    topics = (KafkaSource(kafka.servers, topic(2)) for _ in count())
    # each of them takes a second
    assert dies_everywhere(model, sink, topics, die_at, every=3) > 20


def test_a_part_of_a_line_is_sent_again(model: Pipeline, sink: PostgresSink, log: LogSource) -> None:
    fill(model, 14)
    # it dies before it deletes the rows, and within a line of each partition
    send_and_die(sink, log, deletes=False)
    files = sorted(Path(log.path).iterdir())
    for file in files:
        if file.stat().st_size:
            with file.open("r+b") as opened:
                opened.truncate(file.stat().st_size - 5)
    empty(sink, log)
    records = []
    for file in files:
        for line in file.read_bytes().splitlines():
            try:
                records.append(json.loads(line)["_outbox"])
            except ValueError:
                assert line.startswith(b'{"_relay"')
    assert sorted(records) == list(range(1, 15))


def test_a_relay_that_is_stopped_at_once_forgets_nothing(model: Pipeline, sink: PostgresSink, log: LogSource) -> None:
    fill(model, 3)
    send_and_die(sink, log, deletes=False)
    with open_relay(sink, log):
        pass
    empty(sink, log)
    check(log, 3)


def test_a_killed_process(
    model: Pipeline, sink: PostgresSink, kafka: Kafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    """It is killed while it sends, again and again, while steps are committed."""
    target = KafkaSource(kafka.servers, topic(2))
    (tmp_path / "spend.yaml").write_text(PIPELINE % sink.url)
    arguments = ["relay", "spend.yaml", f"kafka://{kafka.servers}/{target.topic}", "--every", "10ms"]
    for size in (30_000, 20_000, 10_000):
        fill(model, size)
        with WindrowProcess(arguments, tmp_path) as process:
            before = query(sink, "SELECT count(*) FROM spend_outbox")
            process.wait_until(lambda before=before: query(sink, "SELECT count(*) FROM spend_outbox") != before)  # type: ignore[misc]
            process.kill()
    assert query(sink, "SELECT count(*) FROM windrow_relays") == [(1,)]
    empty(sink, target)
    check(target, 60_000)


PIPELINE = """\
name: spend
source: {log: {path: data/spend}}
decode: {user: string, t: timestamp_millis, amount: "decimal(12,2)"}
time: {field: t, delay: 1m}
key: user
window: {tumbling: 5m}
aggregate: {total: sum(amount), events: count()}
sink: {postgres: {url: "%s", table: spend, outbox: true}}
"""


def test_a_second_relay_is_refused(
    model: Pipeline, sink: PostgresSink, log: LogSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windrow.connectors.postgres.outbox.LOCK_SECONDS", 0.1)
    fill(model, 1)
    with open_relay(sink, log), pytest.raises(SinkError, match="another relay is emptying 'spend_outbox'"):
        empty(sink, log)
    assert empty(sink, log) == 1


def test_a_relay_that_was_cut_off_is_fenced(
    model: Pipeline, sink: PostgresSink, kafka: Kafka, topic: Callable[..., str]
) -> None:
    target = KafkaSource(kafka.servers, topic(2))
    fill(model, 3)
    with suppress(SinkError), open_relay(sink, target) as zombie:
        rows = zombie.rows.rows(10)
        others = "pid <> pg_backend_pid() AND datname = current_database()"
        query(sink, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
        assert empty(sink, target) == 3
        with pytest.raises(SourceError, match="fenced"):
            zombie._appender.append({0: [zombie._record(rows[0])]})  # noqa: SLF001 - the same
    check(target, 3)


def test_transactions_of_others_are_waited_for(
    model: Pipeline, sink: PostgresSink, kafka: Kafka, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = KafkaSource(kafka.servers, topic(1))
    fill(model, 3)
    other = Producer({"bootstrap.servers": kafka.servers, "transactional.id": target.topic})
    other.init_transactions()
    other.begin_transaction()
    other.produce(target.topic, b"{}")
    other.flush(10)
    send_and_die(sink, target, deletes=False)
    # what was sent cannot be read yet
    monkeypatch.setattr(relay, "_OPEN_SECONDS", 0.1)
    with pytest.raises(SourceError, match="a producer has had a transaction open"):
        empty(sink, target)
    other.abort_transaction()
    empty(sink, target)
    check(target, 3)


def test_another_target_has_to_wait_for_an_interrupted_relay(
    model: Pipeline, sink: PostgresSink, log: LogSource, tmp_path: Path
) -> None:
    fill(model, 3)
    with pytest.raises(Died), open_relay(sink, log):
        raise Died
    other = new_log(tmp_path / "other")
    with pytest.raises(InputError, match=r"a relay of 'spend_outbox' to .*/log was interrupted"):
        empty(sink, other)
    assert (empty(sink, log), empty(sink, other)) == (3, 0)


def test_records_that_retention_removed(model: Pipeline, sink: PostgresSink, log: LogSource) -> None:
    fill(model, 3)
    send_and_die(sink, log)
    for file in Path(log.path).iterdir():
        file.write_bytes(b"")
    with pytest.raises(SourceError, match="it is unknown which rows were sent"):
        empty(sink, log)


def test_a_relay_that_is_interrupted_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Faulty:
        def __init__(self, counts: list[int | Exception]) -> None:
            self._counts = counts

        def send(self) -> int:
            count = self._counts.pop(0)
            if isinstance(count, Exception):
                raise count
            return count

        def lag(self) -> OutboxLag:
            return OutboxLag(0, 0.0)

    opened: list[list[int | Exception]] = [
        [3, SourceUnavailableError("the broker is lost")],
        [SourceUnavailableError("still")],
        [4, 0],
        [SourceUnavailableError("not there")],
        [1, SourceError("refused")],
    ]
    monkeypatch.setattr(relay, "open_relay", lambda *_: nullcontext(Faulty(opened.pop(0))))
    sink, target = PostgresSink("postgresql://localhost/shop", "spend", outbox=True), LogSource("sent")
    said: list[str] = []
    assert empty(sink, target, said.append) == 7
    assert said == ["the broker is lost; trying again in 0.5 s", "still; trying again in 1 s"]
    with pytest.raises(SourceUnavailableError, match="not there"):
        empty(sink, target)
    with pytest.raises(SourceError, match="refused"):
        empty(sink, target)
