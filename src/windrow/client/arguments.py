"""Checks of the arguments of the Python API: each argument must fit the annotation of its parameter.

`checked` decorates a public function, or a class with public methods. If an argument has another type, the call raises
an ArgumentError that describes the argument, the expected type, and a call that creates such a value. `Unfinished`
gives similar help if a stage does not have a method. Whether the content of a text or a number is valid, for example as
a duration, is checked by the function itself.
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

_STREAM: Final = "a stream made from another stream of the graph, such as orders.where('CONDITION')"
_KINDS: Final[Mapping[str, str]] = {
    "Stream": "a source, such as wr.log('PATH')",
    "DecodedStream": "decoded records, SOURCE.decode(NAME='TYPE')",
    "Timed": "records with an event time, wr.log('PATH').decode(NAME='TYPE').event_time('FIELD', delay='10m')",
    "Keyed": "records with a key, RECORDS.key_by('FIELD')",
    "Windowed": "windows, RECORDS.window(wr.tumbling('5m'))",
    "Aggregated": "results, WINDOWS.aggregate(NAME='count()')",
    "Emitted": "results, WINDOWS.aggregate(NAME='count()').emit(lateness='1h')",
    "Processed": "the rows of a process function, RECORDS.key_by('FIELD').process(FUNCTION, ...)",
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
"""Maps the name of a class of the API to a description with a call that makes such an object."""
_FAMILIES: Final[Mapping[str, str]] = {
    "windrow.model.connectors": "a sink, such as wr.sqlite('PATH', table='NAME')",
    "windrow.model.nodes": _STREAM,
    "windrow.model.rules": "a list, wr.list_file('PATH') or wr.list_topic('NAME')",
    "windrow.model.triggers": "a trigger, such as wr.every('1m')",
    "windrow.model.types": "a type of windrow.model",
    "windrow.model.windows": "a window, such as wr.tumbling('5m')",
}
"""Maps a module to the description of its classes that are not in `_KINDS`."""
_PLAIN: Final[Mapping[Any, str]] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    timedelta: "a timedelta",
    type(None): "None",
}
_LATER: Final = {"PipelineLike": "windrow.client.tables"}
"""Maps names in annotations that only type checkers import to their modules; other such names are not checked."""
_METHODS: Final[dict[str, list[str]]] = {}
"""Maps the name of a public method to the classes that have it."""


def checked(target: T) -> T:
    """Check the arguments of each call of a function, or of `__init__` and the public methods of a class.

    A call raises ArgumentError if an argument is missing, is unknown, or does not fit the annotation.
    """
    if not isinstance(target, type):
        return cast("T", _check_calls(target))
    for name, method in inspect.getmembers(target, inspect.isfunction):
        if name in {"__init__", "__getitem__"} or name[0] != "_":
            if name in vars(target):
                setattr(target, name, _check_calls(method))
            _METHODS.setdefault(name, []).append(target.__name__)
    return target


def _check_calls(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - those of the function
        for parameter, name, value in _arguments(function, args, kwargs):
            hint = _hints(function).get(parameter, Any)
            if not _fits(value, hint):
                at, part = _misfit(value, hint)
                msg = f"{_name(function)}: `{name}` must be {_expected(function, hint)}; {at} {_description(part)}"
                raise ArgumentError(msg)
        return function(*args, **kwargs)

    return call


def _arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, str, Any]]:
    """Yield the parameter, the name and the value of each argument; raise ArgumentError if the call does not match.

    The name differs from the parameter for arguments that ``**fields`` collects.
    """
    parameters = _signature(function).parameters
    try:
        given = _signature(function).bind_partial(*args, **kwargs).arguments
    except TypeError as exc:
        known = [name for name, parameter in parameters.items() if parameter.kind is not parameter.POSITIONAL_ONLY]
        near = "".join(did_you_mean(name, known) for name in kwargs if name not in known)
        msg = f"{_name(function)}: {exc}{near}; the call is {_call(function)}"
        raise ArgumentError(msg) from None
    for name, value in given.items():
        match parameters[name].kind:
            case inspect.Parameter.VAR_POSITIONAL:
                yield from ((name, name, item) for item in value)
            case inspect.Parameter.VAR_KEYWORD:
                yield from ((name, key, item) for key, item in value.items())
            case _:
                yield name, name, value
    several = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    for name, parameter in parameters.items():
        if name not in given and parameter.default is parameter.empty and parameter.kind not in several:
            expected = _expected(function, _hints(function).get(name, Any))
            msg = f"{_name(function)} lacks `{name}`, which must be {expected}"
            raise ArgumentError(msg)


@cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function, with Any for names that only type checkers know."""
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
    """Return True if a value fits an annotation, or if this cannot be checked."""
    origin, inner = get_origin(hint), get_args(hint)
    if timedelta in inner or origin is Literal:
        return True
    if origin in {Union, types.UnionType}:
        return any(_fits(value, option) for option in inner)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            _fits(key, inner[0]) and _fits(item, inner[1]) for key, item in value.items()
        )
    if origin is Sequence:
        return isinstance(value, Sequence) and all(_fits(item, inner[0]) for item in value)
    if origin is not None:
        is_function = origin is Callable or getattr(origin, "__name__", "") == "Callable"
        return callable(value) if is_function else not isinstance(origin, type) or isinstance(value, origin)
    if hint is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, numbers.Real | Decimal) and not isinstance(value, bool)
    is_protocol = getattr(hint, "_is_protocol", False) and not getattr(hint, "_is_runtime_protocol", False)
    return is_protocol or not isinstance(hint, type) or hint is Any or isinstance(value, hint)


def _misfit(value: object, hint: Any) -> tuple[str, object]:  # noqa: ANN401 - an annotation
    """Return the part of a value that does not fit an annotation, or the whole value, after words that introduce it."""
    for arg in (hint, *get_args(hint)):
        origin, inner = get_origin(arg), get_args(arg)
        if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, Mapping):
            return next(
                ((f"{key!r} is", part) for key, part in value.items() if not _fits(part, inner[1])), ("it is", value)
            )
        if origin is Sequence and isinstance(value, Sequence):
            return next((("it has", part) for part in value if not _fits(part, inner[0])), ("it is", value))
    return "it is", value


def _name(function: Callable[..., Any]) -> str:
    """Return the name of a function, or of the class if the function is `__init__`, followed by ``()``."""
    return f"{function.__qualname__.removesuffix('.__init__')}()"


def _call(function: Callable[..., Any]) -> str:
    """Return a call of a function with its required parameters."""
    words = []
    for name, parameter in _signature(function).parameters.items():
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                words.append(f"*{name}")
            case inspect.Parameter.VAR_KEYWORD:
                words.append("NAME=...")
            case inspect.Parameter.KEYWORD_ONLY if parameter.default is parameter.empty:
                words.append(f"{name}=...")
            case _ if parameter.default is parameter.empty and name != "self":
                words.append(name)
    return f"{_name(function)[:-1]}{', '.join(words)})"


def _expected(function: Callable[..., Any], hint: Any) -> str:  # noqa: ANN401 - an annotation
    """Describe the values of a parameter, with a call that creates one, or else a call of the function."""
    words = list(dict.fromkeys(_words(hint)))
    if len(words) > 1 and "None" in words:  # the default, which nobody needs to pass
        words.remove("None")
    expected = " or ".join(words)
    return expected if "(" in expected else f"{expected}, as in {_call(function)}"


def _words(hint: Any) -> list[str]:  # noqa: ANN401, PLR0911 - an annotation; a case for each form
    """Describe the values that an annotation allows, with one item for each alternative."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return [word for option in inner for word in _words(option)]
    if origin is Literal:
        return [repr(option) for option in inner]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return [f"a mapping to {' or '.join(dict.fromkeys(_words(inner[1])))}"]
    if origin is Sequence:
        return [f"a list, each item {' or '.join(dict.fromkeys(_words(inner[0])))}"]
    if origin is os.PathLike:
        return ["a path"]
    if origin is not None:
        return ["a function"]
    name = getattr(hint, "__name__", str(hint))
    return [_PLAIN.get(hint) or _kind(hint) or f"a {name}"]


_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = 80


def _description(value: object) -> str:
    """Describe a value; leave out its content if it is long or may be secret."""
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, str):
        return f"the text {_SHORT.repr(value)}"
    kind, known = type(value).__name__, _kind(type(value))
    # without the call that makes it
    noun = "" if known is None else f" ({known.replace(':', ',').partition(',')[0]})"
    return f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind}{noun}"


def _kind(kind: type) -> str | None:
    return _KINDS.get(kind.__name__) or _FAMILIES.get(kind.__module__)


class Unfinished:
    """A stage, or a graph before `build`; if it lacks a method, the error says which stage has the method."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - it returns nothing
        """Raise a StageError that says which stage has the attribute."""
        if name.startswith("_"):
            msg = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(msg)
        own = [method for method in dir(type(self)) if method[0] != "_" and callable(getattr(type(self), method))]
        problem = f"{_description(self)} has no method {name}(); it has {', '.join(own)}"
        others = [_KINDS[kind] for kind in _METHODS.get(name, ()) if kind in _KINDS]
        raise StageError(
            f"{problem}; {name}() is a method of {others[0]}" if others else f"{problem}{did_you_mean(name, own)}"
        )
