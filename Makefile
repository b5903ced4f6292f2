# Everything runs inside .venv, which is made from the python3 on the PATH and this directory's own files.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# What it takes to run dayjob; and beside it what tests and checks need.
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
# What it takes to build the documentation.
DOCS := $(VENV)/.docs

.PHONY: demo test oldest languages lint types check chaos chaos-stops chaos-recovery chaos-sentinel chaos-cluster chaos-report \
	chaos-peers durability mutants bench bench-quick bench-pages bench-scale docs package clean

demo: $(INSTALLED)  ## everything alive on an embedded server: workers, fake jobs, and the console in a browser
	$(BIN)/dayjob demo

test: $(READY)  ## every test, on a real server and in a real browser
	-$(BIN)/python scripts/browser.py
	$(BIN)/python -m pytest -n 6 --dist worksteal

languages:  ## Ruby, Go, Node.js, Spin, promtool, PostgreSQL and redis-server, for the tests that need them; without them those tests are skipped
	$(PYTHON) scripts/languages.py

oldest: $(READY)  ## the tests of the integrations with the oldest versions that pyproject.toml allows; QUICK=--quick as CI runs them
	$(BIN)/python scripts/oldest.py $(QUICK)

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy
	$(BIN)/pyright

SEED ?= 1
MINUTES ?= 10
COUNT ?= 100
chaos: $(READY)  ## seeded faults against real processes, judged by a ledger outside Redis: make chaos SEED=7 MINUTES=30
	PYTHONPATH=tests $(BIN)/python -m chaos --seed $(SEED) --minutes $(MINUTES) --out tests/chaos/results/chaos-$(SEED).json

chaos-stops chaos-recovery chaos-sentinel chaos-cluster: chaos-%: $(READY)  ## one scenario by itself, COUNT times
	PYTHONPATH=tests $(BIN)/python -m chaos $* --seed $(SEED) --count $(COUNT) --out tests/chaos/results/$*-$(SEED).json

chaos-report: $(READY)  ## the results of all runs into docs/reliability.md
	PYTHONPATH=tests $(BIN)/python -m chaos.report

chaos-peers: $(READY)  ## the same faults against other systems, into docs/reliability-peers.md
	cd tests && ../$(BIN)/python -m chaos.peers --write

durability: $(READY)  ## what survives what, measured, into docs/durability.md
	cd tests && ../$(BIN)/python -m faults.durability --trials 6 --write

mutants: $(READY)  ## deliberate bugs, one at a time: each must be caught by a test that is named
	$(BIN)/python tests/mutants/run.py --jobs 2

bench: $(READY)  ## dayjob beside its peers, in one run; half an hour or more
	$(BIN)/python benchmarks/bench.py full
	$(BIN)/python benchmarks/render.py benchmarks/results/full.json docs/benchmarks.md README.md

bench-pages: $(READY)  ## how long the console's pages take with a large fleet
	$(BIN)/python benchmarks/pages.py

SCALE_MINUTES ?= 5
bench-scale: $(READY)  ## what one server carries: 50 pools, ten million waiting jobs, into docs/scale.md; 1.5 GB of memory for the server, 2 for the pools
	$(BIN)/python benchmarks/scale.py --minutes $(SCALE_MINUTES)

bench-quick: $(READY)  ## the short form, under three minutes
	$(BIN)/python benchmarks/bench.py quick

docs: $(DOCS)  ## the documentation as a site with search, in build/docs; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

package: $(INSTALLED)  ## the wheel and the source distribution in build/dist, checked as a package index does
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group package
	rm -rf build/dist
	$(BIN)/python -m build --outdir build/dist .
	$(BIN)/twine check --strict build/dist/*

check: lint types docs package test  ## what CI runs

$(INSTALLED): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "dayjob needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[all]'
	touch $(INSTALLED)

$(READY): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group test --group lint
	touch $(READY)

$(DOCS): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group docs
	touch $(DOCS)

clean:
	rm -rf $(VENV) .dayjob build
