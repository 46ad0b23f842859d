#!/usr/bin/env python3
"""Adds recorded durations to a file of them, in seconds to two digits: ``durations.py FILE RECORDED...``.

The recorded ones are files that pytest-split stored. Tests that no longer exist keep their entry until the file is
deleted and recorded again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

target, *recorded = map(Path, sys.argv[1:])
known: dict[str, float] = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
for given in recorded:
    known |= json.loads(given.read_text(encoding="utf-8"))
rounded = {name: round(seconds, 2) for name, seconds in sorted(known.items())}
target.write_text(json.dumps(rounded, indent=0) + "\n", encoding="utf-8")
