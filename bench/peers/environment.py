"""Each engine's own Python environment, ``bench/peers/NAME/.venv``, and its jars, made when they are first needed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pyspark

from windrow.runtime.spark import jars as windrow_jars
from windrow.runtime.spark.jars import java

_STAMP = ".made-from"


class NotInstalledError(Exception):
    """An engine's packages or jars cannot be had; the message is what pip or Ivy said last."""


def python_of(folder: Path) -> Path:
    """Return the Python that runs an engine's script: windrow's own if the engine has no requirements."""
    wanted = folder / "requirements.txt"
    if not wanted.exists():
        return Path(sys.executable)
    place = folder / ".venv"
    if not _is_made(place, wanted):
        print(f"installing {folder.name} into {place}", flush=True)
        shutil.rmtree(place, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(place)])
        _run([str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--requirement", str(wanted)])
        (place / _STAMP).write_text(wanted.read_text())
    return place / "bin" / "python"


def fetch_jars(folder: Path) -> None:
    """Fetch what the engine's `ivy.xml` names, if it has one, into its `jars`, by the Ivy inside PySpark."""
    wanted, place = folder / "ivy.xml", folder / "jars"
    if not wanted.exists() or _is_made(place, wanted):
        return
    shutil.rmtree(place, ignore_errors=True)
    ivy = next(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"))
    settings = Path(windrow_jars.__file__).with_name("ivysettings.xml")
    command = [str(java()), "-cp", str(ivy), "org.apache.ivy.Main", "-error", "-settings", str(settings)]
    command += ["-ivy", str(wanted), "-cache", str(folder / "jars" / ".ivy"), "-confs", "jars"]
    _run([*command, "-retrieve", f"{place}/[artifact]-[revision].[ext]"])
    shutil.rmtree(place / ".ivy")
    (place / _STAMP).write_text(wanted.read_text())


def _is_made(place: Path, wanted: Path) -> bool:
    stamp = place / _STAMP
    return stamp.exists() and stamp.read_text() == wanted.read_text()


def _run(command: list[str]) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        lines = [line for line in (ran.stdout + ran.stderr).splitlines() if line.strip()]
        message = f"it did not install: {' '.join(lines[-2:])[:300]}"
        raise NotInstalledError(message)
