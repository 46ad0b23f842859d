"""What `import windrow` and checking a pipeline do not import."""

import subprocess
import sys

import pytest

import windrow

HEAVY = {"pyspark", "duckdb", "pyarrow", "pandas", "numpy", "psycopg", "confluent_kafka", "rich", "grpc"}


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import windrow", HEAVY | {"yaml", "click", "asyncio"}),
        ("import windrow.cli.check, windrow.cli.explain", HEAVY),
        ("import windrow; windrow.load('{file}')", HEAVY),
    ],
)
def test_an_import_stays_light(statement: str, unwanted: set[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("light") / "pipeline.yaml"
    file.write_text(
        "{name: x, source: {log: {path: a}}, decode: {u: string, t: timestamp}, time: {field: t, delay: 1m}, key: u,"
        " window: {hopping: {size: 5m, slide: 1m}}, aggregate: {n: count(), top: 'top_k(u, 3)', last: last(u)},"
        " emit: {early: {count: 10}}, sink: {sqlite: {path: a.db, table: t}}}"
    )
    code = f"import sys; {statement.format(file=file)}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    modules = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert not unwanted & set(modules.split())


def test_the_public_names_are_there() -> None:
    assert set(windrow.__all__) <= set(dir(windrow))
