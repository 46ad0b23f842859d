"""The functions of the fluent form have the keys of the sections, with the same defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.docs.pages import ROOT

import windrow
import windrow.model
from windrow.authoring.sections import ALERTS, DELAY, EMIT, PIPELINE, SINK, SOURCE, TIME, TRIGGER, WINDOW
from windrow.authoring.sections.alerts import ALERTS_KEY
from windrow.authoring.sections.pipeline import KEY_GROUPS, MODE, NAME, SALT
from windrow.authoring.short_form import short_parts
from windrow.client.fluent.streams import Aggregated, DecodedStream, Emitted
from windrow.declare.formats import FORMAT, REGISTRY
from windrow.declare.spec import Key, OneOf, Section, Wrapped
from windrow.model import ALERT_NAMES, Alerts


def calls() -> Iterator[tuple[str, Callable[..., Any], tuple[Key, ...]]]:
    """Every call that the fluent form of a section consists of: its name, its function and its keys."""
    one_of: list[OneOf[Any]] = [SOURCE, FORMAT, DELAY, WINDOW, TRIGGER, SINK]
    for kind in (kind for kinds in one_of for kind in kinds.kinds.values()):
        if isinstance(kind.spec, Section):
            yield kind.spec.call, getattr(windrow, kind.spec.call.removeprefix("wr.")), kind.spec.keys
    yield REGISTRY.call, windrow.registry, REGISTRY.keys
    yield TIME.call, DecodedStream.event_time, TIME.keys
    yield EMIT.call, Aggregated.emit, EMIT.keys
    for stage in (Aggregated, Emitted):
        yield f"{stage.__name__}.to", stage.to, (NAME, KEY_GROUPS, SALT, MODE, ALERTS_KEY)


CALLS = list(calls())


def written(key: Key, default: object) -> object:
    """A default as a user may write it."""
    if isinstance(default, Alerts):
        return default
    return default if default is None or default == () else key.spec.plain(default)


@pytest.mark.parametrize(("function", "keys"), [call[1:] for call in CALLS], ids=[call[0] for call in CALLS])
def test_a_function_has_the_keys_of_its_section(function: Callable[..., Any], keys: tuple[Key, ...]) -> None:
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in {"self", "sink"}
    }
    assert set(parameters) == {key.name for key in keys}
    for key in keys:
        parameter = parameters[key.name]
        assert key.positional == (parameter.kind is parameter.POSITIONAL_OR_KEYWORD), key.name
        if key is not NAME:  # which Python takes from the table
            assert (key.required and not key.unless) == (parameter.default is parameter.empty), key.name
        if parameter.default is not parameter.empty and parameter.default is not None:
            assert parameter.default == written(key, key.default), key.name


def test_each_kind_without_keys_has_its_function() -> None:
    one_of: list[OneOf[Any]] = [WINDOW, TRIGGER]
    wrapped = [kind.spec.call for kinds in one_of for kind in kinds.kinds.values() if isinstance(kind.spec, Wrapped)]
    assert len(wrapped) == 6
    assert {call.removeprefix("wr.") for call in wrapped} <= set(windrow.__all__)


def test_alerts_have_the_arguments_of_the_section() -> None:
    parameters = inspect.signature(windrow.alerts).parameters
    assert list(parameters) == [key.model_field for key in ALERTS.keys]
    assert {key.name for key in ALERTS.keys} > set(ALERT_NAMES)


def test_each_section_is_a_field_of_the_model() -> None:
    graph = windrow.load(ROOT / "examples" / "user_spend.yaml").graph
    assert {key.model_field for key in PIPELINE.keys} <= set(short_parts(graph))
