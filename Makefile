# What people and machines do with this repository. Each target works on a fresh clone with Python 3.11 or newer:
# the first one creates .venv and installs; later ones install again only after pyproject.toml has changed.

PYTHON ?= python3
HOST ?= 127.0.0.1
PORT ?= 8000
MODEL ?=
export OPENBLAS_NUM_THREADS ?= 1

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev
INSTALLED_BENCH := $(VENV)/.installed-bench
CHECKED := app engine schemas_cache tests

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help serve test check suites bench train format clean

help: ## List the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

serve: $(INSTALLED) ## Serve on HOST:PORT (127.0.0.1:8000); MODEL=name,... for other models than the shipped ones
	@exec env $(if $(MODEL),KATAGAMI_MODEL='$(MODEL)') $(BIN)/katagami serve --host $(HOST) --port $(PORT)

test: check ## All that CI runs: format, lint, types and tests
	$(BIN)/python -m pytest -m "not suite"

check: $(INSTALLED_DEV) ## Format, lint and types
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/mypy

suites: $(INSTALLED_DEV) ## Long-running test suites
	$(BIN)/python -m pytest -m suite --timeout 3600 || { status=$$?; [ $$status -eq 5 ] && echo "no suites"; }

bench: $(INSTALLED_BENCH) ## Benchmarks, one after another, beside other engines where those can be installed
	@set -e; for script in $(wildcard tests/benchmarks/bench_*.py); do echo "== $$script"; $(BIN)/python $$script; done

train: $(INSTALLED) ## Train the two models that ship with the project
	$(BIN)/katagami train

format: $(INSTALLED_DEV) ## Rewrite the sources in the project's format
	$(BIN)/ruff format $(CHECKED)
	$(BIN)/ruff check --fix $(CHECKED)

clean: ## Remove what tools left behind, but for .venv and checkpoints
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find $(CHECKED) -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Katagami needs Python 3.11 or newer; $(PYTHON) is %d.%d. Try: make PYTHON=python3.12 $(MAKECMDGOALS)" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --editable .
	@touch $@

$(INSTALLED_DEV): pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --editable '.[dev]'
	@touch $(INSTALLED) $@

$(INSTALLED_BENCH): $(INSTALLED_DEV)
	-$(PIP) install --quiet --editable '.[bench]' || $(PIP) install --quiet 'llguidance>=1.9'
	@touch $@
