PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet
TRAINING := $(VENV)/.installed
EVERYTHING := $(VENV)/.installed-dev
TYPES := build/types

.PHONY: install dev train test lint docs bench sb3-suite clean

# What training needs and nothing else; `make dev` adds Ray, rl_zoo3, ONNX, linters and what tests want.
install: $(TRAINING)
dev: $(EVERYTHING)

$(TRAINING): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade "pip>=24" "setuptools>=77"
	$(PIP) "torch>=2.8,<2.14"
	$(PIP) --editable .
	touch $@

$(EVERYTHING): $(TRAINING)
	$(PIP) --editable ".[dev]"
	touch $@

ENV ?= Walker2d-v4
METHOD ?= geo
STEPS ?= 1000000

train: install
	$(BIN)/python scripts/train.py --env $(ENV) --method $(METHOD) --steps $(STEPS)

# A file of tests stays with one process, which trains what they share once.
test: dev
	$(BIN)/python -m pytest -n 2 --dist loadfile

# Type checkers do not follow the editable install's import hook, so an installed copy is checked.
lint: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf build $(TYPES)
	$(PIP) --no-deps --target $(TYPES) .
	MYPYPATH=$(TYPES) $(BIN)/mypy -p geonpg

# A static site in build/site; what mkdocs warns of, a broken link for example, is an error.
docs: install
	$(PIP) --editable ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: dev
	$(BIN)/geonpg bench update
	$(BIN)/geonpg bench trust-region
	$(BIN)/geonpg bench envs
	$(BIN)/geonpg bench train

# SB3's own tests, unmodified, with A2C replaced by ACKTR (tests/sb3_suite.py)
sb3-suite: dev
	$(PIP) --editable ".[sb3-suite]"
	$(BIN)/python tests/sb3_suite.py

clean:
	rm -rf build dist *.egg-info $(VENV)
