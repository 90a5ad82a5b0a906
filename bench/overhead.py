"""What a call from Python costs on one token, level by level.

    python bench/overhead.py [--program build/release/src/tools/anabranch] [--hidden 64]

Times are the least of many short bursts, microseconds a call, one thread: with a small hidden size
an operator computes for a fraction of a microsecond, and what is left is the way to it. `C++` is
`anabranch bench` of the same call (a prepared plan, run).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import anabranch
from anabranch import eager

N = 4


def fastest(call: Callable[[], Any], bursts: int = 300, calls: int = 20) -> float:
    """Microseconds a call, the least of `bursts` averages over `calls`."""
    for _ in range(20):
        call()
    best = float("inf")
    for _ in range(bursts):
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter_ns() - start) / calls)
    return best / 1000


Case = tuple[str, Callable[..., Any], Callable[..., Any], list[Any], Any, tuple[Any, ...]]


def cases(d: int) -> Iterator[Case]:
    """Name, function, eager composition, arguments, operator, its arguments."""
    rows = N * N + 2 * N
    x, h_out = torch.randn(1, N, d), torch.randn(1, d)
    phi, alpha, bias = torch.randn(rows, N * d), torch.ones(3), torch.zeros(rows)
    post = [x, torch.rand(1, N, N), h_out, torch.rand(1, N)]
    ops = torch.ops.anabranch
    yield "mhc_post", anabranch.mhc_post, eager.mhc_post, post, ops.mhc_post.default, tuple(post)
    pre = [x, phi, alpha, bias]
    more = (20, 1e-6, 1e-6, False, False)
    operator = ops.mhc_pre_sinkhorn.default
    functions = (anabranch.mhc_pre_sinkhorn, eager.mhc_pre_sinkhorn)
    yield "mhc_pre_sinkhorn", *functions, pre, operator, (*pre, *more)
    blocks = [torch.randn(1, d) for _ in range(9)]
    w = torch.randn(d)
    plain = (blocks, None, w, None, 1.0, 1e-6, True, False, False)
    functions = (anabranch.block_attn_res, eager.block_attn_res)
    yield "block_attn_res", *functions, [blocks, w], ops.block_attn_res.default, plain


def trainable(value: Any) -> Any:
    if isinstance(value, list):
        return [trainable(v) for v in value]
    return value.clone().requires_grad_()


def step(function: Callable[..., Any], args: list[Any]) -> Callable[[], None]:
    out = function(*args)
    outputs = out if isinstance(out, tuple) else (out,)
    grads = [torch.ones_like(o) for o in outputs]

    def run() -> None:
        result = function(*args)
        torch.autograd.backward(result if isinstance(result, tuple) else (result,), grads)

    return run


def native(program: Path, name: str, d: int) -> float:
    size = f"L=9,T=1,D={d}" if name == "block_attn_res" else f"T=1,D={d},n={N}"
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [str(program), "bench", name, "--shape", size, "--dtype", "fp32"]
        command += ["--threads", "1", "--json", file.name]
        subprocess.run(command, check=True, capture_output=True)
        records = json.loads(Path(file.name).read_text(encoding="utf-8"))
    return 1e6 * next(float(r["seconds_min"]) for r in records if r["pass"] == "forward")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=Path)
    parser.add_argument("--hidden", type=int, default=64)
    options = parser.parse_args()
    torch.set_num_threads(1)
    heads = ["operator", "function", "recorded", "with backward", "eager", "eager, backward"]
    if options.program:
        heads.insert(0, "C++")
    print(f"| T=1, D={options.hidden}, fp32, us a call | {' | '.join(heads)} |")
    print("|---" * (len(heads) + 1) + "|")
    for name, function, composed, args, operator, plain in cases(options.hidden):
        times = [native(options.program, name, options.hidden)] if options.program else []
        with torch.inference_mode():
            times.append(fastest(lambda op=operator, a=plain: op(*a)))
            times.append(fastest(lambda f=function, a=args: f(*a)))
            slow = fastest(lambda f=composed, a=args: f(*a))
        wanted = trainable(args)
        times.append(fastest(lambda f=function, a=wanted: f(*a)))
        times.append(fastest(step(function, wanted)))
        times += [slow, fastest(step(composed, wanted))]
        print(f"| {name} | {' | '.join(f'{t:.1f}' for t in times)} |", flush=True)


if __name__ == "__main__":
    main()
