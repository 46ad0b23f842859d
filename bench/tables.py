"""How the cost of a table grows with its rows: ``python bench/tables.py``.

On the memory host (one process, eight key groups) it fills tables with rows, from small ones to large ones, and prints
the bytes of their state and the processor time of a step: of one that changes some rows, or looks some up. The rows are
those of `bench/joins.py`: `table` is one table, `tables` a join of two with as many rows each, `lookup` is as of event
time, `static` as of the order. The step is the median of several; the first, which may compact what filled the table,
is left out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterable, Mapping
from random import Random

import pyarrow as pa
from bench.peers.join_job import LOGS
from bench.peers.windrow.joins import STREAMS, graph_of

from windrow.engine.schema import RAW
from windrow.model import MAX_PARTITIONS
from windrow.runtime.memory import MemoryHost

MINUTE = 60_000
START = 1_767_225_600_000
CASES = ("table", "tables", "lookup", "static")
RECORDS = {
    "prices": '{"sku":"s%(key)d","price":%(key)d,"t":%(at)d}',
    "stocks": '{"sku":"s%(key)d","stock":%(key)d,"t":%(at)d}',
    "rates": '{"currency":"s%(key)d","rate":%(key)d,"t":%(at)d}',
    "sales": '{"currency":"s%(key)d","sale_id":"i%(key)d","amount":5,"t":%(at)d}',
}
FILLING = 100_000
"""Records of a log in a step that fills tables."""
STEPS = 5


class Tables:
    """A case, with a step of it after the other."""

    def __init__(self, case: str) -> None:
        self.logs = LOGS[case] if case != "table" else ("prices",)
        streams = STREAMS[case] if case != "table" else "  joined: {from: prices, table: {key: sku}}\n"
        graph = graph_of(streams, {name: f"{{log: {{path: {name}}}}}" for name in self.logs})
        self.partitions = {name: number * MAX_PARTITIONS for number, name in enumerate(self.logs)}
        self.host = MemoryHost(graph, self.partitions.values())
        self.offsets = dict.fromkeys(self.logs, 0)

    def step(self, at: int, keys: Mapping[str, Iterable[int]]) -> float:
        """Run a step of records with these keys; return its processor time in seconds."""
        raw = []
        for name in self.logs:
            values = [(RECORDS[name] % {"key": key, "at": at}).encode() for key in keys.get(name, (0,))]
            first, count = self.offsets[name], len(values)
            self.offsets[name] += count
            columns = [
                pa.array([self.partitions[name]] * count, pa.int32()),
                pa.array(range(first, first + count), pa.int64()),
                *(pa.nulls(count, RAW.field(one).type) for one in ("log_time", "key")),
                pa.array(values, pa.binary()),
            ]
            raw.append(pa.table(columns, schema=RAW))
        before = time.process_time()
        self.host.step(pa.concat_tables(raw))
        return time.process_time() - before


def measure(case: str, size: int, records: int) -> tuple[int, float]:
    """Return the bytes of the state of tables of so many rows, and the seconds of a step of so many records."""
    tables, chance = Tables(case), Random(7)
    filled = [name for name in tables.logs if name != "sales"]
    for first in range(0, size, FILLING):
        tables.step(START, {name: range(first, min(size, first + FILLING)) for name in filled})
    # records wait until the watermark of each log has passed theirs
    for number in (1, 2):
        tables.step(START + number * 5 * MINUTE, {})
    held, seconds = tables.host.state_size, []
    for number in range(3, 4 + STEPS):
        keys = {tables.logs[-1]: [chance.randrange(size) for _ in range(records)]}
        seconds.append(tables.step(START + number * 5 * MINUTE, keys))
    return held, statistics.median(seconds[1:])


def main() -> int:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], help="of a table")
    parser.add_argument("--records", type=int, default=10_000, help="of the step that is timed")
    given = parser.parse_args()
    print("| case | rows of a table | state, MB | bytes a row | a step, seconds |\n| --- | ---: | ---: | ---: | ---: |")
    for case in CASES:
        for size in given.rows:
            held, seconds = measure(case, size, given.records)
            print(f"| {case} | {size:,} | {held / 1e6:.1f} | {held / size:.0f} | {seconds:.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
