"""An eager training loop: model.to(local_rank), mixed precision, checkpoints on the host.

    python -m anabranch.compat.npu examples/npu/eager_training.py
"""

import os

import torch
import torch_npu

N, D, STEPS = 4, 32, 30
local_rank = int(os.environ.get("LOCAL_RANK", 0))
torch.npu.set_device(local_rank)
device = torch.device(f"npu:{local_rank}")
torch.manual_seed(3)


class Block(torch.nn.Module):
    """A sublayer on widened streams."""

    def __init__(self) -> None:
        super().__init__()
        rows = N * N + 2 * N
        self.phi = torch.nn.Parameter(torch.randn(rows, N * D) * 0.02)
        self.alpha = torch.nn.Parameter(torch.full((3,), 0.1))
        self.bias = torch.nn.Parameter(torch.zeros(rows))
        self.linear = torch.nn.Linear(D, D)

    def forward(self, x):
        h_in, h_post, logits, *_ = torch_npu.npu_mhc_pre(x, self.phi, self.alpha, self.bias)
        h_res, _, _ = torch_npu.npu_mhc_sinkhorn(logits)
        return torch_npu.npu_mhc_post(x, h_res, torch.tanh(self.linear(h_in)).to(x.dtype), h_post)


model = torch.nn.ModuleList(Block() for _ in range(3)).to(local_rank)
head = torch.nn.Linear(D, 1).to(torch.npu.current_device())
parameters = [*model.parameters(), *head.parameters()]
optimizer = torch.optim.AdamW(parameters, lr=1e-2)
scaler = torch.npu.amp.GradScaler(enabled=False)
data = torch.randn(256, D, device=device)
target = data[:, :4].sum(-1, keepdim=True)
losses = []
start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
start.record()
for _ in range(STEPS):
    optimizer.zero_grad()
    x = data.unsqueeze(1).expand(-1, N, -1)
    with torch.npu.amp.autocast(dtype=torch.bfloat16):
        for block in model:
            x = block(x)
        prediction = head(x.mean(1))
    loss = torch.nn.functional.mse_loss(prediction.float(), target)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
end.record()
torch.npu.synchronize()
snapshot = {name: p.cpu() for name, p in model.state_dict().items()}
model.to(0, torch.float32).load_state_dict(snapshot)
assert losses[-1] < 0.5 * losses[0], losses
assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in parameters)
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f} in {STEPS} steps, every parameter has a gradient")
print(f"took {start.elapsed_time(end):.0f} ms on {torch.npu.get_device_name(local_rank)}")
