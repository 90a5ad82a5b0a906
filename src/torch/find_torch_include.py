"""Prints torch/include of a PyTorch that this interpreter can see, without importing it.

In an isolated build (pip's default) the environment's own packages are hidden from the import
system; only headers are wanted, so those of the environment that asked for the build serve too.
"""

import importlib.util
import pathlib
import site
import sys
import sysconfig

HEADER = "torch/csrc/stable/library.h"


def candidates() -> list[pathlib.Path]:
    found = []
    spec = importlib.util.find_spec("torch")
    if spec is not None and spec.submodule_search_locations:
        found.append(pathlib.Path(next(iter(spec.submodule_search_locations))))
    folders = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    return found + [pathlib.Path(folder) / "torch" for folder in folders if folder]


def main() -> int:
    for torch in candidates():
        include = torch / "include"
        if (include / HEADER).is_file():
            print(include)
            return 0
    print(
        f"No PyTorch >= 2.10 found for {sys.executable}, expected {HEADER} in an installed torch. "
        "Install torch first, or set ANABRANCH_TORCH_INCLUDE to its include folder.",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
