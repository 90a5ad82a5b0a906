"""One mHC sublayer in eager mode, forward and backward: a first NPU script."""

import sys

import torch
import torch_npu
from cann_ops_transformer.ops import mhc_post, mhc_pre_sinkhorn

B, S, N, D = 2, 16, 4, 128
F = N * N + 2 * N

torch_npu.npu.set_device(0)
torch.manual_seed(7)

x = torch.randn(B, S, N, D, dtype=torch.bfloat16).npu().requires_grad_()
phi = (torch.randn(F, N * D) / (N * D) ** 0.5).npu().requires_grad_()
alpha = torch.tensor([0.5, 0.7, 0.9], device="npu", requires_grad=True)
bias = torch.randn(F, device="npu:0", requires_grad=True)

h_in, h_post, h_res = mhc_pre_sinkhorn(
    x, phi, alpha, bias, hc_mult=N, num_iters=20, hc_eps=1e-6, norm_eps=1e-6
)
h_out = torch.tanh(h_in.float()).to(torch.bfloat16)
y = mhc_post(x, h_res, h_out, h_post)
torch_npu.npu.synchronize()

grad = torch.randn(B, S, N, D, dtype=torch.bfloat16, device="npu")
y.backward(grad)

assert y.shape == x.shape and y.is_npu and y.device == torch.device("npu:0")
print("y", tuple(y.shape), y.dtype)
names = ["x", "phi", "alpha", "bias", "h_in", "h_post", "h_res", "h_out", "y", "grad"]
result = {name: globals()[name].detach().cpu() for name in names}
result |= {f"grad_{name}": globals()[name].grad.cpu() for name in ("x", "phi", "alpha", "bias")}
torch.save(result, sys.argv[1])
