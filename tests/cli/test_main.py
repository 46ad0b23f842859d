"""The group: help, versions, and how commands end that do not end well."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from windrow.cli import COMMANDS, CommandEntry, LazyGroup, main
from windrow.errors import PipelineError, Place, SinkError

SPEND = """\
name: spend
source: {log: {path: data}}
decode: {user: string, at: timestamp, amount: long}
time: {field: at, delay: 10m}
key: [user]
window: {tumbling: 5m}
aggregate: {total: sum(amount)}
sink: {sqlite: {path: spend.db, table: spend}}
"""


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def invoke_one(monkeypatch: pytest.MonkeyPatch, act: Callable[[], int | None], *arguments: str) -> Result:
    """Run a group whose only command does `act`."""
    command = click.Command("act", callback=lambda **_: act(), params=[click.Option(["--json"], is_flag=True)])
    group = LazyGroup("windrow", params=[click.Option(["--debug"], is_flag=True)], callback=lambda **_: None)
    monkeypatch.setattr(group, "get_command", lambda *_: command)
    return CliRunner().invoke(group, [*arguments])


def raising(exc: BaseException) -> Callable[[], int]:
    def act() -> int:
        raise exc

    return act


def test_the_package_is_the_command_too() -> None:
    words = [sys.executable, "-m", "windrow", "--help"]
    ran = subprocess.run(words, check=True, capture_output=True, text=True)
    assert ran.stdout == invoke("--help").output.replace("main", "windrow", 1)
    ended = subprocess.run([*words[:3], "check", "nothing.yaml"], check=False, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stdout.startswith("nothing.yaml: error: there is no file 'nothing.yaml'\n")


def test_help_has_a_line_for_each_command() -> None:
    for result in (invoke("--help"), invoke("-h")):
        assert result.exit_code == 0
        for name, entry in COMMANDS.items():
            assert f"  {name} " in result.output
            assert entry.help in result.output


def test_help_imports_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.import_module", raising(AssertionError()))
    group = LazyGroup("windrow", entries={"later": CommandEntry("windrow.cli.no_such_module", "It comes later.")})
    assert "later  It comes later." in CliRunner().invoke(group, ["--help"]).output


def test_a_command_whose_module_is_missing() -> None:
    group = LazyGroup("windrow", entries={"later": CommandEntry("windrow.cli.no_such_module", "It comes later.")})
    result = CliRunner().invoke(group, ["later"])
    assert result.exit_code == 1
    assert result.stderr == "Error: this installation has no command 'later': windrow.cli.no_such_module is missing\n"


def completed(monkeypatch: pytest.MonkeyPatch, *words: str) -> list[str]:
    """What a shell is told of the last word, a kind and a value each."""
    monkeypatch.setenv("_WINDROW_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(("windrow", *words)))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    result = CliRunner().invoke(main, [], prog_name="windrow")
    assert result.exit_code == 0
    return result.output.split()


def test_a_shell_completes_commands_options_files_and_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spend.yaml").write_text(SPEND, encoding="utf-8")
    (tmp_path / "wrong.yaml").write_text("name: a", encoding="utf-8")
    assert completed(monkeypatch, "re") == ["plain,replay", "plain,redrive", "plain,relay"]
    assert completed(monkeypatch, "run", "--until") == ["plain,--until-end"]
    assert completed(monkeypatch, "run", "sp") == completed(monkeypatch, "check", "a.yaml", "sp") == ["file,sp"]
    tables = [f"plain,spend{suffix}" for suffix in ("", "_changes", "_late", "_dead", "_clocks")]
    assert completed(monkeypatch, "show", "spend.yaml", "sp") == tables
    assert completed(monkeypatch, "show", "wrong.yaml", "sp") == completed(monkeypatch, "show", "sp.py", "sp") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_given_its_script(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_WINDROW_COMPLETE", f"{shell}_source")
    result = CliRunner().invoke(main, [], prog_name="windrow")
    assert f"_WINDROW_COMPLETE={shell}_complete" in result.output


def test_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch(0o755)
    (tmp_path / "release").write_text('JAVA_VERSION="17.0.1"\n')
    python = ".".join(map(str, sys.version_info[:3]))
    for home, java in ((tmp_path, "Java 17.0.1"), (tmp_path / "nothing", "no Java")):
        monkeypatch.setenv("JAVA_HOME", str(home))
        result = invoke("--version")
        expected = f"windrow {version('windrow')} (Spark {version('pyspark')}, Python {python}, {java})\n"
        assert (result.exit_code, result.output) == (0, expected)


@pytest.mark.parametrize("arguments", [["nope"], ["check"], ["check", "--nope"], ["explain", "a", "b"]])
def test_a_wrong_command_line_is_2(arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: ")
    assert result.stdout == ""


def test_a_wrong_command_line_as_json() -> None:
    result = invoke("check", "--json", "--nope")
    assert result.exit_code == 2
    assert json.loads(result.stderr)["error"]["kind"] == "NoSuchOption"


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (0, 0), (1, 1), (2, 2)])
def test_a_command_returns_its_exit_code(returned: int | None, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert invoke_one(monkeypatch, lambda: returned, "act").exit_code == code


@pytest.mark.parametrize(
    ("exc", "code", "message"),
    [
        (PipelineError("no such key", Place("a.yaml", 3)), 2, "windrow: a.yaml:3: no such key\n"),
        (SinkError("the table is locked"), 1, "windrow: the table is locked\n"),
        (click.UsageError("not both"), 2, "Error: not both\n"),
        (KeyboardInterrupt(), 130, "\n"),
        (BrokenPipeError(errno.EPIPE, "gone"), 1, ""),
    ],
)
def test_errors_end_in_a_message_and_a_code(
    exc: BaseException, code: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = invoke_one(monkeypatch, raising(exc), "act")
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.endswith(message)
    assert "Traceback" not in result.stderr


def test_an_error_that_was_raised_again_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    lost, stopped = SinkError("the table is locked"), SinkError("stopped")
    lost.__context__, stopped.__cause__ = stopped, lost
    result = invoke_one(monkeypatch, raising(stopped), "act")
    assert (result.exit_code, result.stderr) == (1, "windrow: stopped\n")


def test_what_nobody_expected_asks_to_be_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    result = invoke_one(monkeypatch, raising(KeyError("x")), "act")
    assert result.exit_code == 1
    assert result.stderr.startswith("windrow: unexpected KeyError: 'x'\n")
    assert "--debug" in result.stderr
    assert "WINDROW_DEBUG=1" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_device_is_no_defect(unbuffered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    program = "from windrow.cli import main; main()"
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-c", program, "--help"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert ran.returncode == 1
    assert ran.stderr.decode() == "windrow: the output cannot be written: No space left on device\n"


def test_debug_shows_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Traceback" in invoke_one(monkeypatch, raising(KeyError("x")), "--debug", "act").stderr
    monkeypatch.setenv("WINDROW_DEBUG", "1")
    result = invoke_one(monkeypatch, raising(SinkError("locked")), "act")
    assert (result.exit_code, "Traceback" in result.stderr) == (1, True)
    monkeypatch.setenv("WINDROW_DEBUG", "0")
    assert "Traceback" not in invoke_one(monkeypatch, raising(SinkError("locked")), "act").stderr


def test_errors_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    result = invoke_one(monkeypatch, raising(PipelineError("no", Place("a.yaml", 3))), "act", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stderr) == {
        "error": {
            "kind": "PipelineError",
            "message": "a.yaml:3: no",
            "exit_code": 2,
            "problems": [{"message": "no", "file": "a.yaml", "line": 3}],
        }
    }
    result = invoke_one(monkeypatch, raising(SinkError("locked")), "act", "--json")
    assert json.loads(result.stderr) == {"error": {"kind": "SinkError", "message": "locked", "exit_code": 1}}


def test_as_a_library_the_group_raises() -> None:
    with pytest.raises(PipelineError):
        main.main(["explain", "absent.yaml"], standalone_mode=False)


def test_a_reader_that_goes_away_is_no_error() -> None:
    pipe = f"{sys.executable} -c 'from windrow.cli import main; main()' --help | true"
    result = subprocess.run(["/bin/sh", "-c", pipe], check=False, capture_output=True, text=True)
    assert result.stderr == ""


@pytest.mark.parametrize("arguments", [["--help"], ["check", "absent.yaml"]])
def test_start_up_is_quick(arguments: list[str]) -> None:
    program = [sys.executable, "-c", "from windrow.cli import main; main()", *arguments]
    took = []
    for _ in range(3):
        before = os.times()
        subprocess.run(program, check=False, capture_output=True)
        after = os.times()
        # processor time: what else the machine does is not counted
        took.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert 0 < min(took) < 0.5


INTERRUPTED = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Interrupt(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from windrow.cli import main
main(["check", "--help"])
"""


@pytest.mark.parametrize("module", ["windrow.errors", "windrow.cli", "click", "windrow.cli.check"])
def test_ctrl_c_as_the_command_starts_is_no_stack_trace(module: str, tmp_path: Path) -> None:
    command = tmp_path / "windrow"
    command.write_text(INTERRUPTED)
    done = subprocess.run([sys.executable, str(command), module], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


INTERRUPTED_QUERY = """
import os, signal, threading
from windrow.engine.duckdb_sql import Connection, query

def act(*_, **__):
    threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
    query(Connection(), "SELECT sum(sqrt(a.range * b.range)) FROM range(1000000) a, range(1000000) b")

import windrow.cli.check
windrow.cli.check.command.callback = act
from windrow.cli import main
main(["check", "a.yaml"])
"""


def test_ctrl_c_within_a_query_ends_as_any_other(tmp_path: Path) -> None:
    command = tmp_path / "windrow"
    command.write_text(INTERRUPTED_QUERY)
    done = subprocess.run([sys.executable, str(command)], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")


def test_who_imports_windrow_keeps_the_handler_of_ctrl_c() -> None:
    code = "import signal, windrow.cli; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "True\n"
