# Everything runs in one virtual environment, .venv, made with the first Python found here.
# On a machine without a GPU, TORCH_INDEX keeps CUDA from being downloaded:
#   make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu

PYTHON ?= $(or $(shell command -v python3.11),$(shell command -v python3),python3)
TORCH_INDEX ?=

PY := .venv/bin/python
# Two processes of one thread each: small models gain little from a second thread.
PYTEST := OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist loadgroup
# Byte-compiling all of torch takes longer than importing what is used of it.
PIP := $(PY) -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

.PHONY: help demo test test-all test-gpu lab bench lint clean

help:
	@echo "make demo      capture 8 code and 8 prose prompts and write out/report.html"
	@echo "make test      every test but the slow ones"
	@echo "make test-all  every test that needs no GPU"
	@echo "make test-gpu  what needs a CUDA GPU; writes out/gpu_report.json"
	@echo "make lab       JupyterLab on notebooks/"
	@echo "make bench     benchmarks, as ratios from one run"
	@echo "make lint      ruff and mypy"
	@echo "make clean     remove .venv and caches (out/ and the fetched model stay)"

demo: .venv/installed-engine
	.venv/bin/specviz demo

test: .venv/installed-dev
	.venv/bin/specviz fetch
	$(PYTEST) -m "not slow and not gpu"
	$(PYTEST) --nbmake --nbmake-timeout=600 notebooks

test-all: .venv/installed-dev
	.venv/bin/specviz fetch
	$(PYTEST) -m "not gpu"
	$(PYTEST) --nbmake --nbmake-timeout=600 notebooks

# On a machine with a GPU, in the environment that is active there: conda's has nvcc and exllamav3.
# EXL3_TARGET and EXL3_DRAFT name model folders; without them only small models are used.
test-gpu:
	$(PYTHON) -m pytest -m gpu -ra tests/gpu --gpu-report out/gpu_report.json

lab: .venv/installed-lab
	.venv/bin/jupyter lab notebooks/

bench: .venv/installed-dev
	.venv/bin/specviz fetch
	$(PY) -m tests.bench.bench

lint: .venv/installed-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find specviz tests -name __pycache__ -type d -prune -exec rm -rf {} +

# -- installing, once: a stamp in .venv says that it is done ----------------------------------
# The tests run exllamav3's Python code without its GPU companions, hence --no-deps.

.venv/installed-engine: EXTRAS = engine
.venv/installed-lab: EXTRAS = engine,lab,stats
.venv/installed-dev: EXTRAS = engine,lab,dev

.venv/installed-%: .venv/torch pyproject.toml constraints.txt
	@echo "Installing specviz with [$(EXTRAS)] into .venv; the first time takes some minutes."
	$(PIP) -e ".[$(EXTRAS)]"
	$(if $(findstring dev,$(EXTRAS)),$(PIP) --no-deps exllamav3 pillow dflash)
	@touch $@

# torch alone comes from TORCH_INDEX, and what it depends on from the usual index with the rest
.venv/torch: .venv/bin/python
	$(if $(TORCH_INDEX),$(PIP) --no-deps --index-url $(TORCH_INDEX) torch)
	@touch $@

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "specviz needs Python 3.11 or newer, and '$(PYTHON)' is older or missing:" \
	    "name one with make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; \
	  echo "'$(PYTHON)' cannot make a virtual environment: on Debian and Ubuntu," \
	    "install its venv package (apt-get install python3-venv)"; exit 1; }
