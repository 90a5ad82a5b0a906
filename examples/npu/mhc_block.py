"""A Transformer sublayer with mHC residual streams, as it is written for an NPU.

On a machine with an NPU: python mhc_block.py
On one without:           python -m anabranch.compat.npu mhc_block.py
"""

import torch
import torch_npu
import torchair
from cann_ops_transformer.ops import mhc_post, mhc_pre_sinkhorn

DEVICE = "npu:0"
BATCH, SEQUENCE, STREAMS, HIDDEN = 2, 32, 4, 256
ROWS = STREAMS * STREAMS + 2 * STREAMS


class Block(torch.nn.Module):
    """Reads one input from the streams, runs a gated MLP, writes back to all of them."""

    def __init__(self):
        super().__init__()
        self.phi = torch.nn.Parameter(torch.randn(ROWS, STREAMS * HIDDEN) * 0.02)
        self.alpha = torch.nn.Parameter(torch.full((3,), 0.01))
        self.bias = torch.nn.Parameter(torch.zeros(ROWS))
        self.up = torch.nn.Linear(HIDDEN, 2 * HIDDEN, dtype=torch.bfloat16)
        self.down = torch.nn.Linear(HIDDEN, HIDDEN, dtype=torch.bfloat16)

    def forward(self, x):
        h_in, h_post, h_res = mhc_pre_sinkhorn(
            x,
            self.phi,
            self.alpha,
            self.bias,
            hc_mult=STREAMS,
            num_iters=20,
            hc_eps=1e-6,
            norm_eps=1e-6,
        )
        gate, value = self.up(h_in).chunk(2, -1)
        h_out = self.down(torch.nn.functional.silu(gate) * value)
        return mhc_post(x, h_res, h_out, h_post)


def main():
    torch_npu.npu.set_device(0)
    torch.manual_seed(0)
    block = Block().to(DEVICE)
    x = torch.randn(BATCH, SEQUENCE, STREAMS, HIDDEN, dtype=torch.bfloat16, device=DEVICE)
    target = torch.zeros_like(x)

    backend = torchair.get_npu_backend(compiler_config=torchair.CompilerConfig())
    compiled = torch.compile(block, backend=backend, fullgraph=True)
    with torch.no_grad():
        same = torch.equal(block(x).cpu(), compiled(x).cpu())
    print("eager and graph mode agree:", same)

    optimizer = torch.optim.AdamW(block.parameters(), lr=3e-3)
    start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    start.record()
    for step in range(10):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(compiled(x).float(), target.float())
        loss.backward()
        optimizer.step()
        if step % 3 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    end.record()
    torch.npu.synchronize()
    print(f"{start.elapsed_time(end) / 10:.1f} ms a step")


if __name__ == "__main__":
    main()
