"""The names that `import windrow` gives out."""

import inspect
import pkgutil

import windrow


def test_dir_shows_only_public_names_and_submodules() -> None:
    modules = {module.name for module in pkgutil.iter_modules(windrow.__path__)}
    public = {name for name in dir(windrow) if not name.startswith(("_", "@"))}
    assert public - modules == set(windrow.__all__)


def test_each_function_goes_by_its_public_name() -> None:
    functions = {name: one for name in windrow.__all__ if inspect.isfunction(one := getattr(windrow, name))}
    assert {"sum", "min", "max"} <= functions.keys()
    assert {name: one.__name__ for name, one in functions.items()} == {name: name for name in functions}
