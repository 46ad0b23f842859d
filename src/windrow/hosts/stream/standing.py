"""Where Spark has noted that a checkpoint's source stands."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from windrow.errors import CheckpointError
from windrow.hosts.stream.checkpoint import BEGINNING, SOURCE_LINE, Checkpoint
from windrow.hosts.stream.note import Note
from windrow.sources.base import Offset
from windrow.sources.loss import Loss


@dataclass(frozen=True)
class Standing:
    """The note of a checkpoint's last committed step, or of the beginning if there is none."""

    checkpoint: Checkpoint

    def read(self) -> Note | None:
        """Return the note, None if there is none; raise CheckpointError if it cannot be read."""
        return self._read(self._path, self._line)

    def read_planned(self) -> Note | None:
        """Return the note of the step that is planned, and not committed; None if there is no such step.

        Raise as `read` does.
        """
        done = self.checkpoint.batch
        return self._read(self.checkpoint.spark / f"offsets/{0 if done is None else done + 1}", SOURCE_LINE)

    def _read(self, path: Path, line: int) -> Note | None:
        if not path.is_file():
            return None
        try:
            return Note.of(json.loads(path.read_text(encoding="utf-8").splitlines()[line]))
        except (OSError, ValueError, TypeError, LookupError) as exc:
            msg = f"{path} cannot be read ({exc}); restore the checkpoint, or begin anew with --fresh"
            raise CheckpointError(msg) from exc

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
        for kind in ("zip", "changelog"):
            # the state after a batch has the number that follows the batch's
            _forget(self.checkpoint.spark.glob(f"state/*/*/*.{kind}"), done + 1)
        lines = self._lines()
        lines[self._line] = json.dumps(Note(offset, before.ends, tuple(told.values())).written())
        draft = self.checkpoint.folder / ".standing.draft"  # Spark reads every file of its folders
        draft.write_text("\n".join(lines), encoding="utf-8")
        _checksum(self._path).unlink(missing_ok=True)
        draft.replace(self._path)
        _forget(self.checkpoint.spark.glob("offsets/*"), done)

    @property
    def _path(self) -> Path:
        done = self.checkpoint.batch
        return self.checkpoint.folder / BEGINNING if done is None else self.checkpoint.spark / f"offsets/{done}"

    @property
    def _line(self) -> int:
        return 0 if self.checkpoint.batch is None else SOURCE_LINE

    def _lines(self) -> list[str]:
        return self._path.read_text(encoding="utf-8").splitlines()


def _forget(paths: Iterable[Path], last: int) -> None:
    """Remove the files that are named after a number greater than `last`."""
    for path in list(paths):
        if path.stem.isdigit() and int(path.stem) > last:
            _checksum(path).unlink(missing_ok=True)
            path.unlink()


def _checksum(path: Path) -> Path:
    """Return the file in which Hadoop keeps what a file's bytes should be."""
    return path.with_name(f".{path.name}.crc")
