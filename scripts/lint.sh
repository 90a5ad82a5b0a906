#!/usr/bin/env bash
# clang-tidy over the library, the faces and the program. Argument: a configured build folder.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
# Only files of the build's compilation database; kernels are compiled once per target inside one
# file, which multiplies their time, so they are checked for one target.
git ls-files 'src/*.cc' | while read -r file; do
  if grep -q "\"file\": \"$PWD/$file\"" "$build/compile_commands.json"; then echo "$file"; fi
done | xargs -P "$(nproc)" -I{} sh -c '
  clang-tidy-14 -p "$0" --quiet --extra-arg=-DHWY_COMPILE_ONLY_STATIC {} 2>/dev/null ||
    { echo "clang-tidy: {}" >&2; exit 255; }' "$build"
echo "lint: clang-tidy is clean"
