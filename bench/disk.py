"""What of a checkpoint's state on disk its last version is made of."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path


def last_version(state: Path) -> int:
    """Return the bytes that the last version of each store in a folder of Spark's is made of.

    They are the newest snapshot (its ``.zip``, and the SST files that this names) and the changelogs after it. Older
    versions, which Spark keeps for a while, checksums and schemas do not count.
    """
    stores = {path.parent for name in ("*.zip", "*.changelog") for path in state.rglob(name)}
    return sum(map(_store, stores))


def _store(store: Path) -> int:
    versions = {int(path.stem): path for path in store.glob("*.zip") if path.stem.isdigit()}
    snapshot = max(versions, default=0)
    total = sum(
        path.stat().st_size for path in store.glob("*.changelog") if path.stem.isdigit() and int(path.stem) > snapshot
    )
    if versions:
        total += versions[snapshot].stat().st_size
        total += sum((store / "SSTs" / name).stat().st_size for name in _named(versions[snapshot]))
    return total


def _named(snapshot: Path) -> list[str]:
    """Return the SST files of a snapshot: after a line with its version, its ``metadata`` is JSON."""
    with zipfile.ZipFile(snapshot) as file:
        _, _, body = file.read("metadata").decode().partition("\n")
    return [one["dfsSstFileName"] for one in json.loads(body)["sstFiles"]]
