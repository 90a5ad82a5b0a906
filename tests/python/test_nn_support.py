"""Modules: parameters that stay float32, autocast, compile, checkpointing, vmap, memory."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from anabranch import nn
from conftest import flatten
from nn_cases import DIM, NAMES, N, hyper, modules, relative, saved_bytes, spread


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(20240607)


# dtypes

CASTS = {
    "bfloat16": lambda m: m.bfloat16(),
    "half": lambda m: m.half(),
    "to": lambda m: m.to(torch.bfloat16),
    "to_device": lambda m: m.to("cpu", torch.float16),
    "type": lambda m: m.type(torch.bfloat16),
    "double_and_back": lambda m: m.double().bfloat16(),
}


@pytest.mark.parametrize("cast", CASTS)
@pytest.mark.parametrize("name", NAMES)
def test_parameters_stay_float32(name, cast):
    module, x = modules()[name]
    module(x).sum().backward()
    kept = [p for m in nn.fp32_modules(module) for p in m.parameters(recurse=False)]
    before = [(p.detach().clone(), p.grad.clone()) for p in kept]
    CASTS[cast](module)
    assert kept
    for p, (value, grad) in zip(kept, before, strict=True):
        assert p.dtype == p.grad.dtype == torch.float32
        assert torch.equal(p, value) and torch.equal(p.grad, grad)
    others = [p for k, p in module.named_parameters() if k.startswith("sublayer")]
    assert all(p.dtype in (torch.bfloat16, torch.float16) for p in others)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_outputs_have_the_dtype_of_x(name, dtype):
    module, x = modules()[name]
    assert module.to(dtype)(x.to(dtype)).dtype == dtype


def test_the_sublayers_output_is_cast_to_the_dtype_of_x():
    hc = nn.HyperConnection(DIM, N, lambda h: h.float())
    assert hc(torch.randn(3, N, DIM).bfloat16()).dtype == torch.bfloat16


def test_double_modules_take_the_reference_path():
    module = nn.HyperConnection(3, 2, torch.nn.Linear(3, 3), num_iters=3).double()
    spread(module)
    x = torch.randn(2, 2, 3, dtype=torch.float64, requires_grad=True)
    names, values = zip(*module.named_parameters(), strict=True)

    def call(x: Tensor, *parameters: Tensor) -> Tensor:
        named = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(module, named, (x,))

    assert torch.autograd.gradcheck(call, (x, *values))


def test_parameters_are_made_and_loaded_as_float32():
    torch.set_default_dtype(torch.bfloat16)
    try:
        parts = [hyper(), nn.HyperConnectionHead(DIM, N), nn.AttentionResidual(DIM)]
    finally:
        torch.set_default_dtype(torch.float32)
    for part in parts:
        narrow = {k: v.bfloat16() for k, v in part.state_dict().items()}
        part.load_state_dict(narrow, assign=True)
        for owner in nn.fp32_modules(part):
            assert {p.dtype for p in owner.parameters()} == {torch.float32}
        assert all(v.dtype == torch.bfloat16 for v in narrow.values())


def test_meta_device_and_reset_parameters():
    with torch.device("meta"):
        parts = [nn.HyperConnection(DIM, N), nn.HyperConnectionHead(DIM, N)]
        parts.append(nn.AttentionResidual(DIM))
        x = torch.empty(2, N, DIM)
        assert parts[0].pre(x)[0].shape == parts[1](x).shape == (2, DIM)
        assert parts[0].bfloat16().coefficients.fn.dtype == torch.float32
    for module in parts:
        module.to_empty(device="cpu").reset_parameters()
        assert all(torch.isfinite(p).all() for p in module.parameters())
    h_in, _ = parts[0].pre(nn.expand_streams(torch.randn(5, DIM), N))
    assert h_in.shape == (5, DIM)


@pytest.mark.parametrize("name", NAMES)
def test_autocast_leaves_the_coefficients_alone(name):
    module, x = modules()[name]
    if isinstance(module, nn.HyperConnection):
        module.sublayer = torch.nn.Linear(DIM, DIM)
        with torch.autocast("cpu", torch.bfloat16):
            h_in, state = module.pre(x)
            assert module.sublayer(h_in).dtype == torch.bfloat16
        plain, plain_state = module.pre(x)
        assert torch.equal(h_in, plain)
        assert all(map(torch.equal, flatten([*state]), flatten([*plain_state])))
    with torch.autocast("cpu", torch.bfloat16):
        have = module(x)
    assert have.dtype == torch.float32
    # Only the sublayer's product is rounded to bfloat16.
    assert relative(have, module(x)) < (2**-7 if hasattr(module, "sublayer") else 1e-30)
    have.sum().backward()
    for part in nn.fp32_modules(module):
        assert {p.grad.dtype for p in part.parameters(recurse=False)} == {torch.float32}


# What they work with


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_compile_fullgraph(name):
    from torch._dynamo.testing import CompileCounterWithBackend

    module, x = modules()[name]
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(module, fullgraph=True, dynamic=True, backend=counter)
    grads = []
    frames = 0
    for tokens in (7, 11):  # no number that another dimension has: equal sizes share a symbol
        x = torch.randn(*x.shape[:1], tokens, *x.shape[2:])
        for call in (module, compiled):
            module.zero_grad()
            leaf = x.clone().requires_grad_()
            y = call(leaf)
            y.square().sum().backward()
            grads.append([y, leaf.grad, *(p.grad for p in module.parameters())])
        # The sublayer's matrix products may differ in their last bits, compiled.
        for a, b in zip(*grads[-2:], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
        # The first call may restart its own compilation when it specialises an attribute.
        frames = frames or counter.frame_count
    assert counter.frame_count == frames, "recompiled from one number of tokens to another"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_export_with_dynamic_tokens(name):
    module, x = modules()[name]
    axis = 2 if name == "attention" else 1
    tokens = {axis: torch.export.Dim("tokens", min=2, max=1 << 20)}
    program = torch.export.export(module, (x,), dynamic_shapes=(tokens,))
    longer = torch.cat([x, x], axis)
    torch.testing.assert_close(program.module()(longer), module(longer), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_activation_checkpointing(name):
    module, x = modules()[name]

    def checkpointed(x: Tensor) -> Tensor:
        return checkpoint(module, x, use_reentrant=False)

    grads = []
    for call in (module, checkpointed):
        module.zero_grad()
        leaf = x.clone().requires_grad_()
        y = call(leaf)
        y.square().sum().backward()
        grads.append([y, leaf.grad, *(p.grad for p in module.parameters())])
    assert all(map(torch.equal, *grads))
    known = (leaf, *module.parameters())
    assert saved_bytes(lambda: module(leaf), *known) > 0
    assert saved_bytes(lambda: checkpointed(leaf), *known) == 0


@pytest.mark.parametrize("name", NAMES)
def test_functional_call_and_vmap(name):
    module, x = modules()[name]
    other = copy.deepcopy(module)
    spread(other)
    parameters = [dict(m.named_parameters()) for m in (module, other)]

    def call(named: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(module, named, (x,))

    assert torch.equal(call(parameters[1], x), other(x))
    xs = torch.stack([x, x.flip(1), 2 * x])
    have = torch.vmap(module)(xs)
    # The sublayer's matrix products run over another shape.
    torch.testing.assert_close(have, torch.stack([module(x) for x in xs]), rtol=1e-5, atol=1e-5)
    stacked = {k: torch.stack([p[k] for p in parameters]) for k in parameters[0]}
    have = torch.vmap(call, in_dims=(0, None))(stacked, x)
    torch.testing.assert_close(have, torch.stack([module(x), other(x)]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "bytes_per_token"),
    [
        # docs/nn.md: h_out, coefficients, caches.
        ({}, 2 * DIM + 4 * (N + N * N) + 4 * (1 + 24 + N)),
        ({"residual": "identity"}, 2 * DIM + 4 * N + 4 * (1 + 8 + N)),
        ({"preset": "mhc_lite"}, 2 * DIM + 4 * (N + N * N) + 4 * (1 + 32 + N) + 4 * 24),
        ({"norm_weight": True}, 2 * DIM + 4 * (N + N * N) + 4 * (1 + 24 + N) + 4 * N * N),
    ],
    ids=str,
)
def test_memory_of_a_hyper_connection(options, bytes_per_token):
    hc = nn.HyperConnection(DIM, N, lambda h: h * 1, **options)
    x = torch.randn(16, N, DIM).bfloat16().requires_grad_()
    assert saved_bytes(lambda: hc(x), x, *hc.parameters()) == 16 * bytes_per_token


def test_memory_of_the_other_modules():
    x = torch.randn(16, N, DIM).bfloat16().requires_grad_()
    head = nn.HyperConnectionHead(DIM, N)
    assert saved_bytes(lambda: head(x), x, *head.parameters()) == 16 * 4 * (1 + 2 * N)
    blocks = [torch.randn(16, DIM).bfloat16() for _ in range(3)]
    for norm, per_source in ((True, 8), (False, 4)):
        attend = nn.AttentionResidual(DIM, norm=norm)
        kept = saved_bytes(lambda a=attend: a(blocks), *blocks, *attend.parameters())
        assert kept == 16 * 3 * per_source


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_kept_without_gradients(name):
    module, x = modules()[name]
    produced: list[Tensor] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if func.namespace == "anabranch":
                produced.extend(flatten(result))
            return result

    kept: list[Tensor] = []
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t), lambda t: t)
    with torch.no_grad(), hooks, Watch():
        y = module(x)
    assert not y.requires_grad and not kept
    tokens = x[..., 0, 0].numel() if name != "attention" else x[0, ..., 0].numel()
    coefficients = {"identity": N, "permutation": N + N * N + 24}.get(name, N + N * N)
    if name in ("norm_weight", "clamp"):
        coefficients += N * N  # the logits
    if name in ("head", "attention"):
        want = tokens * DIM
    else:
        want = tokens * (DIM + coefficients + N * DIM)
    assert sum(t.numel() for t in produced) == want


@pytest.mark.parametrize("name", NAMES)
def test_leading_dimensions(name):
    module, x = modules()[name]
    want = module(x)
    flat = x.flatten(1, 2) if name == "attention" else x.flatten(0, 1)
    torch.testing.assert_close(module(flat), want.flatten(0, 1), rtol=1e-5, atol=1e-5)
    one = flat[:, 0] if name == "attention" else flat[0]
    torch.testing.assert_close(module(one), want.flatten(0, 1)[0], rtol=1e-5, atol=1e-5)
    empty = x[:, :, :0] if name == "attention" else x[:, :0]
    assert module(empty).numel() == 0


@pytest.mark.parametrize("save", ["recompute", "all"])
def test_save_keeps_what_it_says(save):
    hc = nn.HyperConnection(DIM, N, lambda h: h * 1, num_iters=3, save=save)
    x = torch.randn(16, N, DIM).bfloat16().requires_grad_()
    more = 8 * 3 * (N + N * N) if save == "all" else 0
    want = 2 * DIM + 4 * (N + N * N) + 4 * (1 + 24 + N) + more
    assert saved_bytes(lambda: hc(x), x, *hc.parameters()) == 16 * want
