"""How the keys of a document are declared, read and written."""
