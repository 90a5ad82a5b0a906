# Source this file: it names the folder that it lies in for compilers and the loader.
_anabranch_here="$(cd "$(dirname "${BASH_SOURCE[0]:-$0}")" && pwd)"
export ASCEND_HOME_PATH="$_anabranch_here"
export LD_LIBRARY_PATH="$_anabranch_here/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
unset _anabranch_here
