"""The `key` section."""

from __future__ import annotations

from windrow.api.problems import joined
from windrow.api.yaml.spot import Spot
from windrow.errors import PipelineError


def read_names(spot: Spot) -> tuple[str, ...]:
    """Read ``[a, b]``, or ``a`` for a single one."""
    if not spot.is_list:
        if not spot.is_scalar:
            msg = f"{spot.called} must be a name or a list of names, not {spot.kind}"
            raise spot.error(msg)
        return (spot.text(),)
    names: list[str] = []
    errors: list[PipelineError] = []
    for item in spot.items():
        try:
            names.append(item.text())
        except PipelineError as exc:
            errors.append(exc)
    if errors:
        raise joined(errors)
    return tuple(names)
