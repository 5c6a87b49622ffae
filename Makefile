# One verb each; every verb makes .venv itself when it is missing.
.PHONY: setup demo test check bench docs clean

PYTHON ?= python3
BIN := .venv/bin

setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e . --group dev
	touch $@

demo: setup
	$(BIN)/glassformer demo

test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Figures against ../shared/data or a folder of your own: make bench DATA=folder
bench: setup
	$(BIN)/python -m benchmarks.quality configs/multi30k.toml --data $(or $(DATA),../shared/data/multi30k/raw) --test test_2016_flickr

docs: setup
	$(BIN)/python docs/make_configuration.py

clean:
	rm -rf .venv build dist
