# `make demo` and `make test` set up what they need; `make` alone lists the other targets.

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-merge test-quick test-long slowest lint bench docs site lock clean

PYTEST := .venv/bin/python -m pytest

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

setup: ## Create .venv with everything needed, including .venv/bin/windrow; quick if it exists
	@PYTHON='$(PYTHON)' scripts/setup

demo: setup ## Run a day of events from a log to SQLite, and replay it
	@.venv/bin/windrow demo

test: setup ## Check style and types, and run the tests (ARGS='-k name' goes to pytest; ROOM=engine: of a package)
	@scripts/test $(ARGS)

test-merge: setup ## Run the tests that CI runs on every merge, beside those of `make test`
	@STAGE=merge scripts/test $(ARGS)

test-quick: setup ## Run the tests of less than 0.1 s that need neither Spark nor a server, on two cores
	@$(PYTEST) -m 'not long and not merge and not service and not slow' -n 2 --dist worksteal --hypothesis-profile=quick \
		--ignore=tests/docs --ignore=tests/bench --deselect tests/net/test_net.py::test_story $(ARGS)

test-long: setup ## Run the tests that take minutes in parts, and search properties at random (PART=7: one part)
	@scripts/long $(PART) $(ARGS)

slowest: setup ## Print the thirty tests that took longest (`make test DURATIONS=1` records tests/durations.json again)
	@.venv/bin/slowest-tests --durations-path tests/durations.json --count 30

lint: setup ## Check style and types
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy

bench: setup ## Run the benchmarks (ARGS go to bench/run.py)
	@.venv/bin/python bench/run.py $(ARGS)

docs: setup ## Regenerate the documentation made from code: the commands, the pictures
	@.venv/bin/python scripts/docs.py && .venv/bin/python scripts/picture.py && .venv/bin/python scripts/rooms.py

site: setup ## Build the documentation as a site in build/site; warnings, such as links to nothing, are errors
	@.venv/bin/python -m sphinx -q -W --keep-going -E -c docs -d build/doctrees . build/site
	@echo "build/site/index.html"

lock: ## Regenerate the lock files (ARGS=--upgrade takes the newest versions in range)
	@scripts/lock $(ARGS)

clean: ## Remove all generated files, including the environment
	rm -rf .venv .venv.old bench/peers/*/.venv bench/peers/*/jars build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse
