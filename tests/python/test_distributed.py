"""DTensor and DDP on two processes (gloo) against the result of one process.

One pair of processes runs everything (they are slow to start) and reports, by check, what failed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing

import anabranch
from conftest import CASES, Case, flatten, leaves, map_tensors

RANKS = 2
EVEN, UNEVEN = (4, 6), (3, 5)

Check = Callable[[Any], None]
CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(11)


def losses(outputs: list[torch.Tensor]) -> torch.Tensor:
    return sum((i + 1) * o.float().square().sum() for i, o in enumerate(outputs))


def single(case: Case, args: list[Any]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    inputs = leaves(args)
    outputs = flatten(case.function(*inputs, **case.kwargs))
    losses(outputs).backward()
    return outputs, [t.grad for t in flatten(inputs)]


def sharded_leaves(args: list[Any], mesh: Any, tokens: tuple[int, ...], placements: Any) -> Any:
    """Token tensors placed as said, parameters replicated."""
    from torch.distributed.tensor import Replicate, distribute_tensor

    def place(t: torch.Tensor) -> torch.Tensor:
        of_tokens = tuple(t.shape[: len(tokens)]) == tokens
        where = placements if of_tokens else [Replicate()] * mesh.ndim
        return distribute_tensor(t.clone(), mesh, where).requires_grad_()

    return map_tensors(place, args)


def compare(case: Case, mesh: Any, tokens: tuple[int, ...], placements: Any) -> Any:
    """Runs a case on DTensors; the full results are those of one process."""
    args = case.make(tokens, torch.float32, generator())
    want, want_grads = single(case, args)
    inputs = sharded_leaves(args, mesh, tokens, placements)
    outputs = flatten(case.function(*inputs, **case.kwargs))
    for have, expected in zip(outputs, want, strict=True):
        assert have.shape == expected.shape, (have.shape, expected.shape)
        assert torch.equal(have.full_tensor(), expected), "an output differs"
    losses(outputs).full_tensor().backward()
    for tensor, expected in zip(flatten(inputs), want_grads, strict=True):
        assert tensor.grad.shape == expected.shape
        torch.testing.assert_close(tensor.grad.full_tensor(), expected, rtol=2e-5, atol=2e-5)
    return inputs, outputs


def by_case(name: str) -> Case:
    return next(c for c in CASES if c.name == name)


def register_case(case: Case) -> None:
    def run(mesh: Any) -> None:
        from torch.distributed.tensor import Replicate, Shard

        _, outputs = compare(case, mesh, EVEN, [Replicate()])
        assert all(o.placements == (Replicate(),) for o in outputs)
        stacked = int(case.op == "attn_res_prepare")
        for tokens in (EVEN, UNEVEN):
            for dim in range(2):
                inputs, outputs = compare(case, mesh, tokens, [Shard(dim)])
                for output in outputs:
                    assert output.placements == (Shard(dim + stacked),), output.placements
                for tensor in flatten(inputs):
                    of_tokens = tuple(tensor.shape[:2]) == tokens
                    if of_tokens:
                        assert tensor.grad.placements == (Shard(dim),)
                    else:
                        assert tensor.grad.placements[0].is_partial()

    CHECKS[f"case_{case.name}"] = run


for _case in CASES:
    register_case(_case)


@check
def one_output_used(mesh: Any) -> None:
    """Gradients of outputs that nothing used are filled in as DTensors."""
    from torch.distributed.tensor import Shard

    for name in ("mhc_pre", "mhc_pre_sinkhorn", "attn_res_prepare"):
        case = by_case(name)
        args = case.make(EVEN, torch.float32, generator())
        plain = leaves(args)
        flatten(case.function(*plain, **case.kwargs))[0].square().sum().backward()
        inputs = sharded_leaves(args, mesh, EVEN, [Shard(0)])
        flatten(case.function(*inputs, **case.kwargs))[0].square().sum().backward()
        for a, b in zip(flatten(inputs), flatten(plain), strict=True):
            torch.testing.assert_close(a.grad.full_tensor(), b.grad, rtol=2e-5, atol=2e-5)


@check
def two_dimensional_mesh(mesh: Any) -> None:
    from torch.distributed.tensor import Shard, init_device_mesh

    for shape in ((RANKS, 1), (1, RANKS)):
        grid = init_device_mesh("cpu", shape)
        for name in ("mhc_post", "mhc_pre_sinkhorn", "block_attn_res_gamma"):
            compare(by_case(name), grid, EVEN, [Shard(0), Shard(1)])


@check
def post_by_hidden_size(mesh: Any) -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    for name in ("mhc_post", "mhc_post_flat", "mhc_post_unmixed"):
        case = by_case(name)
        args = case.make(EVEN, torch.float32, generator())
        want, want_grads = single(case, args)
        where = [Shard(3), Replicate(), Shard(2), Replicate()]
        inputs = [
            None if t is None else distribute_tensor(t, mesh, [p]).requires_grad_()
            for t, p in zip(args, where, strict=True)
        ]
        y = case.function(*inputs)
        assert y.placements == (Shard(3),)
        assert torch.equal(y.full_tensor(), want[0])
        losses([y]).backward()
        present = [(t, p) for t, p in zip(inputs, where, strict=True) if t is not None]
        for (tensor, place), expected in zip(present, want_grads, strict=True):
            torch.testing.assert_close(tensor.grad.full_tensor(), expected, rtol=2e-5, atol=2e-5)
            assert tensor.grad.placements[0] == place or tensor.grad.placements[0].is_partial()


@check
def iterates(mesh: Any) -> None:
    """sum_out and norm_out are sharded as x is, one dimension further back, evenly or not."""
    from torch.distributed.tensor import Shard

    case = by_case("mhc_pre_sinkhorn")
    for tokens in (EVEN, UNEVEN, (5,)):
        for dim in range(len(tokens)):
            args = case.make(tokens, torch.float32, generator())
            want = case.function(*args, num_iters=3, return_caches=True)
            inputs = sharded_leaves(args, mesh, tokens, [Shard(dim)])
            have = case.function(*inputs, num_iters=3, return_caches=True)
            for a, b in zip(have, want, strict=True):
                assert a.shape == b.shape
                assert torch.equal(a.full_tensor(), b)
            for cache in have[-2:]:
                assert cache.placements == (Shard(1 + dim),)
            grads = [torch.randn(o.shape, generator=generator()) for o in want[:3]]
            x, phi, alpha, bias = args
            _, _, _, h_pre, h_mix, inv_rms, sums, norms = want
            saved = (h_pre, h_mix, inv_rms, sums, norms)
            backward = anabranch.mhc_pre_sinkhorn_backward
            expected = backward(*grads, x, phi, alpha, bias, *saved)
            spread = [replicated(g, mesh) for g in grads]
            result = backward(*spread, *[t.detach() for t in inputs], *have[3:])
            for a, b in zip(result, expected, strict=True):
                torch.testing.assert_close(a.full_tensor(), b, rtol=2e-5, atol=2e-5)


def replicated(t: torch.Tensor, mesh: Any) -> torch.Tensor:
    from torch.distributed.tensor import Replicate, distribute_tensor

    return distribute_tensor(t, mesh, [Replicate()])


@check
def flags_do_not_share_a_cached_sharding(mesh: Any) -> None:
    """With and without caches, one after the other, with equal tensors."""
    from torch.distributed.tensor import Shard

    for name in ("mhc_head", "block_attn_res", "mhc_pre", "mhc_pre_sinkhorn", "mhc_sinkhorn"):
        case = by_case(name)
        args = case.make(EVEN, torch.float32, generator())
        want = flatten(case.function(*args, **case.kwargs))
        inputs = sharded_leaves(args, mesh, EVEN, [Shard(1)])
        for _ in range(2):
            with torch.no_grad():
                plain = flatten(case.function(*inputs, **case.kwargs))
            recorded = flatten(case.function(*inputs, **case.kwargs))
            for a, b, c in zip(plain, recorded, want, strict=True):
                assert torch.equal(a.full_tensor(), c)
                assert torch.equal(b.full_tensor(), c)
            losses(recorded).full_tensor().backward()


@check
def dispatcher_operators(mesh: Any) -> None:
    from torch.distributed.tensor import Shard

    args = by_case("mhc_post").make(EVEN, torch.float32, generator())
    inputs = sharded_leaves(args, mesh, EVEN, [Shard(0)])
    y = torch.ops.anabranch.mhc_post(*inputs)
    assert y.placements == (Shard(0),)
    assert torch.equal(y.full_tensor(), anabranch.mhc_post(*args))


@check
def compiled(mesh: Any) -> None:
    from torch.distributed.tensor import Shard

    case = by_case("mhc_post")
    args = case.make(EVEN, torch.float32, generator())
    want, want_grads = single(case, args)
    inputs = sharded_leaves(args, mesh, EVEN, [Shard(0)])
    function = torch.compile(case.function, fullgraph=True, backend="aot_eager")
    y = function(*inputs)
    assert torch.equal(y.full_tensor(), want[0])
    losses([y]).full_tensor().backward()
    for tensor, expected in zip(inputs, want_grads, strict=True):
        torch.testing.assert_close(tensor.grad.full_tensor(), expected, rtol=2e-5, atol=2e-5)


class Layer(torch.nn.Module):
    """Every parameter that the functions take, in one module for DDP."""

    def __init__(self) -> None:
        super().__init__()
        g = generator()

        def parameter(*shape: int) -> torch.nn.Parameter:
            return torch.nn.Parameter(torch.randn(*shape, generator=g) / shape[-1] ** 0.5)

        self.phi, self.alpha, self.bias = parameter(24, 96), parameter(3), parameter(24)
        self.fn, self.base, self.scale = parameter(4, 96), parameter(4), parameter(1)
        self.query, self.gamma = parameter(24), parameter(24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h_in, h_post, h_res = anabranch.mhc_pre_sinkhorn(x, self.phi, self.alpha, self.bias)
        y = anabranch.mhc_post(x, h_res, torch.tanh(h_in), h_post)
        top = anabranch.mhc_head(y, self.fn, self.base, self.scale)
        return anabranch.block_attn_res([h_in, top], self.query, rmsnorm_gamma=self.gamma)


@check
def data_parallel(mesh: Any) -> None:
    rank = torch.distributed.get_rank()
    x = torch.randn(2 * RANKS, 6, 4, 24, generator=generator())
    alone = Layer()
    alone(x).square().sum().backward()
    layer = torch.nn.parallel.DistributedDataParallel(Layer())
    out = layer(x.chunk(RANKS)[rank])
    out.square().sum().backward()
    assert torch.equal(out, alone(x).chunk(RANKS)[rank])
    for have, want in zip(layer.module.parameters(), alone.parameters(), strict=True):
        # DDP averages over ranks.
        torch.testing.assert_close(have.grad * RANKS, want.grad, rtol=2e-5, atol=2e-5)


def process(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=RANKS
    )
    mesh = torch.distributed.init_device_mesh("cpu", (RANKS,))
    report = {}
    for name, function in CHECKS.items():
        try:
            function(mesh)
            report[name] = ""
        except Exception:
            report[name] = traceback.format_exc()
        torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    Path(folder, f"{rank}.json").write_text(json.dumps(report), encoding="utf-8")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    folder = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.spawn(process, (str(folder),), nprocs=RANKS)
    return [json.loads((folder / f"{r}.json").read_text(encoding="utf-8")) for r in range(RANKS)]


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_two_processes_equal_one(name: str, reports: list[dict[str, str]]) -> None:
    for rank, report in enumerate(reports):
        assert not report[name], f"rank {rank}: {report[name]}"


def test_importing_does_not_load_dtensor() -> None:
    """The registration waits until a program has loaded DTensor itself."""
    code = (
        "import sys, torch; before = 'torch.distributed.tensor' in sys.modules; import anabranch;"
        "anabranch.mhc_sinkhorn(torch.zeros(2, 2));"
        "print('anabranch.distributed' in sys.modules and not before)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False"]
