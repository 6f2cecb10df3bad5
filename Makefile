# simserve from a fresh clone: `make run` answers a first question, `make test` runs all that CI runs.

VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= auto
SUPPORTED := import sys; sys.exit(sys.version_info < (3, 11))
# The first interpreter that is new enough; python3 where there is none, so that the error names what was found.
PYTHON ?= $(or $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c '$(SUPPORTED)' 2>/dev/null && echo $$python && break; done),python3)

.DEFAULT_GOAL := help
.PHONY: help run test test-slow bench clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

run: $(VENV)/ready ## simulate the quickstart scenario, write runs/quickstart
	$(BIN)/simserve run scenarios/quickstart.yaml -o runs/quickstart --report --force

test: $(VENV)/ready-dev ## lint, types and tests: all that CI runs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n $(WORKERS)

test-slow: $(VENV)/ready-dev ## the tests that take minutes
	$(BIN)/pytest -n $(WORKERS) -m slow

bench: $(VENV)/ready-dev ## measure speed, in requests per CPU-second
	$(BIN)/python tests/bench.py

clean: ## remove the environment, caches and results of `make run`
	rm -rf $(VENV) runs build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c '$(SUPPORTED)' || { \
		echo "simserve needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Try: make PYTHON=/path/to/python3.11" >&2; \
		exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/ready: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/ready-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(VENV)/ready $@
