"""Step times, and how much of a step its residual operators take, fused and eager."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten
from tqdm import tqdm

from anabranch.demo.model import Transformer, make_model
from anabranch.demo.train import Trainer, make_optimizer, train_step

#: What is measured: (kind, whether its residual operators are the eager composition).
VARIANTS = [("plain", False), ("mhc", False), ("mhc", True), ("attn_res", False)]
VARIANTS += [("attn_res", True)]


class Stopwatch:
    """Adds up the wall time of functions, forward and backward, inside a larger program.

    ``stopwatch(parameters, function, *inputs)`` returns function(*inputs). The function gets a
    graph of its own, which the outer backward runs under the same clock; what it computes is
    unchanged.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(
        self, parameters: list[nn.Parameter], function: Callable[..., Any], *inputs: Any
    ) -> Any:
        leaves, structure = tree_flatten(inputs)
        where = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        results: list[Any] = []  # the structure of the result

        def call(*tensors: Tensor) -> tuple[Tensor, ...]:
            start = time.perf_counter()
            for i, tensor in zip(where, tensors, strict=True):
                leaves[i] = tensor
            flat, result = tree_flatten(function(*tree_unflatten(leaves, structure)))
            self.seconds += time.perf_counter() - start
            results.append(result)
            return tuple(flat)

        tensors = [leaves[i] for i in where]
        outputs = _Timed.apply(self, call, len(tensors), *tensors, *parameters)
        return tree_unflatten(outputs, results[0])


class _Timed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, stopwatch: Stopwatch, call: Any, count: int, *tensors: Tensor) -> Any:
        inputs = [t.detach().requires_grad_(t.requires_grad) for t in tensors[:count]]
        with torch.enable_grad():
            outputs = call(*inputs)
        ctx.set_materialize_grads(False)
        ctx.stopwatch, ctx.outputs, ctx.inputs = stopwatch, outputs, (*inputs, *tensors[count:])
        return tuple(t.detach() for t in outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        start = time.perf_counter()
        pairs = [(t, g) for t, g in zip(ctx.outputs, grads, strict=True) if g is not None]
        inputs = [t for t in ctx.inputs if t.requires_grad]
        found = torch.autograd.grad(
            [t for t, _ in pairs], inputs, [g for _, g in pairs], allow_unused=True
        )
        by_input = iter(found)
        result = tuple(next(by_input) if t.requires_grad else None for t in ctx.inputs)
        ctx.stopwatch.seconds += time.perf_counter() - start
        return None, None, None, *result


@dataclass(frozen=True)
class Timing:
    """Medians over the rounds."""

    step: float  # seconds of a training step: forward, backward, optimizer
    residual: float  # seconds of it inside the residual operators
    share: float  # residual / step
    loss: float  # of the first round's batch, bits a byte: fused and eager agree


def eager_twin(model: Transformer, trainer: Trainer, kind: str) -> Transformer:
    """The same model and parameters with the eager composition."""
    twin = make_model(kind, trainer.config.model, trainer.config.seed, eager=True)
    twin.load_state_dict(model.state_dict())
    return twin


def measure(
    trainer: Trainer, rounds: int, stopped: Callable[[], bool]
) -> dict[tuple[str, bool], Timing] | None:
    """Times training steps of copies of the trained models; None if stopped.

    Rounds go through all variants in turn, so that a disturbance meets each of them; the first is
    not counted. Gradients are computed and applied with a learning rate of zero.
    """
    config = trainer.config
    runs = {}
    for kind, is_eager in VARIANTS:
        model = trainer.models[kind]
        own = eager_twin(model, trainer, kind) if is_eager else copy.deepcopy(model)
        own.stream.stopwatch = stopwatch = Stopwatch()
        runs[kind, is_eager] = own, make_optimizer(own, 1.0), stopwatch
    samples: dict[tuple[str, bool], list[tuple[float, float]]] = {v: [] for v in runs}
    losses: dict[tuple[str, bool], float] = {}
    for index in tqdm(range(rounds + 1), desc="measuring", unit="round"):
        batch = trainer.text.batch(config.seed, index, config.batch, config.model.context)
        for variant, (model, optimizer, stopwatch) in runs.items():
            if stopped():
                return None
            stopwatch.seconds, start = 0.0, time.perf_counter()
            loss = train_step(model, optimizer, batch)
            samples[variant].append((time.perf_counter() - start, stopwatch.seconds))
            losses.setdefault(variant, loss)
    return {variant: _timing(samples[variant][1:], losses[variant]) for variant in runs}


def _timing(samples: list[tuple[float, float]], loss: float) -> Timing:
    return Timing(
        step=statistics.median(step for step, _ in samples),
        residual=statistics.median(residual for _, residual in samples),
        share=statistics.median(residual / step for step, residual in samples),
        loss=loss,
    )
