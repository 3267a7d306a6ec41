# Every chore by name. `make demo` and `make test` set themselves up on a bare clone with Python 3.11+.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
CORE   := $(VENV)/.core
SETUP  := $(VENV)/.ready
SHARE  ?= 1
export NUMBA_CACHE_DIR ?= $(CURDIR)/$(VENV)/numba
unexport PYTHONDONTWRITEBYTECODE  # else every process that a test starts compiles the package anew

.PHONY: help demo test lint types unit soak bench bench-ingest bench-cpu docs atlas clean

help:  ## list the chores
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(CORE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "pairre needs Python 3.11 or newer; try make PYTHON=python3.12"; exit 1; }
	@echo "Installing into $(VENV): this downloads PyTorch (a gigabyte or more where its build for GPUs is taken) and takes minutes, once."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(SETUP): $(CORE)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(CORE)  ## train on the bundled graph, find facts that were hidden from it, and write a report (a few minutes; the first time it downloads PyTorch)
	@rm -rf runs/demo
	@echo "Training takes about half a minute on two cores; the first run also compiles its kernels, which takes as long again."
	$(BIN)/pairre train atlas --out runs/demo
	@printf '\nHow well does it rank facts that were kept from it?\n\n'
	$(BIN)/pairre evaluate runs/demo --by category
	@printf '\nWhich countries border Belize? Those marked "test" were hidden while it trained; the probability is that of a new answer.\n'
	$(BIN)/pairre predict runs/demo --head Belize --relation borders --known -k 5
	@printf '\nAnd why does it say that Chisinau, as was hidden, is the capital of Moldova?\n\n'
	$(BIN)/pairre why runs/demo --head Chisinau --relation capital_of --tail Moldova
	@printf '\nThe most plausible facts that the whole graph lacks:\n'
	$(BIN)/pairre discover runs/demo --out runs/demo-links.csv -k 100 --force
	$(BIN)/pairre report runs/demo --out runs/demo-report.html --force
	@echo
	@echo "Open runs/demo-report.html in a browser. Ask something else:"
	@echo '  $(BIN)/pairre predict runs/demo --head Japan --relation speaks --why'
	@echo '  $(BIN)/pairre similar runs/demo Lisbon'
	@echo "or train on your own triples (tsv, csv, parquet, rdf, ...):"
	@echo '  $(BIN)/pairre train my-triples.csv --out runs/mine'

test: lint types unit  ## lint, types and tests

lint: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(SETUP)
	$(BIN)/mypy

unit: $(VENV)/.peers $(VENV)/.torchrec
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal

soak: $(VENV)/.soak  ## hours of crashes, damaged input and comparisons; make soak SHARE=0.001 is a thousandth of it
	$(BIN)/python -m soak --share $(SHARE)

bench: bench-ingest bench-cpu  ## both CPU benchmarks against PyKEEN (installs the peers extra)

$(VENV)/.peers: $(SETUP)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[peers]'
	@touch $@

# Without its dependencies, which would be the build of fbgemm for CUDA. There are no wheels for some platforms.
$(VENV)/.torchrec: $(SETUP)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[distributed]'
	$(BIN)/pip install --quiet --constraint constraints.txt --no-deps torchrec fbgemm-gpu-cpu || echo "TorchRec cannot be installed here: its tests are skipped."
	@touch $@

$(VENV)/.soak: $(VENV)/.peers
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[soak]'
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
