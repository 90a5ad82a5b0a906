#!/usr/bin/env bash
# Installs the build into an empty prefix and uses it from there as three kinds of users would:
# CMake's find_package, pkg-config, and the plain compiler line of an aclnn program.
# Arguments: build folder, source folder.
set -euo pipefail
build=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
cmake --install "$build" --prefix "$prefix" >/dev/null

echo "-- find_package"
cmake -S "$source/tests/consumer" -B "$work/consumer" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$work/consumer" >/dev/null
"$work/consumer/consumer"

echo "-- pkg-config"
pc=$(dirname "$(find "$prefix" -name anabranch.pc)")
export PKG_CONFIG_PATH=$pc
lib=$(realpath "$(pkg-config --variable=libdir anabranch)")
[ "$lib" = "$(realpath "$pc/..")" ] || { echo "anabranch.pc: libdir is $lib, expected the prefix" >&2; exit 1; }
# shellcheck disable=SC2046
c++ -std=c++17 "$source/tests/consumer/main.cc" $(pkg-config --cflags --libs anabranch) -o "$work/pc"
LD_LIBRARY_PATH=$lib "$work/pc"

echo "-- installed program"
"$prefix/bin/anabranch" info >/dev/null

echo "-- plain aclnn line"
(
  set +u
  # shellcheck disable=SC1091
  source "$prefix/aclnn_compat/set_env.sh"
  cd "$work"
  g++ -std=c++11 -I"$source/examples/aclnn" "$source/examples/aclnn/mhc_post.cpp" \
    -I"$ASCEND_HOME_PATH/include" -L"$ASCEND_HOME_PATH/lib64" -lascendcl -lnnopbase -lopapi -o plain
  ./plain "$source/README.md"
)
echo "install_test: ok"
