# Everything happens in a virtual environment of the project's own; `make demo` and `make test` set it up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test bench lint check format docs clean

help:
	@echo "make demo    a class-incremental run on real digits, and its report (two minutes after the install)"
	@echo "make test    the fast tests"
	@echo "make bench   speed, against an ideal loop (about ten minutes on a quiet machine)"
	@echo "make lint    format, style, types and layers"
	@echo "make check   both"
	@echo "make format  put the code into shape"
	@echo "make docs    the documentation as a site, in docs/_build"
	@echo "make clean   remove the virtual environment and all caches"

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(VENV)/.installed
	$(BIN)/cotransport run --out runs/demo --overwrite
	@echo "open runs/demo/report.html in a browser"

test: $(VENV)/.installed
	$(BIN)/pytest

bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks

lint: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test

format: $(VENV)/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.installed
	$(BIN)/sphinx-build --builder html --fail-on-warning --keep-going --nitpicky docs docs/_build
	@echo "open docs/_build/index.html in a browser"

clean:
	rm -rf $(VENV) build docs/_build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache src/*.egg-info
