# Two commands for a stranger: `make demo` and `make test`. Both make their own virtual environment first.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Some Debians have pip but not ensurepip: then the system's pip installs into the environment from outside.
PIP = $$($(BIN)/python -c 'import pip' 2>/dev/null && echo $(BIN)/python -m pip || echo $(PYTHON) -m pip --python $(BIN)/python) \
	install --quiet --disable-pip-version-check --constraint requirements.lock

.PHONY: demo test chaos lint fmt bench manifests lock clean

demo: $(VENV)/.demo
	@$(BIN)/python -m examples.demo

# One process more than there are cores, as many tests wait for processes of their own; the longest files come first.
WORKERS ?= $$($(BIN)/python -c 'import os; print(min(len(os.sched_getaffinity(0)) + 1, 4))')
test: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Real processes under seeded faults: `make chaos SEED=7 SECONDS=300`.
SEED ?= 1
SECONDS ?= 120
chaos: $(VENV)/.dev
	$(BIN)/python -m tests.chaos --seed $(SEED) --seconds $(SECONDS)

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

manifests: $(VENV)/.dev
	$(BIN)/python -m crds.generate
	$(BIN)/python -m coordinator.rbac

# The newest versions that pyproject.toml allows, tried in an environment of their own.
lock:
	rm -rf $(VENV)-lock && $(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet --disable-pip-version-check '.[dev,demo]'
	(head -n 1 requirements.lock; $(VENV)-lock/bin/python -m pip freeze --all --exclude torchq --exclude pip --exclude wheel | sed 's/+cpu//') > requirements.lock.new
	mv requirements.lock.new requirements.lock
	rm -rf $(VENV)-lock

clean:
	rm -rf $(VENV) build dist *.egg-info

$(VENV)/.base:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "torchq needs Python 3.11 or newer; try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 2; }
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || $(PYTHON) -m venv --without-pip --clear $(VENV)
	@touch $@

$(VENV)/.dev: $(VENV)/.base pyproject.toml requirements.lock
	@echo "installing torchq and its tools into $(VENV)"
	@$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/.demo: $(VENV)/.base pyproject.toml requirements.lock
	@echo "installing torchq and PyTorch into $(VENV) (once)"
	@$(PIP) --editable '.[demo]' || \
		{ echo "demo: PyTorch (torch==2.13.0) is missing and could not be installed"; exit 2; }
	@touch $@
