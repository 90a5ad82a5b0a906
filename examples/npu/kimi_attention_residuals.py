"""A Kimi-K3 style loop over layers: block attention residuals in two phases and in one call.

    python -m anabranch.compat.npu examples/npu/kimi_attention_residuals.py
"""

import cann_ops_transformer
import torch
import torch_npu  # noqa: F401
from cann_ops_transformer.ops import block_attn_res_prepare, block_attn_res_update

TOKENS, D, BLOCKS, SUBLAYERS = 12, 64, 3, 4
EPS = 1e-6
device = torch.device("npu", torch.npu.current_device())


def plain(sources, query):
    """Softmax over the sources of query . v / rms(v), in plain PyTorch."""
    v = torch.stack(sources, -2).float()
    rms = (v.square().mean(-1) + EPS).sqrt()
    alpha = torch.softmax((v @ query) / rms, -1)
    return (alpha.unsqueeze(-1) * v).sum(-2), rms, alpha


torch.npu.manual_seed(1)
weights = [torch.randn(D, D, device=device) / D**0.5 for _ in range(BLOCKS * SUBLAYERS)]
queries = torch.randn(BLOCKS * SUBLAYERS, D, device=device) / D**0.5
hidden = torch.randn(TOKENS, D, device=device)
finished = [hidden]
worst = 0.0
for block in range(BLOCKS):
    slots = queries[block * SUBLAYERS : (block + 1) * SUBLAYERS]
    stacked = torch.stack(finished, dim=1)  # [T, N, D]
    valid = torch.tensor([len(finished)], dtype=torch.int64, device=device)
    numerator, maximum, exp_sum = block_attn_res_prepare(stacked, valid, slots, eps=EPS)
    partial = torch.zeros(TOKENS, D, device=device)
    delta = hidden
    for slot in range(SUBLAYERS):
        before = partial.clone()
        h = block_attn_res_update(
            partial, delta, slots[slot], numerator[slot], maximum[slot], exp_sum[slot]
        )
        assert torch.equal(partial, before + delta), "the running block grows in place"
        want, _, _ = plain([*finished, partial], slots[slot])
        worst = max(worst, (h - want).abs().max().item())
        delta = torch.tanh(h @ weights[block * SUBLAYERS + slot])
    partial += delta
    finished.append(partial)
assert worst < 1e-4, worst
print(f"two phases: {BLOCKS * SUBLAYERS} sublayers, largest difference {worst:.1e}")

h, inv_rms, alpha = cann_ops_transformer.block_attention_residuals(
    finished[:-1], queries[0], finished[-1], eps=EPS, out_flag=True
)
want, rms, want_alpha = plain(finished, queries[0])
torch.testing.assert_close(h, want, rtol=1e-4, atol=1e-4)
torch.testing.assert_close(inv_rms, 1 / rms, rtol=1e-5, atol=1e-6)
torch.testing.assert_close(alpha, want_alpha, rtol=1e-4, atol=1e-5)
print("one call: block_attention_residuals agrees with the plain formula")
