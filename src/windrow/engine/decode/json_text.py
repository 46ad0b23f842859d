"""Strict parsing of JSON; numbers stay text, so no digit is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NoReturn

from windrow.engine.decode.values import MAX_DEPTH, TOO_DEEP, MalformedError, NumberText

_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"?|([\[{])|([\]}])', re.DOTALL)
_KINDS: Mapping[type, str] = {list: "an array", NumberText: "a number", str: "a string"}
_ESCAPE_BUT_LONE_SURROGATE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\[^u]|\\u(?![dD][89a-fA-F])"
)


def parse_object(raw: bytes) -> dict[str, object]:
    """Parse bytes as a JSON object, as `parse_json` does; raise MalformedError if they are not one."""
    value = parse_json(raw)
    if not isinstance(value, dict):
        msg = f"not an object: {_KINDS.get(type(value)) or json.dumps(value)}"
        raise MalformedError(msg)
    return value


def parse_json(raw: bytes) -> object:
    """Parse bytes as JSON (RFC 8259); raise MalformedError if they are not JSON.

    If a name occurs more than once, its first value counts. Numbers become `NumberText`.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as exc:
        msg = f"malformed: not UTF-8 at byte {exc.start}"
        raise MalformedError(msg) from exc
    if _too_deep(text):
        raise MalformedError(TOO_DEEP)
    try:
        value: object = json.loads(
            text,
            parse_float=NumberText,
            parse_int=NumberText,
            parse_constant=_no_constant,
            object_pairs_hook=lambda pairs: dict(reversed(pairs)),
        )
    except json.JSONDecodeError as exc:
        msg = f"malformed: not JSON at character {exc.pos}: {exc.msg}"
        raise MalformedError(msg) from exc
    except RecursionError as exc:
        raise MalformedError(TOO_DEEP) from exc
    if "\\u" in _ESCAPE_BUT_LONE_SURROGATE.sub("", text):
        msg = "malformed: half of a surrogate pair"
        raise MalformedError(msg)
    return value


def _too_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        if match[1]:
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif match[2]:
            depth -= 1
    return False


def _no_constant(text: str) -> NoReturn:
    msg = f"malformed: not JSON: {text} is no number"
    raise MalformedError(msg)
