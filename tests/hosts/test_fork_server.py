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

MODULE = """
import json, os, sys
print(json.dumps({
    "argv": sys.argv[1:], "cwd": os.getcwd(), "input": sys.stdin.read(), "name": __name__,
    "seen": os.environ.get("SEEN"), "own": os.environ.get("OWN"), "seed": os.environ.get("PYTHONHASHSEED"),
    "server": os.getppid() if "windrow.hosts.stages" in sys.modules else None,
}))
print("said", file=sys.stderr)
"""
DRIVER = """
import os, subprocess, sys
from pathlib import Path
from windrow.hosts import fork_server
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
    words = [sys.executable, "-c", DRIVER, str(place)]
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
        driver.send_signal(signal.SIGKILL)
    wait_until(lambda: not is_running(server), "the end of the fork server")
    # and so without a server
    assert ran(python, place) == same
