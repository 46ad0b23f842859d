"""The one DuckDB of a process."""

import subprocess
import sys


def test_it_is_let_go_of_without_a_word_at_the_end_of_the_process() -> None:
    script = "from windrow.core import duck; from windrow.core.aggregates import kernels; kernels.count('BIGINT')"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("", "")
