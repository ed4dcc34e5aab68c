# Every target sets up what it needs in .venv; nothing else has to be installed first but Python 3.11 or newer.

VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready
# The first interpreter that is new enough; `make PYTHON=/path/to/python setup` overrides.
PYTHON ?= $(shell for candidate in python3 python3.13 python3.12 python3.11; do \
	if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo $$candidate; break; fi; done)

# Compiled code is kept whatever the environment says: tests start servers hundreds of times, and each start would compile it
# all again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test check lint bench docs site format clean

help:
	@echo "make demo    two pods and one simulated GPU: a guided tour on a real control plane"
	@echo "make test    all tests"
	@echo "make check   format, lint, types, import rules, fast tests"
	@echo "make lint    the same without tests"
	@echo "make bench   measure speed and memory"
	@echo "make docs    write the present output of commands into the documentation"
	@echo "make site    build the documentation site into build/site"
	@echo "make setup   only prepare the virtual environment .venv"
	@echo "make format  put the code into the project's format"
	@echo "make clean   remove .venv and everything generated"

setup: $(READY)

# $(call install,EXTRAS): the virtual environment with the project and what the extras name.
define install
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer found; install one, or name it: make PYTHON=... setup" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "error: $(PYTHON) cannot make a virtual environment" >&2; \
		echo "hint: on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.$(1)'
endef

# What runs allot; its tests and checks need more.
$(RUNS): pyproject.toml constraints.txt
	$(call install)
	@touch $(RUNS)

$(READY): pyproject.toml constraints.txt
	$(call install,[dev])
	@touch $(RUNS) $(READY)

demo: $(RUNS)
	@PATH="$(CURDIR)/$(BIN):$$PATH" allot demo

# Tests that start processes wait a good deal of their time: one more worker than processors uses it.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

# The core's answers must not depend on the order of sets, so its fast tests run under a second hash seed.
test: $(READY)
	PYTHONHASHSEED=0 $(BIN)/pytest --quiet -n $(WORKERS) --dist worksteal
	PYTHONHASHSEED=4242 $(BIN)/pytest --quiet -n auto -m "not slow" tests/core

check: lint
	$(BIN)/pytest --quiet -n auto -m "not slow"

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/mkdocs build --strict --quiet

bench: $(READY)
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/store.py
	$(BIN)/python benchmarks/apiserver.py
	$(BIN)/python benchmarks/apiserver_command.py
	$(BIN)/python benchmarks/scheduling.py
	$(BIN)/python benchmarks/controllers.py
	$(BIN)/python benchmarks/claims.py
	$(BIN)/python benchmarks/node.py
	$(BIN)/python benchmarks/simulated_nodes.py
	$(BIN)/python benchmarks/explain.py

docs: $(READY)
	$(BIN)/python docs/console.py

site: $(READY)
	$(BIN)/mkdocs build --strict

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
