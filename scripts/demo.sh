#!/usr/bin/env bash
# `make demo`: installs what is missing, builds the Python package, then trains and reports.
# Arguments go to python -m anabranch.demo.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh python
scripts/python_env.sh demo
exec "${VENV:-build/venv}/bin/python" -m anabranch.demo "$@"
