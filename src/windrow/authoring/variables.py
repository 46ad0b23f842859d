"""Variables of a pipeline file: ``${NAME}`` and ``${NAME:-default}`` in values, and profiles that set them.

A variable gets its value from ``--var``, or else from the profile, the environment variable of the same name, or the
default, in this order. Variables are substituted before the document is read, so the pipeline does not depend on where
a value came from.

URLs, webhooks, options and the arguments of a command may hold secrets. In these settings, environment variables stay
references that are resolved when they are used (`windrow.model.references`), so that neither print-outs nor checkpoints
contain the values.

In other settings, values become part of the pipeline. Messages, print-outs and logs show ``${NAME}`` in place of a
value from the environment or the command line. Such values are hidden (`windrow.hidden_values`) unless the file has the
same text elsewhere, or the value is a word of pipeline files such as ``earliest``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, partial
from typing import Final
from urllib.parse import quote

import yaml

from windrow.authoring.sections import DOCUMENT
from windrow.declare.yaml_node import SqlMark, YamlNode, compose
from windrow.errors import HIDDEN_VALUES, PipelineError, join_errors
from windrow.model.references import VARIABLE, escape_jaas, given_reference

PROFILES: Final = "windrow.yaml"
"""The name of the file with the profiles of the pipelines beside it."""
PROFILE_VARIABLE: Final = "WINDROW_PROFILE"

_USE = re.compile(rf"(?P<escape>\$\$\{{)|{VARIABLE}|(?P<file>\$\{{file:[^}}]+\}})|(?P<other>\$\{{)")
_ALONE = re.compile(VARIABLE)
_SECRETS: Final[Mapping[tuple[str, str], Callable[[str], str]]] = {
    ("postgres", "url"): partial(quote, safe=""),
    ("postgres_cdc", "url"): partial(quote, safe=""),
    ("registry", "url"): str,
    ("avro", "registry"): str,
    ("protobuf", "registry"): str,
    ("json_schema", "registry"): str,
    ("kafka", "options"): str,
    ("postgres_cdc", "options"): str,
    ("registry", "options"): str,
    ("alerts", "webhook"): partial(quote, safe=""),
    ("alerts", "command"): str,
}
"""Keys (with their parents) whose values may hold secrets, and the encoding of a value that is part of a text."""
_CODE: Final = re.compile(r"(?=\w*[0-9])(?=\w*[^\W\d_])\w{6,}")
"""A word with letters and digits, like a password."""
_WORD: Final = re.compile(r"[^\W_]+")
_NAMES: Final = {("name",), ("table",), ("topic",)}
"""Keys whose values are names."""
_COMMAND: Final = ("alerts", "command")
_NO_VARIABLE: Final = (
    "${ is not followed by a variable: write ${NAME} or ${NAME:-default}, or $${ for the characters themselves "
    "(${file:PATH} is allowed only in urls, webhooks, options and commands)"
)


@dataclass(frozen=True)
class Given:
    """Options for reading a pipeline file.

    The `variables` are the values from the command line, `profile` is the name of the profile (None for
    WINDROW_PROFILE), and `only` selects one of several pipelines by name.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    profile: str | None = None
    only: str | None = None

    @property
    def profile_name(self) -> str | None:
        """The name of the profile from the command line or the environment, or None."""
        return self.profile or os.environ.get(PROFILE_VARIABLE) or None


NOTHING_GIVEN: Final = Given()


def substitute(
    roots: Sequence[YamlNode],
    given: Given,
    read_profile: Callable[[str], Mapping[str, str]],
    others: Sequence[YamlNode] = (),
) -> None:
    """Substitute the variables in the documents of a file, in place; the profile is read only if there are variables.

    A value that replaces a whole unquoted scalar is parsed as YAML. In quotes, or as part of a text, it is text. Raise
    PipelineError, with file:line, for variables without a value, and for given variables that neither these documents
    nor the `others` of the file use.
    """
    used = {name for root in (*roots, *others) for name in _names_in(root.node, set())}
    if unused := sorted(given.variables.keys() - used):
        close = get_close_matches(unused[0], used, n=1)
        known = f"did you mean {close[0]}?" if close else f"it has {', '.join(sorted(used)) or 'no variables'}"
        msg = f"${{{unused[0]}}} is given a value, but {roots[0].file} does not use it; {known}"
        raise PipelineError(msg)
    errors: list[PipelineError] = []
    profile = read_profile(given.profile_name) if used and given.profile_name is not None else {}
    public, private = _public_words((*roots, *others)), list[_Private]()
    for root in roots:
        _Substitution(root.file, given.variables, profile, errors, private).inside(root.node, ())
    _hide(private, public)
    if errors:
        raise join_errors(errors)


def _public_words(roots: Sequence[YamlNode]) -> str:
    """Return the texts in the documents of a file, as written, and the name of the file, one per line."""
    nodes = [node for root in roots for node in _nodes(root.node, set()) if isinstance(node, yaml.ScalarNode)]
    return "\n".join([*(_USE.sub(" ", node.value) for node in nodes), *{root.file for root in roots}])


@dataclass(frozen=True)
class _Private:
    """A value from the command line or the environment, or a word that contains one, with the text to print instead.

    If it `is_name`, it is part of the name of a pipeline, a table or a topic, which is not secret.
    """

    value: str
    printed: str
    is_name: bool


def _hide(private: Sequence[_Private], public: str) -> None:
    """Hide private values, each of their lines, and the words in them that look like passwords.

    A message that contains a private value does not show the other words of the value either, because it may quote
    them. Words in `public` are not hidden.
    """
    known = "\n".join([public, *(secret.value for secret in private if secret.is_name)])

    def is_unknown(word: str) -> bool:
        is_known = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", known, re.IGNORECASE) is not None
        return not is_known and word.lower() not in _words_of_files()

    for secret in private:
        parts = set(filter(is_unknown, _WORD.findall(secret.value)))
        for word in filter(is_unknown, {secret.value, *secret.value.splitlines(), *_CODE.findall(secret.value)}):
            HIDDEN_VALUES.add(word, secret.printed, parts)


@cache
def _words_of_files() -> frozenset[str]:
    """Return all words of the JSON Schema of pipeline files: its keys, choices, and the words of its descriptions."""
    return frozenset(re.findall(r"[a-z_]+", json.dumps(DOCUMENT.schema())))


def secret_variables(roots: Sequence[YamlNode]) -> set[str]:
    """Return the names of all variables used in settings that may hold secrets."""
    return {name for root in roots for name in _secret_names(root.node, (), set())}


def _secret_names(node: yaml.Node, path: tuple[str, ...], seen: set[tuple[int, tuple[str, ...]]]) -> Iterator[str]:
    if isinstance(node, yaml.ScalarNode):
        if _secret(path) is not None:
            yield from (match["name"] for match in _USE.finditer(node.value) if match["name"])
        return
    if (id(node), path[-2:]) in seen:  # an alias can put a node into several others, or below itself
        return
    seen.add((id(node), path[-2:]))
    for below in node.value:
        key, value = below if isinstance(below, tuple) else (None, below)
        yield from _secret_names(value, path if key is None else (*path, str(key.value)), seen)


def escape_variables(text: str, path: tuple[str, ...]) -> str:
    """Escape a text so that `substitute` leaves it unchanged; `path` lists the keys that lead to the text."""
    return text if _secret(path) else text.replace("${", "$${")


def _secret(path: tuple[str, ...]) -> Callable[[str], str] | None:
    """Return the function that encodes a value in a setting that may hold secrets; None for other settings."""
    for pair in (path[-2:], path[-3:-1]):
        if len(pair) == 2 and (encode := _SECRETS.get((pair[0], pair[1]))) is not None:  # noqa: PLR2004 - a pair
            return escape_jaas if path[-1] == "sasl.jaas.config" else encode
    return None


@dataclass(frozen=True)
class _Substitution:
    """Substitutes the variables in the nodes of a document, and collects `errors` and `private` values."""

    file: str
    given: Mapping[str, str]
    profile: Mapping[str, str]
    errors: list[PipelineError]
    private: list[_Private]
    seen: set[int] = field(default_factory=set)

    def inside(self, node: yaml.Node, path: tuple[str, ...]) -> yaml.Node:
        """Return the node that replaces the given node; a list or mapping is changed in place."""
        if isinstance(node, yaml.ScalarNode):
            if "${" not in node.value:
                return node
            if path[-2:] == _COMMAND:
                return self._argument(node)
            encode = _secret(path)
            return self._plain(node, path) if encode is None else self._secretive(node, encode)
        if id(node) not in self.seen:  # an alias can put a node into several others, or below itself
            self.seen.add(id(node))
            if isinstance(node, yaml.MappingNode):
                node.value = [(key, self.inside(value, (*path, str(key.value)))) for key, value in node.value]
            else:
                node.value = [self.inside(item, path) for item in node.value]
        return node

    def _secretive(self, node: yaml.ScalarNode, encode: Callable[[str], str]) -> yaml.Node:
        """Substitute variables from the command line or the profile; environment variables stay references."""
        text: str = node.value
        is_whole = _ALONE.fullmatch(text) is not None

        def value(match: re.Match[str]) -> str:
            known = self._given(match["name"])
            return match[0] if known is None else known if is_whole else encode(known)

        return _text(node, _ALONE.sub(value, text))

    def _argument(self, node: yaml.ScalarNode) -> yaml.Node:
        """Return an argument of a command, in which each variable stays a reference because it may be secret."""
        at = YamlNode(node, self.file)

        def reference(match: re.Match[str]) -> str:
            if match["other"]:
                raise at.error(_NO_VARIABLE)
            known = self._given(match["name"]) if match["name"] else None
            return match[0] if known is None else given_reference(match["name"], known)

        try:
            return _text(node, _USE.sub(reference, node.value))
        except PipelineError as exc:
            self.errors.append(exc)
            return node

    def _plain(self, node: yaml.ScalarNode, path: tuple[str, ...]) -> yaml.Node:
        whole = _ALONE.fullmatch(node.value)
        at = YamlNode(node, self.file)
        try:
            if whole is not None and not node.style and not isinstance(node.start_mark, SqlMark):
                found = _as_yaml(self._value(whole, at, path), node, whole["name"], at)
                for part in _nodes(found, set()):
                    if isinstance(part, yaml.ScalarNode):
                        self._add_private(whole["name"], part.value, path)
                return found
            return _text(node, self._substitute_text(node.value, at, path))
        except PipelineError as exc:
            self.errors.append(exc)
            return node

    def _substitute_text(self, template: str, at: YamlNode, path: tuple[str, ...]) -> str:
        text, printed, end = "", list[str](), 0
        for match in _USE.finditer(template):
            if match["other"] or match["file"]:
                raise at.error(_NO_VARIABLE)
            value = "${" if match["escape"] else self._value(match, at, path)
            before = template[end : match.start()]
            is_private = match["name"] is not None and self._is_private(match["name"])
            text += before + value
            printed += [*before, *([f"${{{match['name']}}}"] * len(value) if is_private else value)]
            end = match.end()
        self._add_words(text + template[end:], [*printed, *template[end:]], path)
        return text + template[end:]

    def _value(self, match: re.Match[str], at: YamlNode, path: tuple[str, ...]) -> str:
        name, default = match["name"], match["default"]
        known = self._given(name)
        value = os.environ.get(name) if known is None else known
        if default is not None and not value:
            return default
        if value is None:
            msg = (
                f"the variable {name} has no value: give --var {name}=VALUE, set it in a profile of {PROFILES} or in "
                f"the environment, or write ${{{name}:-default}}"
            )
            raise at.error(msg)
        if known is not None and _ALONE.search(known):
            msg = f"the value of {name} refers to another variable, which is allowed only in urls, webhooks and options"
            raise at.error(msg)
        self._add_private(name, value, path)
        return value

    def _is_private(self, name: str) -> bool:
        """Return True if a value comes from the command line or the environment.

        A value from a profile is not private, because the profile is in a file.
        """
        return name in self.given or (name not in self.profile and bool(os.environ.get(name)))

    def _add_private(self, name: str, value: str, path: tuple[str, ...]) -> None:
        if self._is_private(name):
            self.private.append(_Private(value, f"${{{name}}}", path[-1:] in _NAMES))

    def _add_words(self, text: str, printed: Sequence[str], path: tuple[str, ...]) -> None:
        """Record each word that contains a private value; `printed` has the text to show for each letter of `text`."""
        for match in _WORD.finditer(text):
            letters = printed[match.start() : match.end()]
            pairs = zip(letters, ("", *letters), strict=False)
            shown = [letter for letter, before in pairs if len(letter) == 1 or letter != before]
            if any(len(letter) > 1 for letter in shown):
                self.private.append(_Private(match[0], "".join(shown), path[-1:] in _NAMES))

    def _given(self, name: str) -> str | None:
        return self.given.get(name, self.profile.get(name))


def _text(node: yaml.ScalarNode, text: str) -> yaml.Node:
    return yaml.ScalarNode("tag:yaml.org,2002:str", text, node.start_mark, node.end_mark, node.style)


def _as_yaml(value: str, node: yaml.ScalarNode, name: str, at: YamlNode) -> yaml.Node:
    """Parse the value of a variable as YAML; all resulting nodes get the position of the replaced node."""
    try:
        found = compose(value, at.file).node
    except PipelineError as exc:
        if not value.strip():
            return yaml.ScalarNode("tag:yaml.org,2002:null", "", node.start_mark, node.end_mark)
        msg = f'the value of {name} cannot be read as YAML; write "${{{name}}}" in quotes to use it as text'
        raise at.error(msg) from exc
    for part in _nodes(found, set()):
        part.start_mark, part.end_mark = node.start_mark, node.end_mark
    return found


def _nodes(node: yaml.Node, seen: set[int]) -> Iterator[yaml.Node]:
    """Yield a node and all nodes below it, each only once."""
    if id(node) in seen:
        return
    seen.add(id(node))
    yield node
    for below in node.value if isinstance(node, yaml.CollectionNode) else ():
        for part in below if isinstance(below, tuple) else (below,):
            yield from _nodes(part, seen)


def _names_in(root: yaml.Node, seen: set[int]) -> Iterator[str]:
    """Yield the name of each variable used in the values of a document."""
    for node in _nodes(root, seen):
        if isinstance(node, yaml.ScalarNode):
            yield from (match["name"] for match in _USE.finditer(node.value) if match["name"])
