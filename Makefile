# Every chore by name. `make demo` and `make test` set themselves up on a bare clone with Python 3.11+.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
SETUP  := $(VENV)/.ready
export NUMBA_CACHE_DIR ?= $(CURDIR)/$(VENV)/numba

.PHONY: help demo test lint types unit bench bench-ingest bench-cpu docs atlas clean

help:  ## list the chores
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(SETUP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "pairre needs Python 3.11 or newer; try make PYTHON=python3.12"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(SETUP)  ## train, evaluate and query the bundled graph (a minute or two)
	@rm -rf runs/demo
	$(BIN)/pairre train atlas --out runs/demo
	$(BIN)/pairre evaluate runs/demo --by category
	$(BIN)/pairre predict runs/demo --head Kenya --relation borders --known -k 8
	$(BIN)/pairre predict runs/demo --relation capital_of --tail Peru -k 3 --known
	$(BIN)/pairre predict runs/demo --head Toulouse --tail France -k 3 --known
	@echo
	@echo "The run folder is runs/demo. Ask it something else:"
	@echo '  $(BIN)/pairre predict runs/demo --head Japan --relation speaks'
	@echo "or train on your own triples (tsv, csv, parquet, rdf, ...):"
	@echo '  $(BIN)/pairre train my-triples.csv --out runs/mine'

test: lint types unit  ## lint, types and tests

lint: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(SETUP)
	$(BIN)/mypy

unit: $(VENV)/.peers
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal

bench: bench-ingest bench-cpu  ## both CPU benchmarks against PyKEEN (installs the peers extra)

$(VENV)/.peers: $(SETUP)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[peers]'
	@touch $@

bench-ingest: $(VENV)/.peers  ## 10 million triples to ids, and the ratio to PyKEEN
	$(BIN)/python benchmarks/ingest.py

bench-cpu: $(VENV)/.peers  ## training and ranking speed against PyKEEN
	$(BIN)/python benchmarks/cpu.py

docs: $(SETUP)  ## write the reference pages and build the documentation site into build/site/
	$(BIN)/python scripts/build_docs.py
	$(BIN)/sphinx-build -q -W --keep-going docs build/site
	@echo "Open build/site/index.html."

atlas: $(SETUP)  ## rebuild the bundled graph from its openly licensed sources
	$(BIN)/python scripts/build_atlas.py

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis
