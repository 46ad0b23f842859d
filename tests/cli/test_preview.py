from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.client.purchases import write_purchases
from tests.docs.pages import ROOT

SCRIPT = """
import sys
import windrow as wr
from windrow.cli import main

for arguments in (["preview", "p.yaml"], ["run", "p.yaml", "--until-end", "--host", "memory"]):
    assert main(arguments, standalone_mode=False) == 0
    print("pandas" in sys.modules, file=sys.stderr)
print(wr.read_table("p.yaml").to_pandas()["events"].sum(), file=sys.stderr)
import pandas, pyarrow
print(pyarrow.array(pandas.Series([1.0, None])).null_count, file=sys.stderr)
"""


def test_commands_without_spark_load_pandas_only_for_a_data_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_purchases(tmp_path / "data" / "spend")
    text = (ROOT / "examples" / "user_spend.yaml").read_text()
    Path("p.yaml").write_text(text.replace("timestamp_millis", "timestamp"))
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    said = [line for line in ran.stderr.splitlines() if not line.startswith("user-spend")]
    assert said == ["False", "False", "5", "1"], ran.stderr
