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
echo "linking_test: ok"
