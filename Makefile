# Another environment: make test VENV=.venv-3.12 PYTHON=python3.12
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
# the newest supported Python that can make environments
SUPPORTED := import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(shell for one in python3.13 python3.12 python3.11 python3 python; do \
	$$one -c "$(SUPPORTED)" 2> /dev/null && echo $$one && break; done)
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# bytecode on all cores, which pip makes on one; tests and the many models of transformers get it once they are imported
COMPILE := -m compileall -qq -j 0 -x '/tests/|/transformers/models/'
SUITE := $(if $(SYSTEM),tests/pipelines/$(SYSTEM))

.PHONY: help install check reproduce reproduce-all test test-heavy lint site bench chaos demo-cluster clean
help:
	@echo "make reproduce      headline figures: set up, run, judge, report"
	@echo "make reproduce-all  every figure at laptop scale"
	@echo "make install        set up .venv with the tested versions; the other commands do so by themselves"
	@echo "make check          formatting, lint, types, the unit tests of what changed: at most 3 minutes"
	@echo "make test           the test suite, of one system with SYSTEM=...;  make test-heavy: the long tests too"
	@echo "make lint           formatting, lint rules, layer contracts, types"
	@echo "make site           the documentation as a site, in site/: open site/index.html"
	@echo "make bench          benchmarks against alternatives: 15 minutes, of some with BENCHMARKS=\"store sweep\""
	@echo "make chaos          200 faults during sweeps, and whether anything is lost: 30 minutes, SEED=1"
	@echo "make demo-cluster   a sweep on three nodes that loses its server and a node, next to an undisturbed one"

$(READY): pyproject.toml setup.py $(CONSTRAINTS)
	@test -x $(BIN)/python || test -n "$(PYTHON)" || { \
		echo "make: needs Python 3.11, 3.12 or 3.13 with venv; install one, or run make PYTHON=/path/to/python" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint $(CONSTRAINTS) torch
	$(BIN)/python -m pip uninstall --quiet --yes featurelab 2>/dev/null  # our former name, and that of another project
	$(BIN)/python -m pip install --quiet --no-compile --constraint $(CONSTRAINTS) \
		--editable '.[lab,public,lm,search,server,dev,site]'
	@$(BIN)/python $(COMPILE) $(VENV)/lib || true  # some packages have templates that are no Python
	@touch $(READY)

install: $(READY)
	@echo "put $(abspath $(BIN)) on your PATH, then: featurelab doctor"

# If a verdict contradicts the documented one, reproduce ends with status 1. The report is written anyway.
reproduce: $(READY)
	@$(BIN)/featurelab reproduce --headline; status=$$?; $(BIN)/featurelab report && exit $$status

reproduce-all: $(READY)
	@$(BIN)/featurelab reproduce; status=$$?; $(BIN)/featurelab report && exit $$status

check: lint
	@$(BIN)/python tests/affected.py

# Files run in order, those of tests/modules last: the first ones start clusters and mostly wait, so four processes suit
# two cores; the last ones are short. Without bytecode, each process would compile our sources again.
unexport PYTHONDONTWRITEBYTECODE
test: $(READY)
	$(BIN)/python -m pytest -m "not heavy" -n 4 --dist loadfile --no-loadscope-reorder $(SUITE)

test-heavy: $(READY)
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder $(SUITE)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

site: $(READY)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "site/index.html"

# peers that PyPI has are installed; the others are skipped with a line
bench: $(READY)
	@$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable '.[bench]'
	@$(BIN)/python -m benchmarks $(BENCHMARKS)

# also on PostgreSQL if it is installed; mounting small disks needs root
chaos: $(READY)
	@$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable '.[chaos]'
	@$(BIN)/python -m tests.chaos --seed $(or $(SEED),1)

demo-cluster: $(READY)
	@$(BIN)/python examples/cluster_demo.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build site *.egg-info
