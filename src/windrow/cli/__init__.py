"""The `windrow` command.

The module of a command is imported when the command runs, and all errors are reported here. The exit code is 0 for
success, 1 if the command has found a difference or has failed, 2 for invalid input, 3 if the dead letters or expired
records of a run exceed a limit, and 130 after Ctrl-C.
"""

from __future__ import annotations

import atexit
import importlib
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import click
from click.shell_completion import CompletionItem

from windrow.terminal import common

_IS_COMMAND = getattr(signal.getsignal(signal.SIGINT), "__module__", None) == "windrow"
"""Whether this process runs the `windrow` command; `windrow/__init__.py` then lets Ctrl-C end it before `main`."""

_LEAVE = 30.0
"""Seconds in which the threads of a command that has ended must end."""


@dataclass(frozen=True)
class CommandEntry:
    """The module that defines a command, under the name `command`, and the command's line in the help of `windrow`."""

    module: str
    help: str


class LazyGroup(click.Group):
    """A group of commands that imports the module of a command only when the command is used.

    A command returns its exit code (None means 0) or raises an error. In ``standalone_mode`` the group always raises
    SystemExit, with the command's exit code, 130 after Ctrl-C, the `exit_code` of an error, or 1 for an unexpected
    exception.
    """

    def __init__(self, *args: Any, entries: Mapping[str, CommandEntry] | None = None, **kwargs: Any) -> None:  # noqa: ANN401 click's own parameters
        super().__init__(*args, **kwargs)
        self.entries = dict(entries or {})

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 click's own parameter
        """Return the names of the commands, in the order in which help lists them."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 as above
        """Import a command; return None for an unknown name, and raise ClickException if its module is missing."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        try:
            with common.ending_at_once():  # an import can be interrupted without harm
                command = importlib.import_module(entry.module).command
        except ModuleNotFoundError as exc:
            if exc.name != entry.module:
                raise
            msg = f"this installation has no command {cmd_name!r}: {entry.module} is missing"
            raise click.ClickException(msg) from exc
        if not isinstance(command, click.Command):
            msg = f"{entry.module}.command is not a command"
            raise TypeError(msg)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin with `incomplete`."""
        commands = [CompletionItem(name, help=entry.help) for name, entry in self.entries.items()]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [item for item in commands if item.value.startswith(incomplete)] + options

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 as above
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.entries.items()])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 click's own parameter
        **extra: Any,  # noqa: ANN401 click's own parameters
    ) -> Any:  # noqa: ANN401 what the command returns
        """Run a command line."""
        arguments = list(sys.argv[1:] if args is None else args)
        if not standalone_mode:
            return super().main(arguments, prog_name, complete_var, standalone_mode=False, **extra)
        if _IS_COMMAND:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            result = super().main(arguments, prog_name, complete_var, standalone_mode=False, **extra)
            common.flush_output()
        except click.Abort:
            sys.exit(_ending(common.INTERRUPTED))
        except Exception as exc:  # noqa: BLE001 every error becomes a message and an exit code
            if _is_interruption(exc):
                sys.exit(_ending(common.INTERRUPTED))
            with suppress(OSError):  # the buffer still has output that a full disk refused
                common.flush_output()
            sys.exit(
                _ending(
                    common.report_error(exc, as_json=common.wants_json(arguments), debug=common.wants_stack(arguments))
                )
            )
        sys.exit(_ending(result if isinstance(result, int) else 0))


def _is_interruption(error: BaseException | None) -> bool:
    """Return True if an error is DuckDB's report of Ctrl-C during a query, or was caused by one."""
    seen: set[int] = set()  # an error that is raised again can be a cause of its own cause
    while error is not None and id(error) not in seen:
        if isinstance(error, RuntimeError) and str(error) == "Query interrupted":
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _ending(code: int) -> int:
    """Return an exit code; if this process runs the `windrow` command, exit with it here instead.

    Unless the command was interrupted, first wait for its threads, but no longer than `_LEAVE`, as one may wait for a
    server that never answers. Any threads that remain belong to C++ libraries: during a normal exit of the interpreter,
    they could abort the process, or a library could write its buffers.
    """
    if not _IS_COMMAND:
        return code
    signal.signal(signal.SIGINT, common.end_process)
    last = threading.Timer(_LEAVE, os._exit, (code,))
    last.daemon = True
    last.start()
    if code != common.INTERRUPTED:
        threading._shutdown()  # type: ignore[attr-defined] # noqa: SLF001 - no other way
    atexit._run_exitfuncs()  # noqa: SLF001 - the same
    with suppress(OSError):
        common.flush_output()
        sys.stderr.flush()
    os._exit(code)


COMMANDS = {
    "demo": CommandEntry("windrow.cli.demo", "Generate a day of events, run a pipeline over it, and replay it."),
    "init": CommandEntry("windrow.tools.scaffold.command", "Create a project, or a pipeline for the records of a log."),
    "services": CommandEntry("windrow.cli.services", "Start a Kafka broker and a PostgreSQL server for development."),
    "run": CommandEntry("windrow.cli.run", "Run a pipeline, live or to the end of its input."),
    "preview": CommandEntry("windrow.cli.preview", "Show the first rows of a pipeline, without its sinks."),
    "show": CommandEntry("windrow.cli.show", "Show rows of a pipeline's tables."),
    "savepoint": CommandEntry("windrow.cli.savepoint", "Write a savepoint of a stopped run."),
    "state": CommandEntry("windrow.cli.state", "Show the state of a stopped run or a savepoint."),
    "status": CommandEntry("windrow.cli.status", "Show the progress of a run, and what holds it back."),
    "dashboard": CommandEntry("windrow.tools.dashboard.command", "Show runs live on a web page."),
    "stop": CommandEntry("windrow.cli.stop", "Stop a realtime run from any machine."),
    "tune": CommandEntry("windrow.tools.tune.command", "Choose delay and lateness from the disorder of the records."),
    "monitoring": CommandEntry(
        "windrow.tools.monitoring.command", "Print alerts for Prometheus, or a dashboard for Grafana."
    ),
    "doctor": CommandEntry("windrow.tools.doctor.command", "Review a pipeline, its run, checkpoint, tables and log."),
    "capacity": CommandEntry("windrow.tools.capacity.command", "Plan the resources of a pipeline, and their cost."),
    "replay": CommandEntry("windrow.cli.replay", "Replay a log into a shadow of the live table."),
    "diff": CommandEntry("windrow.cli.diff", "Compare a table with its replay."),
    "promote": CommandEntry("windrow.cli.promote", "Replace the live table with its replay."),
    "redrive": CommandEntry(
        "windrow.tools.redrive.command", "Put dead letters of a corrected pipeline back into the log."
    ),
    "relay": CommandEntry("windrow.tools.relay.command", "Send the rows of an outbox to a topic or a log."),
    "check": CommandEntry("windrow.cli.check", "Report errors in pipelines, and warn of likely mistakes."),
    "explain": CommandEntry("windrow.cli.explain", "Print a pipeline as text, YAML, JSON, Python or a Mermaid chart."),
    "schema": CommandEntry("windrow.cli.schema", "Print the JSON Schema of a pipeline file, for editors."),
    "transcript": CommandEntry("windrow.cli.transcript", "Run event-time test stories."),
    "pack": CommandEntry("windrow.cli.pack", "Pack this Python environment for the executors of a cluster."),
    "log": CommandEntry("windrow.cli.log", "List, trim and compact an embedded log."),
    "generate": CommandEntry(
        "windrow.tools.generate.command", "Generate events into an embedded log or a Kafka topic."
    ),
}
"""The commands, whose modules are imported when they run."""


def _print_versions(context: click.Context, _parameter: click.Parameter, is_given: bool) -> None:  # noqa: FBT001 click calls so
    if not is_given or context.resilient_parsing:
        return
    import platform  # noqa: PLC0415 - only --version needs it
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - the same

    from windrow.runtime.spark.jars import java_version  # noqa: PLC0415 - the same

    try:
        spark = f"Spark {version('pyspark')}"
    except PackageNotFoundError:
        spark = "no Spark"
    java = java_version()
    beside = f"{spark}, Python {platform.python_version()}, {'no Java' if java is None else f'Java {java}'}"
    click.echo(f"windrow {version('windrow')} ({beside})")
    context.exit()


@click.group(cls=LazyGroup, entries=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_versions,
    help="Show the versions of windrow, Spark, Python and Java, and exit.",
)
@click.option("--debug", is_flag=True, help="Show the stack trace of an error (also: WINDROW_DEBUG=1).")
def main(*, debug: bool) -> None:
    """Event-time analytics on Spark whose answers do not change when the log is replayed."""
    # `report_error` reads `debug` from the command line itself, because parsing may fail
    del debug
