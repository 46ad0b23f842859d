"""A file of a checkpoint that is damaged gives no wrong answer: it is refused with its name, or it did not matter."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tests.contracts.stores import SqliteStore
from tests.faults.conftest import Injected, Trial
from tests.runtime.answers import assert_epochs, assert_same
from tests.runtime.runs import Runner
from tests.runtime.spend import Files, events, spend

from windrow.errors import CheckpointError

pytestmark = pytest.mark.usefixtures("spark")

KINDS = ("cut off", "one bit turned")


def damage(path: Path, kind: str, chance: Random) -> None:
    whole = path.read_bytes()
    match kind:
        case "cut off":
            path.write_bytes(whole[: chance.randrange(max(len(whole), 1))])
        case "one bit turned":
            place = chance.randrange(len(whole))
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << chance.randrange(8)]) + whole[place + 1 :])
        case _:
            raise ValueError(kind)


class Kept:
    """A checkpoint and its tables, half way through a log, that can be had again and again."""

    def __init__(self, files: Files, folder: Path) -> None:
        self.store = SqliteStore(folder)
        self.pipeline = spend(files.source, self.store.settings(), at_end="hold")
        self.runner = Runner(folder / "checkpoint")
        self._aside = folder / "aside"
        feed = events(1200)
        files.append(feed[:800])
        self.runner.bounded(self.pipeline, 200)
        files.append(feed[800:])
        shutil.copytree(self.runner.checkpoint, self._aside / "checkpoint")
        shutil.copy(self.store.path, self._aside)

    def files(self) -> Iterator[Path]:
        """All that the answers could hang on: not what Spark said, nor its own checksums."""
        for path in sorted(self.runner.checkpoint.rglob("*")):
            if path.is_file() and path.name not in {"spark.log", "lock"} and path.suffix != ".crc":
                yield path

    def restore(self) -> None:
        for path in self.store.path.parent.glob(f"{self.store.path.name}*"):
            path.unlink()
        shutil.copy(self._aside / self.store.path.name, self.store.path)
        shutil.rmtree(self.runner.checkpoint)
        shutil.copytree(self._aside / "checkpoint", self.runner.checkpoint)


def refused_or_right(kept: Kept, path: Path) -> bool:
    """Go on with a damaged file: return whether that was refused."""
    try:
        kept.runner.bounded(kept.pipeline)
    except CheckpointError as exc:
        message = str(exc)
        assert str(path.relative_to(kept.runner.checkpoint)) in message, message
        assert "restore" in message, message
        assert "--fresh" in message, message
        return True
    assert_same(kept.store, kept.pipeline)
    assert_epochs(kept.store)
    return False


@pytest.fixture
def kept(trial: Trial) -> Kept:
    return Kept(trial.files, trial.folder)


@pytest.mark.long
def test_a_turned_bit_and_a_file_that_is_cut_off(kept: Kept, chance: Random, injected: Injected) -> None:
    spark = kept.runner.checkpoint / "spark"
    offsets = max((spark / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    state = chance.choice(sorted((spark / "state").rglob(f"{int(offsets.name) + 1}.*")))
    for path, kind in ((kept.runner.checkpoint / "windrow.json", KINDS[1]), (offsets, KINDS[0]), (state, KINDS[1])):
        damage(path, kind, chance)
        assert refused_or_right(kept, path), path
        injected(f"a checkpoint's file {kind}")
        kept.restore()
    assert not refused_or_right(kept, offsets)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_every_file_of_a_checkpoint(kind: str, kept: Kept, chance: Random, injected: Injected) -> None:
    wrong = []
    for path in kept.files():
        damage(path, kind, chance)
        injected(f"a checkpoint's file {kind}")
        try:
            refused_or_right(kept, path)
        except Exception as exc:  # noqa: BLE001 - all of them are told at the end
            wrong.append(f"{path.relative_to(kept.runner.checkpoint)}: {type(exc).__name__}: {exc}"[:500])
        kept.restore()
    assert not wrong, "\n".join(wrong)
