"""The descriptions of the operators (``src/ops/*/spec.h``), and what follows from them.

A description says, for every tensor of an operator, its dimensions by letters: ``T`` for the tokens
(any number of leading dimensions), ``n``, ``D``, ``F`` (rows of the projection), ``K`` = n*D, ``R``
(the residual part of a token), ``A``, ``2I``, ``L``, ``S``, numbers. Fake kernels, vmap rules and
sharding rules are made from that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from anabranch import _C

Size = int | torch.SymInt
Form = tuple[str, ...]

# Residual forms, as include/anabranch/mhc_options.h numbers them.
MATRIX, PERMUTATION, NONE = 0, 1, 2
_FORMS = {"matrix": MATRIX, "permutation": PERMUTATION, "none": NONE}
# n for each number n! of logits that the permutation form takes.
_STREAMS = {1: 1, 2: 2, 6: 3, 24: 4, 120: 5}


@dataclass(frozen=True)
class Argument:
    """One tensor, or list of tensors, of an operator."""

    name: str
    is_list: bool
    forms: tuple[Form, ...]  # sizes that it may have, the usual ones first; none: those of `like`
    type: str  # activation, coefficient, parameter; same: the dtype of `like`
    presence: str  # required, optional, residual, with, together
    with_: str | None
    like: str | None
    group: int

    @property
    def token_at(self) -> int | None:
        """In front of which dimension the tokens stand; None: it has none."""
        form = self.forms[0] if self.forms else ()
        return form.index("T") if "T" in form else None


@dataclass(frozen=True)
class Pass:
    """One operator of ``torch.ops.anabranch``."""

    name: str
    leader: str  # the input that says how many dimensions T stands for
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    numbers: tuple[str, ...]
    asks: tuple[tuple[str, int], ...]
    rows: str
    form: int

    def bind(self, args: Sequence[Any]) -> dict[str, Any]:
        """The arguments of a call by name."""
        names = [a.name for a in self.inputs] + [*self.numbers] + [name for name, _ in self.asks]
        return dict(zip(names, args, strict=True))

    def is_absent(self, output: Argument, call: Mapping[str, Any]) -> bool:
        """Whether this output has no elements in a call."""
        if output.presence == "residual":
            return bool(call.get("residual", self.form) == NONE)
        if output.presence == "with":
            return call[output.with_ or ""] is None
        if output.presence == "together":
            return not any(call[name] for name, group in self.asks if group >= output.group)
        if output.presence == "optional":
            return not any(call[name] for name, group in self.asks if group == output.group)
        return False


def _argument(fields: Sequence[Any]) -> Argument:
    name, is_list, shape, kind, presence, with_, like, group = fields
    forms = tuple(tuple(form.split(",")) for form in shape.split("|")) if shape else ()
    return Argument(name, is_list, forms, kind, presence, with_, like, group)


def _pass(fields: Sequence[Any]) -> Pass:
    name, leader, inputs, outputs, numbers, asks, rows, form = fields
    return Pass(
        name,
        leader,
        tuple(map(_argument, inputs)),
        tuple(map(_argument, outputs)),
        tuple(numbers),
        tuple(asks),
        rows,
        _FORMS[form],
    )


#: Every operator of this build, by name.
PASSES: dict[str, Pass] = {fields[0]: _pass(fields) for fields in _C.describe()}


def coefficient(activation: torch.dtype) -> torch.dtype:
    """The dtype of coefficients that go with activations."""
    return torch.float64 if activation == torch.float64 else torch.float32


def _equal(a: Size, b: Size) -> None:
    """Makes symbolic sizes equal; the library's checks have refused what is known to differ."""
    if isinstance(a, torch.SymInt) or isinstance(b, torch.SymInt):
        torch._check(a == b)


class Sizes:
    """The dimensions of one call, found from its inputs; symbolic ones stay symbolic."""

    def __init__(self, description: Pass, call: Mapping[str, Any]) -> None:
        self._pass, self._call = description, call
        self._form = call.get("residual", description.form)
        self._known: dict[str, Size] = {}
        self._tokens: tuple[Size, ...] = ()
        self._lead()
        for argument in description.inputs:
            value = call[argument.name]
            for tensor in value if argument.is_list else (value,):
                if tensor is not None and argument.forms:
                    self._match(argument, tensor)

    def _lead(self) -> None:
        argument = next(a for a in self._pass.inputs if a.name == self._pass.leader)
        value = self._call[argument.name]
        if argument.is_list and not value:
            return  # no blocks: no tokens
        tensor: Tensor = value[0] if argument.is_list else value
        inner = len(argument.forms[0]) - 1
        self._tokens = tuple(tensor.shape[: tensor.ndim - inner])
        if argument.forms[0][1:] == ("R",):
            self._known["n"] = _STREAMS[int(tensor.shape[-1])]

    def _resolve(self, form: Form) -> list[Form]:
        """R as what it is in this call."""
        if "R" not in form:
            return [form]
        head = form[:-1]
        if self._form == MATRIX:
            return [(*head, "n", "n"), (*head, "n*n")]
        return [form]

    def _match(self, argument: Argument, tensor: Tensor) -> None:
        forms = [r for form in argument.forms for r in self._resolve(form)]
        rank = tensor.ndim
        fitting = [f for f in forms if len(self._tokens) * ("T" in f) + len(f) - ("T" in f) == rank]
        form = fitting[0]
        if len(fitting) > 1:  # [1, D] or [S, D]
            form = next((f for f in fitting if f[0] != "1" or tensor.shape[0] == 1), form)
        at = 0
        for letter in form:
            if letter == "T":
                for token in self._tokens:
                    _equal(tensor.shape[at], token)
                    at += 1
                continue
            size = tensor.shape[at]
            at += 1
            if letter.isdigit() or letter == "n*n":
                continue
            _equal(self._known.setdefault(letter, size), size)
        if form == ("F", "K") and "n" in self._known:
            self._agree_projection()

    def _agree_projection(self) -> None:
        n = self._known["n"]
        if "D" in self._known:
            _equal(self._known["K"], n * self._known["D"])
        if self._pass.rows == "head":
            _equal(self._known["F"], n)
        elif self._form != PERMUTATION:
            _equal(self._known["F"], 2 * n + (n * n if self._form == MATRIX else 0))

    def value(self, letter: str) -> Size:
        """The size of a dimension."""
        if letter in self._known:
            return self._known[letter]
        if letter.isdigit():
            return int(letter)
        if letter == "2I":
            return 2 * int(self._call["num_iters"])
        if letter == "L":
            sources = sum(len(self._call[a.name]) for a in self._pass.inputs if a.is_list)
            return sources + (self._call.get("partial_block") is not None)
        if letter == "R":  # of the permutation form
            return self._known["F"] - 2 * self._known["n"]
        raise KeyError(letter)

    def output(self, argument: Argument) -> tuple[Size, ...]:
        """The sizes of an output, of one member if it is a list."""
        if argument.like is not None and not argument.is_list:
            return tuple(self._call[argument.like].shape)
        sizes: list[Size] = []
        for letter in self._resolve(argument.forms[0])[0]:
            sizes += self._tokens if letter == "T" else (self.value(letter),)
        return tuple(sizes)


def outputs(name: str, args: Sequence[Any]) -> tuple[Tensor, ...]:
    """What an operator returns for arguments that have been checked, without values."""
    description = PASSES[name]
    call = description.bind(args)
    sizes = Sizes(description, call)
    leader = call[description.leader]
    like: Tensor = leader if isinstance(leader, Tensor) else (leader or [call["queries"]])[0]

    def make(output: Argument) -> Tensor:
        if description.is_absent(output, call):
            return like.new_empty((0,), dtype=torch.float32)
        if output.type == "same":
            original: Tensor = call[output.like or ""]
            return original.new_empty(original.shape)
        dtype = like.dtype if output.type == "activation" else coefficient(like.dtype)
        if output.is_list:
            count = len(call[output.like or ""])
            if count == 0:
                return like.new_empty((0,), dtype=torch.float32)
            return like.new_empty((count, *sizes.output(output)), dtype=dtype)
        return like.new_empty(sizes.output(output), dtype=dtype)

    return tuple(map(make, description.outputs))
