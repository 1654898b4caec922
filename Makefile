# Every target installs its dependencies into .venv first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev
READY_DOCS := $(VENV)/.ready-docs
VENV_BENCH := .venv-bench
READY_BENCH := $(VENV_BENCH)/.ready
DIST := dist

# Keep compiled files, also against the shell: a test run starts hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

# uv uses the system's certificates, as pip does: a company's network may have its own CA.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt),)
export UV_SYSTEM_CERTS := true
endif

.PHONY: help reference demo notebook wheel docs test quick lint format types imports compiled tests tests-lake tests-rest fuzz soak mutations load attacks network stops powercuts lakekills lakerounds lakedamage watchkills flips nightly fresh constraints bench clean

## Try it, use it, develop it:

help:  ## list these targets
	@sed -n -e 's/^## //p' -e 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

demo: $(READY)  ## run the whole product, without configuration
	$(BIN)/nftsync demo

notebook: $(READY)  ## open JupyterLab on your database, or on the demo's; press Ctrl-C to stop
	$(BIN)/nftsync notebook

wheel: $(BIN)/uv  ## build dist/nftsync-VERSION-py3-none-any.whl
	rm -f $(DIST)/nftsync-*.whl
	$(BIN)/uv build --quiet --wheel --build-constraint constraints.txt --out-dir $(DIST)
	@ls $(DIST)/nftsync-*.whl

SITE := build/site

docs: $(READY_DOCS)  ## build build/site/index.html from the docs: a site with search, also offline
	$(BIN)/sphinx-build --quiet --fresh-env --fail-on-warning --jobs 2 \
		--conf-dir docs/site --doctree-dir build/doctrees . $(SITE)
	@echo $(SITE)/index.html

test: $(READY_DEV)  ## run every check: format, lint, types, import rules, tests, notebooks
	$(MAKE) --jobs=2 lint imports compiled
	$(MAKE) --jobs=2 tests types

QUICK := tests/test_exact_sum.py tests/test_movements.py tests/test_times.py \
	tests/provider/test_waits.py tests/provider/test_wire.py tests/pull/test_list_files.py \
	tests/pull/test_removal_guard.py tests/pull/test_spelling.py \
	tests/cli tests/frames tests/settings tests/store

quick: lint  ## check format and lint, and run the quick tests, while you write
	$(BIN)/pytest -n 2 --dist worksteal -m 'not hypothesis' $(QUICK)

lint: $(READY_DEV)  ## check format and lint rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

reference: $(READY_DEV)  ## write docs/reference from the code, and llms.txt from the pages
	$(BIN)/python docs/reference/make_reference.py
	$(BIN)/python docs/site/make_llms.py

format: $(READY_DEV)  ## format all files
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: $(READY_DEV)  ## check types
	$(BIN)/mypy

imports: $(READY_DEV)  ## check import rules between packages
	$(BIN)/lint-imports

# Once, instead of by each process that runs tests.
compiled: $(READY_DEV)
	$(BIN)/pytest --collect-only --quiet > $(VENV)/collected || { cat $(VENV)/collected; exit 1; }

tests: $(READY_DEV)  ## run all tests, without the other checks
	$(MAKE) --jobs=2 tests-lake tests-rest

LAKE := tests/lake/test_profiles.py tests/lake

# Few processes, because each starts a cluster; the longest tests first.
tests-lake: $(READY_DEV)
	$(BIN)/pytest $(LAKE) -n 2 --dist worksteal

tests-rest: $(READY_DEV)
	$(BIN)/pytest -n 4 --dist worksteal $(LAKE:%=--ignore %)  # many tests only wait

## Long runs, each for minutes to hours:

soak: $(READY_DEV)  ## compare the code with models in random steps; STEPS=1000000
	$(BIN)/python -m tests.model.batches --steps $(or $(STEPS),1000000)
	$(BIN)/python -m tests.model.engine --steps $(or $(STEPS),1000000)

load: $(READY_DEV)  ## send 30 minutes of webhooks while `serve` is killed repeatedly; MINUTES=30 RATE=500
	$(BIN)/python -m tests.nightly.load --minutes $(or $(MINUTES),30) --rate $(or $(RATE),500)

attacks: $(READY_DEV)  ## simulate faulty providers; print the share of holdings that each removes
	$(BIN)/python -m tests.nightly.attacks

network: $(READY_DEV)  ## break network connections at random bytes; SEEDS=200
	$(BIN)/python -m tests.nightly.network --seeds $(or $(SEEDS),200)

stops: $(READY_DEV)  ## pause the processes of syncs at random times; SEEDS=20
	$(BIN)/python -m tests.nightly.stops --seeds $(or $(SEEDS),20)

FUZZED := tests/test_fuzz.py tests/test_times.py tests/provider tests/receiver \
	tests/pull/test_list_files.py tests/settings tests/sandbox/test_worldfile.py \
	tests/cli/test_tables.py

fuzz: $(READY_DEV)  ## give all parsers random inputs; EXAMPLES=2000 for each
	EXAMPLES=$(or $(EXAMPLES),2000) $(BIN)/pytest $(FUZZED) -m hypothesis -v \
		--hypothesis-profile=fuzz --hypothesis-show-statistics \
		| grep -E --line-buffered 'PASSED|FAILED|passing,|passed|failed|^E |@reproduce'

powercuts: $(READY_DEV)  ## simulate power cuts under `serve` and under a lake sync; SEEDS=20 LAKESEEDS=3
	$(BIN)/python -m tests.nightly.powercuts --seeds $(or $(SEEDS),20)
	$(BIN)/python -m tests.nightly.lake_powercuts --seeds $(or $(LAKESEEDS),3)

lakekills: $(READY_DEV)  ## kill a lake's workers and drivers at random times and between their steps; KILLS=20 SEEDS=1
	for at in any stored published listed; do \
		$(BIN)/python -m tests.nightly.chaos --at $$at --kills $(or $(KILLS),20) --seeds $(or $(SEEDS),1) || exit 1; \
	done

lakerounds: $(READY_DEV)  ## compare a lake with a database after rounds of random changes; ROUNDS=26 SEEDS=3
	$(BIN)/python -m tests.nightly.lake_rounds --rounds $(or $(ROUNDS),26) --seeds $(or $(SEEDS),3)

lakedamage: $(READY_DEV)  ## damage each file of a lake, then read it; SEEDS=140
	$(BIN)/python -m tests.nightly.lake_damage --seeds $(or $(SEEDS),140)

watchkills: $(READY_DEV)  ## kill a serve that sends alerts at random times; KILLS=200
	$(BIN)/python -m tests.nightly.watch_kills --kills $(or $(KILLS),200)

flips: $(READY_DEV)  ## flip random bits in a database, then run every command; SEEDS=2000
	$(BIN)/python -m tests.nightly.flips --seeds $(or $(SEEDS),2000)

mutations: $(READY_DEV)  ## print the share of random mutations that tests detect; COUNT=200 SEED=1
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --group mutations
	$(BIN)/python -m tests.nightly.mutations --count $(or $(COUNT),200) --seed $(or $(SEED),1)

nightly: $(READY_DEV)  ## do all long runs, for hours, and print a table; ONLY="soak flips"
	$(BIN)/python -m tests.nightly $(ONLY)

## Other:

fresh:  ## run `make demo` and `make test` on minimal Debians, as root; SUITES="trixie sid"
	for suite in $(or $(SUITES),trixie sid); do tests/nightly/fresh_debian.sh $$suite || exit 1; done

constraints: $(BIN)/uv  ## update constraints.txt to the newest compatible versions
	{ echo '# The versions of every check; written by `make constraints`.'; \
	  $(BIN)/uv pip compile --quiet --universal --no-header --no-annotate --upgrade \
	    --python-version 3.11 --all-extras --group dev --group docs pyproject.toml; } > constraints.new
	mv constraints.new constraints.txt

bench: $(READY_DEV) $(READY_BENCH)  ## run the benchmarks, and write docs/develop/performance.md; ONLY="frames sync"
	$(BIN)/python -m benchmarks $(ONLY)

clean:  ## remove environments and caches
	rm -rf $(VENV) $(VENV_BENCH) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# uv installs in seconds; pip would take a minute.
$(BIN)/uv:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'nftsync needs Python 3.11 or later: make PYTHON=python3.12 ...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) \
		|| { echo 'no venv module: on Debian, apt install python3-venv make git' >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

# Not compiled: this would take longest, and most modules are never imported.
$(READY): pyproject.toml constraints.txt | $(BIN)/uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python \
		--constraint constraints.txt --editable '.[notebook]'
	touch $@

$(READY_DEV): $(READY)
	$(BIN)/uv pip install --quiet --python $(BIN)/python \
		--constraint constraints.txt --editable '.[notebook,analysis,scale]' --group dev
	touch $@

$(READY_DOCS): $(READY)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --group docs
	touch $@

# The programs that nftsync is compared with. Without them, the other benchmarks still run.
$(READY_BENCH): benchmarks/peers/requirements.txt | $(BIN)/uv
	{ $(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV_BENCH) \
		&& $(BIN)/uv pip install --quiet --compile-bytecode \
			--python $(VENV_BENCH)/bin/python --requirement $< \
		&& touch $@; } || echo 'the peers cannot be installed: they are not measured' >&2
