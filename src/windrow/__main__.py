"""Run the `windrow` command with ``python -m windrow``, or as the Python file that spark-submit executes."""

from windrow.cli import main

if __name__ == "__main__":
    main(prog_name="windrow")
