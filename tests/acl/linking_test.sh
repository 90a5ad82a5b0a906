#!/usr/bin/env bash
# Programs linked with the library names in any order and subset run, and several names opened in
# one process are one library. Arguments: the aclnn_compat folder, this folder.
set -euo pipefail
# shellcheck disable=SC1091
source "$1/set_env.sh"
here=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build() {
  g++ -std=c++11 "$here/linking_program.cpp" -I"$ASCEND_HOME_PATH/include" \
    -L"$ASCEND_HOME_PATH/lib64" "$@" -ldl -o "$work/program"
  "$work/program"
}
build -lascendcl -lnnopbase -lopapi
build -lopapi -lnnopbase -lascendcl
build -lcust_opapi -lascendcl
build -lascendcl -lnnopbase -lopapi_transformer -lopapi_nn -lopapi_math -lacl_rt -lc_sec
build -lnnopbase

# Every function that a header declares is there, and nothing else is.
headers=$(find -L "$ASCEND_HOME_PATH/include" -name '*.h')
# shellcheck disable=SC2086
sed 's/ACL_FUNC_VISIBILITY/\n&/g; s/__attribute__((visibility("default")))/\nACL_FUNC_VISIBILITY/g' $headers |
  tr '\n' ' ' | sed 's/ACL_FUNC_VISIBILITY/\n&/g' | grep -v '^#' |
  sed -n 's/^ACL_FUNC_VISIBILITY [^(]*[ *]\([A-Za-z_0-9]*\)(.*/\1/p' | grep -v '^$' | sort -u >"$work/declared"
nm -D --defined-only "$ASCEND_HOME_PATH/lib64/libopapi.so" | awk '$2 == "T" {print $3}' |
  sort -u >"$work/exported"
[ "$(wc -l <"$work/declared")" -ge 100 ] || { echo "only $(wc -l <"$work/declared") declarations found" >&2; exit 1; }
diff "$work/declared" "$work/exported" || { echo "declared (<) and exported (>) functions differ" >&2; exit 1; }
echo "linking_test: ok"
