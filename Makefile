# make serve   serve the embedded models on http://127.0.0.1:8000, or another one with MODEL=path/to/checkpoint
# make test    run the tests, without the slow ones (PYTEST_ARGS="-m slow")
# make test-portable   some of them, as on a machine with AVX2 only that has just booted
# make test-clients    two turns with tools of nine client libraries, each in an environment of its own
# make lint    ruff, mypy, the prose lint and the schemas of deploy/
# make format  apply ruff's fixes and formatting
# make dist    the sdist and a manylinux wheel, in dist/
#
# `make serve` installs torch only where it computes: with an NVIDIA GPU, or without kernels. The other goals test and
# check with it. Without a GPU it is the CPU build (0.2 GB) instead of pip's default with CUDA (several GB).
# TORCH_INDEX_URL=https://... names another package index; an empty value selects pip's default.

PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11 python3.14,\
  $(shell $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $(p))))
VENV := .venv
BIN := $(VENV)/bin
# Bytecode is compiled on first import. The kernels are compiled in parallel to the installation, on another core.
INSTALL := QUIRE_KERNELS=none $(BIN)/python tools/pip_install.py --no-compile --constraint constraints.txt
# Only torch may come from an index of its own; its dependencies follow with the extra.
INSTALL_TORCH := index=$$($(BIN)/python tools/torch_index.py) && { test -z "$$index" || \
  { echo "Installing torch from $$index"; $(INSTALL) --no-deps --index-url "$$index" torch; }; }
# One goal runs its prerequisites in parallel; several goals run in sequence: `make clean test`.
MAKEFLAGS += $(if $(word 2,$(MAKECMDGOALS)),,--jobs=2)

MODEL ?=
HOST ?= 127.0.0.1
PORT ?= 8000
SERVE_ARGS ?=
PYTEST_ARGS ?=
# Each worker loads torch and transformers, so more than four cost more memory than they save time.
PYTEST_WORKERS ?= -n auto --maxprocesses 4 --dist worksteal

.PHONY: serve test test-portable test-clients lint format dist clean

serve: $(VENV)/.complete
	@$(BIN)/quire serve $(MODEL) --host $(HOST) --port $(PORT) $(SERVE_ARGS) || test $$? -eq 130 # Ctrl-C

# One thread per worker: tests run many small operations, and waiting threads slow them down.
test: $(VENV)/.installed-dev $(VENV)/.kernels
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_WORKERS) $(PYTEST_ARGS)

# The tests that depend on the processor and on the clock, as on a machine with AVX2 that has just booted.
PORTABLE_TESTS := tests/tiers tests/runner tests/models tests/attention tests/system \
  tests/async_engine/test_load_wait.py tests/engine/test_document_faults.py tests/engine/test_document_kv.py
test-portable: export ONEDNN_MAX_CPU_ISA := AVX2
test-portable: export ATEN_CPU_CAPABILITY := avx2
test-portable: export QUIRE_KERNELS := generic
test-portable: export QUIRE_TEST_UPTIME_S := 5
test-portable: PYTEST_ARGS := $(PORTABLE_TESTS)
test-portable: test

# Program in tests/server/agents/clients = packages, joined by +. Their requirements exclude each other.
CLIENTS := openai_agents=openai-agents instructor=instructor agno=agno+openai langchain_openai=langchain-openai \
  llama_index=llama-index-llms-openai-like pydantic_ai=pydantic-ai-slim[openai,anthropic] crewai=crewai \
  litellm=litellm anthropic_sdk=anthropic
test-clients: $(VENV)/.installed-dev $(VENV)/.kernels
	@for client in $(CLIENTS); do home=$(VENV)-clients/$${client%%=*}; test -e $$home/.installed && continue; \
	  echo "installing $${client#*=}"; $(BIN)/python -m venv $$home || exit 1; \
	  $$home/bin/python -m pip install --quiet $$(echo "$${client#*=}" | tr + ' ') && touch $$home/.installed; done
	OMP_NUM_THREADS=1 QUIRE_TEST_CLIENTS=$(VENV)-clients $(BIN)/python -m pytest -n0 -m slow \
	  tests/server/agents/test_client_libraries.py

lint: $(VENV)/.installed-dev $(VENV)/.kernels
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/prose.py
	$(BIN)/mypy
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec deploy/compose.yaml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/kubernetes-validate --strict --quiet --no-warn deploy/kubernetes.yaml deploy/kuberay.yaml

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# PyPI refuses linux_x86_64; auditwheel checks the symbols, adds libgomp and writes the manylinux tag.
dist: $(VENV)/.installed-dev
	$(BIN)/python -m build --no-isolation --outdir dist/unchecked .
	PATH=$(CURDIR)/$(BIN):$$PATH auditwheel repair --wheel-dir dist dist/unchecked/*.whl
	mv dist/unchecked/*.tar.gz dist/ && rm -r dist/unchecked

# A fresh environment for every change of the dependencies.
$(VENV)/.environment: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Quire needs Python 3.11 or newer; name one: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@echo "Creating $(VENV), once"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(INSTALL) --upgrade pip || true # the bundled pip works too, but takes three times as long
	@touch $@

$(VENV)/.installed: $(VENV)/.environment
	@echo "Installing Quire and its dependencies: 0.2 GB of disk and half a minute"
	@$(INSTALL) --editable .
	@touch $@

# pip runs after pip, since two at once would damage the environment.
$(VENV)/.complete: $(VENV)/.installed $(VENV)/.kernels-native
	@why=$$($(BIN)/python tools/torch_index.py --why); test -z "$$why" || \
	  { echo "$$why"; $(INSTALL_TORCH) && $(INSTALL) --editable '.[torch]'; }
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.environment
	@echo "Installing Quire with its development dependencies, torch and Triton among them: 2.6 GB of disk and a minute or two"
	@$(INSTALL_TORCH)
	@$(INSTALL) --editable '.[dev]'
	@touch $(VENV)/.installed $@

# Recompiled when their sources change. To serve, this processor's are enough: a third of the work.
$(VENV)/.kernels $(VENV)/.kernels-native: $(VENV)/.environment $(wildcard src/quire/kernels/csrc/*) src/quire/kernels/build.py
	@echo "Compiling the CPU kernels"
	@$(BIN)/python src/quire/kernels/build.py $(if $(findstring native,$@),--native) >/dev/null || true
	@touch $@

clean:
	rm -rf $(VENV) dist src/quire/kernels/lib .mypy_cache .pytest_cache .ruff_cache .hypothesis
