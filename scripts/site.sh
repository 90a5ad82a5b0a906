#!/usr/bin/env bash
# Builds the documentation site into build/site: docs/, and the Python API from its docstrings. Any
# warning is an error. Needs no built package; pages load nothing from other hosts.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-build/venv}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
python=$venv/bin/python
"$python" -c 'import mkdocs, material, mkdocstrings_handlers.python, latex2mathml' 2>/dev/null ||
  "$python" -m pip install -q --disable-pip-version-check \
    mkdocs-material 'mkdocstrings[python]' latex2mathml
NO_MKDOCS_2_WARNING=1 "$python" -m mkdocs build --quiet --strict
echo "site: build/site/index.html"
