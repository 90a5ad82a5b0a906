"""The main module of a spawned child process of a program that runs under this layer."""

from __future__ import annotations

from anabranch.compat.npu._runner import run_child

if __name__ == "__mp_main__":
    run_child(globals())
