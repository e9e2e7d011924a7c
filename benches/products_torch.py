"""Products of square matrices by PyTorch, as `cargo bench --bench products` times them by warploom.

    python3 benches/products_torch.py [--sizes 1024,2048] [--types f16,bf16,f32] [--chain 16] [--json FILE]

Chains of `x = x @ b` in sequence, timed by CUDA events; f32 without TF32, f16 with f32 sums. Half a second of work
precedes the measurement; nine alternating rounds, medians with their spread.
"""

import argparse
import json
import statistics
import time

import torch

WARM_UP = 0.5
STRETCH = 0.2
ROUNDS = 9
TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}


def stretch(row, length, chains):
    """Seconds of this many chains."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    for _ in range(chains):
        x = row["a"]
        for _ in range(length):
            x = torch.matmul(x, row["b"])
    end.record()
    torch.cuda.synchronize()
    assert torch.isfinite(x[0, 0])
    return begin.elapsed_time(end) / 1e3


def verify(row, length):
    """Rows of the last product against double precision."""
    x = row["a"]
    for _ in range(length - 1):
        x = torch.matmul(x, row["b"])
    y = torch.matmul(x, row["b"])
    picked = torch.tensor([0, row["size"] // 3, row["size"] - 1], device="cuda")
    want = x[picked].double() @ row["b"].double()
    size = x[picked].double().abs() @ row["b"].double().abs()
    rounding = {"f16": 2**-11, "bf16": 2**-8, "f32": 0.0}[row["type"]]
    most = 1.01 * rounding * want.abs() + 2**-23 * (16 + row["size"] ** 0.5) * size + 1e-7
    wrong = int(((y[picked].double() - want).abs() > most).sum())
    if wrong:
        print(f"{row['type']} {row['size']}: {wrong} of {want.numel()} elements are further off than f32 sums are")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1024,2048,4096,8192")
    parser.add_argument("--types", default="f16,bf16,f32")
    parser.add_argument("--chain", type=int, default=16)
    parser.add_argument("--json")
    asked = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__)
    rows = []
    with torch.inference_mode():
        for name in asked.types.split(","):
            for size in map(int, asked.sizes.split(",")):
                a = (torch.rand(size, size, device="cuda") - 0.5) * 3.4
                b = (torch.rand(size, size, device="cuda") - 0.5) * (12 / size) ** 0.5
                row = {"type": name, "size": size, "chains": 1, "rates": []}
                row["a"], row["b"] = a.to(TYPES[name]), b.to(TYPES[name])
                verify(row, asked.chain)
                rows.append(row)
        begin = time.monotonic()
        while time.monotonic() - begin < WARM_UP:
            for row in rows:
                stretch(row, asked.chain, 1)
        for row in rows:
            while (seconds := stretch(row, asked.chain, row["chains"])) < STRETCH:
                more = min(max(STRETCH / max(seconds, 1e-6) * 1.1, 1.5), 64)
                row["chains"] = int(row["chains"] * more) + 1
        for _ in range(ROUNDS):
            for row in rows:
                seconds = stretch(row, asked.chain, row["chains"])
                products = row["chains"] * asked.chain
                row["rates"].append(products * 2 * row["size"] ** 3 / seconds / 1e12)
    told = []
    for row in rows:
        median = statistics.median(row["rates"])
        spread = 100 * max(max(row["rates"]) - median, median - min(row["rates"])) / median
        print(f"{row['type']:5} {row['size']:5}  {median:7.1f} TFLOP/s  {spread:4.1f} %")
        told.append({"type": row["type"], "size": row["size"], "tflops": median, "spread_percent": spread})
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump({"program": f"PyTorch {torch.__version__}", "rows": told}, file, indent=1)


if __name__ == "__main__":
    main()
