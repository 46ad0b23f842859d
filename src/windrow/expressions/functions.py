"""Functions that an expression may call: windrow's own table, compared with the catalogue of the installed DuckDB.

The table `functions.tsv` has a line for each name, kind (scalar, macro or aggregate) and dependence, with the overloads
to which it applies: ``(TYPES) -> TYPE`` for a function, ``(NAMES) AS SQL`` for a macro. ``scripts/functions.py``
generates it from the catalogues of the DuckDB releases that `pyproject.toml` allows, and a reviewer enters the
dependences. DuckDB's own declarations are not used, because they differ between releases and macros have none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Final

from windrow.errors import PipelineError
from windrow.expressions.engine import database, release
from windrow.expressions.macros import OWN_FUNCTIONS

TABLE: Final = "functions.tsv"

PURE: Final = frozenset({"record", "zone"})
"""Dependences that an expression may have: on its record alone, and on the time zone, which is UTC."""

WHY: Final = {
    "clock": "which can differ between runs; results must depend on the log alone",
    "random": "which can differ between runs; results must depend on the log alone",
    "session": "which can differ between runs; results must depend on the log alone",
    "settings": "which can differ between runs; results must depend on the log alone",
    "release": "which can differ between runs with different releases of DuckDB; results must depend on the log alone",
    "files": "which can read files; an expression can only use the fields of its own record",
    "rows": "which uses several rows; an expression can only use the fields of its own record",
    "effects": "which does more than return a value; an expression can only use the fields of its own record",
    "internal": "which is internal to DuckDB",
    "unreviewed": "which windrow's developers have not reviewed",
}
"""The reason why an expression must not have a dependence, for each dependence that is not in `PURE`."""

_REMEDY: Final = {
    "age": "; call it with two arguments",
    "hash": "; use md5_number_lower() of a text instead",
}


@dataclass(frozen=True)
class Overload:
    """A function with its parameters (the last one may repeat), or a macro with its definition."""

    kind: str
    text: str
    depends: str

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The types of a function's parameters, or the names of a macro's parameters."""
        depth, parts = 0, [""]
        for character in self.text[1:]:
            depth += (character in "([") - (character in ")]")
            if depth < 0:
                break
            if character == "," and not depth:
                parts.append("")
            else:
                parts[-1] += character
        return tuple(part.strip() for part in parts) if parts != [""] else ()

    def takes(self, given: tuple[str, ...]) -> bool:
        """Return True if the overload accepts arguments of these types, as they are after DuckDB's binder."""
        wanted = self.parameters
        if wanted and wanted[-1].endswith("..."):
            last = wanted[-1].removesuffix("...")
            wanted = (*wanted[:-1], *[last] * (len(given) - len(wanted) + 1))
        return len(wanted) == len(given) and all(map(_fits, wanted, given))


def _fits(wanted: str, given: str) -> bool:
    if given in {wanted, "ANY"} or wanted in _ANY:
        return True
    return (wanted.endswith("]") and given in {"LIST", "ARRAY"}) or wanted.partition("(")[0] == given


_ANY: Final = frozenset({"ANY", "T", "K", "V", "NULL", "TABLE", "LAMBDA", "STRUCT", "MAP", "UNION", "VARIANT"})


@dataclass
class CatalogueEntry:
    """The functions of one name in DuckDB: their kinds (scalar, macro, table ...) and their overloads as text."""

    kinds: set[str] = field(default_factory=set)
    scalars: set[str] = field(default_factory=set)
    macros: set[str] = field(default_factory=set)


@lru_cache(maxsize=1)
def catalogue() -> dict[str, CatalogueEntry]:
    """Map the lower-case name of every function of the installed DuckDB to its entry."""
    found: dict[str, CatalogueEntry] = {}
    rows = database().cursor().execute(_FUNCTIONS).fetchall()
    for name, kind, names, types, varargs, returns, definition in rows:
        entry = found.setdefault(name, CatalogueEntry())
        entry.kinds.add(kind)
        if kind == "scalar":
            entry.scalars.add(f"({', '.join([*types, *([f'{varargs}...'] if varargs else [])])}) -> {returns}")
        elif kind == "macro":
            entry.macros.add(f"({', '.join(names)}) AS {' '.join((definition or '').split())}")
    return found


_FUNCTIONS: Final = """
    SELECT lower(function_name), function_type, parameters, parameter_types, varargs, return_type, macro_definition
    FROM duckdb_functions() WHERE database_name = 'system'
"""


@lru_cache(maxsize=1)
def table() -> dict[str, tuple[Overload, ...]]:
    """Return windrow's table of functions, which maps each name to its overloads."""
    return parse_table(files("windrow.expressions").joinpath(TABLE).read_text("utf-8"))


def parse_table(text: str) -> dict[str, tuple[Overload, ...]]:
    """Parse the text of a table of functions; map each name to its overloads."""
    found: dict[str, list[Overload]] = {}
    for line in text.splitlines():
        name, kind, depends, overloads = line.split("\t")
        found.setdefault(name, []).extend(Overload(kind, overload, depends) for overload in overloads.split(" | "))
    return {name: tuple(overloads) for name, overloads in found.items()}


def refuse_call(name: str, arguments: int) -> None:
    """Raise PipelineError if a call depends on more than its record, whatever the types of its arguments."""
    if name in OWN_FUNCTIONS:
        return
    known = tuple(overload for overload in table().get(name, ()) if overload.kind != "aggregate")
    found = catalogue().get(name)
    if found is None:
        return  # the binder reports it, with similar names
    if not known:
        raise PipelineError(_unknown_function(name, found))
    fitting = [overload for overload in known if overload.kind == "macro" or _takes_number(overload, arguments)]
    refused = [overload for overload in fitting if overload.depends not in PURE]
    if refused and len(refused) == len(fitting):
        raise PipelineError(_refusal(name, refused[0]))
    macros = {overload.text for overload in known if overload.kind == "macro"}
    if changed := [text for text in sorted(found.macros) if text not in macros]:
        raise PipelineError(_unknown_overload(name, f"defines it as {changed[0].partition(' AS ')[2]}"))


def refuse_list_aggregate(name: str) -> None:
    """Raise PipelineError if an aggregate over a list depends on anything but the list."""
    overloads = (overload for overload in table().get(name, ()) if overload.kind == "aggregate")
    depends = next((overload.depends for overload in overloads), "unreviewed")
    if depends not in PURE:
        msg = f"has {name}() of a list, {WHY[depends]}"
        raise PipelineError(msg)


def _takes_number(overload: Overload, arguments: int) -> bool:
    wanted = overload.parameters
    repeats = bool(wanted) and wanted[-1].endswith("...")
    return arguments == len(wanted) or (repeats and arguments >= len(wanted) - 1)


def refuse_bound(name: str, given: tuple[str, ...]) -> None:
    """Raise PipelineError if a call with arguments of these types depends on more than its record.

    The types are those in a bound expression, where macros are expanded, and casts and comparisons are calls.
    """
    known = [overload for overload in table().get(name, ()) if overload.kind == "scalar"]
    found = catalogue().get(name)
    fitting = [overload for overload in known if overload.takes(given)]
    refused = [overload for overload in fitting if overload.depends not in PURE]
    if refused or (known and all(overload.depends not in PURE for overload in known)):
        raise PipelineError(_refusal(name, (refused or known)[0]))
    if fitting:
        return
    texts = {overload.text for overload in known}
    unknown = [text for text in (sorted(found.scalars) if found else ()) if text not in texts]
    if not known or any(Overload("scalar", text, "unreviewed").takes(given) for text in unknown):
        raise PipelineError(_unknown_overload(name, f"has it with ({', '.join(given)})"))


def _refusal(name: str, overload: Overload) -> str:
    return f"has {name}(), {WHY[overload.depends]}{_REMEDY.get(name, '')}"


def _unknown_function(name: str, found: CatalogueEntry) -> str:
    if found.kinds & {"aggregate", "window"}:
        return f"calls {name}(), an aggregate function; an expression can only use the fields of its own record"
    if not found.kinds & {"scalar", "macro"}:
        return f"calls {name}(), which returns rows, not a value"
    return _unknown_overload(name, "has it")


def _unknown_overload(name: str, how: str) -> str:
    return (
        f"calls {name}(): DuckDB {release()} {how}, but this version of windrow does not know it; "
        "write the expression without it, or install a release of DuckDB that this version knows"
    )
