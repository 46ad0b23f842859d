"""A step whose rows are larger than the memory of the process that commits them is committed all the same."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

from tests.contracts.stores import TableStore

from windrow.connectors.open_sinks import open_database

ROWS, PARTS, NAME = 500, 64, 16_384
"""Rows of a part, parts, and bytes of a name: 524 MB in all."""
ROOM = 320 << 20
"""Bytes of memory that the process may take more than it has before the step; what is in files is none of it."""

COMMITS = """
import pickle
import resource
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from tests.contracts.steps import RUN, change, step
from tests.graphs import as_graph
from windrow.engine.changelog import StepOutput
from windrow.runtime.spark.transport import TableTransport, read_table
from windrow.connectors.open_sinks import open_sinks

model = pickle.loads(Path(sys.argv[1]).read_bytes())
folder, (rows, parts, name, room) = Path(sys.argv[2]), map(int, sys.argv[3:])
transport, blobs = TableTransport(shared=str(folder)), []
for part in range(parts):
    users = (f"{part * rows + row:08}".ljust(name, "x") for row in range(rows))
    blobs.append(transport.put(step(model, [change("insert", 0, user, Decimal(1), 1) for user in users]).changes))
assert sum(path.stat().st_size for path in folder.iterdir()) > 1.5 * room
nothing = step(model)
output = StepOutput.concat([nothing, *(replace(nothing, changes=read_table(blob)) for blob in blobs)])
with open("/proc/self/status") as status:
    (held,) = (int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (held + room, held + room))
with_sink = open_sinks(as_graph(model))
with_sink.open(RUN)
with_sink.commit(0, {"": output})
with_sink.close()
"""


def test_a_step_that_is_larger_than_memory_is_committed(store: TableStore, tmp_path: Path) -> None:
    # without a key of names as long as these, which no database's index can hold
    model = store.model(sink=store.settings(key=("window_start",)))
    pickled = tmp_path / "model"
    pickled.write_bytes(pickle.dumps(model))
    words = [sys.executable, "-c", COMMITS, str(pickled), str(tmp_path / "rows"), *map(str, (ROWS, PARTS, NAME, ROOM))]
    ran = subprocess.run(words, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    tables = store.tables(model)
    with open_database(model.sink).snapshot() as snapshot:
        assert snapshot.count(tables.changes) == ROWS * PARTS
        (found,) = snapshot.rows(tables.result, tables.result.key)
    assert [user[:8] for user in found["user"].to_pylist()] == [f"{ROWS * PARTS - 1:08}"]
