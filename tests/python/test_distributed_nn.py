"""Modules on two gloo processes: DDP, FSDP2, sharded inputs, against one process.

The processes start once and run every scenario; a test looks at the outcome of its own.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_module, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from anabranch import nn
from nn_cases import DIM, Mlp, N, modules, relative, spread

RANKS, STEPS, BATCH, SEQUENCE = 2, 3, 4, 6


class Block(torch.nn.Module):
    """Two sublayers: one inside its HyperConnection, one called between pre and post."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.HyperConnection(DIM, N, Mlp(DIM))
        self.second = nn.HyperConnection(DIM, N)
        self.mlp = Mlp(DIM)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        h_in, state = self.second.pre(x)
        return self.second.post(x, self.mlp(h_in), state)


class Streams(torch.nn.Module):
    def __init__(self, recompute: bool = False) -> None:
        super().__init__()
        self.inlet = torch.nn.Linear(DIM, DIM)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(2))
        self.head = nn.HyperConnectionHead(DIM, N)
        self.recompute = recompute

    def forward(self, x: Tensor) -> Tensor:
        x = nn.expand_streams(self.inlet(x), N)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(x)


class Attention(torch.nn.Module):
    """Block Attention Residuals, a block a sublayer."""

    def __init__(self) -> None:
        super().__init__()
        self.inlet = torch.nn.Linear(DIM, 2 * DIM)  # two sources: over one nothing is learned
        self.blocks = torch.nn.ModuleList(Mlp(DIM) for _ in range(3))
        self.mixers = torch.nn.ModuleList(nn.AttentionResidual(DIM) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        sources = list(self.inlet(x).chunk(2, -1))
        for mixer, block in zip(self.mixers, self.blocks, strict=False):
            sources.append(block(mixer(sources)))
        return self.mixers[-1](sources[:-1], sources[-1])


MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "streams": Streams,
    "attention": Attention,
    "recompute": lambda: Streams(recompute=True),
}


def make(name: str) -> torch.nn.Module:
    torch.manual_seed(5)
    model = MODELS[name]()
    spread(model)
    return model


def data() -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(6)
    return [tuple(torch.randn(2, BATCH, SEQUENCE, DIM)) for _ in range(STEPS)]


def optimiser(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)


def loss_of(y: Tensor, target: Tensor) -> Tensor:
    return (y.float() - target).square().mean()


def train(model: torch.nn.Module, rank: int | None, dtype: torch.dtype = torch.float32) -> None:
    """Steps on this rank's part of each batch, or, without rank, on both parts one by one."""
    optimise = optimiser(model)
    for x, target in data():
        optimise.zero_grad()
        for part in range(RANKS) if rank is None else (rank,):
            mine, wanted = x.chunk(RANKS)[part], target.chunk(RANKS)[part]
            loss = loss_of(model(mine.to(dtype)), wanted)
            (loss / RANKS if rank is None else loss).backward()
        optimise.step()


class Cast(torch.nn.Module):
    """What FSDP2's mixed precision computes, in one process: bfloat16 copies of all parameters
    that anabranch does not own, float32 masters."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self.kept = {id(p) for m in nn.fp32_modules(model) for p in m.parameters(recurse=False)}

    def forward(self, x: Tensor) -> Tensor:
        named = {
            k: p if id(p) in self.kept else p.bfloat16() for k, p in self.model.named_parameters()
        }
        return torch.func.functional_call(self.model, named, (x,))


def compare(name: str, model: torch.nn.Module, single: torch.nn.Module, tolerance: float) -> None:
    """How far every parameter has moved, against one process."""
    start = dict(make(name).named_parameters())
    want = dict(single.named_parameters())
    have = dict(model.named_parameters())
    assert list(have) == list(want)
    with torch.no_grad():
        for key, parameter in have.items():
            value = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
            assert value.dtype == want[key].dtype
            assert not torch.equal(want[key], start[key]), f"{key} did not move"
            error = relative(value - start[key], want[key] - start[key])
            assert error < tolerance, f"{key}: {error}"


def shard(model: torch.nn.Module, policy: MixedPrecisionPolicy) -> None:
    """The recipe of docs/nn.md."""
    for block in model.blocks:
        for part in nn.fp32_modules(block):
            fully_shard(part)
        fully_shard(block, mp_policy=policy)
    for part in nn.fp32_modules(model):
        if not isinstance(part, FSDPModule):
            fully_shard(part)
    fully_shard(model, mp_policy=policy)


# Scenarios: each runs on both ranks


def ddp(name: str, rank: int) -> None:
    single, model = make(name), make(name)
    train(single, None)
    parallel = DistributedDataParallel(model)
    train(parallel, rank)
    compare(name, model, single, 1e-3)


def ddp_bfloat16(rank: int) -> None:
    """A model cast to bfloat16 whose coefficients are float32 still."""
    single, model = make("streams").bfloat16(), make("streams").bfloat16()
    train(single, None, torch.bfloat16)
    train(DistributedDataParallel(model), rank, torch.bfloat16)
    kept = {p for m in nn.fp32_modules(model) for p in m.parameters(recurse=False)}
    for parameter in model.parameters():
        assert parameter.dtype == (torch.float32 if parameter in kept else torch.bfloat16)
        assert parameter.grad.dtype == parameter.dtype
    for a, b in zip(model.parameters(), single.parameters(), strict=True):
        # What is bfloat16 is rounded after every step, a value between two may differ.
        assert relative(a.detach(), b.detach()) < (1e-4 if a in kept else 2**-7)


def fsdp(name: str, rank: int) -> None:
    single, model = make(name), make(name)
    train(single, None)
    shard(model, MixedPrecisionPolicy())
    train(model, rank)
    compare(name, model, single, 1e-3)


def fsdp_bfloat16(name: str, rank: int) -> None:
    single, model = make(name), make(name)
    train(Cast(single), None, torch.bfloat16)
    shard(model, MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    kept = set(nn.fp32_modules(model))
    seen = []

    def look(module: torch.nn.Module, *_: Any) -> None:
        dtypes = {p.dtype for p in module.parameters(recurse=False)}
        seen.append((module in kept, dtypes))

    for module in model.modules():
        if list(module.parameters(recurse=False)):
            module.register_forward_hook(look)
    train(model, rank, torch.bfloat16)
    assert {mine for mine, _ in seen} == {True, False}
    for mine, dtypes in seen:
        assert dtypes == {torch.float32 if mine else torch.bfloat16}
    assert all(p.grad.dtype == torch.float32 for p in model.parameters())
    # Both round the bfloat16 gradients, where a value between two may go either way.
    compare(name, model, single, 1e-2)


def fsdp_without_the_recipe(rank: int) -> None:
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for name, text in (("streams", "coefficients.fn has dtype"), ("attention", "query has dtype")):
        model = make(name)
        fully_shard(model, mp_policy=policy)
        with pytest.raises(ValueError, match="fp32_modules") as error:
            model(torch.randn(2, 3, DIM))
        assert text in str(error.value)


def fsdp_state(rank: int) -> None:
    """Names, full state and casts of a sharded model."""
    plain, model = make("streams"), make("streams")
    shard(model, MixedPrecisionPolicy())
    assert list(model.state_dict()) == list(plain.state_dict())
    full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    for name, value in full.items():
        assert rank or torch.equal(value, plain.state_dict()[name])
    model.bfloat16()
    for part in nn.fp32_modules(model):
        for parameter in part.parameters(recurse=False):
            assert isinstance(parameter, DTensor) and parameter.dtype == torch.float32
    assert model.inlet.weight.dtype == torch.bfloat16


def sharded_input(name: str, dim: int, rank: int) -> None:
    """A part of the batch or of the sequence a rank: its outputs and input gradients have the
    bits of the whole, parameter gradients add up."""
    torch.manual_seed(7)
    module, x = modules()[name]
    if isinstance(module, nn.HyperConnection):
        module.sublayer = torch.nn.SiLU()  # bits that do not depend on the batch
    axis = dim + (name == "attention")
    x = torch.cat([x, x.flip(axis)], axis)
    whole = x.clone().requires_grad_()
    y = module(whole)
    weight = torch.randn_like(y)
    y.backward(weight)
    want = {k: p.grad.clone() for k, p in module.named_parameters()}
    module.zero_grad()
    mine = x.chunk(RANKS, axis)[rank].requires_grad_()  # not contiguous
    part = module(mine)
    assert torch.equal(part, y.chunk(RANKS, dim)[rank])
    part.backward(weight.chunk(RANKS, dim)[rank])
    assert torch.equal(mine.grad, whole.grad.chunk(RANKS, axis)[rank])
    for key, parameter in module.named_parameters():
        dist.all_reduce(parameter.grad)
        torch.testing.assert_close(parameter.grad, want[key], rtol=1e-4, atol=1e-5)


def dtensor_input(name: str, dim: int, rank: int) -> None:
    """The same with DTensors: replicated parameters, x sharded along the batch or the sequence."""
    torch.manual_seed(7)
    module, x = modules()[name]
    if isinstance(module, nn.HyperConnection):
        module.sublayer = torch.nn.SiLU()
    axis = dim + (name == "attention")
    x = torch.cat([x, x.flip(axis)], axis)
    whole = x.clone().requires_grad_()
    y = module(whole)
    y.square().sum().backward()
    want = {k: p.grad.clone() for k, p in module.named_parameters()}
    module.zero_grad()
    mesh = init_device_mesh("cpu", (RANKS,))
    distribute_module(module, mesh)
    mine = distribute_tensor(x, mesh, [Shard(axis)]).requires_grad_()
    part = module(mine)
    assert part.placements == (Shard(dim),)
    assert torch.equal(part.full_tensor(), y)
    part.square().sum().backward()
    assert torch.equal(mine.grad.full_tensor(), whole.grad)
    for key, parameter in module.named_parameters():
        torch.testing.assert_close(parameter.grad.full_tensor(), want[key], rtol=1e-4, atol=1e-4)


def _scenarios() -> dict[str, Callable[[int], None]]:
    found: dict[str, Callable[[int], None]] = {}
    for name in MODELS:
        if name != "recompute":  # DDP and checkpoint: nothing of ours
            found[f"ddp-{name}"] = lambda rank, n=name: ddp(n, rank)
            found[f"fsdp_bfloat16-{name}"] = lambda rank, n=name: fsdp_bfloat16(n, rank)
        found[f"fsdp-{name}"] = lambda rank, n=name: fsdp(n, rank)
    for name in modules():
        for dim, what in enumerate(("batch", "sequence")):
            key = f"{what}_sharded-{name}"
            found[key] = lambda rank, n=name, d=dim: sharded_input(n, d, rank)
            key = f"{what}_sharded_dtensor-{name}"
            found[key] = lambda rank, n=name, d=dim: dtensor_input(n, d, rank)
    found["ddp_bfloat16"] = ddp_bfloat16
    found["fsdp_state"] = fsdp_state
    found["fsdp_without_the_recipe"] = fsdp_without_the_recipe  # leaves gathered parameters: last
    return found


SCENARIOS = _scenarios()


def _process(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=RANKS,
        timeout=timedelta(seconds=120),
    )
    outcome = Path(folder, f"{rank}.json")
    results: dict[str, str] = {}
    for name, scenario in SCENARIOS.items():
        try:
            scenario(rank)
            results[name] = ""
        except Exception:
            results[name] = traceback.format_exc()
        outcome.write_text(json.dumps(results), encoding="utf-8")
        dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, str]]]:
    folder = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.spawn(_process, (str(folder),), nprocs=RANKS)
    yield [json.loads((folder / f"{rank}.json").read_text("utf-8")) for rank in range(RANKS)]


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_two_processes(name: str, outcomes: list[dict[str, str]]):
    for rank, outcome in enumerate(outcomes):
        assert outcome[name] == "", f"rank {rank}:\n{outcome[name]}"
