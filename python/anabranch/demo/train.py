"""Trains all models in lockstep: a step is one batch, seen by each of them.

What a step does depends on the configuration, the text and the step's number alone, so a run that
was interrupted continues with the bits it would have had.
"""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from anabranch.demo import checkpoint
from anabranch.demo.data import Text
from anabranch.demo.model import ModelConfig, Transformer, make_model
from anabranch.demo.streams import KINDS

BITS = 1 / math.log(2)  # of a nat


@dataclass(frozen=True)
class TrainConfig:
    """What a run is, beside its text: two runs with equal ones compute equal bits."""

    model: ModelConfig = field(default_factory=ModelConfig)
    steps: int = 300
    batch: int = 4
    seed: int = 1
    rate: float = 2e-3  # AdamW's, after the warm-up; it falls to a tenth along a cosine
    stream_factor: float = 5.0  # of the rate, for the stream's vectors: the run is short
    warmup: int = 20
    evaluations: int = 15
    held_out: int = 16  # sequences of an evaluation

    def identity(self, text: Text) -> dict[str, Any]:
        """What a checkpoint must share with a run that continues it."""
        values = asdict(self)
        return {**values.pop("model"), **values, "text": text.digest[:16]}

    def rate_at(self, step: int) -> float:
        warm = min(1.0, (step + 1) / self.warmup)
        return self.rate * warm * (0.55 + 0.45 * math.cos(math.pi * step / self.steps))

    def evaluates_after(self, done: int) -> bool:
        """Whether the models are evaluated after so many steps."""
        count = self.evaluations
        return done in {round(i * self.steps / count) for i in range(count + 1)}


class Interrupt:
    """Ctrl-C and SIGTERM as a flag, for the time of a `with`; a second one ends the program."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __enter__(self) -> Interrupt:
        self._before = {
            int(number): signal.signal(number, self._note)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __bool__(self) -> bool:
        return self.signal is not None

    def _note(self, number: int, _: FrameType | None) -> None:
        self.signal = number
        signal.signal(number, self._before[number])


def make_optimizer(model: Transformer, stream_factor: float) -> torch.optim.AdamW:
    """AdamW; matrices of the sublayers decay, norms and the stream's parameters do not.

    The learning rate is the caller's, in each group times its "factor".
    """
    stream = set(model.stream.parameters())
    matrices: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    fast: list[nn.Parameter] = []
    for parameter in model.parameters():
        if parameter in stream:
            (vectors if parameter.ndim > 1 else fast).append(parameter)
        else:
            (matrices if parameter.ndim > 1 else vectors).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": 0.1, "factor": 1.0},
        {"params": vectors, "weight_decay": 0.0, "factor": 1.0},
    ]
    if fast:
        groups.append({"params": fast, "weight_decay": 0.0, "factor": stream_factor})
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), fused=True)


def train_step(
    model: Transformer, optimizer: torch.optim.Optimizer, batch: tuple[torch.Tensor, torch.Tensor]
) -> float:
    """One step; the loss before it, in bits a byte."""
    loss = model.loss(*batch)
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item() * BITS


@dataclass
class History:
    """Losses in bits a byte by kind: one a step, and (steps done, held-out loss)."""

    train: dict[str, list[float]] = field(default_factory=lambda: {k: [] for k in KINDS})
    held_out: dict[str, list[tuple[int, float]]] = field(
        default_factory=lambda: {k: [] for k in KINDS}
    )


class Trainer:
    """The models, their optimizers, what happened so far; new, or as a checkpoint has it."""

    def __init__(self, config: TrainConfig, text: Text, path: Path) -> None:
        self.config, self.text, self.path = config, text, path
        self.models = {k: make_model(k, config.model, config.seed) for k in KINDS}
        self.optimizers = {
            k: make_optimizer(m, config.stream_factor) for k, m in self.models.items()
        }
        self.history = History()
        self.done = 0
        state = checkpoint.load(path, config.identity(text))
        if state is not None:
            self._restore(state)

    def save(self) -> None:
        state = {
            "done": self.done,
            "models": {k: m.state_dict() for k, m in self.models.items()},
            "optimizers": {k: o.state_dict() for k, o in self.optimizers.items()},
            "history": asdict(self.history),
        }
        checkpoint.save(self.path, self.config.identity(self.text), state)

    def _restore(self, state: dict[str, Any]) -> None:
        self.done = state["done"]
        for kind in KINDS:
            self.models[kind].load_state_dict(state["models"][kind])
            self.optimizers[kind].load_state_dict(state["optimizers"][kind])
        self.history = History(**state["history"])

    def run(self, stopped: Callable[[], bool], save_seconds: float = 30.0) -> bool:
        """Trains to the end, or until stopped() after a step; True at the end.

        A checkpoint is written every save_seconds, and when the run stops or ends.
        """
        saved_at = time.monotonic()
        every = 0.5 if sys.stderr.isatty() else 20.0  # seconds: a log is not a terminal
        with tqdm(
            desc="training",
            total=self.config.steps,
            initial=self.done,
            unit="step",
            mininterval=every,
            dynamic_ncols=True,
        ) as bar:
            while self.done < self.config.steps:
                if self.done == 0:
                    self._evaluate()
                self._step(bar)
                if self.done == self.config.steps:
                    break
                if stopped():
                    self.save()
                    return False
                if time.monotonic() - saved_at > save_seconds:
                    self.save()
                    saved_at = time.monotonic()
        self.save()
        return True

    def _step(self, bar: tqdm[Any]) -> None:
        config, start = self.config, time.perf_counter()
        batch = self.text.batch(config.seed, self.done, config.batch, config.model.context)
        for kind, model in self.models.items():
            for group in self.optimizers[kind].param_groups:
                group["lr"] = config.rate_at(self.done) * group["factor"]
            self.history.train[kind].append(train_step(model, self.optimizers[kind], batch))
        self.done += 1
        seconds = time.perf_counter() - start
        losses = " ".join(f"{k} {v[-1]:.2f}" for k, v in self.history.train.items())
        speed = len(self.models) * batch[0].numel() / seconds
        bar.set_postfix_str(f"bits/byte {losses} | {speed:,.0f} tokens/s", refresh=False)
        bar.update()
        if config.evaluates_after(self.done):
            self._evaluate()

    def _evaluate(self) -> None:
        for kind in KINDS:
            self.history.held_out[kind].append((self.done, self.held_out_loss(kind)))

    @torch.no_grad()
    def held_out_loss(self, kind: str) -> float:
        config = self.config
        batch = self.text.held_out_batch(config.held_out, config.model.context)
        return self.models[kind].loss(*batch).item() * BITS
