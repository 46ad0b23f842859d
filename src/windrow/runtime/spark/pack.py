"""Packs the environment of this process into an archive that Spark unpacks on each executor of a cluster."""

from __future__ import annotations

import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from windrow.errors import InputError, SetupError

_PACKAGE = Path(__file__).parent.parent
"""The folder of windrow's code."""


@dataclass(frozen=True)
class Packed:
    """An archive: its size in bytes, its number of files, and the interpreter that every host must have, or None."""

    bytes: int
    files: int
    interpreter: Path | None


def pack_environment(target: Path, prefix: Path | None = None) -> Packed:
    """Write the environment at `prefix` (default: that of this process) to a ``.tgz``, without Spark's own jars.

    In a virtual environment, ``bin/python`` is a link to an interpreter outside it, which each host must have at the
    same path. Raise InputError if the file cannot be written, or SetupError if the environment cannot be packed.
    """
    root = Path(sys.prefix) if prefix is None else prefix
    if not (root / "bin" / "python").exists() or (root == Path(sys.base_prefix) and not (root / "conda-meta").is_dir()):
        msg = f"{root} is the system's Python: install windrow into a virtual environment, and pack that"
        raise SetupError(msg)
    if prefix is None and not _PACKAGE.is_relative_to(root):
        msg = (
            f"windrow is installed in editable mode: its code is in {_PACKAGE}, not in {root}. "
            "Install it into an environment (pip install .), and pack that"
        )
        raise SetupError(msg)
    interpreter = (root / "bin" / "python").resolve()
    files = 0

    def select(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        nonlocal files
        parts = Path(info.name).parts
        # executors have the jars of their own Spark, and compile bytecode themselves
        if "__pycache__" in parts or parts[-2:] == ("pyspark", "jars"):
            return None
        files += info.isfile() or info.issym()
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        return info

    draft = target.with_name(f".{target.name}.draft")
    try:
        with tarfile.open(draft, "w:gz", compresslevel=6) as archive:
            for entry in sorted(root.iterdir()):
                if entry.resolve() not in {draft.resolve(), target.resolve()}:
                    archive.add(entry, entry.name, filter=select)
        draft.replace(target)
    except OSError as exc:
        draft.unlink(missing_ok=True)
        msg = f"{target} cannot be written: {exc.strerror}"
        raise InputError(msg) from exc
    is_inside = interpreter.is_relative_to(root.resolve())
    return Packed(target.stat().st_size, files, None if is_inside else interpreter)
