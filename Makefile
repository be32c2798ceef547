# make demo    set up, capture Llama-3 8B's training step on 64x8 devices, check, look at it, simulate
# make test    set up with the development tools; lint, types, a test of every behaviour
# make test-all   install all extras and a headless browser too; all tests, and a list of the skipped
# make test-jax   whole JAX programs in other versions of jax, part of make test-all; from 0.11 on
#              these need python3.12
# make test-torch  the PyTorch frontend in other versions of torch: 6 GB of disk each where pip finds
#              CUDA builds only
# make test-programs  training programs of other packages, captured and really run
# make test-drawn  programs drawn from numbers, captured and really run: make test-drawn DRAWN=100-140
# make coverage  which lines and branches make test runs
# make torture    commands killed at random moments, disks full: make torture TIMES=500; docs/reliability.md
# make fuzz    damaged inputs for every reader: make fuzz INPUTS=100000; docs/reliability.md
# make lint    ruff and mypy alone              make format  let ruff rewrite the layout
# make bench   time and memory, as tables and plots
# make validate  run the tiny models for real, compare with their captures: docs/validation.md
# make clean   remove what the targets above made, the virtual environment included
#
# All that is needed is python3 (>= 3.11) with venv and pip. Another interpreter: make PYTHON=python3.12
# The tests import torch. Where pip would fetch its CUDA build, point PIP_EXTRA_INDEX_URL or
# PIP_FIND_LINKS at CPU wheels first.

PYTHON  ?= python3
PYTHON_3_12 ?= python3.12
VENV    ?= .venv
WORKERS ?= auto

BIN     := $(VENV)/bin
RUN     := $(VENV)/.installed
DEV     := $(VENV)/.installed-dev
EXTRAS  := $(VENV)/.installed-extras
PYTEST   = -n $(WORKERS) --maxprocesses 8 --dist loadgroup
TYPING  := build/typing/flint
# Python compiles what it imports; compiling all that is installed takes longer than installing it.
PIP     := --quiet --disable-pip-version-check --no-compile
# Keep what is compiled, also where the machine says otherwise (containers do): else every process
# compiles PyTorch again.
unexport PYTHONDONTWRITEBYTECODE

STEP    := models/jax/llama3.py:train_8b
OUT     := out/llama3-8b

.PHONY: demo test test-all test-jax test-torch test-programs test-drawn fuzz torture coverage browser lint format types imports bench validate clean
.DELETE_ON_ERROR:

demo: $(RUN)
	rm -rf $(OUT)
	$(BIN)/flint capture $(STEP) --mesh 64,8 -o $(OUT)
	$(BIN)/flint check $(OUT)
	$(BIN)/flint inspect $(OUT)
	$(BIN)/flint simulate $(OUT)

# mypy keeps one core busy, so it runs beside the tests. What lint says comes last.
test: $(DEV)
	@mkdir -p build; $(MAKE) --no-print-directory lint >build/lint.log 2>&1 & lint=$$!; \
	$(BIN)/python -m pytest -m "not thorough" $(PYTEST); tests=$$?; \
	wait $$lint; lint=$$?; cat build/lint.log; \
	echo "exit status: tests $$tests, lint $$lint"; test "$$tests $$lint" = "0 0"

# Lines and branches that the tests of `make test` run, in child processes too.
coverage: $(DEV)
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run --source=$(CURDIR)/flint,$(CURDIR)/frontends,$(CURDIR)/converters \
	    -m pytest -m "not thorough" $(PYTEST); tests=$$?; \
	$(BIN)/python -m coverage combine --quiet; $(BIN)/python -m coverage report; exit $$tests

# Everything, and what was skipped. JAX prints that it finds no GPU; it is right.
test-all: lint $(EXTRAS) browser
	JAX_PLATFORMS=cpu HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -rs $(PYTEST)
	$(MAKE) --no-print-directory test-jax

# Other versions of jax, each in a virtual environment of its own: whole programs, and steps of
# several programs, against what that version compiles.
JAX_VERSIONS ?= 0.8.3 0.9.2 0.10.0 0.11.2 0.12.0.1
JAX_TESTS    := tests/frontends/jax/programs tests/frontends/jax/test_sequences.py \
    tests/frontends/jax/test_platform_forms.py
test-jax: $(JAX_VERSIONS:%=build/jax-%/.tested)

build/jax-%/.tested: FORCE
	test -x build/jax-$*/bin/python \
	    || $(if $(filter 0.8.% 0.9.% 0.10.%,$*),$(PYTHON),$(PYTHON_3_12)) -m venv build/jax-$*
	build/jax-$*/bin/python -m pip install $(PIP) -e . "jax==$*" "jaxlib==$*" \
	    equinox flax hypothesis optax "pytest>=8.2,<9.2" pytest-xdist
	build/jax-$*/bin/python -m pytest $(PYTEST) $(JAX_TESTS)

# Training programs of other packages, captured and really run: each environment has the packages of
# one file of tests/programs/packages, and what Flint's own has. README's table is made of the results.
PROGRAMS  ?= $(basename $(notdir $(wildcard tests/programs/requirements/*.txt)))
SITE      := import sysconfig; print(sysconfig.get_path("purelib"))
test-programs: $(PROGRAMS:%=build/programs/%/.tested)
	$(BIN)/python -m pytest tests/programs tests/frontends/jax/programs/test_against_runs.py
	$(BIN)/python -m tests.programs.results

DRAWN ?= 1-20
test-drawn: $(DEV)
	DRAWN=$(DRAWN) $(BIN)/python -m pytest tests/programs/test_drawn.py

build/programs/%/.tested: $(DEV) FORCE
	test -x build/programs/$*/bin/python || $(PYTHON) -m venv build/programs/$*
	echo "import site; site.addsitedir('$$($(BIN)/python -c '$(SITE)')')" \
	    >"$$(build/programs/$*/bin/python -c '$(SITE)')/shared.pth"
	build/programs/$*/bin/python -m pip install $(PIP) -r tests/programs/requirements/$*.txt
	build/programs/$*/bin/python -m pytest tests/programs -k "$* and not results"

# MaxText needs a newer Python than Flint's own environment may have, and shares nothing with it.
build/programs/maxtext/.tested: FORCE
	test -x build/programs/maxtext/bin/python || $(PYTHON_3_12) -m venv build/programs/maxtext
	build/programs/maxtext/bin/python -m pip install $(PIP) -e . hypothesis "pytest>=8.2,<9.2" \
	    -r tests/programs/requirements/maxtext.txt
	build/programs/maxtext/bin/python -m pytest tests/programs -k "maxtext and not results"

# Other versions of torch, with libraries whose data sets and models Flint makes up.
TORCH_VERSIONS ?= 2.12.1 2.14.1
TORCH_TESTS    := tests/frontends/torch tests/programs/test_programs.py
test-torch: $(TORCH_VERSIONS:%=build/torch-%/.tested)

build/torch-%/.tested: FORCE
	test -x build/torch-$*/bin/python || $(PYTHON) -m venv build/torch-$*
	build/torch-$*/bin/python -m pip install $(PIP) -e . "torch==$*" torchvision accelerate \
	    datasets hypothesis tiktoken transformers "pytest>=8.2,<9.2" pytest-xdist
	JAX_PLATFORMS=cpu build/torch-$*/bin/python -m pytest -m "not thorough" $(PYTEST) $(TORCH_TESTS)

FORCE:

# What is found lies in build/fuzz.
INPUTS ?= 10000
fuzz: $(DEV)
	$(BIN)/python -m tests.fuzz --inputs $(INPUTS)
	$(BIN)/python -m tests.fuzz.orders --sets $(INPUTS)

TIMES ?= 500
STEP ?= 1
torture: $(DEV)
	JAX_PLATFORMS=cpu $(BIN)/python -m tests.torture --times $(TIMES) --full-disk --step $(STEP)

browser:
	@command -v chromium chromium-browser google-chrome >/dev/null 2>&1 \
	    || { command -v apt-get >/dev/null && apt-get -qq update && apt-get -qq install -y chromium; } \
	    || echo "no headless browser: its tests are skipped" >&2

lint: $(DEV)
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check
	$(MAKE) --no-print-directory imports types

format: $(DEV)
	$(BIN)/python -m ruff check --fix
	$(BIN)/python -m ruff format

# mypy knows nothing of [tool.setuptools.package-dir]: it finds ./flint and then looks for
# flint.converters inside it. It takes namespace packages from its search path, though, so a folder
# `flint` without __init__.py whose entries link to the three folders, named as mypy_path in
# pyproject.toml, is enough; which packages to check stands there too.
types: $(DEV)
	mkdir -p $(TYPING)
	for folder in frontends converters models; do \
	    ln -sfn ../../../$$folder $(TYPING)/$$folder || exit 1; done
	$(BIN)/python -m mypy

# import-linter looks for a package's modules in its folder, so it gets a copy in which the three
# folders beside flint/ lie inside it, as an installation has them.
imports: $(DEV)
	rm -rf build/imports && mkdir -p build/imports && cp -R flint build/imports/flint
	cp -R frontends converters models build/imports/flint
	cd build/imports && ../../$(BIN)/lint-imports --config ../../pyproject.toml

bench: $(DEV)
	$(BIN)/python benchmarks/run.py

validate: $(DEV)
	$(BIN)/python -m tests.validation.table docs/validation.md

clean:
	rm -rf $(VENV) build dist out *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps: installed once, and again when pyproject.toml changes.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "flint needs Python >= 3.11 and $(PYTHON) is older: make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(RUN): pyproject.toml setup.py install.py | $(BIN)/python
	$(BIN)/python install.py .
	@touch $@

$(DEV): pyproject.toml setup.py install.py | $(BIN)/python
	$(BIN)/python install.py '.[dev,torch]'
	@touch $(RUN) $@

$(EXTRAS): pyproject.toml setup.py install.py | $(DEV)
	$(BIN)/python install.py '.[gpu,tpu,cluster,oracles]'
	@touch $@
