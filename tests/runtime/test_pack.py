"""The environment that executors are sent: whole, without Spark's jars, and never an editable one."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.servers.cluster import make_environment

from windrow.cli import main
from windrow.errors import InputError, SetupError
from windrow.runtime.spark.pack import pack_environment


@pytest.mark.long
def test_an_environment_runs_where_it_is_unpacked(tmp_path: Path) -> None:
    environment, there = tmp_path / "environment", tmp_path / "there"
    make_environment(environment)
    packed = pack_environment(tmp_path / "env.tgz", environment)
    assert packed.bytes == (tmp_path / "env.tgz").stat().st_size
    # a virtual environment links to the interpreter that it was made with
    assert packed.interpreter == Path(sys.executable).resolve()
    with tarfile.open(tmp_path / "env.tgz") as archive:
        names = archive.getnames()
        archive.extractall(there, filter="fully_trusted")  # noqa: S202 - it was made here
    assert packed.files == sum(path.is_file() or path.is_symlink() for path in there.rglob("*"))
    assert not any("pyspark/jars/" in name or "__pycache__" in name for name in names)
    found = "import windrow, windrow.runtime.spark.worker_daemon as daemon, duckdb, pyarrow; print(daemon.__file__)"
    ran = subprocess.run(
        [there / "bin/python", "-c", found], check=True, capture_output=True, text=True, cwd=tmp_path, env={}
    )
    assert ran.stdout.startswith(str(there))


def test_what_cannot_be_sent_is_refused(tmp_path: Path) -> None:
    # the tests run with windrow in editable mode
    with pytest.raises(SetupError, match=r"windrow is installed in editable mode: its code is in .*src/windrow"):
        pack_environment(tmp_path / "env.tgz")
    with pytest.raises(SetupError, match="is the system's Python: install windrow into a virtual environment"):
        pack_environment(tmp_path / "env.tgz", Path(sys.base_prefix))
    ran = CliRunner().invoke(main, ["pack", str(tmp_path / "env.zip")], standalone_mode=False)
    assert isinstance(ran.exception, InputError)
    assert "must end in .tgz or .tar.gz" in str(ran.exception)
    environment = tmp_path / "environment"
    make_environment(environment)
    with pytest.raises(InputError, match=r"nowhere/env.tgz cannot be written: No such file or directory"):
        pack_environment(tmp_path / "nowhere" / "env.tgz", environment)
    assert list(tmp_path.iterdir()) == [environment]
