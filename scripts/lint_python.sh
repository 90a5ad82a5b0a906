#!/usr/bin/env bash
# ruff and mypy --strict over the Python package, its tests and scripts, in the environment of
# scripts/python_env.sh (VENV, default build/venv).
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/python_env.sh test lint
python=${VENV:-build/venv}/bin/python
"$python" -m ruff check python tests/python scripts bench
MYPYPATH=python "$python" -m mypy --strict -p anabranch
echo "lint: ruff and mypy are clean"
