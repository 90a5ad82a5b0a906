#!/usr/bin/env python3
"""Checks the arrows between the floors of the house (docs/architecture.md).

A file includes only what is on its own floor or below; an operator includes no other operator's
folder; faces (acl, torch, tools) include no other face; public headers include nothing internal.
Prints every arrow that points the wrong way; exit status 1 if there is one.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Floor -> floors it may include besides itself.
BELOW = {
    "core": set(),
    "simd": {"core"},
    "kernels": {"core", "simd"},
    "ops": {"core", "kernels"},
    "acl": {"core", "ops"},
    "torch": {"core", "ops"},
    "tools": {"core", "simd", "kernels", "ops"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
PUBLIC_ONLY = ("anabranch/",)


def floor_of(path: str) -> str | None:
    parts = path.split("/")
    return parts[1] if parts[0] == "src" and len(parts) > 2 else None


def operator_of(path: str) -> str | None:
    parts = path.split("/")
    return parts[2] if parts[:2] == ["src", "ops"] and len(parts) == 4 else None


def problems(path: str, included: str) -> str | None:
    if path.startswith("include/anabranch/"):
        return None if included.startswith(PUBLIC_ONLY) else "public headers include public headers"
    if path.startswith("include/aclnn_compat/"):
        foreign = included.startswith("anabranch/")
        return "C headers include nothing of the library" if foreign else None
    if not included.startswith("src/"):
        return None
    here, there = floor_of(path), floor_of(included)
    if here not in BELOW:
        return f"unknown floor '{here}'"
    if there != here and there not in BELOW[here]:
        return f"floor {here} may not include floor {there}"
    mine, other = operator_of(path), operator_of(included)
    if mine and other and mine != other:
        return "an operator never includes another operator's folder"
    return None


def main() -> int:
    wrong = 0
    checked = 0
    for top in ("include", "src"):
        for file in sorted((ROOT / top).rglob("*")):
            if file.suffix not in {".h", ".cc"}:
                continue
            checked += 1
            path = file.relative_to(ROOT).as_posix()
            for included in INCLUDE.findall(file.read_text(encoding="utf-8")):
                reason = problems(path, included)
                if reason:
                    wrong += 1
                    print(f"{path}: includes {included}: {reason}")
    print(f"check_floors: {checked} files, {wrong} arrows the wrong way")
    return 1 if wrong or checked == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
