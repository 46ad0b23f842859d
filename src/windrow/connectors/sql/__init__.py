"""Result tables in databases that are written by SQL."""
