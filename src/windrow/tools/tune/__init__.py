"""Choice of delay and lateness from the disorder of records."""
