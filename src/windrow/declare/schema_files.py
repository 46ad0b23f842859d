"""Read record schemas from files.

The schemas become part of the pipeline, so the machines that run it do not need the files.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Final

from windrow.errors import PipelineError

BASE64: Final = "base64:"
"""The prefix of a descriptor set in the pipeline itself, in base64."""


def avro_schema(given: str) -> str:
    """Return an Avro schema as JSON, without its documentation; `given` is the schema itself or the name of its file.

    Raise PipelineError if the file cannot be read or is not JSON.
    """
    is_text = given.lstrip()[:1] in {"{", "["}
    called = "the Avro schema" if is_text else given
    try:
        text = given if is_text else _read_bytes(given).decode()
        return json.dumps(json.loads(text, object_hook=_remove_doc), sort_keys=True)
    except UnicodeDecodeError as exc:
        msg = f"{called} is not UTF-8 at byte {exc.start}"
        raise PipelineError(msg) from exc
    except json.JSONDecodeError as exc:
        msg = f"{called} is not JSON at line {exc.lineno}: {exc.msg}; give a file such as order.avsc"
        raise PipelineError(msg) from exc


def _remove_doc(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != "doc"}


def descriptor_set(given: str) -> str:
    """Return a descriptor set in base64; `given` is ``base64:...`` or the name of a file.

    Raise PipelineError if the file cannot be read.
    """
    if given.startswith(BASE64):
        return given.removeprefix(BASE64)
    return base64.b64encode(_read_bytes(given)).decode()


def _read_bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as exc:
        msg = f"the file {path} cannot be read: {exc.strerror}"
        raise PipelineError(msg) from exc
