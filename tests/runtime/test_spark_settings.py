"""What Spark was given wins over what suits a machine, and nothing over what answers depend on."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import windrow
from windrow.errors import InputError
from windrow.model import state_partitions
from windrow.runtime.settings import CLUSTER, LOOPBACK, MACHINE, MEANING, SparkOptions, given_settings, settings_of
from windrow.runtime.spark.cluster import executors_python
from windrow.tools.generate import LogSpec, write_log


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_nothing_is_given_where_nobody_says_anything() -> None:
    assert given_settings() == {}


def test_the_arguments_of_submit_and_the_defaults_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# a comment\nspark.driver.memory   1g\nspark.ui.enabled=true\n\nspark.app.name = a name\nspark.empty\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv(
        "PYSPARK_SUBMIT_ARGS", "--master spark://a:7077 --conf 'spark.x=1 2' -c spark.driver.memory=3g pyspark-shell"
    )
    assert given_settings() == {
        "spark.driver.memory": "3g",
        "spark.ui.enabled": "true",
        "spark.app.name": "a name",
        "spark.master": "spark://a:7077",
        "spark.x": "1 2",
    }
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--driver-memory 2g pyspark-shell")
    assert given_settings()["spark.driver.memory"] == "2g"


def test_a_cluster_finds_its_driver_and_a_local_run_stays_on_loopback(tmp_path: Path) -> None:
    local, cluster = {"spark.master": "local[2]"}, {"spark.master": "spark://a:7077"}
    assert settings_of(local, tmp_path).items() >= LOOPBACK.items()
    assert not settings_of(cluster, tmp_path).keys() & {*LOOPBACK, "spark.local.dir"}
    assert settings_of(cluster, tmp_path) == cluster | MACHINE | CLUSTER | MEANING
    given = {"spark.driver.memory": "1g", "spark.driver.host": "10.0.0.1", "spark.sql.session.timeZone": "Asia/Tokyo"}
    made = settings_of(local | given, tmp_path)
    assert made.items() >= {"spark.driver.memory": "1g", "spark.driver.host": "10.0.0.1"}.items()
    assert made["spark.sql.session.timeZone"] == "UTC"


def test_settings_of_the_command_win_over_those_that_spark_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master spark://a:7077 --driver-memory 2g pyspark-shell")
    assert SparkOptions().settings() == {"spark.master": "spark://a:7077", "spark.driver.memory": "2g"}
    options = SparkOptions("local[3]", {"spark.driver.memory": "3g", "spark.master": "yarn"})
    assert options.settings() == {"spark.master": "local[3]", "spark.driver.memory": "3g"}
    assert SparkOptions(None, {"spark.master": "yarn"}).settings()["spark.master"] == "yarn"


def test_a_setting_that_answers_depend_on_is_refused() -> None:
    assert SparkOptions(None, {"spark.sql.session.timeZone": "UTC"}).settings()
    with pytest.raises(InputError, match=r"results depend on this setting, which is UTC; leave it out"):
        SparkOptions(None, {"spark.sql.session.timeZone": "Asia/Tokyo"}).settings()


@pytest.mark.parametrize(("groups", "partitions"), [(1, 1), (8, 8), (11, 10), (13, 12), (16, 16), (1024, 16)])
def test_state_partitions_of_a_cluster_depend_on_the_key_groups(groups: int, partitions: int) -> None:
    assert state_partitions(groups) == partitions


@pytest.mark.parametrize(
    ("given", "python"),
    [
        ({"spark.archives": "s3a://a/env.tgz#environment,b.zip"}, "./environment/bin/python"),
        ({"spark.archives": "/shared/env.tgz"}, "./env.tgz/bin/python"),
        ({"spark.archives": "env.tgz#environment", "spark.pyspark.python": "/opt/python"}, "/opt/python"),
        pytest.param({}, sys.executable, id="its own"),
    ],
)
def test_the_python_of_executors_is_that_of_the_archive(
    given: dict[str, str], python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert executors_python(given) == python
    # Spark runs it in the driver, too
    assert Path(python).exists() or python.startswith("/opt")


PIPELINE = """\
name: submitted
source: {{log: {{path: {folder}/spend}}}}
decode: {{user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}}
time: {{field: event_time, delay: 10m, future: 1h}}
key: user_id
window: {{tumbling: 5m}}
aggregate: {{total: sum(amount)}}
emit: {{lateness: 1h}}
sink: {{sqlite: {{path: {folder}/spend.db, table: spend}}}}
"""


@pytest.mark.long
@pytest.mark.service
def test_spark_submit_runs_the_command(tmp_path: Path) -> None:
    write_log(LogSpec(events=200, users=5), tmp_path / "spend")
    (tmp_path / "spend.yaml").write_text(PIPELINE.format(folder=tmp_path))
    program = Path(windrow.__file__).parent / "__main__.py"
    submit = Path(sys.executable).parent / "spark-submit"
    settings = ["--master", "local[1]", "--conf", "spark.driver.memory=777m", "--conf", "spark.eventLog.enabled=true"]
    settings += ["--conf", f"spark.eventLog.dir={tmp_path}", "--conf", "spark.eventLog.compress=false"]
    words = [str(submit), *settings, str(program), "run", str(tmp_path / "spend.yaml"), "--until-end"]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    env |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    ran = subprocess.run(words, check=False, capture_output=True, text=True, cwd=tmp_path, env=env)
    assert ran.returncode == 0, ran.stderr
    assert "read to the end" in ran.stdout + ran.stderr
    with closing(sqlite3.connect(tmp_path / "spend.db")) as db:
        assert db.execute("SELECT count(*) > 50 FROM spend").fetchall() == [(1,)]
    said = "".join(path.read_text() for path in tmp_path.rglob("*events_*") if path.is_file())
    said += "".join(path.read_text() for path in tmp_path.glob("local-*") if path.is_file())
    assert '"spark.driver.memory":"777m"' in said
    assert '"spark.master":"local[1]"' in said
    assert '"spark.sql.session.timeZone":"UTC"' in said
