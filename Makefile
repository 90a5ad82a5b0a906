# A thin face over the CMake presets. `make help` lists the targets.
SHELL := /bin/bash
JOBS ?= $(shell nproc)
PREFIX ?= $(CURDIR)/out/prefix
TEXT ?= README.md
BUILD := build/release
# More arguments for the configuration, e.g. CMAKE_ARGS=-DANABRANCH_WERROR=ON.
CMAKE_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test check bench build install format lint floors asan tsan site test-torch-versions clean setup

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup:
	@scripts/setup.sh

build: setup  ## build everything (installs what is missing)
	@cmake --preset release $(CMAKE_ARGS) >/dev/null
	@cmake --build --preset release -j $(JOBS)

demo: build  ## build, check, a quick benchmark, and two programs on real input (TEXT=file)
	@scripts/demo.sh $(BUILD) $(TEXT)

test: build  ## build and run all tests: C++, C, documents, Python
	@scripts/setup.sh python
	@ctest --preset release -j $(JOBS)
	@scripts/python_tests.sh

check: build  ## random awkward calls of every operator against its definition
	@$(BUILD)/src/tools/anabranch check

bench: build  ## speed against the roofs of this machine
	@$(BUILD)/src/tools/anabranch bench

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

asan tsan: setup  ## fast tests under address+undefined / thread sanitizer
	@scripts/sanitize.sh $@ $(JOBS)

clean:  ## remove what was built
	@rm -rf build out dist
