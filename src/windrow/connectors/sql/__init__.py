"""Result tables in databases that are written with SQL."""
