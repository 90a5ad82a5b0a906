#!/usr/bin/env bash
# Builds and tests the Python package with the lowest and the newest PyTorch of the registry, each
# in an environment of its own under build/ (about 5 GB each, made once; removed with KEEP=0).
# TORCH_VERSIONS="2.10.0 newest" chooses; arguments go to pytest (none: all that is not slow).
set -euo pipefail
cd "$(dirname "$0")/.."
for version in ${TORCH_VERSIONS:-2.10.0 newest}; do
  venv=build/venv-$version
  pin=$version
  [ "$version" = newest ] && pin=
  VENV=$venv TORCH_VERSION=$pin BUILD_DIR=build/python-$version scripts/python_tests.sh "$@"
  "$venv/bin/python" -c 'import torch, anabranch
print(f"anabranch {anabranch.__version__} passes with PyTorch {torch.__version__}")'
  [ "${KEEP:-1}" = 1 ] || rm -rf "$venv" "build/python-$version"
done
