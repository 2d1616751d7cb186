# make demo   compile, run and check a program and show its stages
# make test   the tests that need no GPU
# Both make the virtual environment in .venv if it is missing.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test full check gpu mutation bench docs gallery editor clean reliability

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(READY)

demo: $(READY)
	$(BIN)/minitri doctor
	$(BIN)/minitri demo examples/linear.mt -D M=1000 -D K=512 -D N=1024

test: $(READY)
	$(BIN)/python -m pytest -q -n 2 -m "not gpu and not slow"

full: $(READY)
	$(BIN)/python -m pytest -q -n 2 -m "not gpu" --hypothesis-profile=full

gpu:
	python3 -m pytest -q -m gpu

check: $(READY)
	$(BIN)/ruff format --check minitri tests examples
	$(BIN)/ruff check minitri tests examples
	$(BIN)/pyright --pythonpath $(BIN)/python minitri
	$(MAKE) test

mutation: $(READY)
	$(BIN)/python tests/mutation.py

reliability: $(READY)
	$(BIN)/python -m pytest -q -n 2 -m "slow and not gpu"
	$(BIN)/python tests/mutation.py
	$(BIN)/python tests/reliability.py --budget 30m

bench:
	python3 -m minitri bench

gallery: $(READY)
	$(BIN)/python tests/gallery.py examples build/gallery -D D=64

# The bundle of the explorer's editor is checked in; this makes it again.
editor:
	cd tests/codemirror && npm ci && npm run build

docs: $(READY)
	$(BIN)/python tests/documents.py

clean:
	rm -rf $(VENV) build dist *.egg-info
