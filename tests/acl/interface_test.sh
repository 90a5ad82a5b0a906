#!/usr/bin/env bash
# Everything of interface.def exists with its signature and number, seen from C99 and from C++11,
# and every function is called by a test. Arguments: the aclnn_compat folder, this folder.
set -euo pipefail
# shellcheck disable=SC1091
source "$1/set_env.sh"
here=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=(-Wall -Wextra -Werror -Wno-unused-const-variable -Wno-address -I"$ASCEND_HOME_PATH/include")
libraries=(-L"$ASCEND_HOME_PATH/lib64" -lascendcl -lnnopbase -lopapi)
gcc -x c -std=c99 -pedantic "${flags[@]}" "$here/interface.c" -o "$work/c" "${libraries[@]}"
g++ -x c++ -std=c++11 -Wno-pedantic "${flags[@]}" "$here/interface.c" -o "$work/cpp" "${libraries[@]}"
"$work/c"
"$work/cpp"

sed 's|//.*||' "$here"/*.cc "$here"/*.cpp >"$work/tests"
missing=0
while read -r name; do
  # By name, or passed on to be called; comments do not count.
  if ! grep -qw "$name" "$work/tests"; then
    echo "$name is called by no test in tests/acl" >&2
    missing=$((missing + 1))
  fi
done < <(sed -n 's/^F([^,]*, \([A-Za-z0-9_]*\),.*/\1/p' "$here/interface.def")
[ "$missing" = 0 ] || exit 1
echo "interface_test: $(grep -c '^F' "$here/interface.def") functions," \
  "$(grep -c '^V' "$here/interface.def") values"
