"""Every measurement, one after the other: ``make bench``, or ``make bench ARGS='startup decode'`` for some.

They are noisy on a busy machine: compare what was measured in one run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ALL = ("startup", "decode", "stages", "windows", "sinks", "demo", "live", "throughput", "shapes")


def main() -> None:
    """Run the chosen measurements, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=ALL, metavar="NAME", help=f"of: {', '.join(ALL)}")
    for name in parser.parse_args().names or ALL:
        print(f"--- {name}", flush=True)
        # from the root: the servers that the tests start serve here too
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
        subprocess.run([sys.executable, str(HERE / f"{name}.py")], check=True, env=environment)


if __name__ == "__main__":
    main()
