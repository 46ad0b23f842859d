"""Files in folders, read in the order of their names."""
