#!/usr/bin/env bash
# clang-tidy over the library, the faces and the program. Argument: a configured build folder.
# src/torch is checked with the build of the Python package (scripts/python_tests.sh makes it), since
# it needs the headers of PyTorch; without one it is left out, and that is said.
# Files that are compiled once per SIMD target are left out: their constants differ by target, which
# the checks take for mistakes; the compilers' warnings and the sanitizers cover them.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}

# tidy BUILD PATTERN: every tracked file of PATTERN that BUILD compiles.
tidy() {
  git ls-files "$2" | while read -r file; do
    grep -q HWY_TARGET_INCLUDE "$file" && continue
    if grep -q "\"file\": \"$PWD/$file\"" "$1/compile_commands.json"; then echo "$file"; fi
  done | xargs -P "$(nproc)" -I{} sh -c '
    clang-tidy-14 -p "$0" --quiet {} 2>/dev/null || { echo "clang-tidy: {}" >&2; exit 1; }' "$1"
}

tidy "$build" 'src/*.cc'
if [ -e build/wheel/compile_commands.json ]; then
  tidy build/wheel 'src/torch/*.cc'
else
  echo "lint: src/torch is left out: the Python package is not built (scripts/python_tests.sh)"
fi
echo "lint: clang-tidy is clean"
