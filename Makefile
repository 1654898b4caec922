# Every target sets up what it needs, and is quick when nothing has changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev
VENV_BENCH := .venv-bench
READY_BENCH := $(VENV_BENCH)/.ready

# What is compiled is kept, whatever the shell says: hundreds of processes start in a test run.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test lint format types imports compiled tests constraints bench clean

demo: $(READY)
	$(BIN)/nftsync demo

test: $(READY_DEV)
	$(MAKE) --jobs=2 lint imports compiled
	$(MAKE) --jobs=2 tests types

lint: $(READY_DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m benchmarks.counts

format: $(READY_DEV)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: $(READY_DEV)
	$(BIN)/mypy

imports: $(READY_DEV)
	$(BIN)/lint-imports

# Once, instead of by each process that runs tests.
compiled: $(READY_DEV)
	$(BIN)/pytest --collect-only --quiet > $(VENV)/collected || { cat $(VENV)/collected; exit 1; }

tests: $(READY_DEV)
	$(BIN)/pytest -n 6 --dist worksteal  # many tests wait rather than work

constraints: $(BIN)/uv
	{ echo '# The versions that every check runs on; made anew by `make constraints`.'; \
	  $(BIN)/uv pip compile --quiet --universal --no-header --no-annotate --upgrade \
	    --python-version 3.11 --all-extras --group dev pyproject.toml; } > constraints.new
	mv constraints.new constraints.txt

# `make bench ONLY=frames`, or several names, runs just these.
bench: $(READY_DEV) $(READY_BENCH)
	$(BIN)/python -m benchmarks $(ONLY)

clean:
	rm -rf $(VENV) $(VENV_BENCH) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# uv resolves and installs in seconds what takes pip a minute; it comes from pip itself.
$(BIN)/uv:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'nftsync needs Python 3.11 or later: make PYTHON=python3.12 ...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) \
		|| { echo 'no venv module: on Debian, apt install python3-venv' >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

$(READY): pyproject.toml constraints.txt | $(BIN)/uv
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python \
		--constraint constraints.txt --editable .
	touch $@

$(READY_DEV): $(READY)
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python \
		--constraint constraints.txt --editable '.[notebook]' --group dev
	touch $@

# What nftsync is compared with, apart from its own environment. Without it the rest still runs.
$(READY_BENCH): benchmarks/peers/requirements.txt | $(BIN)/uv
	{ $(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV_BENCH) \
		&& $(BIN)/uv pip install --quiet --compile-bytecode \
			--python $(VENV_BENCH)/bin/python --requirement $< \
		&& touch $@; } || echo 'the peers cannot be installed: they are not measured' >&2
