"""Block attention residuals. Like one published sample it uses both names without an import."""

import sys

import torch
import torch_npu  # noqa: F401

DEVICE = "npu:0"
B, T, D, BLOCKS = 2, 8, 96, 3

torch.manual_seed(23)
blocks = [torch.randn(B, T, D, dtype=torch.float16, device=DEVICE) for _ in range(BLOCKS)]
partial = torch.randn(B, T, D, dtype=torch.float16, device=DEVICE)
weight = (torch.randn(D) / D**0.5).to(DEVICE)
gamma = torch.rand(D).to(DEVICE) + 0.5

h, rms, alpha = ai_infra_block_attn_res(  # noqa: F821
    blocks,
    weight,
    partial_block=partial,
    scale=1.0,
    rmsnorm_eps=1e-6,
    rmsnorm_gamma=gamma,
    enable_rmsnorm=True,
    rms_out_flag=True,
    alpha_out_flag=True,
)
grad_h = torch.randn_like(h)
grad_blocks, grad_partial, grad_weight, grad_gamma = ai_infra_block_attn_res_backward(  # noqa: F821
    grad_h, blocks, weight, alpha, partial, gamma, rms, scale=1.0, enable_rmsnorm=True
)
print(h.shape, rms.shape, alpha.shape, len(grad_blocks))

import pypto  # noqa: E402

same = pypto.ai_infra_block_attn_res(blocks, weight, partial, rmsnorm_gamma=gamma)
assert torch.equal(same.cpu(), h.cpu())
torch.save(
    {
        "blocks": [block.cpu() for block in blocks],
        "partial": partial.cpu(),
        "weight": weight.cpu(),
        "gamma": gamma.cpu(),
        "grad_h": grad_h.cpu(),
        "h": h.cpu(),
        "rms": rms.cpu(),
        "alpha": alpha.cpu(),
        "grads": [g.cpu() for g in (*grad_blocks, grad_partial, grad_weight, grad_gamma)],
    },
    sys.argv[1],
)
