"""Bytes to fields: the first operator of every pipeline."""

from windrow.core.decode.decoder import MARKS, Decoded, Decoder

__all__ = ["MARKS", "Decoded", "Decoder"]
