"""windrow's command with the faults that WINDROW_FAULTS plans (`Plan.to_json`)."""

from __future__ import annotations

import os

from tests.faults.points import Plan, installed

from windrow.cli import main

if __name__ == "__main__":
    with installed(Plan.from_json(os.environ["WINDROW_FAULTS"])):
        main()
