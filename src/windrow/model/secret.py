"""Values of a connection that stand elsewhere: ``${NAME}`` in the environment, ``${file:PATH}`` in a file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from windrow.errors import InputError

_REFERENCE = re.compile(r"\$\{(?:file:([^}]+)|([A-Za-z_][A-Za-z0-9_]*))\}")


def is_reference(text: str) -> bool:
    """Whether a text is a reference and nothing else."""
    return _REFERENCE.fullmatch(text) is not None


def filled(text: str) -> str:
    """Return a text with a letter for each reference, to look at its form."""
    return _REFERENCE.sub("x", text)


def resolved(text: str, called: str, encode: Callable[[str], str]) -> str:
    """Return a text with what its references name; `encode` writes that so that it may stand within other text.

    Raise InputError, which says what a value is `called` and never the value, where one is not there.
    """
    if is_reference(text):
        return _REFERENCE.sub(lambda match: _value(match, called), text)
    return _REFERENCE.sub(lambda match: encode(_value(match, called)), text)


def _value(match: re.Match[str], called: str) -> str:
    path, name = match.groups()
    if path is None:
        if name not in os.environ:
            msg = f"{called}: the environment has no {name}; set it before the start"
            raise InputError(msg)
        return os.environ[name]
    try:
        return Path(path).read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
        msg = f"{called}: cannot read the file {path}: {why}"
        raise InputError(msg) from exc
