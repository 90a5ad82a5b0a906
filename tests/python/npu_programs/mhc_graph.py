"""Training in graph mode: a small mHC network, torchair, an optimizer, a checkpoint."""

import sys

import torch
import torch.nn as nn
import torch_npu  # noqa: F401
import torchair
from cann_ops_transformer.ops import mhc_post, mhc_pre_sinkhorn
from torchair.configs.compiler_config import CompilerConfig

N, D, STEPS = 4, 32, 6
F = N * N + 2 * N


class Sublayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.phi = nn.Parameter(torch.randn(F, N * D) / (N * D) ** 0.5)
        self.alpha = nn.Parameter(torch.full((3,), 0.3))
        self.bias = nn.Parameter(torch.zeros(F))
        self.mlp = nn.Linear(D, D)

    def forward(self, x):
        h_in, h_post, h_res = mhc_pre_sinkhorn(
            x, self.phi, self.alpha, self.bias, N, num_iters=5, hc_eps=1e-6, norm_eps=1e-6
        )
        keep = torch.ones(D, device=x.device)
        return mhc_post(x, h_res, torch.tanh(self.mlp(h_in)) * keep, h_post)


torch.npu.manual_seed(11)
model = nn.Sequential(Sublayer(), Sublayer())
start = {name: value.cpu() for name, value in model.state_dict().items()}
model = model.npu()

config = CompilerConfig()
config.mode = "max-autotune"
config.debug.graph_dump.type = "pbtxt"
backend = torchair.get_npu_backend(compiler_config=config)
compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=False)

data = torch.randn(8, N, D).to("npu:0")
target = torch.randn(8, N, D).to("npu:0")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)
losses = []
for step in range(STEPS):
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.mse_loss(compiled(data), target)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    print(f"step {step} loss {losses[-1]:.6f}")

torch.save(
    {
        "start": start,
        "end": {name: value.cpu() for name, value in model.state_dict().items()},
        "data": data.cpu(),
        "target": target.cpu(),
        "losses": losses,
    },
    sys.argv[1],
)
again = torch.load(sys.argv[1], map_location="npu:0")
model.load_state_dict(again["end"])
