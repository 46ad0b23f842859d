"""The kinds of streams that are not results, with a module for the keys, checks and descriptions of each."""

from __future__ import annotations

from typing import Final

from windrow import model as m
from windrow.authoring.sections.nodes.changes import CHANGES
from windrow.authoring.sections.nodes.deduplicate import DEDUPLICATE
from windrow.authoring.sections.nodes.flat_map import FLAT_MAP
from windrow.authoring.sections.nodes.join import JOIN
from windrow.authoring.sections.nodes.kind import NodeKind
from windrow.authoring.sections.nodes.lookup import LOOKUP
from windrow.authoring.sections.nodes.sample import SAMPLE
from windrow.authoring.sections.nodes.selection import SELECTION
from windrow.authoring.sections.nodes.split import SPLIT
from windrow.authoring.sections.nodes.table import TABLE

KINDS: Final = (DEDUPLICATE, SAMPLE, TABLE, LOOKUP, JOIN, SPLIT, FLAT_MAP, CHANGES, SELECTION)
"""In the order in which keys tell them apart; a selection is what has no key of the others."""


def kind_of(node: m.StreamNode) -> NodeKind:
    """Return the kind of a stream that is not a result."""
    return next(kind for kind in KINDS if isinstance(node, kind.node))
