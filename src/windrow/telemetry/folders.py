"""Folders of checkpoints and savepoints: on disk, or in an object store (``s3a://BUCKET/PATH``, ``gs://BUCKET/PATH``).

Both are used like paths (`exists`, `read_text`, `glob` ...); this module hides where they differ. A file written to an
object store becomes visible to all hosts at once, complete and durable. Object stores have no locks, renames or sync.

Credentials are taken from the environment. For S3 these are the variables of the AWS tools (AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_PROFILE, AWS_REGION, and AWS_ENDPOINT_URL for stores other than Amazon's), or the role of the
EC2 instance. For Google Cloud Storage the variable is GOOGLE_APPLICATION_CREDENTIALS.
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
"""The scheme that Hadoop uses for each URL scheme of an object store."""


def default_checkpoint(name: str) -> Path:
    """Return the default checkpoint directory of a pipeline."""
    return Path(".windrow") / name


def folder_of(text: str) -> Folder:
    """Return the folder for a path or URL, without sending a request. Raise InputError if the URL is not valid."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        return Path(text)
    if scheme not in _SCHEMES or not rest.strip("/").partition("/")[2]:
        msg = f"{mask_url(text)} is not a folder: specify a path, s3a://BUCKET/PATH or gs://BUCKET/PATH"
        raise InputError(msg)
    if "@" in rest.partition("/")[0] or ":" in rest.partition("/")[0]:
        msg = f"{scheme}://{MASK} contains credentials: specify {scheme}://BUCKET/PATH and set them in the environment"
        raise InputError(msg)
    from windrow.telemetry.object_store import open_folder  # noqa: PLC0415 - fsspec only for object stores

    return open_folder(f"{_SCHEMES[scheme]}://{rest.strip('/')}")


def is_remote(folder: Folder) -> bool:
    """Return True if a folder is in an object store."""
    return not isinstance(folder, Path)


def on_this_machine(folder: Folder) -> Path:
    """Return where a run keeps its local files: in the folder itself, or under ``.windrow`` if the folder is remote."""
    return folder if isinstance(folder, Path) else Path(".windrow") / re.sub(r"[^\w.-]+", "-", str(folder))


def make_private(folder: Path) -> None:
    """Create a folder that only its owner can read, because it will hold records; do nothing if it exists.

    Missing parent folders are created with the permissions of the umask.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def matching(folder: Folder, pattern: str) -> list[Folder]:
    """Return the paths in a folder that match a glob pattern, sorted."""
    return sorted(folder.glob(pattern), key=str)


def write_whole(path: Folder, text: str, drafts: Folder | None = None) -> None:
    """Write a file atomically: readers see either all of it or nothing. Its folder is created if missing.

    On disk, the text is first written under another name, in the same folder or in `drafts`, and then renamed.
    """
    if isinstance(path, Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = draft_of(path if drafts is None else Path(str(drafts)) / path.name)
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    else:
        path.write_text(text, encoding="utf-8")


def draft_of(path: Path) -> Path:
    """Return the temporary name under which a file is written until it is complete."""
    return path.with_name(f".{path.name}.draft")


def remove(folder: Folder, last: str | None = None) -> None:
    """Remove a folder if it exists.

    If this is interrupted, either the whole folder is gone or it still contains the file `last`.
    """
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
    """Return a local copy of a file, which the caller must delete; a file in an object store is moved to disk."""
    if isinstance(path, Path):
        return path
    with tempfile.NamedTemporaryFile(prefix="windrow-", delete=False) as file:
        path.fs.get_file(path.path, file.name)
    path.unlink()
    return Path(file.name)


@contextmanager
def new_folder(folder: Folder, last: str) -> Iterator[Path]:
    """Yield an empty local folder whose files become the contents of `folder`, with the file `last` appearing last.

    If `folder` is on disk, only its owner can read it.
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
