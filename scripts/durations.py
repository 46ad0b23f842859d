#!/usr/bin/env python3
"""Adds recorded durations (files that pytest-split stored) to tests/durations.json, in seconds to two digits.

Tests that no longer exist keep their entry until the file is deleted and recorded again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

TARGET = Path(__file__).parent.parent / "tests" / "durations.json"

known: dict[str, float] = json.loads(TARGET.read_text(encoding="utf-8")) if TARGET.exists() else {}
for given in sys.argv[1:]:
    known |= json.loads(Path(given).read_text(encoding="utf-8"))
rounded = {name: round(seconds, 2) for name, seconds in sorted(known.items())}
TARGET.write_text(json.dumps(rounded, indent=0) + "\n", encoding="utf-8")
