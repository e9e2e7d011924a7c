"""Copies as many bytes to the GPU by PyTorch as `cargo bench --bench upload` does: pinned and pageable.

    python3 benches/upload_torch.py [MIB] [ROUNDS]

GB/s: median, minimum, maximum. Each copy is awaited; the bytes are compared on the host afterwards.
"""

import statistics
import sys
import time

import torch

mib = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 15
size = mib << 20

print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, {torch.cuda.get_device_name(0)}")
print(f"GB/s of {mib} MiB, {rounds} runs after one: median (least to most)")
ordinary = torch.randint(0, 256, (size,), dtype=torch.uint8)
target = torch.empty(size, dtype=torch.uint8, device="cuda")
for name, source in (("ordinary memory", ordinary), ("pinned memory", ordinary.pin_memory())):
    speeds = []
    target.zero_()
    for i in range(rounds + 1):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        target.copy_(source, non_blocking=True)
        torch.cuda.synchronize()
        if i > 0:
            speeds.append(size / (time.perf_counter() - begin) / 1e9)
    if not torch.equal(target.cpu(), source):
        sys.exit(f"{name}: other bytes arrived")
    print(f"{name:16} {statistics.median(speeds):7.2f} ({min(speeds):.2f} to {max(speeds):.2f})")
