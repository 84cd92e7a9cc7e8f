PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TYPES := build/types

.PHONY: install train test lint bench sb3-suite clean

install: $(STAMP)

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=24" "setuptools>=77"
	$(BIN)/python -m pip install --quiet "torch>=2.8,<2.14"
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

ENV ?= Walker2d-v4
METHOD ?= geo
STEPS ?= 1000000

train: install
	$(BIN)/python scripts/train.py --env $(ENV) --method $(METHOD) --steps $(STEPS)

test: install
	$(BIN)/python -m pytest -n 2

# Type checkers do not follow the editable install's import hook, so an installed copy is checked.
lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf build $(TYPES)
	$(BIN)/python -m pip install --quiet --no-deps --target $(TYPES) .
	MYPYPATH=$(TYPES) $(BIN)/mypy -p geonpg

bench: install
	$(BIN)/geonpg bench update
	$(BIN)/geonpg bench trust-region
	$(BIN)/geonpg bench envs
	$(BIN)/geonpg bench train

# SB3's own tests, unmodified, with A2C replaced by ACKTR (tests/sb3_suite.py)
sb3-suite: install
	$(BIN)/python -m pip install --quiet --editable ".[sb3-suite]"
	$(BIN)/python tests/sb3_suite.py

clean:
	rm -rf build dist *.egg-info $(VENV)
