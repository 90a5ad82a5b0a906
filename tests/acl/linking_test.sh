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
names=(ascendcl acl_rt nnopbase opapi opapi_math opapi_nn opapi_transformer cust_opapi c_sec)
# The usual line, turned round, every name alone, and all of them in two orders.
build -lascendcl -lnnopbase -lopapi
build -lopapi -lnnopbase -lascendcl
for name in "${names[@]}"; do build "-l$name"; done
build "${names[@]/#/-l}"
mapfile -t reversed < <(printf -- '-l%s\n' "${names[@]}" | sort -r)
build "${reversed[@]}"
# Pairs: whatever two a project happens to name.
for k in "${!names[@]}"; do
  build "-l${names[$k]}" "-l${names[$(((k + 4) % ${#names[@]}))]}"
done

# Whole programs in the published style: one in C99, and the examples, by the plain line.
libraries=(-L"$ASCEND_HOME_PATH/lib64" -lascendcl -lnnopbase -lopapi)
gcc -std=c99 -pedantic -Wall -Wextra -Werror -Wno-unused-const-variable "$here/c99_program.c" \
  -I"$ASCEND_HOME_PATH/include" "${libraries[@]}" -o "$work/c99"
"$work/c99"
for example in "$here"/../../examples/aclnn/*.cpp; do
  g++ -std=c++11 "$example" -I"$ASCEND_HOME_PATH/include" "${libraries[@]}" -o "$work/example"
  "$work/example" "$here/../../README.md" >"$work/printed" || { cat "$work/printed"; exit 1; }
done

# A program that is linked with no name opens two plugins that are linked with different ones.
plugin() {
  g++ -std=c++11 -shared -fPIC "$here/plugin.cpp" -I"$ASCEND_HOME_PATH/include" \
    -L"$ASCEND_HOME_PATH/lib64" "${@:2}" -o "$1"
}
plugin "$work/one.so" -lascendcl -lnnopbase -lopapi
plugin "$work/two.so" -lcust_opapi -lacl_rt
g++ -std=c++11 "$here/dlopen_program.cpp" -ldl -o "$work/dlopen"
"$work/dlopen" "$work/one.so" "$work/two.so"
"$work/dlopen" "$work/two.so" "$work/one.so"

# Destruction in any order.
g++ -std=c++11 "$here/destroy_program.cpp" -I"$ASCEND_HOME_PATH/include" \
  -L"$ASCEND_HOME_PATH/lib64" -lascendcl -lnnopbase -lopapi -o "$work/destroy"
"$work/destroy"

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
