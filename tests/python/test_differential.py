"""The dispatcher's operators give the bits of the C++ face on the cases that the program writes.

`anabranch check --write-cases DIR` makes the cases: awkward layouts, misaligned addresses, NaN
between the elements. ANABRANCH_PROGRAM names the program; without it the one of build/release.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import anabranch  # noqa: F401  registers the operators

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("ANABRANCH_PROGRAM", ROOT / "build/release/src/tools/anabranch"))
CASES = 6  # of each pass of each operator

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# Where the dispatcher's name of a tensor is not the C++ one.
ALIASES = {"hc_before_norm": "h_mix"}


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], bytearray]:
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built")
    folder = tmp_path_factory.mktemp("cases")
    command = [PROGRAM, "check", "--cases", str(CASES), "--write-cases", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    data = bytearray((folder / "data.bin").read_bytes())
    return json.loads((folder / "cases.json").read_text()), data


def read(tensor: dict[str, Any], data: bytearray) -> Tensor:
    """A view with the strides and the address modulo 64 of the C++ call."""
    dtype = DTYPES[tensor["dtype"]]
    sizes, strides = tensor["sizes"], tensor["strides"]
    if 0 in sizes:
        return torch.empty(sizes, dtype=dtype)
    span = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    flat = torch.frombuffer(data, dtype=dtype, count=span, offset=tensor["offset"])
    return flat.as_strided(sizes, strides)


def attributes(case: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """What src/ops/*/entry.cc give the operators of the table."""
    name, variant, scale = case["operator"], case["variant"], case["logit_scale"]
    residuals = {"matrix": 0, "permut": 1, "no res": 2}
    clamp = (0.0, 0.0)
    if "clamp" in variant and name.startswith("mhc_sinkhorn"):
        clamp = (-0.75 * scale, scale)
    attention = "attn_res" in name
    return {
        "eps": 1e-6,
        "norm_eps": 1e-6,
        "hc_eps": 1e-6,
        "rmsnorm_eps": 1e-3,
        "scale": 0.75 if attention else None,
        "enable_rmsnorm": not variant.startswith("no norm"),
        "residual": residuals.get(variant[:6], 0),
        "op_impl_mode": 0,
        "num_iters": case["num_iters"],
        "clamp_low": clamp[0],
        "clamp_high": clamp[1],
        "caches": "inv_rms" in names,
        "iterates": "sum_out" in names,
        "rms_out": "rms_cache" in names,
        "alpha_out": "alpha_cache" in names,
    }


def arguments(op: Any, case: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Any]:
    outputs = {t["name"] for t in case["tensors"] if t["output"]}
    values = attributes(case, set(tensors) | outputs)
    blocks = [t for name, t in tensors.items() if name.startswith("blocks[")]
    result = {}
    for argument in op._schema.arguments:
        name = ALIASES.get(argument.name, argument.name)
        kind = str(argument.type)
        if kind.startswith("List"):
            result[argument.name] = blocks
        elif "Tensor" in kind:
            result[argument.name] = tensors.get(name)
        else:
            result[argument.name] = values[name]
    return result


def results(op: Any, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield op._schema.returns[0].name, value
        return
    for returned, tensor in zip(op._schema.returns, value, strict=True):
        if returned.name == "grad_blocks":
            yield from ((f"grad_blocks[{k}]", part) for k, part in enumerate(tensor))
        else:
            yield ALIASES.get(returned.name, returned.name), tensor


def bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().flatten().view(torch.uint8)


def test_same_bits_as_the_cpp_face(cases: tuple[list[dict[str, Any]], bytearray]) -> None:
    every, data = cases
    compared: dict[str, int] = {}
    for case in every:
        if not case["in_pytorch"]:
            continue
        tensors = {t["name"]: read(t, data) for t in case["tensors"]}
        wanted = {t["name"] for t in case["tensors"] if t["output"]}
        op = getattr(torch.ops.anabranch, case["operator"]).default
        inputs = {name: t for name, t in tensors.items() if name not in wanted}
        got = dict(results(op, op(**arguments(op, case, inputs))))
        if "" in got:  # an operator with one result, which has no name
            got = {next(iter(wanted)): got[""]}
        for name in wanted:
            assert name in got, (case["case"], name, list(got))
            assert torch.equal(bits(got[name]), bits(tensors[name])), (case["case"], name)
        compared[case["operator"]] = compared.get(case["operator"], 0) + 1
    assert set(compared) == {case["operator"] for case in every}
    assert min(compared.values()) >= 2, compared
