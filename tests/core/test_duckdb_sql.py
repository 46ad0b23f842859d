"""The one DuckDB of a process."""

import subprocess
import sys

import pytest
from tests.core.outputs import play
from tests.core.pipelines import MAIN, main

from windrow.errors import RunError
from windrow.model import DecimalType, Decode, Field


def test_it_is_let_go_of_without_a_word_at_the_end_of_the_process() -> None:
    script = """
from windrow.core import duckdb_sql
from windrow.core.aggregates import kernels
kernels.count("BIGINT")
duckdb_sql.query(duckdb_sql.connect(), "SELECT 1")
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("", "")


def test_a_sum_with_too_many_digits_ends_the_run_with_what_duckdb_says_of_it() -> None:
    decode = Decode((*MAIN.decode.fields[:2], Field("amount", DecimalType(38, 0))))
    line = b'{"user": "A", "t": 1, "amount": %s}' % (b"9" * 38)
    with pytest.raises(RunError, match=r"a step cannot be computed: Overflow .*; what was committed stays"):
        play(main(decode=decode), [[(0, line)] * 3], "fire")
