# `make demo` and `make test` need nothing but Python 3.11+ and make: each builds .venv by itself.
SHELL  := /bin/sh
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# Benchmark data beside the project is found without being asked for; a variable already set wins.
ifeq ($(origin NOVIDGP_DATA), undefined)
ifneq ($(wildcard ../shared/data),)
export NOVIDGP_DATA := $(abspath ../shared/data)
endif
endif

.DEFAULT_GOAL := help
.PHONY: help demo test lint types unit format bench-speed clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.dev ## fit, compare with an exact GP, draw, save and load again (under two minutes)
	$(BIN)/novidgp demo --out demo_output

test: lint types unit ## lint, formatting, types and tests

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/pyright src

unit: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist worksteal

format: $(VENV)/.dev ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench-speed: $(VENV)/.peers ## seconds per iteration, ours beside GPyTorch's
	$(BIN)/python benchmarks/speed.py

clean: ## remove the virtual environment, caches and the demo's output
	rm -rf $(VENV) demo_output build dist .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp says what is installed; it is older than pyproject.toml when that changes, and then pip runs again.
$(VENV)/.dev: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	touch $@

$(VENV)/.peers: $(VENV)/.dev
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev,peers]'
	touch $@
