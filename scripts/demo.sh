#!/usr/bin/env bash
# `make demo`: installs what is missing, builds the Python package, then trains and reports.
# Arguments go to python -m anabranch.demo.
set -euo pipefail
cd "$(dirname "$0")/.."
# Threads that wait sleep: beside other programs a spinning one takes the time that the rest needs.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
scripts/setup.sh python
scripts/python_env.sh demo
exec "${VENV:-build/venv}/bin/python" -m anabranch.demo "$@"
