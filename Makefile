# make serve   the models that ship with Quire on http://127.0.0.1:8000; MODEL=path/to/checkpoint serves another one
# make test    all tests but the slow ones (PYTEST_ARGS="-m slow" for those)
# make lint    ruff and mypy
# make format  let ruff lay out the code
#
# Without an NVIDIA GPU, torch is its CPU build, 0.2 GB where pip's default for Linux brings gigabytes of CUDA.
# TORCH_INDEX_URL=https://... make serve takes it from there instead; an empty one is pip's default.

PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11 python3.14,\
  $(shell $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $(p))))
VENV := .venv
BIN := $(VENV)/bin
# What nobody imports needs no bytecode, and the kernels are compiled beside it: the compiler has a core of its own.
INSTALL := QUIRE_KERNELS=none $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt
# Several goals are made one after the other: `make clean test`.
MAKEFLAGS += $(if $(word 2,$(MAKECMDGOALS)),,--jobs=2)

MODEL ?=
HOST ?= 127.0.0.1
PORT ?= 8000
SERVE_ARGS ?=
PYTEST_ARGS ?=
# A few workers are enough: every one of them loads torch and the reference implementation.
PYTEST_WORKERS ?= -n auto --maxprocesses 4 --dist worksteal

.PHONY: serve test lint format clean

serve: $(VENV)/.installed $(VENV)/.kernels
	@$(BIN)/quire serve $(if $(MODEL),--model $(MODEL)) --host $(HOST) --port $(PORT) $(SERVE_ARGS) || test $$? -eq 130 # Ctrl-C

# One thread a worker: tests are many small operations, and threads that wait for each other make them slow.
test: $(VENV)/.installed-dev $(VENV)/.kernels
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_WORKERS) $(PYTEST_ARGS)

lint: $(VENV)/.installed-dev $(VENV)/.kernels
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# A fresh environment whenever what goes into it changes. Torch alone may come from an index of its own.
$(VENV)/.environment: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Quire needs Python 3.11 or newer; name one: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@$(INSTALL) --upgrade pip || true # the one that Python brings does too, but takes three times as long
	@index=$$($(BIN)/python tools/torch_index.py); if [ -n "$$index" ]; then $(INSTALL) --no-deps --index-url "$$index" torch; fi
	@touch $@

$(VENV)/.installed: $(VENV)/.environment
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.environment
	$(INSTALL) --editable '.[dev]'
	@touch $(VENV)/.installed $@

# They are compiled again once their sources change. Without a compiler torch does their work.
$(VENV)/.kernels: $(VENV)/.environment $(wildcard src/quire/kernels/csrc/*) src/quire/kernels/build.py
	@$(BIN)/python src/quire/kernels/build.py >/dev/null || true
	@touch $@

clean:
	rm -rf $(VENV) src/quire/kernels/lib .mypy_cache .pytest_cache .ruff_cache .hypothesis
