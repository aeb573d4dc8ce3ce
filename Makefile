PYTHON ?= python3.11
BIN := .venv/bin
READY := .venv/.ready
SUITE := $(if $(SYSTEM),tests/pipelines/$(SYSTEM))

.PHONY: help check reproduce reproduce-all test test-heavy lint bench chaos demo-cluster clean
help:
	@echo "make reproduce      headline figures: set up, run, judge, report"
	@echo "make reproduce-all  every figure at laptop scale"
	@echo "make check          formatting, lint, types, the unit tests of what changed: at most 3 minutes"
	@echo "make test           the test suite, of one system with SYSTEM=...;  make test-heavy: the long tests too"
	@echo "make lint           formatting, lint rules, layer contracts, types"
	@echo "make bench          our cost beside what one would otherwise run"
	@echo "make chaos          200 faults while sweeps run, and whether anything is lost: 30 minutes, SEED=1"
	@echo "make demo-cluster   a sweep on three nodes that loses its server and a node, beside one left alone"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch==2.13.0
	$(BIN)/python -m pip uninstall --quiet --yes featurelab 2>/dev/null  # our former name, and that of another project
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,public,lm]'
	@touch $(READY)

# A claim that comes out otherwise than documented ends reproduce with status 1; the report is written all the same.
reproduce: $(READY)
	@$(BIN)/featurelab reproduce --headline; status=$$?; $(BIN)/featurelab report && exit $$status

reproduce-all: $(READY)
	@$(BIN)/featurelab reproduce; status=$$?; $(BIN)/featurelab report && exit $$status

check: lint
	@$(BIN)/python tests/affected.py

# Four processes on two cores: two of them run whole commands, and mostly wait. Each would compile our sources anew
# where the environment forbids to keep bytecode.
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

bench: $(READY)
	@$(BIN)/python -m benchmarks

# on PostgreSQL too where it is installed; mounting small disks takes root
chaos: $(READY)
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[chaos]'
	@$(BIN)/python -m tests.chaos --seed $(or $(SEED),1)

demo-cluster: $(READY)
	@$(BIN)/python examples/cluster_demo.py

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
