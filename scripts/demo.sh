#!/usr/bin/env bash
# What `make demo` shows. Arguments: build folder, text file.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?build folder}
text=${2:-README.md}
[ -r "$text" ] || { echo "demo: cannot read $text, expected a text file (TEXT=file)" >&2; exit 2; }
say() { printf '\n== %s\n' "$*"; }

say "This machine"
"$build/src/tools/anabranch" info
say "Every operator against its double-precision definition"
"$build/src/tools/anabranch" check --cases 200
say "A quick benchmark against this machine's roofs"
"$build/src/tools/anabranch" bench --quick
say "C++: $text as a residual stream, mixed by mhc_post"
"$build/examples/cpp_mhc_post" "$text"
say "The same through the aclnn calls"
"$build/examples/aclnn_mhc_post" "$text"
