# simserve from a fresh clone: `make run` answers a first question, `make test` runs all that CI runs.

VENV ?= .venv
BIN := $(VENV)/bin
COMPILED := .venv-compiled
WORKERS ?= auto
SUPPORTED := import sys; sys.exit(sys.version_info < (3, 11))
# The first interpreter that is new enough; python3 where there is none, so that the error names what was found.
PYTHON ?= $(or $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c '$(SUPPORTED)' 2>/dev/null && echo $$python && break; done),python3)

# What a wheel is made of.
CONTENT = $(shell find simserve calibration hardware_profiles scenarios -type f ! -path '*/__pycache__/*')
# Whether the interpreter's own C compiler is here, and its headers are.
FIND_COMPILER = echo '\#include <Python.h>' | $${CC:-$$($(BIN)/python -c \
	'import sysconfig; print(sysconfig.get_config_var("CC"))')} -fsyntax-only -x c - \
	-I"$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))')" 2>/dev/null
NO_COMPILER := no C compiler with Python.h here (Debian: apt install gcc python3-dev)
SAME_AS_PLAIN := $(addprefix tests/test_,compiled.py fidelity.py exact.py skipping.py laws.py kernels.py matrix.py)

.DEFAULT_GOAL := help
.PHONY: help run test test-compiled test-slow compiled bench bench-compiled same accuracy gallery pictures calibrate clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

run: $(VENV)/ready ## simulate the quickstart scenario, write runs/quickstart
	$(BIN)/simserve run scenarios/quickstart.yaml -o runs/quickstart --report --force

test: $(VENV)/ready-dev ## lint, types and tests: all that CI runs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n $(WORKERS)
	@$(MAKE) --no-print-directory test-compiled

test-compiled: $(VENV)/ready-dev ## that the compiled build decides what the plain source does
	@if $(FIND_COMPILER); then $(MAKE) --no-print-directory $(COMPILED)/ready && \
		PYTHONSAFEPATH=1 $(COMPILED)/bin/python -m pytest --compiled -n $(WORKERS) $(SAME_AS_PLAIN); \
	else echo "SKIPPED the tests of the compiled build: $(NO_COMPILER)"; fi

test-slow: $(VENV)/ready-dev ## the tests that take minutes
	$(BIN)/pytest -n $(WORKERS) -m slow

calibrate: $(VENV)/ready-dev ## measure a real engine on one CPU thread, write hardware_profiles/cpu
	$(BIN)/simserve calibrate --device cpu -o hardware_profiles/cpu --force
	$(BIN)/simserve run scenarios/quickstart-cpu.yaml cluster.gpu=hardware_profiles/cpu/profile.yaml

compiled: $(COMPILED)/ready ## compile the engine: .venv-compiled/bin/simserve, the same but faster

bench: $(VENV)/ready-dev ## measure speed, in requests per CPU-second
	$(BIN)/python tests/bench.py

same: $(VENV)/ready-dev ## that nothing is computed otherwise than at another revision: make same BASE=HEAD~1
	@test -n "$(BASE)" || { echo "the same as which revision? make same BASE=HEAD~1" >&2; exit 1; }
	$(BIN)/python tests/same_records.py $(BASE)

accuracy: $(VENV)/ready ## compare with measured runs: make accuracy TABLE=runs.csv
	@test -n "$(TABLE)" || { echo "which table of measured runs? make accuracy TABLE=runs.csv" >&2; exit 1; }
	@mkdir -p runs
	$(BIN)/simserve validate table $(TABLE) --left-out --json runs/accuracy.json --plot runs/accuracy

bench-compiled: $(COMPILED)/ready ## measure the speed of the compiled build
	PYTHONSAFEPATH=1 $(COMPILED)/bin/python tests/bench.py

gallery: $(VENV)/ready-dev ## measure and draw every mechanism of notebooks/gallery, write its page
	$(BIN)/python -m notebooks.gallery_page

pictures: $(VENV)/ready-dev ## draw the README's picture of launches again
	$(BIN)/python notebooks/pictures/launches.py

clean: ## remove the environment, caches and results of `make run`
	rm -rf $(VENV) $(COMPILED) runs build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
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
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,calibrate]'
	@touch $(VENV)/ready $@

# A wheel with extension modules, in an environment that borrows the dependencies of the plain one.
$(COMPILED)/ready: pyproject.toml $(CONTENT) | $(VENV)/ready-dev
	@$(FIND_COMPILER) || { echo "$(NO_COMPILER)" >&2; exit 1; }
	rm -rf $(COMPILED)
	$(BIN)/python -m venv --without-pip $(COMPILED)
	$(BIN)/python -m hatchling build -t sdist -d $(COMPILED)/dist
	HATCH_BUILD_HOOK_ENABLE_MYPYC=1 $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps \
		--no-build-isolation -w $(COMPILED)/dist $(COMPILED)/dist/*.tar.gz
	$(BIN)/python -m pip --python $(COMPILED)/bin/python install --quiet --disable-pip-version-check --no-deps \
		$(COMPILED)/dist/*.whl
	$(COMPILED)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > $(COMPILED)/here
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$$(cat $(COMPILED)/here)/borrowed.pth"
	@touch $@
