"""Which tables may be put in the place of others."""

from __future__ import annotations

import pyarrow as pa

from windrow.core.schema import MICROS
from windrow.errors import InputError, SinkError
from windrow.sinks.base import Run
from windrow.sinks.database import Replayed
from windrow.sinks.text import utc_text


def may_promote(
    pipeline: str, tables: tuple[str, str], owners: tuple[Run | None, Run | None], replayed: Replayed | None
) -> None:
    """Raise unless the second table may take the place of the first; `owners` are None where there is no such table."""
    live, shadow = tables
    if owners[1] is None:
        msg = f"there is no table {shadow!r} to promote: make one with `windrow replay`, or name it with --from"
        raise InputError(msg)
    for table, owner in zip(tables, owners, strict=True):
        if owner is not None and owner.pipeline != pipeline:
            msg = f"table {table!r} belongs to pipeline {owner.pipeline!r}, not {pipeline!r}: name another one"
            raise SinkError(msg)
    if replayed is None:
        return
    if not replayed.finished:
        msg = f"the replay into {shadow!r} has not come to its end: replay again with --fresh, then promote"
    elif replayed.since is not None:
        msg = (
            f"{shadow!r} has only windows that end after {_utc(replayed.since)}, so {live!r} would lose those before: "
            f"replay from the beginning with --fresh, then promote"
        )
    elif replayed.begin is not None:
        msg = (
            f"{shadow!r} was replayed from offsets on and lacks what came before them, so {live!r} would too: "
            f"replay from the beginning with --fresh, then promote"
        )
    else:
        return
    raise SinkError(msg)


def _utc(micros: int) -> str:
    return str(utc_text(pa.array([micros], pa.int64()).cast(MICROS))[0])
