"""Writes training.json: losses of ten steps by PyTorch, which tests/it/on_device/training.rs repeats.

Usage: python3 tests/golden/training.py > tests/golden/training.json (PyTorch 2.11, on the CPU)
"""
import json

import torch
import torch.nn.functional as F

torch.set_num_threads(1)


def values(shape, seed, scale):
    """The same numbers as `values` of the test."""
    count = 1
    for size in shape:
        count *= size
    flat = [(((i + 1) * 7919 + seed * 104729) % 1009) / 1009 * 2 - 1 for i in range(count)]
    return (torch.tensor(flat, dtype=torch.float32) * scale).reshape(shape)


def parameters(shapes):
    return [values(s, i + 1, scale).requires_grad_() for i, (s, scale) in enumerate(shapes)]


def mlp(p):
    x = values([32, 8], 11, 1.0)
    target = torch.tensor([i * 7 % 4 for i in range(32)])
    hidden = torch.tanh(x @ p[0].T + p[1])
    return F.cross_entropy(hidden @ p[2].T + p[3], target)


def convolution(p):
    x = values([6, 2, 8, 8], 12, 1.0)
    target = torch.tensor([i * 3 % 5 for i in range(6)])
    y = F.max_pool2d(F.relu(F.conv2d(x, p[0], p[1], padding=1)), 2)
    y = F.relu(F.conv2d(y, p[2], p[3], stride=2)).flatten(1)
    return F.cross_entropy(y @ p[4].T + p[5], target)


def lstm(p):
    x = values([5, 3, 4], 13, 1.0)
    net = torch.nn.LSTM(4, 6)
    # The gates by PyTorch's own function, with our parameters.
    named = dict(zip(["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"], p))
    output, (_, cell) = torch.func.functional_call(net, named, (x,))
    return output.square().mean() + cell.abs().mean()


def attention(p):
    x = values([6, 8], 14, 1.0)
    n = F.layer_norm(x, [8], p[4], p[5], 1e-5)
    q = (n @ p[0].T).reshape(6, 4, 2).transpose(0, 1)
    k = (n @ p[1].T).reshape(6, 2, 2).transpose(0, 1).repeat_interleave(2, 0)
    v = (n @ p[2].T).reshape(6, 2, 2).transpose(0, 1).repeat_interleave(2, 0)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    y = x + y.transpose(0, 1).reshape(6, 8) @ p[3].T
    return F.gelu(F.rms_norm(y, [8], p[6], 1e-5)).square().mean()


NETWORKS = {
    "mlp": (mlp, [([16, 8], 0.5), ([16], 0.1), ([4, 16], 0.5), ([4], 0.1)]),
    "convolution": (
        convolution,
        [([4, 2, 3, 3], 0.4), ([4], 0.1), ([6, 4, 2, 2], 0.4), ([6], 0.1), ([5, 24], 0.4), ([5], 0.1)],
    ),
    "lstm": (lstm, [([24, 4], 0.6), ([24, 6], 0.6), ([24], 0.3), ([24], 0.3)]),
    "attention": (
        attention,
        [([8, 8], 0.6), ([4, 8], 0.6), ([4, 8], 0.6), ([8, 8], 0.6), ([8], 1.0), ([8], 0.2), ([8], 1.0)],
    ),
}
OPTIMISERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, 0.01),
    "adamw": lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1),
    "clipped": lambda p: torch.optim.SGD(p, 0.5),
}

out = {}
for network, (forward, shapes) in NETWORKS.items():
    for name, optimiser in OPTIMISERS.items():
        p = parameters(shapes)
        steps = optimiser(p)
        losses = []
        for _ in range(10):
            steps.zero_grad()
            loss = forward(p)
            losses.append(float(loss.detach()))
            loss.backward()
            if name == "clipped":
                torch.nn.utils.clip_grad_norm_(p, 0.1)
            steps.step()
        out[f"{network} {name}"] = losses
print(json.dumps(out, indent=1))
