"""Arrow columns as the text that databases read; all vectorised."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

SECOND = 1_000_000
MILLI = 1_000


def utc_text(times: pa.Array) -> pa.Array:
    """Write timestamp[us, UTC] as ``YYYY-MM-DD HH:MM:SS``, with .fff or .ffffff only if there is a fraction.

    Text of this form sorts as the times do (up to the year 9999). Nulls stay null.
    """
    # A step has few windows: text is made once for each different time.
    encoded = times.dictionary_encode()
    distinct = encoded.dictionary
    text = distinct.cast(pa.timestamp("us")).cast(pa.string())
    micros = distinct.cast(pa.int64()).to_numpy()
    shortened = pc.case_when(
        pc.make_struct(pa.array(micros % SECOND == 0), pa.array(micros % MILLI == 0)),
        pc.utf8_slice_codeunits(text, 0, -7),
        pc.utf8_slice_codeunits(text, 0, -3),
        text,
    )
    return shortened.take(encoded.indices)


def unscaled(decimals: pa.Array) -> pa.Array:
    """Return decimal128(p, s) as the whole numbers behind it, decimal128(38, 0): 12.30 is 1230."""
    return pa.Array.from_buffers(
        pa.decimal128(38, 0), len(decimals), decimals.buffers(), decimals.null_count, decimals.offset
    )


def decimal_text(decimals: pa.Array) -> pa.Array:
    """Write decimal128(p, s) in plain notation with all s digits behind the point (Arrow's own may say 0E-10)."""
    scale = decimals.type.scale
    digits = unscaled(decimals).cast(pa.string())
    if scale == 0:
        return digits
    negative = pc.starts_with(digits, "-")
    digits = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), scale + 1, "0")
    sign = pc.if_else(negative, "-", "")
    return pc.binary_join_element_wise(
        sign, pc.utf8_slice_codeunits(digits, 0, -scale), ".", pc.utf8_slice_codeunits(digits, -scale), ""
    )


def significant_digits(decimals: pa.Array) -> pa.Array:
    """Count the digits of decimals that matter: without sign, leading and trailing zeros."""
    digits = pc.utf8_ltrim(unscaled(decimals).cast(pa.string()), "-")
    return pc.utf8_length(pc.utf8_rtrim(digits, "0"))


def with_plain_reasons(dead: pa.Table) -> pa.Table:
    r"""Spell U+0000 in the reasons of dead letters as ``\u0000``.

    A reason may quote what was read; PostgreSQL's text cannot hold U+0000, and SQLite's functions stop at it.
    """
    column = dead.schema.get_field_index("reason")
    plain = pc.replace_substring(dead["reason"], "\x00", "\\u0000")
    return dead.set_column(column, dead.schema.field(column), plain)
