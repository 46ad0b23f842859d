"""Purchases for ``bench/realtime.py``: a history at once, then so many a second, a phase of them a line of stdin.

All are made before the first is sent, so that what is left to do beside a measurement is little: the purchase's time is
put into its record, and the record is handed to librdkafka, at the moment that it is due. Prints a line when the
history is in the topic, and for each phase one of JSON: the file with its ids and when each was handed over
(nanoseconds), and the quantiles of how late a sleep of 1 ms was meanwhile (milliseconds).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np
from bench.closings import percentile
from confluent_kafka import Producer

from windrow.tools.generate.fraud import card_purchases
from windrow.tools.generate.spec import FraudSpec, LivePace

READY = "ready"
"""What the ids of the last purchases of the history begin with, one in each partition, which all raise an alert."""
QUANTILES = (50, 95, 99, 99.9)
_HISTORY = 20 * 3600
"""Seconds of event time in which the history was."""
_STEPS, _TICK = 60, 0.1
_SECOND = 1_000_000
_DIGITS = 16
"""Of a time in microseconds."""


@dataclass(frozen=True)
class Purchase:
    """A record without its time, which goes between the two parts of the value."""

    partition: int
    key: bytes
    id: str
    begin: bytes
    time: int
    end: bytes


class _Pace:
    """Stands in for a `LivePace`: history, then phases, all at once."""

    def __init__(self, history: int, rates: Sequence[float], seconds: float) -> None:
        self.rate = history / _HISTORY
        self._now = time.time_ns() // 1000 - _HISTORY * _SECOND
        self._parts = [(self.rate, _HISTORY, _STEPS), *((rate, seconds, round(seconds / _TICK)) for rate in rates)]

    def now(self) -> int:
        return self._now

    def portions(self, _: int) -> Iterator[tuple[int, int]]:
        for rate, seconds, steps in self._parts:
            self.rate = rate
            for _ in range(steps):
                self._now += round(seconds / steps * _SECOND)
                yield round(rate * seconds / steps), self._now
        while True:  # for cases of fraud that came to fewer purchases than were asked for
            self._now += round(_TICK * _SECOND)
            yield round(self.rate * _TICK), self._now


def purchases(pace: _Pace, cards: int, partitions: int, fraud_share: float) -> Iterator[Purchase]:
    """Return purchases in the order of their times, without end."""
    spec = FraudSpec(
        events=1 << 40, cards=cards, partitions=partitions, disorder=0, late_share=0, fraud_share=fraud_share
    )
    for portion in card_purchases(spec, cast("LivePace", pace)):
        (batch,) = portion.batches
        columns = (batch.column(name).to_pylist() for name in ("partition", "key", "value"))
        for partition, key, value in zip(*columns, strict=True):
            begin, mark, rest = value.partition(b'"t": ')
            yield Purchase(partition, key, json.loads(value)["id"], begin + mark, int(rest[:_DIGITS]), rest[_DIGITS:])


class _Feeder:
    """Sends purchases to a topic."""

    def __init__(self, servers: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "linger.ms": 0,
                "queue.buffering.max.messages": 1_000_000,
                "delivery.report.only.error": True,
            }
        )

    def send_all(self, history: Sequence[Purchase], partitions: int) -> None:
        """Send purchases with the times that they have, and after them one that is `READY` in each partition."""
        for one in history:
            self._produce(one, one.time)
        for partition in range(partitions):
            card = f"{READY}-{partition}"
            record = {"id": card, "card": card, "amount": 1, "lat": 0, "lon": 0, "merchant": "web-00", "country": "DE"}
            value = json.dumps(record).encode()[:-1] + b', "t": '
            self._produce(Purchase(partition, card.encode(), card, value, 0, b"}"), time.time_ns() // 1000)
        self._producer.flush()

    def send(self, some: Sequence[Purchase], rate: float) -> tuple[list[int], list[float]]:
        """Send purchases when they are due; return when each was handed over, and how late sleeps of 1 ms were."""
        sent: list[int] = []
        late: list[float] = []
        begin = time.time_ns()
        while len(sent) < len(some):
            due = min(len(some), int((time.time_ns() - begin) * rate / 1e9) + 1)
            for one in some[len(sent) : due]:
                now = time.time_ns()
                self._produce(one, now // 1000)
                sent.append(now)
            self._producer.poll(0)
            before = time.perf_counter()
            time.sleep(0.001)
            late.append(1000 * (time.perf_counter() - before) - 1)
        self._producer.flush()
        return sent, late

    def _produce(self, one: Purchase, micros: int) -> None:
        while True:
            try:
                self._producer.produce(self._topic, b"%b%d%b" % (one.begin, micros, one.end), one.key, one.partition)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return


def main() -> None:
    """Send what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--history", type=int, required=True)
    parser.add_argument("--cards", type=int, required=True)
    parser.add_argument("--fraud-share", type=float, required=True)
    parser.add_argument("--rates", type=float, nargs="+", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    made = purchases(_Pace(given.history, given.rates, given.seconds), given.cards, given.partitions, given.fraud_share)
    history = list(islice(made, given.history))
    phases = [list(islice(made, round(rate * given.seconds))) for rate in given.rates]
    feeder = _Feeder(given.servers, given.topic)
    feeder.send_all(history, given.partitions)
    print(READY, flush=True)
    del history
    for number, (some, rate, _) in enumerate(zip(phases, given.rates, sys.stdin, strict=False)):
        sent, late = feeder.send(some, rate)
        file = given.folder / f"sent-{number}.npz"
        np.savez(file, id=np.array([one.id for one in some]), sent=np.array(sent))
        print(json.dumps({"file": str(file), "late": [percentile(late, one) for one in QUANTILES]}), flush=True)


if __name__ == "__main__":
    main()
