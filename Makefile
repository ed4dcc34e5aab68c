# Every target sets up what it needs in .venv; nothing else has to be installed first but Python 3.11 or newer.

VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# Exact versions with hashes, for all platforms and versions of Python; the first comes with the package, for images of drivers.
LOCK_RUN := src/allot/requirements.txt
LOCK_BUILD := requirements/build.txt
LOCK_DEV := requirements/dev.txt
LOCK_PLATFORMS := requirements/platforms.in
# The first interpreter that is new enough; `make PYTHON=/path/to/python setup` overrides.
PYTHON ?= $(shell for candidate in python3 python3.13 python3.12 python3.11; do \
	if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo $$candidate; break; fi; done)

# Compiled code is kept whatever the environment says: tests start servers hundreds of times, and each start would compile it
# all again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test check lint steady escapes crashes kubectls real nightly bench bench-compare fuzz docs site screenshots format wheel dist image lock clean

help:
	@echo "make demo    two pods and one simulated GPU: a guided tour on a real control plane"
	@echo "make test    all tests"
	@echo "make check   format, lint, types, import rules, fast tests"
	@echo "make lint    the same without tests"
	@echo "make steady  all tests three times, those that start processes twenty times, while the processors are busy (SUITES, REPEATS, TESTS; STATE=file goes on where it was)"
	@echo "make nightly what takes too long for every change: steady, escapes, crashes, kubectls, real, fuzz"
	@echo "make escapes try 10,000 times each to lead the node agent out of its folders by links"
	@echo "make crashes kill controllers of workloads and schedulers of gangs between any two writes, 200 seeds of each law; and agents, drivers, control planes"
	@echo "make kubectls  every test of the kubectl suite with every kubectl on every store"
	@echo "make real    contests of 100 pods each beside a real kube-scheduler, and the whole on a real node (KUBEBUILDER_ASSETS, root; ALLOT_IMAGE)"
	@echo "make bench   measure speed and memory"
	@echo "make bench-compare REF=commit  processor time per pod against another commit, in turn (PAIRS=10, OUTPUT=text|json)"
	@echo "make fuzz    send mutated requests to a server (N=60000 SEED=1 TARGET=apiserver|node, or REPLAY=file)"
	@echo "make docs    write the present output of commands into the documentation"
	@echo "make site    build the documentation site into build/site"
	@echo "make screenshots  take the documentation's pictures of the dashboard (needs Chromium)"
	@echo "make setup   only prepare the virtual environment .venv"
	@echo "make format  put the code into the project's format"
	@echo "make wheel   build the package into dist"
	@echo "make dist    wheel, source distribution, chart, bill of materials and checksums into dist, and a trial without the repository"
	@echo "make image   the container image into dist, from Debian packages and the lock file"
	@echo "make lock    pin what pyproject.toml asks for (needs uv)"
	@echo "make clean   remove .venv and everything generated"

setup: $(READY)

# $(call install,LOCKS): the virtual environment with what the lock files name, hashes checked, and the project itself.
define install
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer found; install one, or name it: make PYTHON=... setup" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "error: $(PYTHON) cannot make a virtual environment" >&2; \
		echo "hint: on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(PIP) install --require-hashes $(addprefix --requirement ,$(1))
	$(PIP) install --no-deps --no-build-isolation --editable .
endef

# What runs allot; its tests and checks need more.
$(RUNS): pyproject.toml $(LOCK_RUN) $(LOCK_BUILD)
	$(call install,$(LOCK_RUN) $(LOCK_BUILD))
	@touch $(RUNS)

$(READY): pyproject.toml $(LOCK_DEV)
	$(call install,$(LOCK_DEV))
	@touch $(RUNS) $(READY)

demo: $(RUNS)
	@PATH="$(CURDIR)/$(BIN):$$PATH" allot demo

# Tests that start processes wait for most of their time: four workers for each processor use it.
WORKERS := $(shell expr 4 \* $$(getconf _NPROCESSORS_ONLN))

# The core's answers must not depend on the order of sets, so its fast tests run under a second hash seed.
test: $(READY)
	PYTHONHASHSEED=0 $(BIN)/pytest --quiet -n $(WORKERS)
	PYTHONHASHSEED=4242 $(BIN)/pytest --quiet -n auto -m "not slow" tests/core

check: lint
	$(BIN)/pytest --quiet -n auto -m "not slow"

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python docs/site.py
	$(BIN)/zensical build --strict

SUITES ?= 3
REPEATS ?= 20
TESTS ?= tests

steady: $(READY)
	$(BIN)/python -m steady --suites $(SUITES) --repeats $(REPEATS) $(if $(STATE),--state $(STATE)) $(if $(ANYWAY),--anyway) $(TESTS)

escapes: $(READY)
	ALLOT_TRIES=10000 $(BIN)/pytest --quiet --timeout 0 tests/security/test_process_runtime.py

bench: $(READY)
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/store.py
	$(BIN)/python benchmarks/apiserver.py
	$(BIN)/python benchmarks/apiserver_command.py
	$(BIN)/python benchmarks/scheduling.py
	$(BIN)/python benchmarks/gangs.py
	$(BIN)/python benchmarks/queues.py
	$(BIN)/python benchmarks/controllers.py
	$(BIN)/python benchmarks/claims.py
	$(BIN)/python benchmarks/node.py
	$(BIN)/python benchmarks/simulated_nodes.py
	$(BIN)/python benchmarks/autoscalers.py
	$(BIN)/python benchmarks/autoscaler.py
	$(BIN)/python benchmarks/workloads.py
	$(BIN)/python benchmarks/explain.py
	$(BIN)/python benchmarks/real_cluster.py
	$(BIN)/python benchmarks/dashboard_pages.py

PAIRS ?= 10
OUTPUT ?= text

bench-compare: $(READY)
	@test -n "$(REF)" || { echo "error: name the commit to compare with: make bench-compare REF=..." >&2; exit 2; }
	@$(BIN)/python benchmarks/compare.py $(REF) --pairs $(PAIRS) -o $(OUTPUT)

N ?= 60000
SEED ?= 1
TARGET ?= apiserver

fuzz: $(READY)
	$(BIN)/python -m fuzz --requests $(N) --seed $(SEED) --target $(TARGET) $(if $(REPLAY),--replay $(REPLAY))

# Controllers and schedulers that are killed between any two writes: 200 seeds of each law.
crashes: $(READY)
	ALLOT_RUNS=200 $(BIN)/pytest --quiet --timeout 0 -n $(WORKERS) tests/controllers/test_workload_laws.py tests/controllers/test_job_law.py \
		tests/core/scheduling/groups/test_gang_laws.py tests/scheduler/test_gang_crash.py tests/core/scheduling/queues/test_queue_laws.py tests/core/autoscaling
	ALLOT_KILL_ROUNDS=40 $(BIN)/pytest --quiet --timeout 0 tests/node/test_agent_kills.py
	ALLOT_KILLS=50 $(BIN)/pytest --quiet --timeout 0 tests/e2e/test_durability.py

# Every test of a command line with every kubectl on every store.
kubectls: $(READY)
	ALLOT_ALL_KUBECTLS=1 $(BIN)/pytest --quiet -n $(WORKERS) tests/e2e

# Beside Kubernetes' own components, where KUBEBUILDER_ASSETS names their folder. The real node takes the image that `make image` wrote.
ALLOT_IMAGE ?= $(abspath $(firstword $(wildcard dist/allot-image-*.oci.tar)))
real: $(READY)
ifdef KUBEBUILDER_ASSETS
	ALLOT_CONTEST_PODS=100 ALLOT_IMAGE=$(ALLOT_IMAGE) $(BIN)/pytest --quiet --timeout 0 -rs -s \
		tests/e2e/test_guard.py tests/e2e/test_components.py tests/e2e/test_real_node.py
else
	@echo "note: KUBEBUILDER_ASSETS is not set, so nothing is tried beside Kubernetes' own components" >&2
endif

nightly: steady escapes crashes kubectls real fuzz

docs: $(READY)
	$(BIN)/python docs/console.py

site: $(READY)
	$(BIN)/python docs/site.py
	$(BIN)/zensical build --strict

screenshots: $(READY)
	PYTHONPATH=tests $(BIN)/python tests/dashboard/screenshots.py

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The only target that needs more than Python: https://docs.astral.sh/uv
# What is pinned stays unless pyproject.toml asks for more; `make lock UPGRADE=--upgrade` takes the newest of everything.
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url

lock:
	@command -v uv >/dev/null || { echo "error: make lock needs uv, which is not on the PATH" >&2; exit 1; }
	$(COMPILE) $(UPGRADE) pyproject.toml $(LOCK_PLATFORMS) --extra dev --group build --output-file $(LOCK_DEV)
	$(COMPILE) pyproject.toml $(LOCK_PLATFORMS) --constraint $(LOCK_DEV) --output-file $(LOCK_RUN)
	$(COMPILE) --group build --constraint $(LOCK_DEV) --output-file $(LOCK_BUILD)

wheel: $(RUNS)
	$(PIP) wheel --no-deps --no-build-isolation --wheel-dir dist .

dist: $(READY)
	$(BIN)/python -m release.dist dist
	$(BIN)/python -m release.smoke dist

image: $(READY)
	$(BIN)/python -m release.image dist

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
