# Everything happens in the project's own virtual environment. Every target installs it if needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PARALLEL := --numprocesses auto --maxprocesses 4

.PHONY: help demo test test-all bench soak lint check format docs dist browser clean

help:
	@echo "make demo      a class-incremental run on real digits, and its report (two minutes after the install)"
	@echo "make test      the fast tests"
	@echo "make test-all  all tests: also killed processes, several processes, fuzzing and scikit-learn's checks"
	@echo "make lint      format, style, types and layers"
	@echo "make check     make lint and make test"
	@echo "make bench     speed, compared with an ideal loop (about 20 minutes on an idle machine)"
	@echo "make soak      kills, failing system calls, power cuts and hostile inputs for an hour (SOAK_MINUTES)"
	@echo "make docs      the documentation as a site, in docs/_build"
	@echo "make dist      the wheel and the sdist, each installed into a fresh environment and run"
	@echo "make format    format the code"
	@echo "make browser   Chromium for the browser test, on Debian; without it, the test is skipped"
	@echo "make clean     remove the virtual environment and all caches"

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(VENV)/.installed
	$(BIN)/cotransport run --out runs/demo --overwrite
	@echo "open runs/demo/report.html in a browser"

test: $(VENV)/.installed
	$(BIN)/pytest $(PARALLEL)

test-all: $(VENV)/.installed
	$(BIN)/pytest $(PARALLEL) -m ''

bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks

soak: $(VENV)/.installed
	$(BIN)/python -m tests.soak

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

dist: $(VENV)/.installed
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m tests.distribution $(EXTRAS)

browser:
	@command -v chromium >/dev/null || (apt-get update && apt-get install --yes --no-install-recommends chromium) \
	  || echo "no browser was installed: the browser test will be skipped"

clean:
	rm -rf $(VENV) build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache src/*.egg-info
