"""Runs a program as ``python program.py`` would, with the layer installed."""

from __future__ import annotations

import builtins
import importlib.machinery
import os
import sys
import types
from typing import Any

from anabranch.compat.npu._install import switch_on
from anabranch.compat.npu._traceback import clean

_USAGE = """usage: python -m anabranch.compat.npu program.py [args]

Runs an NPU program on the CPU, as `python program.py [args]` would run it: see docs/npu.md.
"""
# Where child processes that start afresh find the program that they are part of.
_PROGRAM = "ANABRANCH_NPU_PROGRAM"


def _code(path: str) -> types.CodeType:
    with open(path, "rb") as file:
        source = file.read()
    return compile(source, path, "exec", dont_inherit=True)


def _namespace(path: str) -> types.ModuleType:
    """A fresh ``__main__``, as the interpreter sets it up for a script."""
    main = types.ModuleType("__main__")
    main.__file__ = path
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    main.__dict__["__builtins__"] = builtins
    main.__dict__["__cached__"] = None
    if "__annotations__" in vars(sys.modules["__main__"]):  # no longer in newer versions
        main.__annotations__ = {}
    return main


def _use_this_layer_in_spawned_children(path: str) -> None:
    """A child of multiprocessing that is not forked imports the program again: through _child."""
    from multiprocessing import spawn

    prepare = spawn.get_preparation_data

    def with_layer(name: str) -> dict[str, Any]:
        data: dict[str, Any] = prepare(name)
        if data.pop("init_main_from_path", None) is not None:
            data["init_main_from_name"] = "anabranch.compat.npu._child"
        return data

    spawn.get_preparation_data = with_layer
    os.environ[_PROGRAM] = path


def run_child(namespace: dict[str, Any]) -> None:
    """What _child does: the program's definitions, under the name that the caller runs under."""
    path = os.environ[_PROGRAM]
    switch_on(define_builtins=True)
    _use_this_layer_in_spawned_children(path)
    namespace["__file__"] = path
    exec(_code(path), namespace)


def run(program: str, args: list[str]) -> None:
    """Runs the file; returns when it ends, and raises what it raises."""
    path = os.path.abspath(program)
    main = _namespace(path)
    sys.argv = [program, *args]
    if not getattr(sys.flags, "safe_path", False):
        # -m put the current directory there.
        sys.path[0] = os.path.dirname(os.path.realpath(program))
    note = switch_on(define_builtins=True)
    if note:
        print(note, file=sys.stderr)
    _use_this_layer_in_spawned_children(path)
    code = _code(path)
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def main() -> None:
    """The command line. Exit codes are the program's; 2 where there is none to run."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE, end="", file=sys.stdout if arguments else sys.stderr)
        sys.exit(0 if arguments else 2)
    program, *rest = arguments
    try:
        with open(program, "rb"):
            pass
    except OSError as error:
        text = f"can't open file {os.path.abspath(program)!r}: {error}"
        print(f"anabranch.compat.npu: {text}", file=sys.stderr)
        sys.exit(2)
    try:
        run(program, rest)
        return
    except SystemExit:
        raise
    except BaseException as error:
        clean(error)
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            # The interpreter ends with the signal's status; what it prints has been printed.
            sys.excepthook = lambda *_: None
            raise
    sys.exit(1)
