"""Where Java is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from windrow.errors import SetupError

LEAST = 17

_ADVICE = (
    f"install a Java {LEAST} runtime (Debian, Ubuntu: `apt-get install openjdk-17-jre-headless`) "
    "and put it on PATH, or set JAVA_HOME"
)


def java() -> Path:
    """Find the `java` that Spark will use: JAVA_HOME's, or else the one on PATH.

    Raise SetupError if there is none, if it does not run, or if it is older than Java 17.
    """
    home = os.environ.get("JAVA_HOME")
    where = f"JAVA_HOME is {home}" if home else "java on PATH"
    found = shutil.which("java") if not home else str(Path(home) / "bin" / "java")
    if found is None:
        message = f"no java on PATH, and JAVA_HOME is not set: {_ADVICE}"
        raise SetupError(message)
    try:
        ran = subprocess.run([found, "-version"], capture_output=True, text=True, check=True, timeout=60)  # noqa: S603 - the person's own Java
    except (OSError, subprocess.SubprocessError) as error:
        message = f"{where}, but `{found} -version` failed ({error}): {_ADVICE}"
        raise SetupError(message) from error
    match = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    if match is None or int(match[1]) < LEAST:
        version = "of an unknown version" if match is None else f"Java {match[1]}"
        message = f"{where}, and {found} is {version}; Spark needs Java {LEAST} or newer: {_ADVICE}"
        raise SetupError(message)
    return Path(found)
