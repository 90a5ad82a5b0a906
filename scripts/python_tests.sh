#!/usr/bin/env bash
# Installs the Python package into an environment of its own (VENV, default build/venv) and runs its
# tests. Arguments go to pytest; none: everything that is not slow.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/python_env.sh test
if [ $# -gt 0 ]; then
  exec "${VENV:-build/venv}/bin/python" -m pytest "$@"
else
  exec "${VENV:-build/venv}/bin/python" -m pytest tests/python -m "not slow"
fi
