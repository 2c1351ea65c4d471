# Everything runs in ./.venv, which `make venv` builds from the pinned versions in constraints.txt.
# Needs: make, Python 3.11 or newer with venv.
PYTHON      ?= python3
# Two test files at a time: most tests start processes and wait for them. `PYTEST_ARGS=` runs one at a time.
PYTEST_ARGS ?= -n 2 --dist loadfile
PY          := .venv/bin/python
READY       := .venv/.ready

# Tests start several processes, each with one thread.
export OMP_NUM_THREADS ?= 1

.PHONY: help venv demo test quick lint types docs
.DEFAULT_GOAL := help

help:
	@echo "make venv    build ./.venv with pinned versions"
	@echo "make demo    a first look"
	@echo "make test    all tests                   (PYTEST_ARGS=... instead of $(PYTEST_ARGS))"
	@echo "make quick   all tests but the slow ones (PYTEST_ARGS=... instead of $(PYTEST_ARGS))"
	@echo "make lint    ruff: rules and format"
	@echo "make types   pyright"
	@echo "make docs    build the documentation into ./site"

venv: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v >= (3, 11) else \
	    "sennit needs Python 3.11 or newer, $(PYTHON) is %d.%d: use make PYTHON=python3.11" % v)'
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[data,mt,dev,docs]"
	@touch $@

demo: $(READY)
	$(PY) -m sennit.demo

test: $(READY)
	$(PY) -m pytest $(PYTEST_ARGS)

quick: $(READY)
	$(PY) -m pytest -m "not slow" $(PYTEST_ARGS)

lint: $(READY)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(READY)
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(PY) -m pyright --pythonpath $(PY)

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict
