"""Every measurement, one after the other: ``make bench``, or ``make bench ARGS='startup decode'`` for some.

They are noisy on a busy machine: compare what was measured in one run. The long ones run only if they are named.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ALL = ("startup", "decode", "stages", "windows", "sinks", "demo", "live", "shapes", "replay", "guard")

LONG = (
    *("compare", "growth", "latency", "backlog", "observed", "realtime"),
    *("recovery", "soak", "scale", "cluster", "capacity", "cdc"),
)


def main() -> int:
    """Run the chosen measurements, each in a process of its own; return 1 if one of them failed, or found a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    every = (*ALL, *LONG)
    # without names argparse looks for an empty list among the choices
    parser.add_argument("names", nargs="*", choices=[*every, []], metavar="NAME", help=f"of: {', '.join(every)}")
    code = 0
    for name in parser.parse_args().names or ALL:
        print(f"--- {name}", flush=True)
        # from the root: the servers that the tests start serve here too
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
        if subprocess.run([sys.executable, str(HERE / f"{name}.py")], check=False, env=environment).returncode:
            print(f"{name} failed", flush=True)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
