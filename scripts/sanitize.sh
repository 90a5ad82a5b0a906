#!/usr/bin/env bash
# Builds with a sanitizer preset (asan or tsan) and runs the fast tests. Arguments: preset, jobs.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:?preset: asan or tsan}
jobs=${2:-$(nproc)}
cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset" -j "$jobs"
# oneTBB and Highway are not instrumented: what they do among themselves is not ours to report.
export TSAN_OPTIONS="suppressions=$PWD/scripts/tsan.supp halt_on_error=1"
export UBSAN_OPTIONS="print_stacktrace=1 halt_on_error=1"
export ASAN_OPTIONS="detect_leaks=1"
ctest --preset "$preset" -j "$jobs" -LE 'slow|install'
