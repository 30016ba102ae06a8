# Every target builds what it needs in .venv by itself, from Python 3.11+ and make alone. Nothing outside the
# repository is read, except the data directory that the variable NOVIDGP_DATA names.
SHELL  := /bin/sh
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install -q --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test test-all lint types unit unit-all format examples docs wheel bench-speed bench-race clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.dev ## three things deep GPs are for: fits, tables, pictures, a saved model (under a minute)
	$(BIN)/novidgp demo --out demo_output

test: lint types unit ## lint, formatting, types and tests

test-all: lint types unit-all ## the same, with the slow tests

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/pyright

unit: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2

unit-all: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 -m "slow or not slow"

format: $(VENV)/.dev ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

examples: $(VENV)/.dev ## run the examples; what they print and draw is kept for the documentation
	$(BIN)/python examples/draw.py

docs: $(VENV)/.docs ## the documentation as a site in build/site; a broken link or an unknown name is an error
	NO_MKDOCS_2_WARNING=1 PATH="$(abspath $(BIN)):$$PATH" $(BIN)/mkdocs build --strict

wheel: $(VENV)/.release ## build source archive and wheel in dist, and check what is in them
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist
	$(BIN)/python .ci/check_wheel.py dist/*.whl

bench-speed: $(VENV)/.peers ## seconds per iteration, ours beside GPyTorch's
	$(BIN)/python benchmarks/speed.py

bench-race: $(VENV)/.peers ## seconds to a model as good as GPyTorch's, on five sets that NOVIDGP_DATA names
	$(BIN)/python benchmarks/race.py

clean: ## remove the virtual environment, caches and the demo's output
	rm -rf $(VENV) demo_output build dist .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp says what is installed; it is older than pyproject.toml when that changes, and then pip runs again.
$(VENV)/.dev: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[dev]'
	touch $@

$(VENV)/.peers $(VENV)/.docs $(VENV)/.release: $(VENV)/.%: $(VENV)/.dev
	$(PIP) -e '.[dev,$*]'
	touch $@
