"""Shared by the registrations: shape checks in the library's words, calls, vmap rules."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad

from anabranch import _C
from anabranch._ops._description import PASSES, Pass, Size, outputs

_below_autograd = torch._C._AutoDispatchBelowAutograd
_compiling = torch.compiler.is_compiling
_inference = torch.is_inference_mode_enabled
_grad_enabled = torch.is_grad_enabled
_functorch_level: Callable[[], Any] = torch._C._functorch.peek_interpreter_stack
# Where a fake or meta tensor may claim to be; the kernels run on the CPU alone.
_DEVICES = ("cpu", "meta")


def _size(size: Size) -> int:
    """A number that C++ can check: the size, its hint under tracing, or -1 for unknown."""
    if isinstance(size, int):
        return size
    node = size.node
    return int(cast(int, node.hint)) if node.has_hint() else -1


def _describe(tensor: Tensor | None) -> tuple[str, tuple[int, ...]] | None:
    if tensor is None:
        return None
    return str(tensor.dtype).removeprefix("torch."), tuple(_size(s) for s in tensor.shape)


def infer(
    op: torch._ops.OpOverload,
    tensors: Sequence[Tensor | None],
    blocks: Sequence[Tensor] = (),
    attributes: Sequence[float] = (),
) -> None:
    """Checks a call's shapes and dtypes as the operator itself does, ValueError in its words."""
    name = op._opname
    fault = _placement_fault(op, (*tensors, *blocks))
    if fault is not None:
        raise fault
    described = tuple(_describe(t) for t in tensors)
    _C.infer(name, described, tuple(_describe(b) for b in blocks), tuple(map(float, attributes)))


def filled(grad: Tensor | None, like: Tensor, *shape: Size) -> Tensor:
    """An output's gradient, zeros where nothing came back to that output."""
    return like.new_zeros(shape) if grad is None else grad


def _placement_fault(op: torch._ops.OpOverload, tensors: Sequence[Any]) -> ValueError | None:
    first = next((t.device for t in tensors if isinstance(t, Tensor)), None)
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            continue
        if tensor.layout is not torch.strided:
            label = f"{op._opname}: {_name_of(op, tensor, tensors)}"
            return cast(ValueError, _tensor_fault(label, tensor, optional=True))
        wanted = "cpu" if tensor.device.type not in _DEVICES else str(first)
        if str(tensor.device) != wanted:
            name = _name_of(op, tensor, tensors)
            return ValueError(
                f"{op._opname}: {name} is on device {tensor.device}, expected {wanted}"
            )
    return None


def _name_of(op: torch._ops.OpOverload, tensor: Tensor, tensors: Sequence[Any]) -> str:
    """The argument's name; `tensors` are the single tensors in schema order, then the blocks."""
    names = [a.name for a in op._schema.arguments if "Tensor" in str(a.type)]
    names = [name for name in names if name != "blocks"]
    position = next(i for i, t in enumerate(tensors) if t is tensor)
    return names[position] if position < len(names) else f"blocks[{position - len(names)}]"


def _explain(op: torch._ops.OpOverload, args: Sequence[Any], error: Exception) -> Exception:
    """The clearest error for a call that failed. Only ever runs after a failure."""
    name = op._opname
    for argument, value in zip(op._schema.arguments, args, strict=False):
        kind = str(argument.type)
        if "Tensor" not in kind:
            continue
        listed = isinstance(value, (list, tuple)) and "List" in kind
        items = value if listed else [value]
        for index, item in enumerate(items):
            label = f"{argument.name}[{index}]" if listed else argument.name
            fault = _tensor_fault(f"{name}: {label}", item, optional="Optional" in kind)
            if fault is not None:
                return fault
    text = str(error)
    if text.startswith(f"{name}: "):
        return ValueError(text)
    return error


def _tensor_fault(label: str, item: Any, optional: bool) -> Exception | None:
    if item is None:
        return None if optional else ValueError(f"{label} is absent, expected a tensor")
    if not isinstance(item, Tensor):
        return TypeError(f"{label} is a {type(item).__name__}, expected a tensor")
    if item.layout is not torch.strided:
        layout = str(item.layout).removeprefix("torch.")
        return ValueError(f"{label} has layout {layout}, expected a dense (strided) tensor")
    if item.is_quantized or item.is_complex():
        kind = str(item.dtype).removeprefix("torch.")
        return ValueError(
            f"{label} has dtype {kind}, expected float32, bfloat16, float16 or float64"
        )
    if item.device.type not in _DEVICES:
        return ValueError(f"{label} is on device {item.device}, expected cpu")
    return None


def needs_grad(*tensors: Tensor | None) -> bool:
    """Whether autograd will record a call with these arguments."""
    if not _grad_enabled():
        return False
    for t in tensors:
        # getattr: what is no tensor gets its error from the call itself.
        if getattr(t, "requires_grad", False):
            return True
    # A tensor of an outer torch.func level does not say that it is differentiated there.
    return _functorch_level() is not None


_unpack_dual: Callable[[Tensor], Any] = forward_ad.unpack_dual


def _refuse_forward_mode(op: torch._ops.OpOverload, args: Sequence[Any]) -> None:
    for value in args:
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, Tensor) and _unpack_dual(item).tangent is not None:
                raise RuntimeError(
                    f"{op._opname}: forward-mode derivatives are not supported, "
                    "expected reverse mode"
                )


class _Derivative:
    """How autograd sees an operator: once eagerly, once under torch.func.

    ``torch.library.register_autograd`` serves the dispatcher (compilers, direct callers). Calls of
    the functions need not go through its Python kernel, which costs several times what an operator
    on one token does, and which torch.func refuses.
    """

    def __init__(
        self, op: torch._ops.OpOverload, setup: Callable[..., None], backward: Callable[..., Any]
    ) -> None:
        arguments = op._schema.arguments
        lists = [i for i, a in enumerate(arguments) if str(a.type) == "List[Tensor]"]
        self._list = lists[0] if lists else None
        self._others = len(arguments) - 1
        self.eager = self._make_eager(op, setup, backward)
        self.functorch = self._make_functorch(op, setup, backward)

    def flat(self, args: Sequence[Any]) -> Sequence[Any]:
        """A function of autograd takes and returns no lists: the blocks stand one by one."""
        at = self._list
        return args if at is None else (*args[:at], *args[at], *args[at + 1 :])

    def _packed(self, flat: Sequence[Any]) -> Sequence[Any]:
        at = self._list
        if at is None:
            return flat
        end = at + len(flat) - self._others
        return (*flat[:at], list(flat[at:end]), *flat[end:])

    def _make_eager(
        self, op: torch._ops.OpOverload, setup: Callable[..., None], backward: Callable[..., Any]
    ) -> Any:
        derivative = self

        class Eager(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *flat: Any) -> Any:
                args = derivative._packed(flat)
                with _below_autograd():
                    output = op(*args)
                setup(ctx, args, output)
                return output

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                result = backward(ctx, *grads)
                return derivative.flat(result) if isinstance(result, tuple) else result

        Eager.__name__ = op._opname
        return Eager

    def _make_functorch(
        self, op: torch._ops.OpOverload, setup: Callable[..., None], backward: Callable[..., Any]
    ) -> Any:
        derivative = self

        class Functorch(torch.autograd.Function):
            @staticmethod
            def forward(*flat: Any) -> Any:
                return op(*derivative._packed(flat))

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                setup(ctx, derivative._packed(inputs), output)

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                result = backward(ctx, *grads)
                return derivative.flat(result) if isinstance(result, tuple) else result

            @staticmethod
            def vmap(info: Any, in_dims: Any, *flat: Any) -> Any:
                dims = derivative._packed(in_dims)
                return _vmap_rules[op](info, dims, *derivative._packed(flat))

        Functorch.__name__ = op._opname
        return Functorch


_derivatives: dict[torch._ops.OpOverload, _Derivative] = {}
_vmap_rules: dict[torch._ops.OpOverload, Callable[..., Any]] = {}


def register_derivative(
    op: torch._ops.OpOverload, setup: Callable[..., None], backward: Callable[..., Any]
) -> None:
    """Registers a derivative with the dispatcher and for :func:`invoke`.

    ``setup(ctx, inputs, output)`` and ``backward(ctx, *grads)`` are those of
    ``torch.library.register_autograd``; a gradient that is absent is None, not zeros.
    """

    def lazy(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.set_materialize_grads(False)
        setup(ctx, inputs, output)

    torch.library.register_autograd(op, backward, setup_context=lazy)
    _derivatives[op] = _Derivative(op, lazy, backward)


def refuse_second_derivative(op: torch._ops.OpOverload) -> None:
    """Registers a backward for a backward operator that says no."""
    name = op._opname

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(
            f"{name}: second derivatives are not supported, expected a first derivative "
            "(no create_graph, no gradient of a gradient)"
        )

    register_derivative(op, setup, backward)


def invoke(op: torch._ops.OpOverload, record: bool, *args: Any) -> Any:
    """Calls an operator; `record` says whether autograd must see it (see needs_grad).

    When it need not, no autograd kernel runs. Failures become ValueError with the library's text.
    """
    if _compiling():
        return op(*args)
    if _dtensor in sys.modules and not _sharding:
        _register_sharding()
    if forward_ad._current_level >= 0:
        _refuse_forward_mode(op, args)
    try:
        if _functorch_level() is not None:
            derivative = _derivatives[op]
            return derivative.functorch.apply(*derivative.flat(args))
        if record:
            derivative = _derivatives[op]
            return derivative.eager.apply(*derivative.flat(args))
        if _inference():  # no autograd kernel is in the way; the guard costs as much as the checks
            return op(*args)
        with _below_autograd():
            return op(*args)
    except RuntimeError as error:
        fault = _explain(op, args, error)
        if fault is error:
            raise
        raise fault from None


def invoke_backward(op: torch._ops.OpOverload, *args: Any) -> Any:
    """Calls a backward operator from a derivative; recorded only to refuse a second one."""
    return invoke(op, torch.is_grad_enabled(), *args)


_dtensor = "torch.distributed.tensor"
_sharding: list[bool] = []


def _register_sharding() -> None:
    """Teaches DTensor our operators, once a program has loaded it."""
    module = sys.modules[_dtensor]
    if getattr(module, "DTensor", None) is None:
        return  # being imported
    _sharding.append(True)
    importlib.import_module("anabranch.distributed")


def _moved(value: Any, dim: Any, size: int, to: int) -> Any:
    """A token tensor (or list of them) with the mapped dimension in front of its tokens."""
    if isinstance(value, (list, tuple)):
        dims = dim if isinstance(dim, (list, tuple)) else [dim] * len(value)
        return [_moved(v, d, size, to) for v, d in zip(value, dims, strict=True)]
    if not isinstance(value, Tensor):
        return value
    if dim is not None:
        return value.movedim(dim, to)
    shape = list(value.shape)
    return value.unsqueeze(to).expand(*shape[:to], size, *shape[to:])


def _is_mapped(dim: Any) -> bool:
    return any(_is_mapped(d) for d in dim) if isinstance(dim, (list, tuple)) else dim is not None


def _slice(value: Any, dim: Any, index: int) -> Any:
    if isinstance(value, (list, tuple)):
        dims = dim if isinstance(dim, (list, tuple)) else [dim] * len(value)
        return [_slice(v, d, index) for v, d in zip(value, dims, strict=True)]
    return value if dim is None else value.select(dim, index)


def _register_vmap(op: torch._ops.OpOverload, description: Pass) -> None:
    """vmap: one call over one more dimension of tokens where only tensors with tokens are mapped.

    Calls with outputs that sum over tokens (gradients of parameters), and mapped parameters, run
    once per element.
    """
    single = len(description.outputs) == 1
    in_at = [a.token_at for a in description.inputs]
    in_at += [None] * (len(op._schema.arguments) - len(in_at))
    out_at = [a.token_at for a in description.outputs]
    # A list's gradients come back stacked: one dimension more in front.
    out_at = [
        at if at is None or not a.is_list else at + 1
        for a, at in zip(description.outputs, out_at, strict=True)
    ]

    def call(*args: Any) -> Any:
        # An outer level may differentiate what this one maps.
        return invoke(op, needs_grad(*_derivatives[op].flat(args)), *args)

    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        size = info.batch_size
        places = list(zip(args, in_dims, in_at, strict=True))
        if None not in out_at and not any(_is_mapped(d) for _, d, at in places if at is None):
            result = call(*(v if at is None else _moved(v, d, size, at) for v, d, at in places))
            if single:
                return result, out_at[0]
            dims = [
                d if _is_there(r, d, size) else None for r, d in zip(result, out_at, strict=True)
            ]
            return result, tuple(dims)
        rows = [call(*(_slice(v, d, i) for v, d, _ in places)) for i in range(size)]
        if single:
            return torch.stack(rows), 0
        return tuple(torch.stack(column) for column in zip(*rows, strict=True)), (0,) * len(rows[0])

    torch.library.register_vmap(op, rule)
    _vmap_rules[op] = rule


def _is_there(output: Tensor, dim: int | None, size: int) -> bool:
    """An absent output has no elements and nothing to map."""
    return (
        dim is not None
        and output.ndim > dim
        and output.numel() + size > 0
        and output.shape[dim] == size
    )


def _register_fake(op: torch._ops.OpOverload, description: Pass) -> None:
    """The fake kernel: it refuses what the kernel refuses, in the same words."""
    single = len(description.outputs) == 1
    lists = [a.is_list for a in description.inputs]

    def kernel(*args: Any) -> Any:
        values = args[: len(lists)]
        tensors = [v for v, is_list in zip(values, lists, strict=True) if not is_list]
        blocks = next((v for v, is_list in zip(values, lists, strict=True) if is_list), ())
        infer(op, tensors, blocks, args[len(lists) :])
        result = outputs(description.name, args)
        return result[0] if single else result

    torch.library.register_fake(op._schema.name, kernel)


def register(
    op: torch._ops.OpOverload,
    setup: Callable[..., None] | None = None,
    backward: Callable[..., Any] | None = None,
) -> None:
    """Registers all that an operator needs beside its kernel.

    Fake kernel and vmap rule follow from its description; ``setup`` and ``backward`` are those of
    :func:`register_derivative`, None for a backward operator, which refuses to be differentiated.
    """
    description = PASSES[op._opname]
    _register_fake(op, description)
    if setup is None or backward is None:
        refuse_second_derivative(op)
    else:
        register_derivative(op, setup, backward)
    _register_vmap(op, description)
