"""Graph mode: operators of several modules and devices named inside, with no graph break."""

import sys

import torch
import torch_npu
import torchair as tng

N, D = 4, 48
F = N * N + 2 * N


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.phi = torch.nn.Parameter(torch.randn(F, N * D) / (N * D) ** 0.5)
        self.bias = torch.nn.Parameter(torch.randn(F))
        self.query = torch.nn.Parameter(torch.randn(D) / D**0.5)

    def forward(self, x, alpha):
        h_in, h_post, logits, *_ = torch_npu.npu_mhc_pre(x, self.phi, alpha.npu(), self.bias)
        h_res, _, _ = torch_npu.npu_mhc_sinkhorn(logits, num_iters=4)
        y = torch_npu.npu_mhc_post(x, h_res, torch.sin(h_in), h_post)
        gamma = torch.ones(D, device=torch.device("npu:0")).to("npu")
        sources = list(y.unbind(-2))
        return ai_infra_block_attn_res(sources, self.query, rmsnorm_gamma=gamma)  # noqa: F821


torch.manual_seed(3)
model = Network().npu()
x = torch.randn(6, N, D, device="npu", requires_grad=True)
alpha = torch.rand(3)  # stays on the host until the network moves it
network = torch.compile(model, backend=tng.get_npu_backend(), fullgraph=True)

outputs = []
for function in (model, network):
    x.grad = None
    model.zero_grad()
    y = function(x, alpha)
    y.square().mean().backward()
    outputs.append([t.detach().cpu() for t in (y, x.grad, *(p.grad for p in model.parameters()))])
torch.save(
    {
        "x": x.detach().cpu(),
        "alpha": alpha,
        "parameters": {name: p.detach().cpu() for name, p in model.named_parameters()},
        "eager": outputs[0],
        "graph": outputs[1],
    },
    sys.argv[1],
)
