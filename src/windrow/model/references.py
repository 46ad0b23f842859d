"""Secrets in settings: references to secrets, and the masking of secrets in printed text.

A reference is ``${NAME}`` (an environment variable) or ``${file:PATH}`` (a file).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

from windrow.errors import InputError
from windrow.hidden_values import encoded_pattern, strip_quotes

VARIABLE = r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}"
"""A regular expression of ``${NAME}`` and ``${NAME:-default}``."""
_GIVEN = r"\$\{(?P<given>[A-Za-z_][A-Za-z0-9_]*):=(?P<value>[^}]*)\}"
_SECRET_REFERENCE = re.compile(rf"\$\{{file:(?P<path>[^}}]+)\}}|{VARIABLE}|{_GIVEN}")
_IN_ARGUMENT = re.compile(rf"(?P<escape>\$\$\{{)|{_SECRET_REFERENCE.pattern}")

MASK = "***"
_SECRET_OPTION = re.compile(
    r"passw|user\.info|secret|jaas|token|credential|private|passphrase|keystore\.key|pem$", re.IGNORECASE
)


def given_reference(name: str, value: str) -> str:
    """Return a reference that contains its own value; it is printed as ``${NAME}``."""
    return f"${{{name}:={quote(value, safe='')}}}"


def is_reference(text: str) -> bool:
    """Return True if a text is a single reference and nothing else."""
    return _SECRET_REFERENCE.fullmatch(text) is not None


class _MarkedText:
    """A text with a mark in place of each reference; marks have no characters with a meaning in URLs."""

    def __init__(self, text: str, pattern: re.Pattern[str] = _SECRET_REFERENCE) -> None:
        self._found = list(pattern.finditer(text))
        numbers = iter(range(len(self._found)))
        self.text = pattern.sub(lambda _: f"\0{next(numbers)}\0", text)

    def hide(self, secret: str) -> str:
        """Return *** for a secret; an empty text, or the mark of a reference without a default, is returned unchanged.

        A reference with a default is masked, because the default may be a secret.
        """
        mark = _MARK.fullmatch(secret)
        return secret if not secret or (mark is not None and _is_public(self._found[int(mark[1])][0])) else MASK

    def restore(self, masked: str) -> str:
        """Return a masked text with its references restored, except for secrets in their defaults or values."""
        return _MARK.sub(lambda mark: _mask_default(self._found[int(mark[1])]), masked)


_MARK = re.compile("\0([0-9]+)\0")
_HOST = r"(?:\[[^\]@]*\]|[^:/?#@\[\]]*)(?::(?:[0-9]+|\0[0-9]+\0))?"
_PLAIN = re.compile(rf"\s*https?://(?:[^\s:/?#@,]*(?::[^\s:/?#@,]*)?@)?{_HOST}(?:/[^\s:?#@,]*)?")
_HOSTS = re.compile(rf"{_HOST}(?:,{_HOST})*")
_USER = re.compile(r"(?:[^:/?#@%]|%(?!3a))*", re.IGNORECASE)
_PARAMETERS = (
    "host|hostaddr|port|dbname|user|password|passfile|require_auth|channel_binding|connect_timeout|client_encoding|"
    "options|application_name|fallback_application_name|keepalives|keepalives_idle|keepalives_interval|"
    "keepalives_count|tcp_user_timeout|replication|gssencmode|sslmode|requiressl|sslnegotiation|sslcompression|sslcert|"
    "sslkey|sslpassword|sslcertmode|sslrootcert|sslcrl|sslcrldir|sslsni|requirepeer|ssl_min_protocol_version|"
    "ssl_max_protocol_version|krbsrvname|gsslib|gssdelegation|service|target_session_attrs|load_balance_hosts"
)
_PARAMETER = rf"(?:{_PARAMETERS})=[^&]*"
_NAMED = re.compile(rf"[?&](?:{_PARAMETERS})=", re.IGNORECASE)
_QUERY = re.compile(rf"\?{_PARAMETER}(?:&{_PARAMETER})*", re.IGNORECASE)
_PASSWORD = re.compile(r"([?&](?:ssl)?password=)([^&]*)", re.IGNORECASE)
_WORDS = re.compile(r"(\b(?:ssl)?password\s*=\s*)(.+)", re.IGNORECASE | re.DOTALL)


def mask_url(url: str) -> str:
    """Return a URL, or several separated by commas, with *** for passwords in the address or the parameters.

    If a URL is ambiguous, for example because an ``@`` or a slash in the password is not percent-encoded, everything
    that may belong to the password is masked. Parameters that libpq does not know are masked. References (``${NAME}``)
    are kept, but passwords in their defaults are masked.
    """
    marked = _MarkedText(url)
    several = re.split(r",(?=\s*https?://)", marked.text)
    if len(several) > 1 and not all(map(_PLAIN.fullmatch, several)):
        return MASK
    return marked.restore(",".join(_mask_one_url(part, marked) for part in several))


def _mask_one_url(url: str, marked: _MarkedText) -> str:
    scheme, mark, rest = url.partition("://")
    if not mark:
        return _WORDS.sub(lambda match: match[1] + marked.hide(match[2]), url)
    # the first after the address: a password may have a question mark too
    marks = (at for at, letter in enumerate(rest) if letter == "?" and "?" not in rest[rest.rfind("@", 0, at) + 1 : at])
    found = next((at for at in marks if _QUERY.fullmatch(rest, at)), None)
    if found is None:
        if "@" in rest and _NAMED.search(rest):
            return f"{scheme}://{MASK}"
        found = rest.find("?", rest.rfind("@") + 1)
        found, query = (found, f"?{MASK}") if found >= 0 else (len(rest), "")
    else:
        query = _PASSWORD.sub(lambda match: match[1] + marked.hide(match[2]), rest[found:])
        if ("@" in rest[found:] and ":" in rest[:found]) or _NAMED.search(rest[:found]):
            return f"{scheme}://{MASK}"
    login, at, address = rest[:found].rpartition("@")
    if not at:
        hosts, slash, path = address.partition("/")
        return f"{scheme}://{hosts if _HOSTS.fullmatch(hosts) else MASK}{slash}{path}{query}"
    user, colon, password = login.partition(":")
    shown = user if _USER.fullmatch(user) else MASK
    return f"{scheme}://{shown}{colon}{marked.hide(password)}@{address}{query}"


def _mask_default(reference: re.Match[str]) -> str:
    """Return a reference with *** for a password in its default, and without the value that it may contain."""
    if reference["given"] is not None:
        return f"${{{reference['given']}}}"
    if reference["default"] is None:
        return reference[0]
    return f"${{{reference['name']}:-{mask_url(reference['default'])}}}"


def _is_public(text: str) -> bool:
    """Return True if a text is a single reference that contains no default and no value, which may be secret."""
    match = _SECRET_REFERENCE.fullmatch(text)
    return match is not None and match["default"] is None and match["given"] is None


_LOGIN_AND_HOST = re.compile(rf"(?:[^/?#@]*@)?(?P<host>{_HOST})(?P<rest>[/?#][^@]*)?", re.DOTALL)


def mask_webhook(url: str) -> str:
    """Return the URL of a webhook with *** for all but the host, because many services have the secret in the path."""
    if _is_public(url):
        return url
    if is_reference(url):
        return MASK
    marked = _MarkedText(url)
    scheme, mark, rest = marked.text.partition("://")
    if not mark:
        return MASK
    match = _LOGIN_AND_HOST.fullmatch(rest)
    if match is None:  # an @ or a colon that is not percent-encoded: host and secret cannot be separated
        return f"{scheme}://{MASK}"
    more = match["rest"] or ""
    return marked.restore(f"{scheme}://{match['host']}" + (more if more in {"", "/"} else f"/{MASK}"))


def mask_option(name: str, value: str) -> str:
    """Return the value of a client's option with secrets masked.

    The whole value is masked if the option's name suggests a secret; in a URL, only a password is masked.
    """
    if _SECRET_OPTION.search(name):
        return value if _is_public(value) else MASK
    return mask_url(value) if "://" in value else value


_URL_WORD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"]+")


def mask_urls(text: str) -> str:
    """Return a text from another library with *** for the passwords in its URLs."""
    return _URL_WORD.sub(lambda match: mask_url(match[0]), text)


_ASSIGNED = re.compile(
    rf"((?:^|[\s'\"{{,&?-])[\w.-]*(?:{_SECRET_OPTION.pattern.removesuffix('|pem$')}|authorization|api-?key)[\w.-]*"
    r"['\"]?\s*[:=]\s*)((?:(?:Bearer|Basic|Token)\s+)?)(.+)",
    re.IGNORECASE | re.DOTALL,
)


def mask_arguments(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command's arguments with *** for secrets in URLs, headers, settings and the defaults of references."""
    return tuple(map(_mask_argument, arguments))


def _mask_argument(argument: str) -> str:
    marked = _MarkedText(argument)
    masked = _URL_WORD.sub(lambda match: mask_webhook(match[0]), marked.text)
    masked = _ASSIGNED.sub(lambda match: match[1] + match[2] + marked.hide(match[3]), masked)
    return _DEFAULT.sub(lambda match: f"{match[1]}{MASK}}}", marked.restore(masked))


_DEFAULT = re.compile(r"(\$\{[A-Za-z_][A-Za-z0-9_]*:-)([^}]+)\}")


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return a text from another program or library with *** for each secret and each line of a secret.

    Secrets are also found in encoded form.
    """
    words = {strip_quotes(word) for secret in secrets for word in (secret, *secret.splitlines())}
    longest_first = sorted((word for word in words if len(word) >= _SHORTEST_SECRET), key=len, reverse=True)
    if not longest_first:
        return text
    return re.sub("|".join(map(encoded_pattern, longest_first)), MASK, text, flags=re.IGNORECASE)


_SHORTEST_SECRET = 4
"""Length of the shortest secret that is redacted: a shorter one is part of other words too."""


def references_in(text: str) -> list[str]:
    """Return the references in a text, as written."""
    return [match[0] for match in _SECRET_REFERENCE.finditer(text)]


def fill_placeholders(text: str) -> str:
    """Replace each reference in a text by its default, or a digit (which is a valid port), to check the text's form."""
    return _SECRET_REFERENCE.sub(lambda match: match["default"] or "1", text)


def resolve_references(text: str, called: str, encode: Callable[[str], str]) -> str:
    """Return a text with its references resolved; `encode` is applied to a value that is part of a longer text.

    If a reference cannot be resolved, raise an InputError that names the setting `called`, and never a value.
    """
    if is_reference(text):
        return _SECRET_REFERENCE.sub(lambda match: _referenced_value(match, called), text)
    return _SECRET_REFERENCE.sub(lambda match: encode(_referenced_value(match, called)), text)


def resolve_arguments(arguments: tuple[str, ...], called: str) -> tuple[str, ...]:
    """Return a command's arguments with references resolved, and ``${`` in place of ``$${``; raise InputError."""

    def value(match: re.Match[str]) -> str:
        return "${" if match["escape"] else _referenced_value(match, called)

    return tuple(_IN_ARGUMENT.sub(value, argument) for argument in arguments)


def referenced_values(texts: Iterable[str]) -> set[str]:
    """Return the values of all references in some texts; skip references that cannot be resolved."""
    found = set()
    for text in texts:
        for match in _SECRET_REFERENCE.finditer(text):
            with suppress(InputError):
                found.add(_referenced_value(match, ""))
    return found


def _referenced_value(match: re.Match[str], called: str) -> str:
    path, name, default = match["path"], match["name"], match["default"]
    if match["given"] is not None:
        return unquote(match["value"])
    if path is None:
        if default is not None and not os.environ.get(name):
            return str(default)
        if name not in os.environ:
            msg = f"{called}: the environment variable {name} is not set; set it before you start windrow"
            raise InputError(msg)
        return os.environ[name]
    try:
        return Path(path).read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
        msg = f"{called}: cannot read the file {path}: {why}"
        raise InputError(msg) from exc


def escape_jaas(text: str) -> str:
    """Escape a text for use within the quotes of a JAAS option."""
    return text.replace("\\", "\\\\").replace('"', '\\"')
