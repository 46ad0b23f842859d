"""Declare the keys of a document once; the code to read, print and document them is derived from the declaration."""
