"""Writes formats.json and models.json beside itself: what gguf==0.19.0 (numpy) says weights mean.

    pip install gguf==0.19.0
    python make.py                  # formats.json, and models.json for models/ of this repository
    python make.py DIR [DIR ..]     # also the .gguf files under these folders, in models.json

formats.json, for each format: `blocks`, bytes in hex; `values`, the f32 that they decode to, as
little-endian hex; and where gguf can quantise the format, `inputs` (f32, hex) and `encoded`.
models.json, for each file and tensor: [ggml type number, checksum of the decoded f32 bits], the
checksum being the sum over i of (bits[i] + 1) * (2 i + 1), modulo 2^64.
"""
import json, pathlib, sys
import numpy as np
from gguf import GGUFReader
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize, quantize

HERE = pathlib.Path(__file__).resolve().parent
FORMATS = {"f32": T.F32, "f16": T.F16, "bf16": T.BF16, "q4_0": T.Q4_0, "q4_1": T.Q4_1,
           "q8_0": T.Q8_0, "q4_k": T.Q4_K, "q6_k": T.Q6_K, "q5_0": T.Q5_0, "q5_1": T.Q5_1,
           "q2_k": T.Q2_K, "q3_k": T.Q3_K, "q5_k": T.Q5_K, "iq4_nl": T.IQ4_NL, "iq4_xs": T.IQ4_XS,
           "mxfp4": T.MXFP4, "tq1_0": T.TQ1_0, "tq2_0": T.TQ2_0}
# What gguf cannot quantise.
NO_QUANTISER = {"q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs"}
# Byte offsets of the f16 scales in a block.
SCALES = {"q4_0": [0], "q4_1": [0, 2], "q8_0": [0], "q4_k": [0, 2], "q6_k": [208],
          "q5_0": [0], "q5_1": [0, 2], "q2_k": [80, 82], "q3_k": [108], "q5_k": [0, 2], "iq4_nl": [0],
          "iq4_xs": [0], "tq1_0": [52], "tq2_0": [64], "mxfp4": []}
# Zero, minus zero, the smallest subnormal, the largest number, one, an ugly negative, infinity, NaN.
EDGES = [0x0000, 0x8000, 0x0001, 0x7BFF, 0x3C00, 0xB555, 0x7C00, 0x7E00]


def blocks_of(name, rng):
    length, size = GGML_QUANT_SIZES[FORMATS[name]]
    if length == 1:
        # 1,024 patterns over the whole range, the specials among them.
        if size == 4:
            words = rng.integers(0, 1 << 32, 1024, dtype=np.uint64).astype("<u4")
        else:
            words = (np.arange(1024) * 64 + rng.integers(0, 64, 1024)).astype("<u2")
            words[:len(EDGES)] = EDGES
        return words.view(np.uint8).reshape(1024, size)
    blocks = rng.integers(0, 256, (4 + len(EDGES), size), dtype=np.uint8)
    blocks[0, :], blocks[1, :] = 0x00, 0xFF
    for at in SCALES[name]:
        for row in range(len(blocks)):
            bits = 0x2C00 + int(rng.integers(0, 0x400)) if row < 4 else EDGES[row - 4]
            blocks[row, at:at + 2] = [bits & 255, bits >> 8]
    if name == "mxfp4":  # its scale is an exponent
        blocks[:, 0] = [120, 121, 127, 130, 0, 1, 2, 3, 128, 200, 254, 255]
    return blocks


def inputs_of(name, rng):
    length = max(GGML_QUANT_SIZES[FORMATS[name]][0], 32)
    x = rng.standard_normal((5, length)).astype(np.float32)
    x[1] *= np.float32(1e-3)
    x[2] = 0
    x[3] = np.abs(x[3])
    x[4] = np.round(x[4] * 4) / 4  # many ties
    return x


def formats():
    rng, out = np.random.default_rng(20), {}
    for name, kind in FORMATS.items():
        blocks = blocks_of(name, rng)
        with np.errstate(all="ignore"):
            values = dequantize(blocks, kind).astype("<f4")
        row = {"blocks": blocks.tobytes().hex(), "values": values.tobytes().hex()}
        if name not in NO_QUANTISER:
            x = inputs_of(name, rng)
            row |= {"inputs": x.astype("<f4").tobytes().hex(),
                    "encoded": np.ascontiguousarray(quantize(x, kind)).tobytes().hex()}
        out[name] = row
    out["i2_s"] = i2_s(rng)
    return out


def i2_s(rng):
    """BitNet's format, which gguf has not: by quantize_i2_s of microsoft/BitNet, src/ggml-bitnet-mad.cpp,
    as built for x86. `file` is a tensor as a file has it, `blocks` the same with the scale before each."""
    scale = np.float32(0.0371)
    values = rng.integers(-1, 2, (4, 128)).astype(np.float32) * scale
    packed = np.zeros((4, 32), np.uint8)
    for block, row in zip(packed, values):
        for j, value in enumerate(row):
            code = 1 if abs(value) < 1e-6 else 2 if value > 0 else 0
            block[j % 32] |= code << (6 - 2 * (j // 32))
    tail = scale.tobytes() + rng.integers(0, 256, 28, dtype=np.uint8).tobytes()
    blocks = b"".join(scale.tobytes() + block.tobytes() for block in packed)
    return {"blocks": blocks.hex(), "values": values.astype("<f4").tobytes().hex(),
            "file": (packed.tobytes() + tail).hex(),
            "inputs": values.astype("<f4").tobytes().hex(), "encoded": blocks.hex()}


def checksum(values):
    bits = np.ascontiguousarray(values, dtype="<f4").reshape(-1).view("<u4").astype(np.uint64)
    odd = np.arange(bits.size, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    return f"{int(((bits + np.uint64(1)) * odd).sum(dtype=np.uint64)):016x}"


def models(folders):
    out = {}
    for path in sorted(p for folder in folders for p in pathlib.Path(folder).rglob("*.gguf")):
        tensors = {t.name: [int(t.tensor_type), checksum(dequantize(t.data, t.tensor_type))]
                   for t in GGUFReader(path).tensors if t.tensor_type in FORMATS.values()}
        out[path.name] = tensors
    return out


def write(name, rows):
    lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in rows.items()]
    (HERE / name).write_text("{\n" + ",\n".join(lines) + "\n}\n")


write("formats.json", formats())
write("models.json", models([HERE.parents[2] / "models", *sys.argv[1:]]))
