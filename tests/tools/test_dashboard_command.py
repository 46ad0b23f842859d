"""`windrow dashboard`: which runs it shows, and where it refuses to listen."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from tests.telemetry.test_history import STEP, written

from windrow.cli import main
from windrow.errors import InputError
from windrow.terminal.listening import listen
from windrow.tools.dashboard.command import _is_loopback, _runs

PIPELINE = """\
name: {name}
source: {{log: {{path: log}}}}
decode: {{user: string, t: timestamp_millis}}
time: {{field: t, delay: 1m}}
key: [user]
window: {{tumbling: 5m}}
aggregate: {{n: count()}}
sink: {{sqlite: {{path: a.db, table: a}}}}
"""


def refused(*arguments: str) -> str:
    ran = CliRunner().invoke(main, ["dashboard", *arguments])
    assert ran.exit_code == 2, ran.output
    return ran.output


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        Path(f"{name}.yaml").write_text(PIPELINE.format(name=name))


def test_others_need_a_token() -> None:
    said = refused("one.yaml", "--listen", "0.0.0.0:0")
    assert "--listen 0.0.0.0 lets other machines read records: give a --token" in said
    assert "--token has 5 characters: use at least 16" in refused("one.yaml", "--token", "short")
    with mock.patch.dict("os.environ", {"WINDROW_DASHBOARD_TOKEN": "short"}):
        assert "--token has 5 characters" in refused("one.yaml")


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("a.b", False)],  # noqa: S104 - not listened on
)
def test_loopback_is_known(host: str, expected: bool) -> None:  # noqa: FBT001
    assert _is_loopback(host) is expected


def test_an_address_that_is_taken_or_wrong_is_said() -> None:
    assert "cannot listen on --listen 127.0.0.1:99999: the highest port is 65535" in refused(
        "one.yaml", "--listen", "127.0.0.1:99999"
    )
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert f"cannot listen on --listen 127.0.0.1:{port}: " in refused("one.yaml", "--listen", f":{port}")


def test_the_runs_are_those_that_are_named_or_in_the_folder() -> None:
    with pytest.raises(InputError, match=r"there is no checkpoint in \.windrow here"):
        _runs((), None)
    written(Path(".windrow/one/progress.sqlite"), [STEP])
    assert [(run.name, run.pipeline) for run in _runs((), None)] == [("one", None)]
    assert [(run.name, str(run.checkpoint)) for run in _runs(("one.yaml", "two.yaml"), None)] == [
        ("one", ".windrow/one"),
        ("two", ".windrow/two"),
    ]
    assert str(_runs(("two.yaml",), Path("cp"))[0].checkpoint) == "cp"
    assert _runs((), Path("a/cp"))[0].name == "cp"
    with pytest.raises(InputError, match="--checkpoint is for a single run, but 2 pipelines are given"):
        _runs(("one.yaml", "two.yaml"), Path("cp"))
    with pytest.raises(InputError, match="two of the pipelines are called 'one'"):
        _runs(("one.yaml", "one.yaml"), None)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_it_serves_until_it_is_stopped(options: list[str]) -> None:
    words = [sys.executable, "-m", "windrow", "dashboard", "one.yaml", "--listen", ":0", *options]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if options:
            made = json.loads(line)
            assert made["runs"] == ["one"]
        else:
            assert line.endswith(" (stop with Ctrl-C)\n")
        address = made["address"] if options else line.removeprefix("one: ").split()[0]
        with urlopen(address, timeout=30) as answer:  # noqa: S310 - loopback
            assert b"<title>windrow</title>" in answer.read()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert "Traceback" not in err
    assert process.returncode in {0, 130}
