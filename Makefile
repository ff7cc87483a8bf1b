# make demo    the whole path on 2 CPU cores: a made world, four objectives, evaluation, a report
# make test    lint, types, tests           make bench   ours against the field's, as ratios
# make setup   the virtual environment alone

PYTHON ?= python3.11
VENV   ?= .venv
BIN     = $(VENV)/bin
READY   = $(VENV)/.ready
UV      = UV_FIND_LINKS="$${UV_FIND_LINKS:-$$PIP_FIND_LINKS}" VIRTUAL_ENV="$(CURDIR)/$(VENV)" $(BIN)/uv pip install --quiet
PIP     = $(BIN)/python -m pip install --quiet --disable-pip-version-check
NEEDS   = -c constraints.txt -e '.[dev]'

.PHONY: setup demo test lint types unit bench golden clean

setup: $(READY)

# uv where it can be had (seconds), plain pip otherwise (a minute); the same versions either way.
$(READY): pyproject.toml constraints.txt $(shell find src -name '*.[ch]pp')
	$(PYTHON) -m venv $(VENV)
	@$(PIP) -c constraints.txt uv 2>/dev/null && $(UV) $(NEEDS) || { \
		echo "uv did not do it; installing with pip"; $(PIP) $(NEEDS); }
	@touch $(READY)

demo: setup
	$(BIN)/caplore demo

test: lint types unit

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

# Two test processes with one thread each use two cores better than one process with two.
unit: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile

bench: setup
	$(BIN)/python -m bench $(ROOMS)

golden: setup
	$(BIN)/python -m bench.golden

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache demo
