#!/usr/bin/env python3
"""Writes yarn.json: the rotary frequencies of YaRN and the factor on rotated heads, as transformers
computes them.

    pip install transformers numpy
    python3 tests/golden/rope/make.py

transformers computes them with torch. Where that is not installed, NumPy's float32 stands in for the
few functions that are called.
"""

import json
import math
import pathlib
import types

import numpy as np
from transformers import modeling_rope_utils as rope

try:
    import torch  # noqa: F401
except ImportError:
    class Array(np.ndarray):
        def to(self, device=None, dtype=None):
            return self.astype(dtype) if dtype is not None else self

    def arange(*args, dtype=None):
        return np.arange(*args).astype(dtype or np.int64).view(Array)

    def clamp(x, low, high):
        return np.clip(x, low, high)

    rope.torch = types.SimpleNamespace(arange=arange, clamp=clamp, float=np.float32, float32=np.float32)

BASE = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=1024)
ROWS = [
    {},
    dict(factor=16.0, original_max_position_embeddings=256),
    dict(rope_theta=1000000.0),
    dict(attention_factor=0.75),
    dict(mscale=1.0, mscale_all_dim=0.5),
    dict(mscale=0.707, mscale_all_dim=0.707),
    dict(beta_fast=16.0, beta_slow=2.0),
    dict(truncate=False),
    dict(truncate=False, beta_fast=20.0, rope_theta=150000.0),
    dict(factor=None),
    dict(factor=0.5),
    dict(original_max_position_embeddings=None),
]


class Config:
    hidden_size, num_attention_heads, head_dim, max_position_embeddings = 64, 2, 32, 4096

    def __init__(self, parameters):
        self.rope_parameters = parameters

    def standardize_rope_params(self):
        # What the library fills in where a config does not say.
        if self.rope_parameters["original_max_position_embeddings"] is None:
            self.rope_parameters["original_max_position_embeddings"] = self.max_position_embeddings


made = []
for changes in ROWS:
    given = {**BASE, **changes}
    frequencies, factor = rope._compute_yarn_parameters(Config(dict(given)))
    made.append({
        "rope_parameters": {key: value for key, value in given.items() if value is not None},
        "inv_freq": [float(x) for x in frequencies],
        "attention_factor": float(factor),
    })
text = "[\n" + ",\n".join(json.dumps(row) for row in made) + "\n]\n"
pathlib.Path(__file__).with_name("yarn.json").write_text(text)
print(len(made), "rows", [round(row["attention_factor"], 4) for row in made])
