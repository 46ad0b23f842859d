#!/usr/bin/env python3
"""Writes what docs have from the code.

That is docs/reference/cli.md from the commands, the keys in docs/reference/pipeline.md and the schema beside it from
the sections, and the rules in docs/guides/doctor.md from those of `windrow doctor`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from windrow.api.sections import GRAPH, PIPELINE, RULES_PIPELINE
from windrow.cli import COMMANDS, CommandEntry, main
from windrow.cli.schema import schema_text
from windrow.hosts.doctor import RULES

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"
TARGET = REFERENCE / "cli.md"
PIPELINE_TARGET = REFERENCE / "pipeline.md"
SCHEMA_TARGET = REFERENCE / "pipeline.schema.json"
DOCTOR_TARGET = REFERENCE.parent / "guides" / "doctor.md"
WIDTH = 120
HEAD = """\
# Commands

<!-- Written by scripts/docs.py (`make docs`) from the commands: do not edit it by hand. -->

`windrow COMMAND --help` prints the same text, and `python -m windrow` is the same command. With `--json` a command
prints one JSON object on stdout (`show` one a row), and errors as one JSON object on stderr: `{"error": {"kind",
"message", "exit_code", ...}}`. Progress goes to stderr. A duration is a number and a unit, or several: `250ms`, `90s`,
`10m`, `1h30m`, `1d` (units `us`, `ms`, `s`, `m`, `h`, `d`).

| exit code | meaning |
| ---: | --- |
| 0 | success |
| 1 | the command failed, or found a difference; committed steps are kept |
| 2 | the input is wrong, which was found before anything ran |
| 3 | too many records of a run are dead letters or have expired; its results stay |
| 130 | Ctrl-C, except where it finishes the current step |

[errors.md](errors.md) lists the kinds of errors.
"""


def page() -> str:
    """Return the page."""
    with click.Context(main, info_name="windrow", **main.context_settings) as top:
        parts = [HEAD, "".join(_section("windrow", main, top))]
        for name in COMMANDS:
            command = main.get_command(top, name)
            if command is None:
                msg = f"there is no command {name!r}"
                raise LookupError(msg)
            with click.Context(command, info_name=name, parent=top) as context:
                parts.append("".join(_section(f"windrow {name}", command, context)))
                for action, one in command.commands.items() if isinstance(command, click.Group) else ():
                    with click.Context(one, info_name=action, parent=context) as inner:
                        parts.append("".join(_section(f"windrow {name} {action}", one, inner)))
    return "\n".join(parts)


def _section(title: str, command: click.Command, context: click.Context) -> Iterator[str]:
    """Write a command: its usage, what it does, and its options."""
    yield f"## {title}\n\n```\n{' '.join([title, *command.collect_usage_pieces(context)])}\n```\n\n"
    for paragraph in (command.help or "").split("\n\n"):
        yield f"{_wrapped(paragraph)}\n\n"
    if isinstance(command, click.Group):
        anchor = title.replace(" ", "-")
        entries = COMMANDS if command is main else command.commands
        for name, entry in entries.items():
            said = entry.help if isinstance(entry, CommandEntry) else entry.get_short_help_str(WIDTH)
            yield f"{_wrapped(f'- [`{name}`](#{anchor}-{name}): {said}')}\n"
        yield "\n"
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and isinstance(parameter, click.Option):
            names, help_ = record
            yield f"{_wrapped(f'- `{names}`: {help_}')}\n"


# code and links stay on one line
_UNBROKEN = re.compile(r"`[^`]*`|\[[^]]*\]\([^)]*\)")


def _wrapped(text: str) -> str:
    """Break a paragraph, or an item of a list, into lines."""
    words = _UNBROKEN.sub(lambda match: match[0].replace(" ", "\0"), " ".join(text.split()))
    indent = "  " if words.startswith("- ") else ""
    filled = textwrap.fill(words, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return filled.replace("\0", " ")


_KEYS = re.compile(
    r"(^## (.+)\n(?:(?!^## ).*\n)*?<!-- keys(?: of ([a-z]+))? -->\n)(?:.*\n)*?(<!-- end of keys -->\n)", re.MULTILINE
)


def with_keys(text: str) -> str:
    """Return the page of the pipeline file, with the list of keys of each section written anew."""
    keys = {key.name: list(key.document("")) for key in PIPELINE.keys}
    described = {item.partition("): ")[2] for items in keys.values() for item in items}
    for name, whole in (("streams", GRAPH), ("rules", RULES_PIPELINE)):
        keys[name] = [item for item in dict.fromkeys(whole.document("")) if item.partition("): ")[2] not in described]

    def written(match: re.Match[str]) -> str:
        begin, title, of, end = match.groups()
        items = "".join(f"{_wrapped(item)}\n" for item in keys.pop(of or title))
        return f"{begin}\n{items}\n{end}"

    written_text = _KEYS.sub(written, text)
    if keys:
        msg = f"the page has no list of keys for {', '.join(keys)}"
        raise LookupError(msg)
    return written_text


_RULES = re.compile(r"(<!-- rules -->\n)(?:.*\n)*?(<!-- end of rules -->\n)")


def with_rules(text: str) -> str:
    """Return the page of `windrow doctor`, with the table of its rules written anew."""
    rows = [
        f"| {rule.title} (`{rule.name}`) | {rule.question} | {rule.when('Serious')} | {rule.when('Advice')} |\n"
        for rule in RULES
    ]
    table = "".join(["| rule | looks at | serious | advice |\n", "| --- | --- | --- | --- |\n", *rows])
    written_text, number = _RULES.subn(lambda match: f"{match[1]}\n{table}\n{match[2]}", text)
    if number != 1:
        msg = "the page has no place for the table of rules"
        raise LookupError(msg)
    return written_text


if __name__ == "__main__":
    DOCTOR_TARGET.write_text(with_rules(DOCTOR_TARGET.read_text(encoding="utf-8")), encoding="utf-8")
    PIPELINE_TARGET.write_text(with_keys(PIPELINE_TARGET.read_text(encoding="utf-8")), encoding="utf-8")
    SCHEMA_TARGET.write_text(schema_text(), encoding="utf-8")
    TARGET.write_text(page(), encoding="utf-8")
