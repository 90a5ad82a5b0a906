#!/usr/bin/env bash
# Builds the fuzz targets (libFuzzer, ASan, UBSan) and runs each for a number of seconds.
#   scripts/fuzz.sh [--jobs N] [--seconds N] [TARGET...]    targets: args aclnn runtime program
#   scripts/fuzz.sh --repro FILE                            one input again, with a stack trace
#   scripts/fuzz.sh --random N [--seed S] [TARGET...]       N pseudo-random inputs in the release build:
#                   every SIMD target, ten times the calls a second, glibc's heap checks alone
# Inputs that are worth keeping collect under build/fuzz/corpus. A crash, a broken promise, a leak or
# a hang leaves its input under build/fuzz/crashes and ends with exit code 1.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/fuzz
seconds=60
jobs=1
repro=
random=
seed=1
targets=()
while [ $# -gt 0 ]; do
  case "$1" in
    --seconds) seconds=$2; shift 2 ;;
    --jobs) jobs=$2; shift 2 ;;
    --repro) repro=$2; shift 2 ;;
    --random) random=$2; shift 2 ;;
    --seed) seed=$2; shift 2 ;;
    args | aclnn | runtime | program) targets+=("$1"); shift ;;
    *) echo "fuzz.sh: unknown argument '$1', expected --seconds, --jobs, --random, --seed, --repro or a target" >&2; exit 2 ;;
  esac
done
[[ $seconds =~ ^[0-9]+$ && $seconds -gt 0 ]] || { echo "fuzz.sh: --seconds is '$seconds', expected a number > 0" >&2; exit 2; }
[[ $jobs =~ ^[0-9]+$ && $jobs -gt 0 ]] || { echo "fuzz.sh: --jobs is '$jobs', expected a number > 0" >&2; exit 2; }
[ ${#targets[@]} -gt 0 ] || targets=(args aclnn runtime program)

if [ -n "$random" ]; then
  [[ $random =~ ^[0-9]+$ && $seed =~ ^[0-9]+$ ]] || { echo "fuzz.sh: --random is '$random' and --seed '$seed', expected numbers" >&2; exit 2; }
  scripts/setup.sh
  cmake --preset release >/dev/null
  cmake --build build/release -j "$(nproc)" --target "${targets[@]/#/fuzz_}" | grep -vE '^\[|^ninja' || true
  debug=/lib/$(uname -m)-linux-gnu/libc_malloc_debug.so.0
  for target in "${targets[@]}"; do
    LD_PRELOAD=$debug GLIBC_TUNABLES=glibc.malloc.check=3:glibc.malloc.perturb=165 \
      "build/release/tests/fuzz/fuzz_$target" --seed "$seed" --random "$random"
  done
  exit 0
fi

export UBSAN_OPTIONS="print_stacktrace=1 halt_on_error=1"
export ASAN_OPTIONS="detect_leaks=1 allocator_may_return_null=1"
scripts/setup.sh fuzz
cmake --preset fuzz >/dev/null
wanted=("${targets[@]}")
if [ -n "$repro" ]; then
  [ -f "$repro" ] || { echo "fuzz.sh: no file $repro" >&2; exit 2; }
  name=$(basename "$repro")
  target=${name%%-*}
  [ -f "tests/fuzz/$target.cc" ] || target=$(basename "$(dirname "$repro")")
  [ -f "tests/fuzz/$target.cc" ] || { echo "fuzz.sh: $repro is neither TARGET-* nor in a folder TARGET" >&2; exit 2; }
  wanted=("$target")
fi
cmake --build "$build" -j "$(nproc)" --target "${wanted[@]/#/fuzz_}" | grep -vE '^\[|^ninja' || true
if [ -n "$repro" ]; then
  exec "$build/tests/fuzz/fuzz_$target" -timeout=60 "$repro"
fi

# What costs time and finds nothing is left out: long stack traces of allocations (--repro has
# them), freed memory kept by the hundred MiB or given back to the system, megabytes of stack (and
# of shadow memory) for every thread of a stream.
ASAN_OPTIONS+=" malloc_context_size=2 quarantine_size_mb=16 allocator_release_to_os_interval_ms=-1"
ulimit -s 512

mkdir -p "$build/crashes" "$build/logs"
run() {
  local target=$1
  local options=(-max_total_time="$seconds" -timeout=60 -rss_limit_mb=4096 -max_len=1024 -len_control=0
    -entropic=0  # weighing every feature of every input took half of the time
    -print_final_stats=1 -artifact_prefix="$build/crashes/$target-")
  [ ! -f "tests/fuzz/$target.dict" ] || options+=(-dict="tests/fuzz/$target.dict")
  mkdir -p "$build/corpus/$target"
  "$build/tests/fuzz/fuzz_$target" "${options[@]}" "$build/corpus/$target" \
    "tests/fuzz/inputs/$target" >"$build/logs/$target.log" 2>&1
}

# One line a target: executions, rate, calls, edges; or what went wrong.
report() {
  local target=$1 log=$build/logs/$1.log status=$2
  if [ "$status" != 0 ]; then
    echo "fuzz $target: FAILED (log: $log)"
    grep -E 'BROKEN|ERROR:|runtime error|SUMMARY|Test unit written' "$log" | head -8 | sed 's/^/  /'
    local input
    input=$(sed -n 's/.*Test unit written to //p' "$log" | head -1)
    [ -z "$input" ] || echo "  again: make fuzz-repro INPUT=$input"
    return
  fi
  local runs calls edges
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  calls=$(sed -n 's/^calls into the library.*: //p' "$log")
  edges=$(grep -oE 'cov: [0-9]+' "$log" | tail -1)
  echo "fuzz $target: ok, $runs inputs ($((runs / seconds)) a second), $calls calls, ${edges:-cov: 0} edges"
}

failed=0
declare -A running=()
finish() {  # one of those that run
  local pid target status
  while :; do
    for pid in "${!running[@]}"; do
      kill -0 "$pid" 2>/dev/null && continue
      target=${running[$pid]}
      status=0
      wait "$pid" || status=$?
      report "$target" "$status"
      [ "$status" = 0 ] || failed=1
      unset "running[$pid]"
      return
    done
    sleep 1
    if ((SECONDS % 10 == 0)); then
      for target in "${running[@]}"; do
        echo "  $target $(grep -E '^#[0-9]+' "$build/logs/$target.log" | tail -1 | cut -c1-90)"
      done
    fi
  done
}
for target in "${targets[@]}"; do
  run "$target" &
  running[$!]=$target
  [ ${#running[@]} -lt "$jobs" ] || finish
done
while [ ${#running[@]} -gt 0 ]; do finish; done
exit "$failed"
