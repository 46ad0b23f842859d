"""Folders of checkpoints and savepoints: on a disk, or in an object store (``s3a://BUCKET/PATH``, ``gs://BUCKET/PATH``).

Both kinds are used like paths (`exists`, `read_text`, `glob` ...); this module has the differences. A file that is
written to an object store appears whole, durable and visible to all hosts at once; there is no lock, rename or sync.

Environment: for S3 the variables of Amazon's own tools (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_PROFILE,
AWS_REGION, and AWS_ENDPOINT_URL for another store than Amazon's; on a machine of Amazon's its role), for Google Cloud
Storage those of its tools (GOOGLE_APPLICATION_CREDENTIALS).
"""

from __future__ import annotations

import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from windrow.errors import InputError
from windrow.model.references import MASK, mask_url

if TYPE_CHECKING:
    from upath import UPath

Folder: TypeAlias = "Path | UPath"

_SCHEMES = {"s3a": "s3a", "s3": "s3a", "gs": "gs"}
"""The schemes of object stores, and the one that Hadoop has for each."""


def default_checkpoint(name: str) -> Path:
    """Return the default checkpoint directory of a pipeline."""
    return Path(".windrow") / name


def folder_of(text: str) -> Folder:
    """Return the folder of a path or a URL, without a request. Raise InputError if the URL has an unknown scheme."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        return Path(text)
    if scheme not in _SCHEMES or not rest.strip("/").partition("/")[2]:
        msg = f"{mask_url(text)} is not a folder: give a path, s3a://BUCKET/PATH or gs://BUCKET/PATH"
        raise InputError(msg)
    if "@" in rest.partition("/")[0] or ":" in rest.partition("/")[0]:
        msg = f"{scheme}://{MASK} has a login in it: give {scheme}://BUCKET/PATH, and the login in the environment"
        raise InputError(msg)
    from windrow.telemetry.object_store import open_folder  # noqa: PLC0415 - fsspec only for object stores

    return open_folder(f"{_SCHEMES[scheme]}://{rest.strip('/')}")


def is_remote(folder: Folder) -> bool:
    """Return whether a folder is in an object store."""
    return not isinstance(folder, Path)


def on_this_machine(folder: Folder) -> Path:
    """Return where a run keeps the files of its own process: in the folder, or in ``.windrow`` if it is remote."""
    return folder if isinstance(folder, Path) else Path(".windrow") / re.sub(r"[^\w.-]+", "-", str(folder))


def make_private(folder: Path) -> None:
    """Create a folder that only its owner can read, as it holds records; do nothing if it exists.

    Folders above it are created by the umask.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def matching(folder: Folder, pattern: str) -> list[Folder]:
    """Return the paths in a folder that match a glob pattern, in order."""
    return sorted(folder.glob(pattern), key=str)


def write_whole(path: Folder, text: str, drafts: Folder | None = None) -> None:
    """Write a file so that readers see it whole or not at all; create its folder.

    On a disk it has another name until it is whole, in the same folder or in `drafts`.
    """
    if isinstance(path, Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = draft_of(path if drafts is None else Path(str(drafts)) / path.name)
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    else:
        path.write_text(text, encoding="utf-8")


def draft_of(path: Path) -> Path:
    """Return the name of a file until it is whole."""
    return path.with_name(f".{path.name}.draft")


def remove(folder: Folder, last: str | None = None) -> None:
    """Remove a folder, if it exists; if this is interrupted, it is gone or still has the file `last`."""
    if not folder.exists():
        return
    if isinstance(folder, Path):
        aside = folder.with_name(f".{folder.name}.removed-{uuid.uuid4().hex[:8]}")
        folder.rename(aside)
        shutil.rmtree(aside)
        return
    for path in folder.iterdir():
        if path.name != last:
            folder.fs.rm(path.path, recursive=True)
    folder.fs.rm(folder.path, recursive=True)


def fetch(path: Folder) -> Path:
    """Return a file on a disk, to be removed after use; one in an object store is moved to the disk."""
    if isinstance(path, Path):
        return path
    with tempfile.NamedTemporaryFile(prefix="windrow-", delete=False) as file:
        path.fs.get_file(path.path, file.name)
    path.unlink()
    return Path(file.name)


@contextmanager
def new_folder(folder: Folder, last: str) -> Iterator[Path]:
    """Yield an empty folder on a disk whose files become those of `folder`; the file `last` appears last.

    A folder on a disk is private.
    """
    if isinstance(folder, Path):
        draft = folder.with_name(f".{folder.name}.draft-{uuid.uuid4().hex[:8]}")
        make_private(draft)
        try:
            yield draft
            draft.replace(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return
    with tempfile.TemporaryDirectory(prefix="windrow-") as draft_folder:
        yield Path(draft_folder)
        for path in sorted(Path(draft_folder).iterdir(), key=lambda path: path.name == last):
            folder.fs.put_file(str(path), (folder / path.name).path)
