#!/usr/bin/env bash
# Builds with a sanitizer preset and runs the C++ tests. Arguments: preset (asan or tsan), jobs, and
# "all" for the slow ones too (without it: the fast tests).
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:?preset: asan or tsan}
jobs=${2:-$(nproc)}
which=${3:-fast}
case "$which" in
  fast) left_out='slow|install' ;;
  all) left_out='install' ;;
  *) echo "sanitize.sh: third argument is '$which', expected fast or all" >&2; exit 2 ;;
esac
cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset" -j "$jobs"
# oneTBB and Highway are not instrumented: what they do among themselves is not ours to report.
export TSAN_OPTIONS="suppressions=$PWD/scripts/tsan.supp halt_on_error=1 allocator_may_return_null=1"
export UBSAN_OPTIONS="print_stacktrace=1 halt_on_error=1"
export ASAN_OPTIONS="detect_leaks=1 allocator_may_return_null=1"
ctest --preset "$preset" -j "$jobs" -LE "$left_out"
