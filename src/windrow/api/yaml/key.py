"""The `key` section, and lists of names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from windrow.api.yaml.derive import read_derive
from windrow.api.yaml.spot import Spot
from windrow.model import Derive

T = TypeVar("T")


@dataclass(frozen=True)
class Key:
    """The fields of the key, and those of them that are derived right there."""

    names: tuple[str, ...]
    derive: tuple[Derive, ...] = ()


def read_key(spot: Spot) -> Key:
    """Read ``[user, {domain: "split_part(url, '/', 3)"}]``, or ``user`` for a single one."""
    parts = each_item(spot, _part)
    names = tuple(one if isinstance(one, str) else one.name for part in parts for one in part)
    return Key(names, tuple(one for part in parts for one in part if isinstance(one, Derive)))


def _part(spot: Spot) -> tuple[str | Derive, ...]:
    if not spot.is_mapping:
        return (spot.text(),)
    derived = read_derive(spot)
    if not derived:
        msg = f"{spot.called} is empty; name a field, or give one with its expression"
        raise spot.error(msg)
    return derived


def read_names(spot: Spot) -> tuple[str, ...]:
    """Read ``[a, b]``, or ``a`` for a single one."""
    return each_item(spot, Spot.text)


def each_item(spot: Spot, read: Callable[[Spot], T]) -> tuple[T, ...]:
    """Read each item of a list of names, or the one name that stands in its place; all their problems are told."""
    if not spot.is_list:
        if not spot.is_scalar:
            msg = f"{spot.called} must be a name or a list of names, not {spot.kind}"
            raise spot.error(msg)
        return (read(spot),)
    return spot.each(read)
