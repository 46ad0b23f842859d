"""A group whose commands are imported when they run, and whose errors end in one place."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from windrow.cli.failure import INTERRUPTED, debugging, flush_output, tell


@dataclass(frozen=True)
class Entry:
    """A command: the module that has it as `command`, and its line in the group's help."""

    module: str
    help: str


class LazyGroup(click.Group):
    """Commands by name; help needs none of their modules.

    A command returns its exit code (None is 0) or raises. Called as a program (``standalone_mode``), the group always
    ends in SystemExit: 130 after Ctrl-C, an error's own `exit_code`, and 1 for what nobody expected.
    """

    def __init__(self, *args: Any, entries: Mapping[str, Entry] | None = None, **kwargs: Any) -> None:  # noqa: ANN401 click's own parameters
        super().__init__(*args, **kwargs)
        self.entries = dict(entries or {})

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 click asks so
        """Return the names in the order of the registry."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 click asks so
        """Import a command; raise ClickException if its module is not there."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        try:
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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 click asks so
        """Write the list of commands from the registry."""
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
        try:
            result = super().main(arguments, prog_name, complete_var, standalone_mode=False, **extra)
            flush_output()
        except click.Abort:
            sys.exit(INTERRUPTED)
        except Exception as exc:  # noqa: BLE001 the last place: whatever it is becomes a message and an exit code
            sys.exit(tell(exc, as_json="--json" in arguments, debug=debugging(arguments)))
        sys.exit(result if isinstance(result, int) else 0)
