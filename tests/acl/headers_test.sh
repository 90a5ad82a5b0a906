#!/usr/bin/env bash
# Every header compiles alone, as C99 and as C++11, without a warning. Argument: the include folder.
set -euo pipefail
include=$1
count=0
while read -r header; do
  line="#include \"${header#./}\""
  flags=(-pedantic -Wall -Wextra -Werror -Wno-unused-const-variable -I"$include" -fsyntax-only -)
  gcc -x c -std=c99 "${flags[@]}" <<<"$line"
  g++ -x c++ -std=c++11 "${flags[@]}" <<<"$line"
  count=$((count + 1))
done < <(cd "$include" && find . -name '*.h')
[ "$count" -ge 10 ] || { echo "only $count headers found in $include" >&2; exit 1; }
echo "headers_test: $count headers"
