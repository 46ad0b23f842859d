"""Answers of a broker that is starting: what passes is asked again, what does not is an error."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from windrow.connectors.kafka.client import Admin
from windrow.errors import SourceError

NO_LEADERS = KafkaError(KafkaError._NOENT, "Failed to query partition leaders: No leaders found")  # noqa: SLF001
REFUSED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


class Broker:
    """Answers each question for offsets with the next of some errors, then with 7."""

    def __init__(self, *errors: KafkaError) -> None:
        self.errors = list(errors)

    def list_offsets(self, asked: Any, **_: Any) -> dict[Any, Future[Any]]:  # noqa: ANN401 - the client's
        answer: Future[Any] = Future()
        if self.errors:
            answer.set_exception(KafkaException(self.errors.pop(0)))
        else:
            answer.set_result(SimpleNamespace(offset=7))
        return dict.fromkeys(asked, answer)


def admin(broker: Broker) -> Admin:
    made = Admin("topic", {"bootstrap.servers": "127.0.0.1:1"}, timeout=5)
    made._client = broker  # type: ignore[assignment]  # noqa: SLF001 - the real one has no broker
    return made


def test_partitions_without_a_leader_are_asked_again() -> None:
    broker = Broker(NO_LEADERS, KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    assert admin(broker).offsets([0]) == {0: (7, 7)}
    assert not broker.errors


def test_what_does_not_pass_is_an_error() -> None:
    with pytest.raises(SourceError, match="may not be read"):
        admin(Broker(REFUSED)).offsets([0])
