"""The `windrow` command.

Exit codes: 0 well, 1 it ran and found a difference or a failure, 2 the input is wrong, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import click

from windrow.cli.group import Entry, LazyGroup

COMMANDS = {
    "demo": Entry("windrow.cli.demo", "Make a day of events, run the main job over it, and replay it."),
    "run": Entry("windrow.cli.run", "Run a pipeline, live or to the end of its input."),
    "savepoint": Entry("windrow.cli.savepoint", "Write what a stopped run knows, to go on from."),
    "state": Entry("windrow.cli.state", "Say what a stopped run, or a savepoint, holds."),
    "replay": Entry("windrow.cli.replay", "Replay a log into a shadow of the live table."),
    "diff": Entry("windrow.cli.diff", "Compare a table with its replay."),
    "promote": Entry("windrow.cli.promote", "Put a replay in the place of the live table."),
    "check": Entry("windrow.cli.check", "Say what is wrong with pipelines, and what is likely not meant."),
    "explain": Entry("windrow.cli.explain", "Print a pipeline as text, YAML, JSON, Python or a Mermaid chart."),
    "transcript": Entry("windrow.cli.transcript", "Run golden event-time stories."),
    "generate": Entry("windrow.cli.generate", "Make events, in an embedded log or a Kafka topic."),
}
"""The commands: one line each; their modules are imported when they run."""


@click.group(cls=LazyGroup, entries=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="windrow", message="windrow %(version)s")
@click.option("--debug", is_flag=True, help="Show the stack of an error (also: WINDROW_DEBUG=1).")
def main(*, debug: bool) -> None:
    """Event-time analytics on Spark whose answers do not change when the log is replayed."""
    # where errors end, `debug` is read from the command line itself: parsing it may be what failed
    del debug
