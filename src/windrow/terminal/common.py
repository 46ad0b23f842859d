"""Shared parts of the commands: exit codes, arguments, JSON output, error reports and Ctrl-C."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType
from typing import Any, NoReturn, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from windrow.errors import HIDDEN_VALUES, InputError, PipelineError, Place, WindrowError, described, each_error
from windrow.terminal.interrupts import raise_interrupt

OK = 0
DIFFERENT = 1
"""The command ran, and found a difference or a failure."""
WRONG = 2
"""The input is invalid, and nothing ran."""

F = TypeVar("F", bound=Callable[..., Any])

INTERRUPTED = 130
_DEBUG = "WINDROW_DEBUG"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}
"""Errors of disks and devices, which are not bugs in windrow."""
NEEDS_NO_SPARK = "; --host memory needs none"


def complete_files(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete the name of a file."""
    return [CompletionItem(incomplete, type="file")]


def is_given(name: str) -> bool:
    """Return whether a parameter was given on the command line."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def refuse_options(names: Iterable[str], host: str) -> None:
    """Raise InputError if the command line sets one of these parameters, because the host does not use it."""
    given = [f"--{name.replace('_', '-')}" for name in names if is_given(name)]
    if given:
        msg = f"--host {host} does not use {' and '.join(given)}: leave {'it' if len(given) == 1 else 'them'} out"
        raise InputError(msg)


def json_option(function: F) -> F:
    """Add ``--json``, which the function receives as `as_json`; with it, errors are also JSON, on stderr."""
    help_ = "Print one JSON object on stdout; an error is a JSON object on stderr."
    return click.option("--json", "as_json", is_flag=True, help=help_)(function)


def print_json(value: object) -> None:
    """Print a value as indented JSON on stdout."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def wants_stack(arguments: list[str]) -> bool:
    """Return whether to print stack traces: with ``--debug`` or WINDROW_DEBUG=1."""
    return "--debug" in arguments or os.environ.get(_DEBUG, "") not in {"", "0"}


def wants_json(arguments: list[str]) -> bool:
    """Return whether an error is written as JSON: with ``--json`` or ``--log json``."""
    return "--json" in arguments or "--log=json" in arguments or ("--log", "json") in pairwise(arguments)


def report_error(exc: Exception, *, as_json: bool, debug: bool) -> int:
    """Write an error to stderr, as text or as ``{"error": {...}}``, and return its exit code."""
    if debug and not isinstance(exc, click.ClickException):
        click.echo(HIDDEN_VALUES.hide("".join(traceback.format_exception(exc))), err=True, nl=False)
    message, code = _message_and_code(exc)
    if as_json:
        fields: dict[str, Any] = {"kind": type(exc).__name__, "message": message, "exit_code": code}
        if isinstance(exc, PipelineError):
            fields["problems"] = [{"message": error.message, **place_fields(error.place)} for error in each_error(exc)]
        else:
            fields |= place_fields(getattr(exc, "place", None))
        click.echo(json.dumps({"error": fields}, ensure_ascii=False), err=True)
    elif isinstance(exc, click.ClickException):
        exc.show()
    else:
        click.echo(f"windrow: {message}", err=True)
    return code


def flush_output() -> None:
    """Flush standard output; if that fails, replace it, so that the interpreter does not try again."""
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - it lives as long as the process
        raise


def _message_and_code(exc: Exception) -> tuple[str, int]:
    match exc:
        case click.ClickException():
            return exc.format_message(), exc.exit_code
        case WindrowError():
            return str(exc), exc.exit_code
        case ModuleNotFoundError(name=str(name)) if name.partition(".")[0] != "windrow":
            # installed without a required package (pip install --no-deps)
            return f"the package {name} is missing from this installation: pip install windrow", WRONG
        case OSError() if exc.errno in _NO_ROOM:
            return f"{exc.filename or 'the output'} cannot be written: {exc.strerror}", 1
        case _:
            advice = (
                "This is a bug in windrow. `windrow --debug COMMAND ...` (or WINDROW_DEBUG=1) shows the stack trace;"
                " please report it."
            )
            return f"unexpected {described(exc)}\n{advice}", 1


def place_fields(place: Place | None) -> dict[str, Any]:
    """Return a place as the JSON fields `file`, `line` and, in SQL, `column`; no fields for None."""
    if place is None:
        return {}
    return {"file": place.file, "line": place.line} | ({} if place.column is None else {"column": place.column})


def echo_error(text: str) -> None:
    """Print a line on stderr."""
    click.echo(text, err=True)


@contextmanager
def report_spark_start(*, quiet: bool, advice: str = "", tell: Callable[[str], None] = echo_error) -> Iterator[None]:
    """Report that Spark is starting, which takes a while, with `advice`, through `tell`; do nothing if `quiet`."""
    if quiet:
        yield
        return
    import logging  # noqa: PLC0415 - commands that do not start Spark do without

    handler = logging.Handler()
    handler.emit = lambda record: tell(f"{record.getMessage()}{advice}")  # type: ignore[method-assign]
    logger = logging.getLogger("windrow.runtime.spark.session")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C interrupt the block, without log messages about the interrupted call."""
    kept = signal.signal(signal.SIGINT, raise_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, kept)


def end_process(number: int, frame: FrameType | None) -> NoReturn:
    """End the process at once on Ctrl-C, without raising an exception whose stack trace a library could print."""
    del number, frame
    os._exit(INTERRUPTED)


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Let Ctrl-C end the process at once while the block imports modules, unless the program has its own handler."""
    is_free = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not is_free or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, end_process)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
