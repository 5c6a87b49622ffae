# One verb each; every verb makes .venv itself when it is missing.
.NOTPARALLEL:
.PHONY: setup demo test check tidy sanitize emulate wheel bench docs clean

# Where the environment forbids bytecode, every process would compile PyTorch again, in 3 s: the tests start hundreds.
export PYTHONDONTWRITEBYTECODE :=

PYTHON ?= python3
BIN := .venv/bin

SOURCES := pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/glassformer/native/csrc/*)
INSTALL := $(BIN)/python -m pip install --quiet --no-compile -c constraints.txt

setup: .venv/.ready

.venv/.made:
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@

# Builds the kernels, with the settings $(1), while PyTorch is installed; pip alone would do one after the other. The last
# line installs the other dependencies, and $(2). Compiling all of them to bytecode would take 30 s; Python does it on
# import. Each of the two installations first says that the other no longer counts: it deletes the kernels and builds
# others.
define install
$(INSTALL) torch & torch=$$!; trap "kill $$torch" INT TERM; \
	$(INSTALL) --no-deps $(1) -e .; built=$$?; wait $$torch && exit $$built
$(INSTALL) glassformer $(2)
endef

.venv/.ready: .venv/.made $(SOURCES)
	rm -f .venv/.installed
	$(call install,,--group dev)
	touch .venv/.installed $@

# The package without test dependencies, and its kernels for the best instruction set of this processor alone.
.venv/.installed: .venv/.made $(SOURCES)
	rm -f .venv/.ready
	$(call install,-C cmake.define.GLASSFORMER_BEST=ON,)
	touch $@

demo: .venv/.installed
	$(BIN)/glassformer demo

# Once more without the kernels: PyTorch does it all.
WITHOUT_KERNELS := tests/equivalence tests/generate tests/layers tests/train/test_step.py tests/predict/test_translator.py \
	--ignore tests/equivalence/test_descendants.py --ignore tests/equivalence/test_sparse_attention.py

test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal
	GLASSFORMER_ENGINE=torch OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal $(WITHOUT_KERNELS)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/clang-format --dry-run --Werror src/glassformer/native/csrc/*.h src/glassformer/native/csrc/*.cpp
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	.ci/types

# clang-tidy over the kernels for each instruction set; five minutes on two cores.
tidy:
	PYTHON=$(PYTHON) .ci/tidy

# Tests of the kernels with sanitizers; half an hour on two cores.
sanitize: setup
	.ci/sanitize

# Tests of the kernels for other x86 processors, and with vectors of 128 bits; twelve minutes on two cores.
emulate: setup
	.ci/emulate

# The wheel and the sdist in dist/, and a demo from the wheel where there is no compiler.
wheel:
	PYTHON=$(PYTHON) .ci/wheel

# Speed beside peers, which are installed into .peers; DATA holds train.en … test_2016_flickr.de, RUN a model trained on it.
DATA ?= ../shared/data/multi30k/raw
RUN ?= runs/multi30k
bench: setup
	$(BIN)/python -m benchmarks.training --data $(DATA)/train
	$(BIN)/python -m benchmarks.decoding $(RUN) --test $(DATA)/test_2016_flickr
	$(BIN)/python -m benchmarks.startup $(RUN)
	$(BIN)/python -m benchmarks.length

docs: setup
	$(BIN)/python docs/make_configuration.py
	$(BIN)/python docs/make_tensor_names.py

clean:
	rm -rf .venv .typescript build dist src/glassformer/native/lib
