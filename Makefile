# make env | test | lint | demo | bench | docs | conformance | fuzz | long | models | clean.  PYTHON=... picks another interpreter.

new_enough := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13 python3.14; do \
    $$p $(new_enough) 2>/dev/null && echo $$p && break; done)
VENV := .venv
RUN := $(VENV)/bin/python
PYTEST := $(RUN) -m pytest

.PHONY: env test lint demo bench docs conformance fuzz long models clean

env: $(VENV)/installed

# Made again whenever the dependencies may have changed.
$(VENV)/installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "planish needs Python 3.11 or newer, and none was found" >&2; exit 1; }
	@echo "installing planish and what its tests need into $(VENV) ..."
	@$(RUN) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

test: env
	HYPOTHESIS_PROFILE=ci $(PYTEST) -n 2 --timeout 300

lint: env
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

demo: env
	$(RUN) examples/demo.py

# Measure anew what benchmarks/README.md shows. TABLES: which; MODELS: ONNX files or folders of them.
TABLES ?= kernels models start
THREADS ?= 1,2
MODELS ?=
bench: env
ifneq (,$(filter kernels,$(TABLES)))
	$(RUN) benchmarks/kernels.py --threads $(THREADS) --update
endif
ifneq (,$(filter models,$(TABLES)))
	$(if $(MODELS),$(RUN) benchmarks/networks.py $(MODELS) --threads $(THREADS) --update,@echo "models: none named")
endif
ifneq (,$(filter start,$(TABLES)))
	$(if $(MODELS),$(RUN) benchmarks/start.py $(MODELS) --update,@echo "start: no models named")
endif

# What the documents quote from the program, and docs/operators.md.
docs: env
	$(RUN) docs/generate.py

# What ONNX's backend tests say: written to src/planish/conformance.json, for `planish ops` and docs.
conformance: env
	-$(RUN) tests/conformance/run.py

# Look for faults for SECONDS, in cases made by chance: what is found is written to build/fuzz.
SECONDS ?= 600
fuzz: env
	$(RUN) tests/fuzz/run.py --seconds $(SECONDS)

long: env
	HYPOTHESIS_PROFILE=ci $(PYTEST) -m long

# Every pretrained network that RECIPES makes: is it right, how fast is it? NAMES: which, if not all.
RECIPES ?= ../shared/models/real.py
NAMES ?=
models: env
	$(RUN) benchmarks/pretrained.py $(RECIPES) $(NAMES) --threads $(THREADS) --update

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
