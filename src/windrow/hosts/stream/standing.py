"""Where Spark has noted that a checkpoint's source stands."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from windrow.hosts.stream.checkpoint import Checkpoint
from windrow.hosts.stream.intact import checksum
from windrow.hosts.stream.note import Note
from windrow.sources.base import Offset
from windrow.sources.loss import Loss


@dataclass(frozen=True)
class Standing:
    """The note of a checkpoint's last committed step, or of the beginning if there is none."""

    checkpoint: Checkpoint

    def read(self) -> Note | None:
        """Return the note, None if there is none; raise CheckpointError if it cannot be read."""
        return self._read(self.checkpoint.batch)

    def read_planned(self) -> Note | None:
        """Return the note of the step that is planned, and not committed; None if there is no such step.

        Raise as `read` does.
        """
        done = self.checkpoint.batch
        return self._read(0 if done is None else done + 1)

    def _read(self, batch: int | None) -> Note | None:
        path, _ = self.checkpoint.place(batch)
        return self.checkpoint.note(batch) if path.is_file() else None

    def take_back(self) -> None:
        """Let the last step that is done be taken once more, as it was planned; what came after it is forgotten.

        What it left is written anew. Of a later one that may not be so, as it can be planned otherwise. Its note goes
        last, so that this is begun again if it is ended half done.
        """
        done = self.checkpoint.batch
        if done is None:
            return
        self._forget_states(done)
        _forget(self.checkpoint.spark.glob("offsets/*"), done)
        _forget(self.checkpoint.spark.glob("commits/*"), done - 1)

    def move(self, offset: Offset, lost: Iterable[Loss]) -> None:
        """Let the next step begin at an offset, and tell what is lost; one that was planned only is forgotten.

        So is the state that it left: the step is taken with other records, and Spark may not write every file anew.
        What the step was to tell before it failed is told too, and once.

        The plan goes last: a loss that shows in it alone would not be found again if this ended half done.
        """
        note = self.read()
        before = Note(offset) if note is None else note
        told = {str(loss): loss for loss in (*before.lost, *lost)}
        done = -1 if self.checkpoint.batch is None else self.checkpoint.batch
        self._forget_states(done)
        path, line = self.checkpoint.place(self.checkpoint.batch)
        lines = path.read_text(encoding="utf-8").splitlines()
        lines[line] = json.dumps(Note(offset, before.ends, tuple(told.values())).written())
        draft = self.checkpoint.folder / ".standing.draft"  # Spark reads every file of its folders
        draft.write_text("\n".join(lines), encoding="utf-8")
        checksum(path).unlink(missing_ok=True)
        draft.replace(path)
        _forget(self.checkpoint.spark.glob("offsets/*"), done)

    def _forget_states(self, batch: int) -> None:
        """Remove the states after the steps that follow a batch."""
        for kind in ("zip", "changelog"):
            # the state after a batch has the number that follows the batch's
            _forget(self.checkpoint.spark.glob(f"state/*/*/*.{kind}"), batch + 1)


def _forget(paths: Iterable[Path], last: int) -> None:
    """Remove the files that are named after a number greater than `last`."""
    for path in list(paths):
        if path.stem.isdigit() and int(path.stem) > last:
            checksum(path).unlink(missing_ok=True)
            path.unlink()
