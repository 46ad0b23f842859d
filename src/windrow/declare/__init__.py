"""Declaration of the keys of a document, from which they are read, printed and documented."""
