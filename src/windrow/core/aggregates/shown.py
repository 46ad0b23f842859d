"""Values as JSON, as the late output's records show them: decimals as text with all their digits, times in ISO 8601."""

from __future__ import annotations

from windrow.core.aggregates.fold import Input


def json_array(values: str, of: Input) -> str:
    """Return the SQL of a list's JSON array; null if it is empty."""
    return (
        f"CASE WHEN len({values}) > 0 THEN to_json(list_transform({values}, lambda v: {shown('v', of)}))::VARCHAR END"
    )


def shown(value: str, of: Input) -> str:
    """Return the SQL of what `to_json` is to make of a value."""
    if of.scale is not None:
        return _decimal(value, of.scale)
    if of.type == "TIMESTAMPTZ":
        return f"strftime({value} AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S.%fZ')"
    return value


def _decimal(value: str, scale: int) -> str:
    """Return the SQL of a decimal's text, of its unscaled whole number."""
    if scale == 0:
        return f"{value}::VARCHAR"
    digits = f"abs({value})::VARCHAR"
    padded = f"lpad({digits}, greatest(length({digits}), {scale + 1})::INTEGER, '0')"
    return f"CASE WHEN {value} < 0 THEN '-' ELSE '' END || left({padded}, -{scale}) || '.' || right({padded}, {scale})"
