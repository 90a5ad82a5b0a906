#!/usr/bin/env bash
# Part of the C++ tests under valgrind, on the ordinary build: what the sanitizers do not see, such
# as values that were never written. Arguments: build folder, jobs.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
jobs=${2:-$(nproc)}
scripts/setup.sh valgrind
# valgrind knows AVX2 and no AVX-512.
export ANABRANCH_TARGET=${ANABRANCH_TARGET:-avx2}
run() {
  local program=$1 filter=$2
  echo "-- $program $filter"
  valgrind --quiet --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite \
    --suppressions=scripts/valgrind.supp "$build/tests/$program" --gtest_filter="$filter" \
    --gtest_brief=1
}
export -f run
export build
# Programs and the tests of theirs that end within seconds there.
xargs -P "$jobs" -L 1 bash -c 'run "$0" "$1"' <<'LIST'
core_test *
acl/acl_runtime_test *
acl/acl_mhc_post_test *
acl/acl_mhc_pre_test *
acl/acl_mhc_sinkhorn_test *
acl/acl_attn_res_test *
mhc_permutation_test -*Random*
LIST
"$build/src/tools/anabranch" check --cases 1 >/dev/null
valgrind --quiet --error-exitcode=9 "$build/src/tools/anabranch" check --cases 6 --threads 2
echo "valgrind: ok"
