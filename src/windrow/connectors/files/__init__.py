"""Files in folders, read in order."""
