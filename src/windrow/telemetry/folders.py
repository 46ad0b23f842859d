"""Folders of checkpoints and savepoints: on a disk, or in an object store (``s3a://BUCKET/PATH``, ``gs://BUCKET/PATH``).

Both kinds are used as paths are (`exists`, `read_text`, `glob` ...); what differs between them is here. What is written
to an object store appears whole, is durable and seen by all hosts at once; there is no lock, no rename and no sync.

Environment: for S3 what Amazon's own tools read (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_PROFILE, AWS_REGION, and
AWS_ENDPOINT_URL for another store than Amazon's; on a machine of Amazon's its role), for Google Cloud Storage what its
tools read (GOOGLE_APPLICATION_CREDENTIALS).
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
"""The schemes of object stores, each with that by which Hadoop knows it."""


def default_checkpoint(name: str) -> Path:
    """Return the checkpoint directory of a pipeline's run if none is given."""
    return Path(".windrow") / name


def folder_of(text: str) -> Folder:
    """Return the folder of a path or a URL; nothing is asked. Raise InputError if the URL is of no known kind."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        return Path(text)
    if scheme not in _SCHEMES or not rest.strip("/").partition("/")[2]:
        msg = f"{mask_url(text)} is not a folder: give a path, s3a://BUCKET/PATH or gs://BUCKET/PATH"
        raise InputError(msg)
    if "@" in rest.partition("/")[0] or ":" in rest.partition("/")[0]:
        msg = f"{scheme}://{MASK} has a login in it: give {scheme}://BUCKET/PATH, and the login in the environment"
        raise InputError(msg)
    from windrow.telemetry.object_store import open_folder  # noqa: PLC0415 - only where there is one

    return open_folder(f"{_SCHEMES[scheme]}://{rest.strip('/')}")


def is_remote(folder: Folder) -> bool:
    """Return whether a folder is in an object store."""
    return not isinstance(folder, Path)


def on_this_machine(folder: Folder) -> Path:
    """Return where a run keeps what only its own process needs: in the folder, or for a remote one in ``.windrow``."""
    return folder if isinstance(folder, Path) else Path(".windrow") / re.sub(r"[^\w.-]+", "-", str(folder))


def make_private(folder: Path) -> None:
    """Create a folder that is missing so that nobody but its owner can look into it: it holds records.

    One that exists stays as it is, and folders above it are made as the umask says.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def matching(folder: Folder, pattern: str) -> list[Folder]:
    """Return what a folder has that matches a glob pattern, in order."""
    return sorted(folder.glob(pattern), key=str)


def write_whole(path: Folder, text: str, drafts: Folder | None = None) -> None:
    """Write a file so that it is seen whole or not at all; its folder is made.

    On a disk it has another name until then, in the same folder or in that for `drafts`.
    """
    if isinstance(path, Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = draft_of(path if drafts is None else Path(str(drafts)) / path.name)
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    else:
        path.write_text(text, encoding="utf-8")


def draft_of(path: Path) -> Path:
    """Return what a file is called until it is whole."""
    return path.with_name(f".{path.name}.draft")


def remove(folder: Folder, last: str | None = None) -> None:
    """Remove a folder, if it is there; half removed, it is not there any more, or still has the file `last`."""
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


def fetched(path: Folder) -> Path:
    """Return a file on a disk, to be removed after use: the file itself, or what is moved there from a store."""
    if isinstance(path, Path):
        return path
    with tempfile.NamedTemporaryFile(prefix="windrow-", delete=False) as file:
        path.fs.get_file(path.path, file.name)
    path.unlink()
    return Path(file.name)


@contextmanager
def new_folder(folder: Folder, last: str) -> Iterator[Path]:
    """Yield an empty folder on a disk whose files are those of `folder` in the end; `last` is the last to be seen.

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
    with tempfile.TemporaryDirectory(prefix="windrow-") as made:
        yield Path(made)
        for path in sorted(Path(made).iterdir(), key=lambda path: path.name == last):
            folder.fs.put_file(str(path), (folder / path.name).path)
