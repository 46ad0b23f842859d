"""The `windrow` command as ``python -m windrow``, and as the Python file that spark-submit runs."""

from windrow.cli import main

if __name__ == "__main__":
    main(prog_name="windrow")
