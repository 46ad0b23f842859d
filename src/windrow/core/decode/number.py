"""JSON numbers as text, without ever losing a digit."""

from __future__ import annotations

import re
from dataclasses import dataclass

_GRAMMAR = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?)([0-9]+))?")
_EXPONENT_DIGITS = 18


class NumberText(str):
    """The text of a JSON number, told apart from the text of a JSON string."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Number:
    """The number ``(-1)**negative * int(digits) * 10**exponent``, with no zero at either end of the digits.

    Zero itself has no digits.
    """

    negative: bool
    digits: str
    exponent: int

    @property
    def whole(self) -> bool:
        """Whether there is nothing behind the point."""
        return self.exponent >= 0

    @property
    def magnitude(self) -> int:
        """How many digits stand before the point (negative: how many zeros follow it)."""
        return len(self.digits) + self.exponent

    def unscaled(self, scale: int) -> int:
        """Return the number times ``10**scale``, which must be whole; call only for a modest magnitude."""
        if not self.digits:
            return 0
        value = int(self.digits + "0" * (self.exponent + scale))
        return -value if self.negative else value


def parse_number(text: str) -> Number | None:
    """Read a number in JSON's grammar; None if it is not one."""
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        return None
    sign, before, behind, exponent_sign, exponent_digits = match.groups(default="")
    significand = before + behind
    digits = significand.strip("0")
    if not digits:
        return Number(negative=False, digits="", exponent=0)
    trailing = len(significand) - len(significand.rstrip("0"))
    exponent = _exponent(exponent_sign, exponent_digits) - len(behind) + trailing
    return Number(negative=sign == "-", digits=digits, exponent=exponent)


def _exponent(sign: str, digits: str) -> int:
    """Read an exponent; one of more digits than any record has characters is as good as the greatest that is read."""
    shortest = digits.lstrip("0") or "0"
    value = int(shortest) if len(shortest) <= _EXPONENT_DIGITS else 10**_EXPONENT_DIGITS
    return -value if sign == "-" else value
