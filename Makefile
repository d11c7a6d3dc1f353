# Two commands for a stranger: `make demo` and `make test`. Both make their own virtual environment first.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Some Debians have pip but not ensurepip: then the system's pip installs into the environment from outside.
PIP = $$($(BIN)/python -c 'import pip' 2>/dev/null && echo $(BIN)/python -m pip || echo $(PYTHON) -m pip --python $(BIN)/python) \
	install --quiet --disable-pip-version-check
# First the packages of the lock files, by their hashes; then torchq, which has none, with nothing beside it.
LOCKED = $(PIP) --require-hashes --requirement requirements.lock --requirement

.PHONY: demo test test-rest test-all chaos monitoring lint fmt bench chart manifests image lock clean

demo: $(VENV)/.demo
	@$(BIN)/python -m examples.demo

# One process more than there are cores, as many tests wait for processes of their own; the longest files come first.
WORKERS ?= $$($(BIN)/python -c 'import os; print(min(len(os.sched_getaffinity(0)) + 1, 4))')
PYTEST = $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=50
# CONTRIBUTING.md says what the tiers are. Of the tests on whole clusters, `make test` runs one for each use.
QUICK = unit or servers or smoke
test: $(VENV)/.dev
	$(PYTEST) -m "$(QUICK)"

# What `make test` leaves out. Only files that may have such a test are read: reading all takes each process a quarter of
# a minute.
REST = $(addprefix tests/,acceptance chaos differential faults fuzz) \
	$$(grep -rlE "mark\.(stack|proof)" tests --include="test_*.py")
test-rest: $(VENV)/.dev
	$(PYTEST) -m "not ($(QUICK))" $(REST)

test-all: $(VENV)/.dev
	$(PYTEST)

# Real processes under seeded faults, on one Redis server and on a Sentinel installation: `make chaos SEED=7 SECONDS=300`.
SEED ?= 1
SECONDS ?= 120
chaos: $(VENV)/.dev
	$(BIN)/python -m tests.chaos --seed $(SEED) --seconds $(SECONDS)
	$(BIN)/python -m tests.chaos --seed $(SEED) --seconds $(SECONDS) --sentinels

# The board and every alert on a real Prometheus, which scrapes a whole stack: `make monitoring ONLY=TorchqNoLeader`.
ONLY ?=
monitoring: $(VENV)/.dev
	@$(BIN)/python -m tests.monitoring --only "$(ONLY)"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

fmt: $(VENV)/.dev
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(VENV)/.dev
	$(BIN)/python -m bench

# Lints the chart, renders it over a matrix of values and checks every object; ends with a table and its exit code.
chart: $(VENV)/.dev
	$(BIN)/python -m deploy.check

manifests: $(VENV)/.dev
	$(BIN)/python -m crds.generate
	$(BIN)/python -m deploy.client
	$(BIN)/python -m coordinator.rbac.account_manifests
	$(BIN)/python -m coordinator.metrics.document
	$(BIN)/python -m deploy.monitoring.board
	$(BIN)/python -m deploy.generate

# The image of deploy/image/Dockerfile, built and run: `make image BASE=python:3.11-slim@sha256:DIGEST IMAGE=NAME:TAG`.
image: export IMAGE := $(IMAGE)
image: export BASE := $(BASE)
image: export BUILDER := $(BUILDER)
image: $(VENV)/.dev
	@$(BIN)/python -m deploy.image.build

# The newest versions that pyproject.toml allows, with their hashes; `make lock LOCK=--keep` keeps the versions.
LOCK ?=
lock:
	rm -rf $(VENV)-lock && $(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python .ci/lock.py $(LOCK)
	rm -rf $(VENV)-lock

clean:
	rm -rf $(VENV) build dist *.egg-info

$(VENV)/.base:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "torchq needs Python 3.11 or newer; try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 2; }
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || $(PYTHON) -m venv --without-pip --clear $(VENV)
	@touch $@

$(VENV)/.dev: $(VENV)/.base pyproject.toml requirements.lock requirements-dev.lock
	@echo "installing torchq and its tools into $(VENV)"
	@$(LOCKED) requirements-dev.lock
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

# PyTorch's builds differ from machine to machine: pyproject.toml has its version, and no hash is asked of it.
$(VENV)/.demo: $(VENV)/.base pyproject.toml requirements.lock requirements-demo.lock
	@echo "installing torchq and PyTorch into $(VENV) (once)"
	@$(LOCKED) requirements-demo.lock
	@$(PIP) --no-build-isolation --editable '.[demo]' || \
		{ echo "demo: PyTorch (torch==2.13.0) is missing and could not be installed"; exit 2; }
	@touch $@
