"""The systems that the contract of followers is tried on, each behind one face."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import pytest
from psycopg import conninfo
from tests.connectors.postgres.cdc.conftest import LogShop
from tests.faults.proxy import Proxy
from tests.servers.listener import LOOPBACK

from windrow.connectors.follower import Feed, FeedFollower, Follower, FollowState, FollowStore, Place, SlotLag
from windrow.connectors.log.store import Followed, LogStore
from windrow.connectors.postgres import client
from windrow.connectors.postgres.cdc.stream import ChangeStream
from windrow.errors import SourceError, SourceUnavailableError


class System(ABC):
    """A system whose changes are numbers, and the log into which it is followed."""

    log: Path
    feed: type[Feed[Any]]
    """The feed of its follower."""

    @abstractmethod
    def follower(self) -> Follower:
        """Return a new follower, as another process has one."""

    @abstractmethod
    def change(self, *numbers: int) -> None:
        """Make changes that the system sends together."""

    @abstractmethod
    def silent(self) -> AbstractContextManager[None]:
        """Let the system answer nothing in the block, and the follower notice that soon."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Close the connections of the test."""

    @abstractmethod
    def number_of(self, record: dict[str, Any]) -> int:
        """Return the number in a record of the log."""

    def lines(self) -> list[bytes]:
        """Return the complete lines of the log."""
        file = self.log / "partition-0.jsonl"
        lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
        return [line for line in lines if line.endswith(b"\n")]

    def numbers(self) -> list[int]:
        return [self.number_of(json.loads(line)) for line in self.lines()]


class Table(System):
    """A PostgreSQL table into which rows are inserted."""

    feed = ChangeStream

    def __init__(self, url: str, folder: Path) -> None:
        self.shop = LogShop(url, folder)
        self.log = self.shop.log

    def follower(self) -> Follower:
        return self.shop.follow()

    def close(self) -> None:
        self.shop.sql.close()

    def change(self, *numbers: int) -> None:
        self.shop.change([("c", number, 0) for number in numbers])

    @contextmanager
    def silent(self) -> Iterator[None]:
        url = self.shop.source.url
        address = conninfo.conninfo_to_dict(url)
        with Proxy(int(str(address["port"]))) as proxy, pytest.MonkeyPatch.context() as patch:
            patch.setattr(client, "SILENCE", 0.5)
            behind = f"{LOOPBACK}:{proxy.port}/{address['dbname']}?connect_timeout=2"
            self.shop.source = replace(self.shop.source, url=f"postgresql://{address['user']}@{behind}")
            real = ChangeStream.start

            def start(stream: ChangeStream, stop: Event) -> None:
                real(stream, stop)
                proxy.freeze()

            patch.setattr(ChangeStream, "start", start)
            yield
        self.shop.source = replace(self.shop.source, url=url)

    def number_of(self, record: dict[str, Any]) -> int:
        return int(record["after"]["id"])


class Numbered(NamedTuple):
    """A change of the scripted system; the place is None for the copy, and where the system has none."""

    place: Place | None
    number: int

    @property
    def line(self) -> str:
        return json.dumps({"place": self.place, "number": self.number}) + "\n"


@dataclass(frozen=True)
class Reached(FollowState):
    """The position in the messages of the scripted system."""

    place: Place = ()
    confirmed: int = 0

    def reached(self, place: Place, confirmed: int) -> Reached:
        return Reached(place, confirmed)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def read(plain: dict[str, Any]) -> Reached:
        return Reached(tuple(plain["place"]), plain["confirmed"])


def place_of(record: bytes) -> Place | None:
    place = json.loads(record)["place"]
    return None if place is None else tuple(place)


class Script(System):
    """A system in memory that keeps each message until it is acknowledged. A position is a number of messages.

    With `has_places`, its changes are numbered, and a follower recognizes those that are sent again.
    """

    def __init__(self, folder: Path, *, has_places: bool = True) -> None:
        self.log = folder / "log"
        self.feed = ScriptFeed
        self.has_places = has_places
        self.messages: list[Sequence[int]] = []
        self.acknowledged = 0
        self.is_silent = False

    def follower(self) -> Follower:
        return ScriptFollower(self)

    def change(self, *numbers: int) -> None:
        self.messages.append(numbers)

    @contextmanager
    def silent(self) -> Iterator[None]:
        self.is_silent = True
        yield
        self.is_silent = False

    def number_of(self, record: dict[str, Any]) -> int:
        return int(record["number"])


class ScriptFeed(Feed[Numbered]):
    """The messages that were not acknowledged."""

    silence = 0.1
    received = 0

    def __init__(self, system: Script) -> None:
        self._system = system
        self._at = system.acknowledged

    def end(self) -> int:
        return len(self._system.messages)

    def receive(self) -> Iterable[Numbered] | None:
        self.received = self._at
        if self._system.is_silent or self._at == len(self._system.messages):
            return None
        numbers = self._system.messages[self._at]
        self._at = self.received = self._at + 1
        places = [(self._at, at) if self._system.has_places else None for at in range(len(numbers))]
        return [Numbered(place, number) for place, number in zip(places, numbers, strict=True)]

    def acknowledge(self, position: int) -> None:
        assert {number for message in self._system.messages[:position] for number in message} <= set(
            self._system.numbers()
        )
        self._system.acknowledged = max(self._system.acknowledged, position)

    def wait(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.01))

    def require_answer(self) -> None:
        if self._system.is_silent:
            msg = "the script does not answer"
            raise SourceUnavailableError(msg)

    def lag(self) -> SlotLag:
        return SlotLag("script", len(self._system.messages) - self._system.acknowledged, 0.0)


class ScriptFollower(FeedFollower[Reached, Numbered]):
    """A follower of a script."""

    def __init__(self, system: Script) -> None:
        self._system = system

    def preflight(self) -> None:
        """Accept every script."""

    @contextmanager
    def opened(self, stop: Event) -> Iterator[tuple[ScriptFeed, FollowStore[Reached, Numbered], Reached]]:  # noqa: ARG002
        system = self._system
        store: LogStore[Reached, Numbered] = LogStore(
            str(system.log), Followed("the script", "json", "script", Reached.read, place_of)
        )
        with store.opened():
            state = store.state()
            if state is None or not store.is_copied():
                store.note(Reached())
                system.acknowledged = len(system.messages)
                first = [Numbered(None, number) for message in system.messages for number in message]
                store.copy(iter(first), Reached((), len(system.messages)))
            elif state.confirmed and state.confirmed < system.acknowledged:
                msg = f"{store.name} is older than what the script was told, so changes are lost: {store.removal}"
                raise SourceError(msg)
            yield ScriptFeed(system), store, store.resume()
