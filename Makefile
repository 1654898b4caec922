# Every target sets up what it needs, and is quick when nothing has changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev
VENV_BENCH := .venv-bench
READY_BENCH := $(VENV_BENCH)/.ready
DIST := dist

# What is compiled is kept, whatever the shell says: hundreds of processes start in a test run.
export PYTHONDONTWRITEBYTECODE :=

# uv trusts what the system trusts, as pip does: a company's network may have a CA of its own.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt),)
export UV_SYSTEM_CERTS := true
endif

.PHONY: help reference demo notebook wheel test lint format types imports compiled tests tests-lake tests-rest fuzz soak mutations load attacks network stops powercuts lakekills lakerounds lakedamage watchkills watchmemory flips constraints bench clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

demo: $(READY)  ## the whole product at work, with nothing to configure
	$(BIN)/nftsync demo

notebook: $(READY)  ## JupyterLab on your database, else on the demo's; Ctrl-C ends it
	$(BIN)/nftsync notebook

wheel: $(BIN)/uv  ## dist/nftsync-VERSION-py3-none-any.whl, to install on other machines
	rm -f $(DIST)/nftsync-*.whl
	$(BIN)/uv build --quiet --wheel --build-constraint constraints.txt --out-dir $(DIST)
	@ls $(DIST)/nftsync-*.whl

test: $(READY_DEV)  ## every check: format, lint, types, import rules, tests, notebooks
	$(MAKE) --jobs=2 lint imports compiled
	$(MAKE) --jobs=2 tests types

lint: $(READY_DEV)  ## check format and lint rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

reference: $(READY_DEV)  ## write docs/reference from the code
	$(BIN)/python docs/reference/make_reference.py

format: $(READY_DEV)  ## write all files as lint wants them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: $(READY_DEV)  ## mypy
	$(BIN)/mypy

imports: $(READY_DEV)  ## which room may import which
	$(BIN)/lint-imports

# Once, instead of by each process that runs tests.
compiled: $(READY_DEV)
	$(BIN)/pytest --collect-only --quiet > $(VENV)/collected || { cat $(VENV)/collected; exit 1; }

tests: $(READY_DEV)  ## pytest
	$(MAKE) --jobs=2 tests-lake tests-rest

LAKE := tests/nightly/test_lake_powercuts.py tests/nightly/test_lake_damage.py tests/nightly/test_chaos.py tests/lake

# With few processes, as each starts a cluster; the longest tests first.
tests-lake: $(READY_DEV)
	$(BIN)/pytest $(LAKE) -n 2 --dist worksteal

tests-rest: $(READY_DEV)
	$(BIN)/pytest -n 4 --dist worksteal $(LAKE:%=--ignore %)  # many tests wait rather than work

soak: $(READY_DEV)  ## long runs against a model of the whole, with seeds; STEPS=1000000
	$(BIN)/python -m tests.model.batches --steps $(or $(STEPS),1000000)
	$(BIN)/python -m tests.model.engine --steps $(or $(STEPS),1000000)

load: $(READY_DEV)  ## half an hour of webhooks into a serve that is killed; MINUTES=30 RATE=500
	$(BIN)/python -m benchmarks.load --minutes $(or $(MINUTES),30) --rate $(or $(RATE),500)

attacks: $(READY_DEV)  ## what share of a mirror a provider with a fault takes away
	$(BIN)/python -m benchmarks.attacks

network: $(READY_DEV)  ## long runs over a network that breaks at any byte; ROUNDS=200
	$(BIN)/python -m tests.nightly.network --rounds $(or $(ROUNDS),200)

stops: $(READY_DEV)  ## syncs whose processes are stopped and continued, at any moment; ROUNDS=20
	$(BIN)/python -m tests.nightly.stops --rounds $(or $(ROUNDS),20)

FUZZED := tests/test_fuzz.py tests/test_times.py tests/provider tests/receiver \
	tests/pull/test_list_files.py tests/settings tests/sandbox/test_worldfile.py \
	tests/cli/test_tables.py

fuzz: $(READY_DEV)  ## what parses, with many random inputs; EXAMPLES=2000 each
	EXAMPLES=$(or $(EXAMPLES),2000) $(BIN)/pytest $(FUZZED) -m hypothesis -v \
		--hypothesis-profile=fuzz --hypothesis-show-statistics \
		| grep -E --line-buffered 'PASSED|FAILED|passing,|passed|failed|^E |@reproduce'

powercuts: $(READY_DEV)  ## a serve under load and a lake sync lose power at many moments; SEEDS=20 LAKESEEDS=3
	$(BIN)/python -m tests.nightly.powercuts --seeds $(or $(SEEDS),20)
	$(BIN)/python -m tests.nightly.lake_powercuts --seeds $(or $(LAKESEEDS),3)

lakekills: $(READY_DEV)  ## workers and drivers of a lake are killed at many moments, with seeds; KILLS=20 SEEDS=1
	$(BIN)/python -m tests.nightly.chaos --kills $(or $(KILLS),20) --seeds $(or $(SEEDS),1)

lakerounds: $(READY_DEV)  ## rounds of random changes: a lake and a database have the same rows; ROUNDS=26 SEEDS=3
	$(BIN)/python -m tests.nightly.lake_rounds --rounds $(or $(ROUNDS),26) --seeds $(or $(SEEDS),3)

lakedamage: $(READY_DEV)  ## each file of a lake is damaged, and each reader meets it; FLIPS=3
	$(BIN)/python -m tests.nightly.lake_damage --flips $(or $(FLIPS),3)

watchkills: $(READY_DEV)  ## a serve that sends alerts is killed at many moments; KILLS=200
	$(BIN)/python -m tests.nightly.watch_kills --kills $(or $(KILLS),200)

watchmemory: $(READY_DEV)  ## memory of a serve that sends alerts to destinations that fail; MINUTES=180 SPEED=1
	$(BIN)/python -m tests.nightly.watch_memory --minutes $(or $(MINUTES),180) --speed $(or $(SPEED),1)

flips: $(READY_DEV)  ## bits of a database flip, and each command meets it; SEEDS=2000
	$(BIN)/python -m tests.nightly.flips --seeds $(or $(SEEDS),2000)

mutations: $(READY_DEV)  ## breaks the mirror and the inbox, and shows which tests see it
	$(BIN)/python -m tests.model.mutations

constraints: $(BIN)/uv  ## the newest versions that go together, for every check
	{ echo '# The versions that every check runs on; made anew by `make constraints`.'; \
	  $(BIN)/uv pip compile --quiet --universal --no-header --no-annotate --upgrade \
	    --python-version 3.11 --all-extras --group dev pyproject.toml; } > constraints.new
	mv constraints.new constraints.txt

bench: $(READY_DEV) $(READY_BENCH)  ## what docs/develop/performance.md shows; ONLY="frames sync" for some
	$(BIN)/python -m benchmarks $(ONLY)

clean:  ## take away all that was set up
	rm -rf $(VENV) $(VENV_BENCH) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# uv resolves and installs in seconds what takes pip a minute; it comes from pip itself.
$(BIN)/uv:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'nftsync needs Python 3.11 or later: make PYTHON=python3.12 ...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) \
		|| { echo 'no venv module: on Debian, apt install python3-venv make git' >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

# Not compiled: that takes longer than all else, and most modules are never imported.
$(READY): pyproject.toml constraints.txt | $(BIN)/uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python \
		--constraint constraints.txt --editable '.[notebook]'
	touch $@

$(READY_DEV): $(READY)
	$(BIN)/uv pip install --quiet --python $(BIN)/python \
		--constraint constraints.txt --editable '.[notebook,analysis,scale]' --group dev
	touch $@

# What nftsync is compared with, apart from its own environment. Without it the rest still runs.
$(READY_BENCH): benchmarks/peers/requirements.txt | $(BIN)/uv
	{ $(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV_BENCH) \
		&& $(BIN)/uv pip install --quiet --compile-bytecode \
			--python $(VENV_BENCH)/bin/python --requirement $< \
		&& touch $@; } || echo 'the peers cannot be installed: they are not measured' >&2
