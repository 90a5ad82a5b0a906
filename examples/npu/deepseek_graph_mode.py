"""One DeepSeek-V4 style layer in graph mode: torchair's backend, dispatcher names, an NPU graph.

    python -m anabranch.compat.npu examples/npu/deepseek_graph_mode.py
"""

import logging

import torch
import torch_npu
import torchair
from cann_ops_transformer.ops import mhc_post, mhc_pre_sinkhorn
from torchair.core.utils import logger

logger.setLevel(logging.WARNING)
torch.npu.set_device(0)
torch.npu.set_deterministic_level(1)
device = f"npu:{torch.npu.current_device()}"

TOKENS, N, D = 16, 4, 64
EPS = 1e-6


class Layer(torch.nn.Module):
    """Pre, a feed-forward sublayer, post."""

    def __init__(self) -> None:
        super().__init__()
        rows = N * N + 2 * N
        self.hc_fn = torch.nn.Parameter(torch.randn(rows, N * D) / (N * D) ** 0.5)
        self.hc_scale = torch.nn.Parameter(torch.full((3,), 0.5))
        self.hc_base = torch.nn.Parameter(torch.randn(rows) * 0.1)
        self.ffn = torch.nn.Linear(D, D)

    def forward(self, x):
        h_in, post, comb = mhc_pre_sinkhorn(
            x, self.hc_fn, self.hc_scale, self.hc_base, N, 20, EPS, EPS
        )
        return mhc_post(x, comb, torch.nn.functional.silu(self.ffn(h_in)), post)


def plain(layer, x):
    """The same layer with PyTorch's operators."""
    flat = x.flatten(-2)
    w = (flat @ layer.hc_fn.T) * torch.rsqrt(flat.square().mean(-1, keepdim=True) + EPS)
    pre, post, res = w.split([N, N, N * N], dim=-1)
    base_pre, base_post, base_res = layer.hc_base.split([N, N, N * N])
    pre = torch.sigmoid(pre * layer.hc_scale[0] + base_pre) + EPS
    post = 2 * torch.sigmoid(post * layer.hc_scale[1] + base_post)
    m = torch.softmax((res * layer.hc_scale[2] + base_res).unflatten(-1, (N, N)), -1) + EPS
    m = m / (m.sum(-2, keepdim=True) + EPS)
    for _ in range(19):
        m = m / (m.sum(-1, keepdim=True) + EPS)
        m = m / (m.sum(-2, keepdim=True) + EPS)
    out = torch.nn.functional.silu(layer.ffn((pre.unsqueeze(-1) * x).sum(-2)))
    return post.unsqueeze(-1) * out.unsqueeze(-2) + m.transpose(-1, -2) @ x


torch.manual_seed(0)
layer = Layer().to(device)
x = torch.randn(TOKENS, N, D, device=device)
config = torchair.CompilerConfig()
config.mode = "reduce-overhead"
compiled = torch.compile(
    layer, backend=torchair.get_npu_backend(compiler_config=config), fullgraph=True
)
with torch.no_grad():
    want = plain(layer, x)
    torch.testing.assert_close(compiled(x), want, rtol=1e-4, atol=1e-4)
print("graph mode: the compiled layer agrees with the plain formula")

results = torch.ops.cann_ops_transformer.mhc_pre_sinkhorn(
    x, layer.hc_fn, layer.hc_scale, layer.hc_base, 4, 20, 1e-6, 1e-6, True
)
assert len(results) == 8
h_in, post, comb = results[:3]
assert comb.shape == (TOKENS, N * N)
y = torch.ops.npu.npu_mhc_post(x, comb, torch.nn.functional.silu(layer.ffn(h_in)), post)
torch.testing.assert_close(y, want, rtol=1e-4, atol=1e-4)
torch.testing.assert_close(y, torch_npu.npu_mhc_post(x, comb, layer.ffn(h_in).sigmoid()
                                                     * layer.ffn(h_in), post))
print("dispatcher names: torch.ops.cann_ops_transformer and torch.ops.npu agree, too")

static_x = x.clone()
graph = torch.npu.NPUGraph()
with torch.no_grad(), torch.npu.graph(graph):
    assert torch.npu.is_current_stream_capturing()
    static_y = layer(static_x)
new_x = torch.randn(TOKENS, N, D, device=device)
static_x.copy_(new_x)
graph.replay()
with torch.no_grad():
    torch.testing.assert_close(static_y, plain(layer, new_x), rtol=1e-4, atol=1e-4)
print("NPUGraph: a replay computes with what its input tensor holds now")
