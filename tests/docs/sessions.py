"""Sessions: the `console` blocks of a page, run in a folder, and what they give.

A line ``$ COMMAND`` (continued by a backslash at its end) is a command, the lines after it are what a terminal shows of
it: all that it prints, except for the line of progress. A line ``...`` stands for any lines, and ``...`` within a line
for anything. Times and rates of this machine (``0.3 s``, ``6,171/s``) may differ.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import chdir, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from click.testing import CliRunner
from tests.docs.pages import ROOT, Block, blocks_of

from windrow.cli import main

NEEDS = re.compile(r"^<!-- run: ([a-z, ]+) -->$", re.MULTILINE)
"""What a page says once if its session needs more than a folder: kafka, postgres, spark, long."""
FILES = re.compile(r"^<!-- files: (\S+) -->$", re.MULTILINE)
"""The page beside this one whose files the reader already has."""
TOOLS = ("curl", "jq", "psql", "sqlite3")
"""Programs that pages use and that need not be on a machine: without them a page is not run."""
SECONDS = 300.0
"""How long a command may take."""
WIDTH = 100
"""Columns of the terminal."""
WIDEST = 115
"""Columns of a line on a page."""

_QUOTED = re.compile(r"'[^']*'|\"[^\"$`\\]*\"")
_SHELL = re.compile(r"[|&;<>(){}$`*?~#\n]")
"""What only a shell understands, outside of quotes."""
_COMMENT = re.compile(r"\s+# .*$")
_PROGRESS = re.compile(r"^\S+: [\d.,]+[kM]? events, [\d.,]+[kM]?/s\b.*\n", re.MULTILINE)
_TIMES = re.compile(r" *\b[\d,.]+[kM]? ?(?:(?:ms|s|MB/s|GB)\b|(?: events| records)?/s\b)")
_KEEP = "trap '{ pwd; env -0; } >\"$1\"' EXIT\n"
"""What a command leaves to the next one: its folder and its environment."""


@dataclass(frozen=True)
class Command:
    """A command of a session, and what the page shows of it."""

    text: str
    shown: str

    @property
    def must_succeed(self) -> bool:
        """Whether the page shows no line that would say why it failed."""
        return self.shown.strip() in {"", "..."}

    @property
    def words(self) -> list[str] | None:
        """The arguments, if it is windrow and nothing that takes a shell."""
        text = _COMMENT.sub("", self.text.replace("\\\n", " "))
        if not text.startswith("windrow ") or _SHELL.search(_QUOTED.sub("", text)):
            return None
        return shlex.split(text)[1:]


@dataclass(frozen=True)
class Ran:
    """What a command of a page gives."""

    block: Block
    command: Command
    code: int
    given: str

    @property
    def is_as_shown(self) -> bool:
        """Whether that is what the page shows."""
        return matches(self.command.shown, self.given) and not (self.code and self.command.must_succeed)

    @property
    def difference(self) -> str:
        """How it differs from what the page shows, as a diff."""
        shown, given = self.command.shown.splitlines(), self.given.splitlines()
        diff = difflib.unified_diff(shown, given, "on the page", "given", n=99, lineterm="")
        place = f"{self.block.page.name}:{self.block.line}"
        return "\n".join([f"{place}: $ {self.command.text}", *diff, f"exit code {self.code}"])


def commands_of(block: Block) -> Iterator[Command]:
    """Go through the commands of a `console` block; raise ValueError if it does not begin with one."""
    before, *rest = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    if before or not rest:
        msg = f"{block.page.name}:{block.line}: a console block begins with `$ COMMAND`"
        raise ValueError(msg)
    for part in rest:
        command = re.match(r"(?:[^\n]*\\\n)*[^\n]*", part)
        assert command is not None
        yield Command(command[0], part[command.end() + 1 :])


def needs_of(page: Path) -> list[str]:
    """Return what the session of a page needs."""
    found = NEEDS.search(page.read_text(encoding="utf-8"))
    return [word.strip() for word in found[1].split(",")] if found else []


def files_of(page: Path) -> list[Block]:
    """Return the files that a reader of a page writes, in order; a page may continue with the files of another."""
    found = FILES.search(page.read_text(encoding="utf-8"))
    before = files_of(page.parent / found[1]) if found else []
    return [*before, *(block for block in blocks_of(page) if block.title is not None)]


def missing_tools(page: Path) -> list[str]:
    """Return the programs that the session of a page uses and that are not there."""
    text = " ".join(block.text for block in blocks_of(page) if block.language == "console")
    return [tool for tool in TOOLS if re.search(rf"\b{tool}\b", text) and shutil.which(tool) is None]


class Session:
    """What a reader does who follows a page, in a folder of his own.

    The folder has `docs` and `examples` as the root of a clone has them; that of an example's page also has the
    files of the example. `addresses` are those on the page, with those of the servers that run. Commands of windrow
    alone are run in this process, unless `own_process`.
    """

    def __init__(
        self,
        page: Path,
        folder: Path,
        *,
        addresses: Mapping[str, str] | None = None,
        own_process: bool = False,
    ) -> None:
        self._page, self._root, self._folder = page, folder, folder / "session"
        self._addresses = dict(addresses or {})
        self._own_process = own_process
        self._groups: list[int] = []
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = os.environ | {"COLUMNS": str(WIDTH), "PATH": path, "TZ": "UTC"}
        in_examples = page.parent.parent == ROOT / "examples"
        shutil.copytree(page.parent, self._folder) if in_examples else self._folder.mkdir()
        shutil.copytree(ROOT / "examples", self._folder / "examples")
        (self._folder / "docs").symlink_to(ROOT / "docs")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        """End what commands have left running."""
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def run(self) -> Iterator[Ran]:
        """Write the files of the page and run its commands, in order."""
        for block in files_of(self._page):
            if block.page != self._page:
                self._write(block)
        for block in blocks_of(self._page):
            if block.title is not None:
                self._write(block)
            elif block.language == "console":
                for command in commands_of(block):
                    code, given = self._give(command)
                    yield Ran(block, command, code, self._to_page(_PROGRESS.sub("", given)))

    def _write(self, block: Block) -> None:
        assert block.title is not None
        file = self._folder / block.title
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self._to_servers(block.text), encoding="utf-8")

    def _give(self, command: Command) -> tuple[int, str]:
        words = None if self._own_process else command.words
        if words is None:
            return self._run_by_bash(self._to_servers(command.text))
        with chdir(self._folder):
            done = CliRunner().invoke(main, [self._to_servers(word) for word in words], env=self._environment)
        return done.exit_code, done.output

    def _run_by_bash(self, text: str) -> tuple[int, str]:
        output, kept = self._root / "output", self._root / "kept"
        # a file, as what a command leaves running would hold a pipe
        with output.open("wb") as written:
            started = subprocess.Popen(
                ["/usr/bin/env", "bash", "-c", _KEEP + text, "bash", str(kept)],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._groups.append(started.pid)
            code = started.wait(SECONDS)
        folder, _, environment = kept.read_text(encoding="utf-8").partition("\n")
        self._folder = Path(folder)
        self._environment = dict(one.split("=", 1) for one in environment.split("\0") if one)
        return code, output.read_text(encoding="utf-8")

    def _to_servers(self, text: str) -> str:
        for shown, real in self._addresses.items():
            text = text.replace(shown, real)
        return text

    def _to_page(self, text: str) -> str:
        for shown, real in self._addresses.items():
            text = text.replace(real, shown)
        return text.replace(str(self._root / "session"), "/home/you")


def _cut(text: str) -> str:
    """Return lines that fit on a page, without space at their ends."""
    return "".join(f"{_short(line.rstrip())}\n" for line in text.splitlines())


def _short(line: str) -> str:
    head = line[: WIDEST - 4]
    space = head.rfind(" ")
    return line if len(line) <= WIDEST else f"{head[:space]} ..." if space > WIDEST // 2 else f"{head}..."


def matches(shown: str, given: str) -> bool:
    """Tell whether an output is what a page shows."""
    pattern = "".join(
        r"(?:.*\n)*" if line == "..." else r"[^\n]*".join(map(re.escape, line.split("..."))) + r"\n"
        for line in map(_plain, shown.splitlines())
    )
    return re.fullmatch(pattern, "".join(f"{_plain(line)}\n" for line in given.splitlines())) is not None


def _plain(line: str) -> str:
    """Return a line without what differs between two runs, and without space at its end."""
    line, found = _TIMES.subn(" TIME", line)
    # what is aligned with a time of another width
    return re.sub(" +", " ", line).rstrip() if found else line.rstrip()


def record(ran: list[Ran]) -> None:
    """Write what commands have given into their page, where it is not what the page shows."""
    for block in dict.fromkeys(one.block for one in ran):
        parts = (
            f"$ {one.command.text}\n{one.command.shown if one.is_as_shown else _cut(one.given)}"
            for one in ran
            if one.block == block
        )
        # blocks before it may have other lines than they had
        now = next(found for found in blocks_of(block.page) if found.number == block.number)
        lines = block.page.read_text(encoding="utf-8").splitlines(keepends=True)
        indent = lines[now.line - 1].partition("`")[0]
        lines[now.line : now.line + now.text.count("\n")] = textwrap.indent("".join(parts), indent)
        block.page.write_text("".join(lines), encoding="utf-8")
