"""`windrow init`."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from windrow.cli import main
from windrow.testing.servers.kafka import Kafka
from windrow.tools.generate import LogSpec, write_log

SECONDS = 60


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    return tmp_path


def windrow(*arguments: str) -> Result:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == 0, result.output
    return result


def ran(*arguments: str) -> dict[str, Any]:
    """The counts of a run to the end."""
    counts: dict[str, Any] = json.loads(
        windrow("run", "pipeline.yaml", "--until-end", "--host", "memory", "--json", *arguments).stdout
    )
    return counts


def commands(page: Path) -> list[list[str]]:
    """The commands of a page, but for those that run until Ctrl-C."""
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
    lines = [shlex.split(line, comments=True) for line in "".join(blocks).splitlines()]
    return [words[1:] for words in lines if "--fresh" not in words and "--rate" not in words]


def test_the_project_runs_as_its_page_says(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = windrow("init", "shop")
    assert result.stdout.splitlines()[-1].startswith("next:  cd shop; windrow run pipeline.yaml")
    monkeypatch.chdir(here / "shop")
    for words in commands(Path("README.md")):
        files = [str(path) for word in words for path in Path().glob(word)] if "transcript" in words else []
        windrow(*[word for word in words if "*" not in word], *files)
    assert windrow("check", "pipeline.yaml", "--strict").stdout == "pipeline.yaml: ok\n"
    counts = ran("--fresh")
    assert (counts["events"], counts["revisions"] > 0, counts["dead"] > 0) == (20_000, True, True)
    # the story is of this pipeline
    pipeline, story = (yaml.safe_load(Path(name).read_text()) for name in ("pipeline.yaml", "stories/late_record.yaml"))
    pipeline["time"].pop("future")  # a story has no log timestamps
    assert story["pipeline"] == {name: pipeline[name] for name in story["pipeline"]}


def test_pytest_runs_the_stories() -> None:
    windrow("init")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    tested = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (tested.returncode, "1 passed" in tested.stdout) == (0, True), tested.stdout


def test_nothing_is_replaced(here: Path) -> None:
    Path("README.md").write_text("mine")
    result = CliRunner().invoke(main, ["init"])
    assert (result.exit_code, result.stderr) == (2, "windrow: README.md already exists: choose another FOLDER\n")
    assert [path.name for path in here.iterdir()] == ["README.md"]
    Path("rows.jsonl").write_text('{"t": "2026-01-01T10:00:00Z"}\n')
    (here / "own" / "data" / "rows").mkdir(parents=True)
    result = CliRunner().invoke(main, ["init", "own", "--from", "rows.jsonl"])
    assert (result.exit_code, "own/data/rows already exists" in result.stderr) == (2, True)
    result = CliRunner().invoke(main, ["init", "rows.jsonl"])
    assert (result.exit_code, "rows.jsonl" in result.stderr, "choose another FOLDER" in result.stderr) == (
        2,
        True,
        True,
    )
    assert Path("README.md").read_text() == "mine"


def test_a_pipeline_for_a_file(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {
            "id": f"o-{n}",
            "placed_at": f"2026-01-01T{10 + n // 3600:02}:{n // 60 % 60:02}:{(n - 4 * (n % 10 == 9)) % 60:02}Z",
            "customer": {"id": f"c{n % 9}"},
            "amount": f"{n % 50}.{n % 100:02}",
            **({"coupon": "x"} if n % 7 == 0 else {}),
        }
        for n in range(4000)
    ]
    Path("orders.2026.jsonl").write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    said = json.loads(windrow("init", "shop", "--from", "orders.2026.jsonl", "--json").stdout)
    assert (said["pipeline"], said["records"], said["whole"], said["dead_letters"]) == ("orders", 4000, True, {})
    few = windrow("init", "few", "--from", "orders.2026.jsonl", "--records", "300").stdout
    assert "few/data/orders has only the first 300 records of orders.2026.jsonl: copy more with --records\n" in few
    monkeypatch.chdir(here / "shop")
    assert windrow("check", "pipeline.yaml").stdout == "pipeline.yaml: ok\n"
    for words in commands(Path("README.md")):
        windrow(*words)
    counts = ran("--fresh")
    assert (counts["events"], counts["dead"], counts["expired"]) == (4000, 0, 0)
    document = yaml.safe_load(Path("pipeline.yaml").read_text())
    assert document["decode"]["customer_id"] == {"type": "string", "path": "customer.id"}
    assert (document["decode"]["coupon"], document["key"]) == ("string?", ["customer_id"])


def test_a_pipeline_for_a_log_reads_it_where_it_is(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(LogSpec(events=3000, users=50, malformed_share=0), here / "logs" / "spend")
    result = windrow("init", "shop", "--from", "logs/spend", "--records", "2000")
    assert "pipeline.yaml decodes 2,000 of 2,000 records\n" in result.stdout
    monkeypatch.chdir(here / "shop")
    text = Path("pipeline.yaml").read_text()
    assert "from 2,000 records (not all)." in text
    assert "key: [user_id]                              # 50 values, each in a single partition" in text
    assert yaml.safe_load(text)["source"] == {"log": {"path": "../logs/spend"}}
    assert not Path("data").exists()
    counts = ran()
    assert (counts["events"], counts["dead"]) == (3000, 0)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_pipeline_for_a_folder_of_files(here: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    (here / "sales" / "2026").mkdir(parents=True)
    for day in (1, 2):
        rows = [{"user_id": f"u{n % 9}", "at": f"2026-01-0{day}T10:{n:02}:00Z", "amount": n / 4} for n in range(60)]
        if kind == "jsonl":
            Path(f"sales/2026/0{day}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            pq.write_table(pa.Table.from_pylist(rows), f"sales/2026/0{day}.parquet")
    Path("sales/.notes.csv").touch()
    windrow("init", "shop", "--from", "sales")
    monkeypatch.chdir(here / "shop")
    document = yaml.safe_load(Path("pipeline.yaml").read_text())
    assert (document["source"], document["key"]) == ({"files": {"path": f"../sales/**/*.{kind}"}}, ["user_id"])
    counts = ran()
    assert (counts["events"], counts["dead"]) == (120, 0)
    Path("../sales/more.csv").touch()
    result = CliRunner().invoke(main, ["init", "other", "--from", "../sales"])
    assert (result.exit_code, f"../sales has *.csv, *.{kind}: give a folder" in result.stderr) == (2, True)


def test_a_pipeline_for_a_topic(kafka: Kafka, topic: Callable[..., str]) -> None:
    name = topic(2)
    producer = Producer({"bootstrap.servers": kafka.servers, "log_level": 0})
    for n in range(300):
        # no name speaks for `k`, but it is the key of the records
        value = json.dumps({"when": 1_767_225_600_000 + 1000 * n, "user": "u", "k": f"k{n % 20}"})
        producer.produce(name, value, key=f"k{n % 20}")
    assert producer.flush(SECONDS) == 0
    windrow("init", ".", "--from", f"kafka://{kafka.servers}/{name}", "--records", "200")
    text = Path("pipeline.yaml").read_text()
    assert "key: [k]" in text
    assert "the record key in the topic" in text
    assert yaml.safe_load(text)["source"] == {"kafka": {"servers": kafka.servers, "topic": name}}
    counts = ran()
    assert (counts["events"], counts["dead"]) == (300, 0)


@pytest.mark.parametrize("sample", ["missing.jsonl", "kafka://localhost", ""])
def test_a_sample_that_is_none(sample: str) -> None:
    result = CliRunner().invoke(main, ["init", "shop", "--from", sample])
    assert (result.exit_code, result.stderr.startswith("windrow: ")) == (2, True)
    assert not Path("shop").exists()
