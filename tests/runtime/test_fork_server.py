"""The fork server: what a client runs is what Python would run, and nothing is left when the driver ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_until

from windrow.runtime.spark import fork_server

MODULE = """
import json, os, resource, sys
print(json.dumps({
    "argv": sys.argv[1:], "cwd": os.getcwd(), "input": sys.stdin.read(), "name": __name__,
    "seen": os.environ.get("SEEN"), "own": os.environ.get("OWN"), "seed": os.environ.get("PYTHONHASHSEED"),
    "files": resource.getrlimit(resource.RLIMIT_NOFILE),
    "server": os.getppid() if "windrow.runtime.spark.stages" in sys.modules else None,
}))
print("said", file=sys.stderr)
"""
RESTS = """
import os, time
child = os.fork()
if child:
    print(os.getpid(), child, flush=True)
time.sleep(600)
"""
DRIVER = """
import os, subprocess, sys
from pathlib import Path
from windrow.runtime.spark import fork_server
os.environ["PYSPARK_PYTHON"] = sys.executable
folder = Path(sys.argv[1])
with fork_server.in_use(folder):
    python = os.environ["PYSPARK_PYTHON"]
assert os.environ["PYSPARK_PYTHON"] == sys.executable
print(python, flush=True)
sys.stdin.read()
"""


def ran(python: str, folder: Path, **environment: str) -> dict[str, Any]:
    """Run the module, with an input, and return what it found."""
    given = {**os.environ, "PYTHONPATH": str(folder), "SEEN": "é", **environment}
    given.pop("OWN", None)
    done = subprocess.run(
        [python, "-m", "asked", "one", "two words"],
        input="given",
        env=given,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stderr == "said\n"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def is_running(pid: int) -> bool:
    """Return whether a process is there and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="it looks for processes in /proc")
def test_a_module_runs_as_in_python_itself_until_the_driver_is_killed(tmp_path: Path) -> None:
    place = tmp_path / "a folder"
    place.mkdir()
    (place / "asked.py").write_text(MODULE)
    (place / "rests.py").write_text(RESTS)
    # a client may open more files, as those of Java may
    words = ["sh", "-c", 'ulimit -Sn 250 && exec "$@"', "sh", sys.executable, "-c", DRIVER, str(place)]
    environment = {**os.environ, "OWN": "the driver's"}
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as driver:
        assert driver.stdout is not None
        python = driver.stdout.readline().strip()
        same, forked = ran(sys.executable, place), ran(python, place)
        server = forked.pop("server")
        assert {**forked, "server": None} == same
        assert same["argv"] == ["one", "two words"]
        assert is_running(server)
        # what Python reads as it starts is not the server's: Python itself
        other = ran(python, place, PYTHONHASHSEED="7")
        assert (other["seed"], other["server"]) == ("7", None)
        assert ran(python, place, TZ="Asia/Tokyo")["server"] is None
        # a client that is ended ends its fork, as Spark expects; so does one that ends before what it has forked
        given = {**os.environ, "PYTHONPATH": str(place)}
        for number in (signal.SIGTERM, signal.SIGKILL):
            with subprocess.Popen([python, "-m", "rests"], stdout=subprocess.PIPE, text=True, env=given) as client:
                assert client.stdout is not None
                fork, child = map(int, client.stdout.readline().split())
                try:
                    os.kill(client.pid if number == signal.SIGTERM else fork, number)
                    client.wait(60)
                    assert not is_running(fork)
                    assert is_running(child)
                finally:
                    os.kill(child, signal.SIGKILL)
        driver.send_signal(signal.SIGKILL)
    wait_until(lambda: not is_running(server), "the end of the fork server")
    # and so without a server
    assert ran(python, place) == same


FORKS = """
import os, sys, time
from pathlib import Path
from windrow.runtime.spark import fork_server
os.environ["PYSPARK_PYTHON"] = sys.executable
with fork_server.in_use(Path(sys.argv[1])):
    pass
child = os.fork()
if not child:
    time.sleep(600)
print(child, flush=True)
"""


def test_a_driver_ends_before_its_forked_child(tmp_path: Path) -> None:
    words = [sys.executable, "-c", FORKS, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        child = int(driver.stdout.readline())
        try:
            assert driver.wait(60) == 0
        finally:
            os.kill(child, signal.SIGKILL)


def test_where_a_path_is_too_long_for_a_socket_spark_starts_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    with fork_server.in_use(folder):
        assert os.environ["PYSPARK_PYTHON"] == sys.executable
