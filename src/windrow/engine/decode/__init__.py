"""Decoding: raw records to Arrow columns, with derived fields, and to dead letters."""

from windrow.engine.decode.decoder import MARKS, DecodedBatch, Decoder, KeyedDecoder

__all__ = ["MARKS", "DecodedBatch", "Decoder", "KeyedDecoder"]
