#!/usr/bin/env bash
# ruff and mypy --strict over the Python package, its tests and scripts, in the environment of
# scripts/python_tests.sh (VENV, default build/venv).
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-build/venv}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
python=$venv/bin/python
"$python" -c 'import torch, mypy, ruff' 2>/dev/null ||
  "$python" -m pip install -q --disable-pip-version-check torch mypy ruff
"$python" -m ruff check python tests/python scripts bench
MYPYPATH=python "$python" -m mypy --strict -p anabranch
echo "lint: ruff and mypy are clean"
