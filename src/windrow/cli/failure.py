"""How a command ends that does not end well: one message, and an exit code."""

from __future__ import annotations

import errno
import json
import os
import sys
import traceback
from typing import Any

import click

from windrow.api.problems import each_error
from windrow.errors import PipelineError, Place, WindrowError

INTERRUPTED = 130
_DEBUG = "WINDROW_DEBUG"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}
"""Errors of the machine's disks and devices: not defects of windrow."""


def debugging(arguments: list[str]) -> bool:
    """Return whether stacks are wanted, by ``--debug`` or by WINDROW_DEBUG=1."""
    return "--debug" in arguments or os.environ.get(_DEBUG, "") not in {"", "0"}


def tell(exc: Exception, *, as_json: bool, debug: bool) -> int:
    """Write what went wrong to stderr, as text or as ``{"error": {...}}``, and return the exit code."""
    if debug and not isinstance(exc, click.ClickException):
        click.echo("".join(traceback.format_exception(exc)), err=True, nl=False)
    code = _exit_code(exc)
    if as_json:
        click.echo(json.dumps({"error": _plain(exc, code)}, ensure_ascii=False), err=True)
    elif isinstance(exc, click.ClickException):
        exc.show()
    else:
        click.echo(f"windrow: {_message(exc)}", err=True)
    return code


def flush_output() -> None:
    """Write what standard output still holds; if that fails, drop it, so that the interpreter does not try again."""
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - it lives as long as the process
        raise


def _exit_code(exc: Exception) -> int:
    match exc:
        case WindrowError() | click.ClickException():
            return exc.exit_code
        case _:
            return 1


def _message(exc: Exception) -> str:
    match exc:
        case click.ClickException():
            return exc.format_message()
        case WindrowError():
            return str(exc)
        case OSError() if exc.errno in _NO_ROOM:
            return f"{exc.filename or 'the output'} cannot be written: {exc.strerror}"
        case _:
            return (
                f"unexpected {type(exc).__name__}: {exc}\n"
                "This is a defect of windrow. `windrow --debug COMMAND ...` (or WINDROW_DEBUG=1) shows the stack; "
                "please report it."
            )


def _plain(exc: Exception, code: int) -> dict[str, Any]:
    plain: dict[str, Any] = {"kind": type(exc).__name__, "message": _message(exc), "exit_code": code}
    if isinstance(exc, PipelineError):
        plain["problems"] = [{"message": one.message, **place_fields(one.place)} for one in each_error(exc)]
    else:
        plain.update(place_fields(getattr(exc, "place", None)))
    return plain


def place_fields(place: Place | None) -> dict[str, Any]:
    """Return a place as the JSON fields `file` and `line`, or nothing."""
    return {} if place is None else {"file": place.file, "line": place.line}
