"""What programs do around the operators: devices, streams, events, memory, precision, threads."""

import sys
import threading

import torch
import torch_npu

torch.npu.config.allow_internal_format = False
torch.npu.matmul.allow_hf32 = False
torch.npu.set_compile_mode(jit_compile=False)
device = torch.device("npu" if torch.npu.is_available() else "cpu")
assert torch_npu.npu is torch.npu
assert torch.npu.device_count() == 1 and torch.npu.current_device() == 0
assert torch.npu.get_device_name(0) == "Ascend950PR"
with torch.npu.device(0):
    torch.npu.set_device(device)

torch.npu.manual_seed_all(1)
first = torch.rand(3, device=device)
torch.manual_seed(1)
assert torch.equal(first, torch.rand(3, device="npu"))

start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
stream = torch_npu.npu.Stream()
with torch.npu.stream(stream):
    assert torch.npu.current_stream() is stream
    start.record()
    product = torch.ones(64, 64, device=device) @ torch.ones(64, 64, device=device)
    end.record(stream)
torch.npu.current_stream().wait_stream(stream)
torch.npu.synchronize()
assert start.elapsed_time(end) > 0 and product[0, 0].item() == 64

torch.npu.reset_peak_memory_stats()
assert 0 < torch.npu.memory_allocated() <= torch.npu.max_memory_allocated()
free, total = torch.npu.mem_get_info()
assert 0 < free < total
torch.npu.empty_cache()

model = torch.nn.Linear(4, 4).to(device)
scaler = torch.npu.amp.GradScaler()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with torch.autocast("npu", dtype=torch.bfloat16):
    loss = model(torch.ones(2, 4, device=device)).float().square().mean()
before = model.weight.detach().cpu()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
assert not torch.equal(before, model.weight.detach().cpu()), "a copy on the host must not change"

seen = []
worker = threading.Thread(target=lambda: seen.append(torch.zeros(1, device="npu:0").npu()))
worker.start()
worker.join()
assert seen[0].is_npu

with torch.device("npu"):
    assert torch.empty(1).device == device
torch.save({"ok": torch.ones(1)}, sys.argv[1])
