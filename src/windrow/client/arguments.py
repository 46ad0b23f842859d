"""Arguments of the Python API, each of which is checked against the annotation of its parameter before a call.

`checked` goes around a public function or the methods of a public class. What is of another type is an ArgumentError,
which says what was given, what is taken, and the call that makes it. `Unfinished` says the same of a method that a
stage does not have. What a text or number means (a duration, one of some words, a type) is left to the function.
"""

from __future__ import annotations

import inspect
import numbers
import os
import reprlib
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import cache, wraps
from importlib import import_module
from typing import Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from windrow.errors import ArgumentError, StageError, did_you_mean

T = TypeVar("T", bound=Callable[..., Any])

_STREAM: Final = "a stream made of one of the graph, such as orders.where('CONDITION')"
_KINDS: Final[Mapping[str, str]] = {
    "Stream": "a source, such as wr.log('PATH')",
    "DecodedStream": "decoded records, SOURCE.decode(NAME='TYPE')",
    "Timed": "records with an event time, wr.log('PATH').decode(NAME='TYPE').event_time('FIELD', delay='10m')",
    "Keyed": "records with a key, RECORDS.key_by('FIELD')",
    "Windowed": "windows, RECORDS.window(wr.tumbling('5m'))",
    "Aggregated": "results, WINDOWS.aggregate(NAME='count()')",
    "Emitted": "results, WINDOWS.aggregate(NAME='count()').emit(lateness='1h')",
    "Processed": "what a function makes of records, RECORDS.key_by('FIELD').process(FUNCTION, ...)",
    "Ruled": "alerts of rules, RECORDS.key_by('FIELD').rules(...)",
    "Selection": _STREAM,
    "Named": "a source or stream of the graph, which graph.source(...) and graph.stream(...) return",
    "GraphBuilder": "a graph, wr.graph('NAME')",
    "Pipeline": "a pipeline: end the stages with .to(sink) and a graph with .build(), or read a file: wr.load('PATH')",
    "HasGraph": "a pipeline (end the stages with .to(sink), a graph with .build()), or a result of one",
    "Graph": "a graph of windrow.model (to make a pipeline, end the stages with .to(sink), or call wr.load('PATH'))",
    "Measure": "an aggregate, such as wr.sum('FIELD')",
    "Alerts": "alerts, wr.alerts(...)",
    "FieldType": "a field, wr.field('TYPE')",
    "StateType": "a state, such as wr.value_state('TYPE')",
    "Adaptive": "a delay, wr.adaptive(...)",
    "DelayByPartition": "delays, wr.delay_by_partition(...)",
    "Registry": "a registry, wr.registry('URL')",
    "Rule": "a rule, wr.rule('NAME', when='CONDITION')",
    "Recent": "recent records, wr.recent(last=10, within='1h')",
    "Records": "a number of records, wr.every_count(100)",
}
"""What objects of the API are, and the call that makes them, by the names of their classes."""
_FAMILIES: Final[Mapping[str, str]] = {
    "windrow.model.connectors": "a sink, such as wr.sqlite('PATH', table='NAME')",
    "windrow.model.graph": _STREAM,
    "windrow.model.rules": "a list, wr.list_file('PATH') or wr.list_topic('NAME')",
    "windrow.model.triggers": "a trigger, such as wr.every('1m')",
    "windrow.model.types": "a type of windrow.model",
    "windrow.model.windows": "a window, such as wr.tumbling('5m')",
}
"""The same of other classes, by their modules."""
_PLAIN: Final[Mapping[Any, str]] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    timedelta: "a timedelta",
    type(None): "None",
}
_LATER: Final = {"PipelineLike": "windrow.client.tables"}
"""Names in annotations that modules import for types alone, with the modules that have them; others are not checked."""
_METHODS: Final[dict[str, list[str]]] = {}
"""The classes that have a public method, by its name."""


def checked(target: T) -> T:
    """Have the arguments of a function, or of the public methods of a class and its `__init__`, checked in each call.

    Calls raise ArgumentError for arguments that are missing, that have no parameter, or that no annotation takes.
    """
    if not isinstance(target, type):
        return cast("T", _checked(target))
    for name, method in list(vars(target).items()):
        if isinstance(method, types.FunctionType) and (name in {"__init__", "__getitem__"} or name[0] != "_"):
            setattr(target, name, _checked(method))
            _METHODS.setdefault(name, []).append(target.__name__)
    return target


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - those of the function
        for parameter, name, value in _given(function, args, kwargs):
            hint = _hints(function).get(parameter, Any)
            if not _fits(value, hint):
                at, part = _misfit(value, hint)
                msg = f"{_called(function)}: `{name}` must be {_taken(function, hint)}; {at} {_described(part)}"
                raise ArgumentError(msg)
        return function(*args, **kwargs)

    return call


def _given(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, str, Any]]:
    """Yield the arguments with their parameters and their names: those of ``**fields`` have names of their own."""
    signature = _signature(function)
    try:
        given = signature.bind_partial(*args, **kwargs).arguments
    except TypeError as exc:
        known = [name for name, one in signature.parameters.items() if one.kind is not one.POSITIONAL_ONLY]
        near = "".join(did_you_mean(name, known) for name in kwargs if name not in known)
        msg = f"{_called(function)}: {exc}{near}; the call is {_call(function)}"
        raise ArgumentError(msg) from None
    for name, value in given.items():
        match signature.parameters[name].kind:
            case inspect.Parameter.VAR_POSITIONAL:
                yield from ((name, name, one) for one in value)
            case inspect.Parameter.VAR_KEYWORD:
                yield from ((name, key, one) for key, one in value.items())
            case _:
                yield name, name, value
    for name in _required(function):
        if name not in given:
            taken = _taken(function, _hints(function).get(name, Any))
            msg = f"{_called(function)} lacks `{name}`, which must be {taken}"
            raise ArgumentError(msg)


def _required(function: Callable[..., Any]) -> list[str]:
    """Return the parameters without a default."""
    several = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    parameters = _signature(function).parameters.items()
    return [name for name, one in parameters if one.default is one.empty and one.kind not in several]


@cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function; those with names that are for type checkers alone are Any."""
    later: dict[str, Any] = {}
    while True:
        try:
            return get_type_hints(function, localns=later)
        except NameError as exc:
            name = str(exc.name)
            module = _LATER.get(name)
            later[name] = Any if module is None else getattr(import_module(module), name)
        except AttributeError:
            return {}


def _fits(value: object, hint: Any) -> bool:  # noqa: ANN401, PLR0911 - an annotation; a case for each form
    """Return whether a value can be of the type of an annotation, as far as that can be told."""
    origin, inner = get_origin(hint), get_args(hint)
    if timedelta in inner or origin is Literal:
        return True
    if origin in {Union, types.UnionType}:
        return any(_fits(value, one) for one in inner)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        key, of = inner
        return isinstance(value, Mapping) and all(_fits(one, key) and _fits(of_, of) for one, of_ in value.items())
    if origin is Sequence:
        return isinstance(value, Sequence) and all(_fits(one, inner[0]) for one in value)
    if origin is not None:
        is_function = origin is Callable or getattr(origin, "__name__", "") == "Callable"
        return callable(value) if is_function else not isinstance(origin, type) or isinstance(value, origin)
    if hint is int:
        return isinstance(value, numbers.Integral)
    if hint is float:
        return isinstance(value, numbers.Real | Decimal)
    is_protocol = getattr(hint, "_is_protocol", False) and not getattr(hint, "_is_runtime_protocol", False)
    return is_protocol or not isinstance(hint, type) or hint is Any or isinstance(value, hint)


def _misfit(value: object, hint: Any) -> tuple[str, object]:  # noqa: ANN401 - an annotation
    """Return which part of a value does not fit an annotation, and that part; or the value as a whole."""
    for arg in (hint, *get_args(hint)):
        origin, inner = get_origin(arg), get_args(arg)
        if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, Mapping):
            return next(
                ((f"{key!r} is", part) for key, part in value.items() if not _fits(part, inner[1])), ("it is", value)
            )
        if origin is Sequence and isinstance(value, Sequence):
            return next((("it has", part) for part in value if not _fits(part, inner[0])), ("it is", value))
    return "it is", value


def _called(function: Callable[..., Any]) -> str:
    """Return the name of a function, or of the class that it makes."""
    return f"{function.__qualname__.removesuffix('.__init__')}()"


def _call(function: Callable[..., Any]) -> str:
    """Return a call with all parameters that it needs."""
    words = []
    for name, one in _signature(function).parameters.items():
        match one.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                words.append(f"*{name}")
            case inspect.Parameter.VAR_KEYWORD:
                words.append("NAME=...")
            case inspect.Parameter.KEYWORD_ONLY if one.default is one.empty:
                words.append(f"{name}=...")
            case _ if one.default is one.empty and name != "self":
                words.append(name)
    return f"{_called(function)[:-1]}{', '.join(words)})"


def _taken(function: Callable[..., Any], hint: Any) -> str:  # noqa: ANN401 - an annotation
    """Return what a parameter takes, with the call that makes it, or else that of the function."""
    words = list(dict.fromkeys(_words(hint)))
    if len(words) > 1 and "None" in words:  # which stands for what is left out
        words.remove("None")
    taken = " or ".join(words)
    return taken if "(" in taken else f"{taken}, as in {_call(function)}"


def _words(hint: Any) -> list[str]:  # noqa: ANN401, PLR0911 - an annotation; a case for each form
    """Return what an annotation takes, in words."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return [word for one in inner for word in _words(one)]
    if origin is Literal:
        return [repr(one) for one in inner]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return [f"a mapping to {' or '.join(dict.fromkeys(_words(inner[1])))}"]
    if origin is Sequence:
        return [f"a list, each of it {' or '.join(dict.fromkeys(_words(inner[0])))}"]
    if origin is os.PathLike:
        return ["a path"]
    if origin is not None:
        return ["a function"]
    name = getattr(hint, "__name__", str(hint))
    return [_PLAIN.get(hint) or _known(hint) or f"a {name}"]


_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = 80


def _described(value: object) -> str:
    """Return what a value is, without its content if that is long or may be secret."""
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, str):
        return f"the text {_SHORT.repr(value)}"
    kind, said = type(value).__name__, _known(type(value))
    return f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind}" + ("" if said is None else f" ({_kind(said)})")


def _known(kind: type) -> str | None:
    return _KINDS.get(kind.__name__) or _FAMILIES.get(kind.__module__)


def _kind(said: str) -> str:
    """Return what an object is, of the words that also say how it is made."""
    return said.replace(":", ",").partition(",")[0]


class Unfinished:
    """A stage, or a graph that is being made: it says which other has a method that it lacks."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - it returns nothing
        """Raise StageError, with the stage that has what is not here."""
        if name.startswith("_"):
            msg = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(msg)
        own = [one for one in dir(type(self)) if one[0] != "_" and callable(getattr(type(self), one))]
        what = f"{name}() is no method of {_described(self)}, which has {', '.join(own)}"
        others = [_KINDS[kind] for kind in _METHODS.get(name, ()) if kind in _KINDS]
        raise StageError(f"{what}; it is one of {others[0]}" if others else f"{what}{did_you_mean(name, own)}")
