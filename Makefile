# A thin face over the CMake presets. `make help` lists the targets.
SHELL := /bin/bash
JOBS ?= $(shell nproc)
PREFIX ?= $(CURDIR)/out/prefix
TEXT ?= README.md
ARGS ?= --quick
SECONDS ?= 60
TARGETS ?=
TESTS ?= fast
BUILD := build/release
# More arguments for the configuration, e.g. CMAKE_ARGS=-DANABRANCH_WERROR=ON.
CMAKE_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test check bench roofs build install format lint floors asan tsan valgrind fuzz fuzz-repro
.PHONY: aarch64 site test-torch-versions clean setup

help:  ## this list
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup:
	@scripts/setup.sh

build: setup  ## build everything (installs what is missing)
	@cmake --preset release $(CMAKE_ARGS) >/dev/null
	@cmake --build --preset release -j $(JOBS)

demo:  ## train three small Transformers on real text, write a report (STEPS=300 OUT=folder FRESH=1)
	@scripts/demo.sh $(if $(STEPS),--steps '$(STEPS)') $(if $(OUT),--out '$(OUT)') $(if $(FRESH),--fresh)

test: build  ## build and run all tests: C++, C, documents, Python
	@scripts/setup.sh python
	@ctest --preset release -j $(JOBS)
	@scripts/python_tests.sh

check: build  ## random awkward calls of every operator against its definition; examples on TEXT=file
	@$(BUILD)/src/tools/anabranch info
	@$(BUILD)/src/tools/anabranch check
	@$(BUILD)/examples/cpp_mhc_post $(TEXT)
	@$(BUILD)/examples/aclnn_mhc_post $(TEXT)

bench: build  ## speed beside PyTorch's alternatives and against the roofs (ARGS=: a quarter of an hour; else ARGS=--quick)
	@scripts/python_env.sh bench
	@build/venv/bin/python bench/suite.py --program $(BUILD)/src/tools/anabranch $(ARGS)

roofs: build  ## speed of the operators against the roofs of this machine alone
	@$(BUILD)/src/tools/anabranch bench $(if $(ARGS),$(ARGS))

install: build  ## install under PREFIX=DIR
	@cmake --install $(BUILD) --prefix $(PREFIX)

format:  ## reformat the C and C++ sources
	@scripts/setup.sh lint
	@scripts/format.sh --fix

lint:  ## format check, floors, clang-tidy, ruff, mypy
	@scripts/setup.sh lint
	@scripts/format.sh
	@python3 scripts/check_floors.py
	@scripts/lint.sh $(BUILD)
	@scripts/lint_python.sh

site:  ## documentation pages in build/site, from docs/ and the docstrings
	@scripts/setup.sh python
	@scripts/site.sh

test-torch-versions: setup  ## Python tests with the lowest and the newest PyTorch (about 5 GB each)
	@scripts/setup.sh python
	@scripts/torch_versions.sh

floors:  ## the arrows between the floors of the house
	@python3 scripts/check_floors.py

asan tsan: setup  ## tests under address+undefined / thread sanitizer (TESTS=fast or all)
	@scripts/sanitize.sh $@ $(JOBS) $(TESTS)

valgrind: build  ## part of the tests under valgrind
	@scripts/valgrind.sh $(BUILD) $(JOBS)

fuzz: setup  ## fuzz every target for SECONDS=60 each, JOBS side by side
	@scripts/fuzz.sh --seconds $(SECONDS) --jobs $(JOBS) $(TARGETS)

fuzz-repro:  ## run one input of a fuzz target again: INPUT=file
	@scripts/fuzz.sh --repro $(INPUT)

aarch64:  ## cross build for 64-bit Arm, fast tests under qemu-user
	@scripts/setup.sh aarch64
	@cmake --preset aarch64 $(CMAKE_ARGS) >/dev/null
	@cmake --build --preset aarch64 -j $(JOBS)
	@ctest --preset aarch64 -j $(JOBS) -LE 'slow|install'

clean:  ## remove what was built
	@rm -rf build out dist
