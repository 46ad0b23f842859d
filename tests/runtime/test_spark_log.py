"""What Spark's processes say goes to a file, and what this one says to its stderr."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SAYS = """
import subprocess, sys
from pathlib import Path
from windrow.runtime.spark.session import stderr_to

print("before", file=sys.stderr)
with stderr_to(Path("spark.log")):
    child = "import sys; sys.stderr.write(sys.stdin.readline()); sys.stderr.write(sys.stdin.readline())"
    process = subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE, text=True)
    print("ours", file=sys.stderr)
    process.stdin.write("theirs\\n")
    process.stdin.flush()
print("after", file=sys.stderr)
process.communicate("theirs, later\\n")
while Path("spark.log").read_text().count("\\n") < 2:
    pass
"""


def test_only_the_processes_that_are_started_within_say_it_to_the_file(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SAYS], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=True
    )
    assert ran.stderr == "before\nours\nafter\n"
    assert (tmp_path / "spark.log").read_text() == "theirs\ntheirs, later\n"
