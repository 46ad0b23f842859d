"""No message or print-out has the value of a variable, however it is written there."""

from __future__ import annotations

import html
import json
import re
import shlex
import textwrap
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from windrow.errors import PipelineError, SourceError, described
from windrow.hidden_values import HIDDEN_VALUES, encoded_pattern, strip_quotes
from windrow.model.references import redact

FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "Python": repr,
    "bytes of Python": lambda text: repr(text.encode(errors="surrogatepass")),
    "JSON": json.dumps,
    "JSON in UTF-8": lambda text: json.dumps(text, ensure_ascii=False),
    "YAML": lambda text: yaml.safe_dump(text, allow_unicode=True, width=float("inf")),
    "YAML in double quotes": lambda text: yaml.safe_dump(text, default_style='"', width=float("inf")),
    "a URL": lambda text: quote(text, safe="", errors="surrogatepass"),
    "a form": lambda text: quote_plus(text, errors="surrogatepass"),
    "a part of a URL in lower case": lambda text: quote(text, safe="/", errors="surrogatepass").lower(),
    "SQL": lambda text: "'" + text.replace("'", "''") + "'",
    "a name of SQL": lambda text: '"' + text.replace('"', '""') + '"',
    "a shell": shlex.quote,
    "HTML": html.escape,
    "a format": lambda text: text.replace("{", "{{").replace("}", "}}").replace("$", "$$"),
    "a JAAS option": lambda text: text.replace("\\", "\\\\").replace('"', '\\"'),
    "one line": lambda text: " ".join(text.split()),
    "lines of ten letters": lambda text: "\n    ".join(textwrap.wrap(text, 10, break_long_words=False)),
}
CANARY = "sw0rdfish"
VALUES = (
    f"{CANARY}a b\n{CANARY}c",
    f"'{CANARY}' \"{CANARY}\"\t${{{CANARY}}} %s{CANARY}\\n{CANARY}&<é😀\x85{CANARY}>",
    f"-----BEGIN {CANARY}\r\n{CANARY}/+=\r\n",
    f"''''{CANARY}''{CANARY}\\\\",
)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("form", FORMS)
def test_a_value_is_hidden_however_it_is_written(form: str, value: str) -> None:
    HIDDEN_VALUES.add(value, "${V}")
    for other in (str, repr, json.dumps, html.escape, quote, shlex.quote):
        said = f"before {other(FORMS[form](value))} after"
        assert CANARY not in HIDDEN_VALUES.hide(said), said
        assert "${V}" in HIDDEN_VALUES.hide(said)
        assert re.match("before .*after", HIDDEN_VALUES.hide(said), re.DOTALL) or other is not str
        assert CANARY not in redact(said, [value])


@example("0\x001", "YAML")
@given(st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=12), st.sampled_from(sorted(FORMS)))
def test_any_text_is_found_in_all_forms(value: str, form: str) -> None:
    word = strip_quotes(value)
    if word and (form != "bytes of Python" or word.isascii()):
        assert re.search(encoded_pattern(word), FORMS[form](word), re.IGNORECASE), FORMS[form](word)


def test_what_is_not_the_value_stays() -> None:
    HIDDEN_VALUES.add("road\n9", "${V}")
    HIDDEN_VALUES.add("boat", "${W}")
    assert HIDDEN_VALUES.hide("road 8, 9 roads, boats, road9, boat") == "road 8, 9 roads, boats, road9, ${W}"
    assert HIDDEN_VALUES.hide("the\\nboat %0aboat") == "the\\n${W} %0a${W}"


def test_a_message_has_no_part_of_the_value_in_it() -> None:
    HIDDEN_VALUES.add("price of things", "${V}", ["price", "of", "things"])
    other = 'near "things": price is not a field of many'
    assert str(SourceError(other)) == other, "it is about something else"
    error = PipelineError(f"'price of things': {other}")
    assert error.message == "'${V}': near \"${V}\": ${V} is not a field of many"
    assert repr(error) == f"PipelineError({str(error)!r})"
    assert described(ValueError("price of\nthings")) == "ValueError: ${V}"


def test_a_value_of_many_letters_is_found_at_once() -> None:
    HIDDEN_VALUES.add("'\\ \n" * 200, "${V}")
    HIDDEN_VALUES.add("ab'\\ \n" * 200, "${W}")
    assert HIDDEN_VALUES.hide("ab'\\ \n" * 199 + "x").endswith("x")
