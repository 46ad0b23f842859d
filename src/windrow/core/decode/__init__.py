"""Bytes to fields: the first operator of every pipeline."""

from windrow.core.decode.decoder import MARKS, DecodedBatch, Decoder

__all__ = ["MARKS", "DecodedBatch", "Decoder"]
