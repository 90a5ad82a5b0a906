#!/usr/bin/env bash
# clang-tidy over the library, the faces and the program. Argument: a configured build folder.
# Files that are compiled once per SIMD target are left out: their constants differ by target, which
# the checks take for mistakes; the compilers' warnings and the sanitizers cover them.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
git ls-files 'src/*.cc' | while read -r file; do
  grep -q HWY_TARGET_INCLUDE "$file" && continue
  if grep -q "\"file\": \"$PWD/$file\"" "$build/compile_commands.json"; then echo "$file"; fi
done | xargs -P "$(nproc)" -I{} sh -c '
  clang-tidy-14 -p "$0" --quiet {} 2>/dev/null || { echo "clang-tidy: {}" >&2; exit 1; }' "$build"
echo "lint: clang-tidy is clean"
