#!/usr/bin/env python3
"""Writes a GGUF file of a real model's shape with random weights, for benchmarks.

    python3 benches/shaped_gguf.py llama-1b out.gguf [TYPE]

llama-1b: Llama-3.2-1B, Q4_K with Q6_K for the value, down and embedding matrices as in common files; with a
TYPE (q8_0, iq4_xs, tq2_0, ..) all matrices are of it, but the embedding stays Q6_K; with f16 it is F16 as well.
smollm2-135m: SmolLM2-135M; its rows are not whole blocks of Q4_K, so it needs a TYPE with blocks of 32 (q4_1); the
embedding is Q8_0.
qwen2.5-0.5b: Qwen2.5-0.5B with its biases, q4_0 unless a TYPE is named; the embedding, which is the output as well, is Q8_0.
qwen3-30b-a3b: Qwen3-30B-A3B, 128 experts of which 8 compute a token; qwen3.5-9b: Qwen3.5-9B, three of four layers
gated delta nets. Both Q4_K with Q6_K as llama-1b.
gpt-oss-20b: gpt-oss-20b with its sinks and biases, experts in MXFP4 and all other matrices Q8_0, as its files.
bitnet-2b: BitNet b1.58 2B4T, tq2_0 unless a TYPE is named; the embedding is F16 as in its files.
The text is noise, but the speed is that of the real model, since no kernel depends on the values.
Needs numpy.
"""
import struct
import sys

import numpy as np

SHAPES = {
    "llama-1b": dict(layers=16, d=2048, heads=32, kv=8, hd=64, ff=8192, vocab=128256, base=500000.0),
    "smollm2-135m": dict(layers=30, d=576, heads=9, kv=3, hd=64, ff=1536, vocab=49152, base=100000.0),
    "llama-8b": dict(layers=32, d=4096, heads=32, kv=8, hd=128, ff=14336, vocab=128256, base=500000.0),
    "qwen2.5-0.5b": dict(layers=24, d=896, heads=14, kv=2, hd=64, ff=4864, vocab=151936, base=1000000.0,
                         architecture="qwen2", pre="qwen2", context=32768, epsilon=1e-6, matrices="q4_0", biases=True),
    "qwen3-30b-a3b": dict(layers=48, d=2048, heads=32, kv=4, hd=128, ff=768, vocab=151936, base=1000000.0,
                          architecture="qwen3moe", pre="qwen2", context=40960, epsilon=1e-6, head_norms=True,
                          experts=(128, 8), output=True),
    "qwen3.5-9b": dict(layers=32, d=4096, heads=16, kv=4, hd=256, ff=12288, vocab=248320, base=10000000.0,
                       architecture="qwen35", pre="qwen35", context=262144, epsilon=1e-6, head_norms=True,
                       net=dict(keys=16, heads=32, e=128, taps=4), rope=64, ffn_norm="post_attention_norm", output=True),
    "gpt-oss-20b": dict(layers=24, d=2880, heads=64, kv=8, hd=64, ff=2880, vocab=201088, base=150000.0,
                        architecture="gpt-oss", pre="gpt-4o", matrices="q8_0", expert_matrices="mxfp4",
                        ffn_norm="post_attention_norm", experts=(32, 4), output=True, biases=True, sinks=True,
                        window=128, yarn=(32.0, 4096)),
    "bitnet-2b": dict(layers=30, d=2560, heads=20, kv=5, hd=128, ff=6912, vocab=128256, base=500000.0,
                      architecture="bitnet-b1.58", context=4096, matrices="tq2_0", embedding="f16", sub_norms=True),
}
F32, F16, Q4_K, Q6_K = 0, 1, 12, 14
# Number, weights and bytes of a block, and the bytes of f16 scales in it; mxfp4 has an exponent first.
TYPES = {
    "q4_0": (2, 32, 18, [0]), "q4_1": (3, 32, 20, [0, 2]), "q5_0": (6, 32, 22, [0]), "q5_1": (7, 32, 24, [0, 2]),
    "q8_0": (8, 32, 34, [0]), "q2_k": (10, 256, 84, [80, 82]), "q3_k": (11, 256, 110, [108]),
    "q4_k": (Q4_K, 256, 144, [0, 2]), "q5_k": (13, 256, 176, [0, 2]), "q6_k": (Q6_K, 256, 210, [208]),
    "iq4_nl": (20, 32, 18, [0]), "iq4_xs": (23, 256, 136, [0]), "tq1_0": (34, 256, 54, [52]),
    "tq2_0": (35, 256, 66, [64]), "mxfp4": (39, 32, 17, []), "f16": (F16, 1, 2, [0]),
}
KINDS = {number: row for number, *row in TYPES.values()}
rng = np.random.default_rng(1)


def f16(low, high, n):
    return rng.uniform(low, high, n).astype(np.float16).view(np.uint8).reshape(n, 2)


def blocks(kind, n):
    """Blocks of `n` weights: any bits, with small scales; what they mean is not asked."""
    length, size, scales = KINDS[kind]
    out = rng.integers(0, 256, (n // length, size), dtype=np.uint8)
    for at in scales:
        out[:, at:at + 2] = f16(1e-5, 2e-5, n // length)
    if not scales:
        out[:, 0] = 110
    return out.tobytes()


def text(s):
    b = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(b)) + b


def kv(key, kind, value):
    head = text(key)
    if kind == "u32":
        return head + struct.pack("<II", 4, value)
    if kind == "f32":
        return head + struct.pack("<If", 6, value)
    if kind == "str":
        return head + struct.pack("<I", 8) + text(value)
    if kind == "strs":
        return head + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(text(v) for v in value)
    if kind == "i32s":
        return head + struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)
    raise ValueError(kind)


def byte_tokens():
    """GPT-2's printable names of the 256 bytes."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names, extra = {}, 0
    for b in range(256):
        if b in keep:
            names[b] = chr(b)
        else:
            names[b] = chr(256 + extra)
            extra += 1
    return [names[b] for b in range(256)]


def delta_net(t, tensors, i, d, net, common):
    """The tensors of a gated delta net."""
    inner, channels = net["heads"] * net["e"], (2 * net["keys"] + net["heads"]) * net["e"]
    t("attn_qkv", [channels, d], common)
    t("attn_gate", [inner, d], common)
    t("ssm_conv1d", [channels, net["taps"]], F32)
    t("ssm_beta", [net["heads"], d], common)
    t("ssm_alpha", [net["heads"], d], common)
    t("ssm_norm", [net["e"]], F32)
    t("ssm_out", [d, inner], common)
    tensors.append((f"blk.{i}.ssm_dt.bias", [net["heads"]], F32))
    tensors.append((f"blk.{i}.ssm_a", [net["heads"]], F32))


def main(shape, path, matrices=None):
    m = SHAPES[shape]
    matrices = matrices or m.get("matrices")
    common, better = (Q4_K, Q6_K) if matrices is None else [TYPES[matrices][0]] * 2
    d, kvw = m["d"], m["kv"] * m["hd"]
    embedding = F16 if common == F16 else Q6_K if d % 256 == 0 else TYPES["q8_0"][0]
    if "embedding" in m:
        embedding = TYPES[m["embedding"]][0]
    tensors = [("token_embd.weight", [m["vocab"], d], embedding), ("output_norm.weight", [d], F32)]
    if m.get("output"):
        tensors.append(("output.weight", [m["vocab"], d], better))
    net = m.get("net")
    for i in range(m["layers"]):
        t = lambda name, dims, kind: tensors.append((f"blk.{i}.{name}.weight", dims, kind))
        t("attn_norm", [d], F32)
        t(m.get("ffn_norm", "ffn_norm"), [d], F32)
        if net and i % 4 != 3:
            delta_net(t, tensors, i, d, net, common)
        else:
            t("attn_q", [m["heads"] * m["hd"] * (2 if net else 1), d], common)
            t("attn_k", [kvw, d], common)
            t("attn_v", [kvw, d], better if i % 2 == 0 else common)
            t("attn_output", [d, m["heads"] * m["hd"]], common)
            if m.get("head_norms"):
                t("attn_q_norm", [m["hd"]], F32)
                t("attn_k_norm", [m["hd"]], F32)
        if m.get("biases"):
            rows = [("attn_q", m["heads"] * m["hd"]), ("attn_k", kvw), ("attn_v", kvw)]
            if m.get("sinks"):
                t("attn_sinks", [m["heads"]], F32)
                rows.append(("attn_output", d))
            for name, n in rows:
                tensors.append((f"blk.{i}.{name}.bias", [n], F32))
        if m.get("sub_norms"):
            t("attn_sub_norm", [m["heads"] * m["hd"]], F32)
            t("ffn_sub_norm", [m["ff"]], F32)
        if "experts" in m:
            count = m["experts"][0]
            t("ffn_gate_inp", [count, d], F32)
            own = m.get("expert_matrices")
            usual, best = [TYPES[own][0]] * 2 if own else (common, better)
            t("ffn_gate_exps", [count, m["ff"], d], usual)
            t("ffn_up_exps", [count, m["ff"], d], usual)
            t("ffn_down_exps", [count, d, m["ff"]], best if i % 2 == 0 else usual)
            if m.get("biases"):
                for name, n in [("gate", m["ff"]), ("up", m["ff"]), ("down", d)]:
                    tensors.append((f"blk.{i}.ffn_{name}_exps.bias", [count, n], F32))
                tensors.append((f"blk.{i}.ffn_gate_inp.bias", [count], F32))
            continue
        t("ffn_gate", [m["ff"], d], common)
        t("ffn_up", [m["ff"], d], common)
        t("ffn_down", [d, m["ff"]], better if i % 2 == 0 else common)
    architecture = m.get("architecture", "llama")
    tokens = byte_tokens() + [f"token{i}" for i in range(256, m["vocab"])]
    meta = [
        kv("general.architecture", "str", architecture),
        kv("general.name", "str", f"{shape} with random weights"),
        kv(f"{architecture}.block_count", "u32", m["layers"]),
        kv(f"{architecture}.embedding_length", "u32", d),
        kv(f"{architecture}.attention.head_count", "u32", m["heads"]),
        kv(f"{architecture}.attention.head_count_kv", "u32", m["kv"]),
        kv(f"{architecture}.feed_forward_length", "u32", m["ff"]),
        kv(f"{architecture}.context_length", "u32", m.get("context", 131072)),
        kv(f"{architecture}.attention.layer_norm_rms_epsilon", "f32", m.get("epsilon", 1e-5)),
        kv(f"{architecture}.rope.freq_base", "f32", m["base"]),
        kv("tokenizer.ggml.model", "str", "gpt2"),
        kv("tokenizer.ggml.pre", "str", m.get("pre", "llama-bpe")),
        kv("tokenizer.ggml.tokens", "strs", tokens),
        kv("tokenizer.ggml.token_type", "i32s", [1] * len(tokens)),
        kv("tokenizer.ggml.merges", "strs", []),
    ]
    if "experts" in m:
        meta += [
            kv(f"{architecture}.expert_count", "u32", m["experts"][0]),
            kv(f"{architecture}.expert_used_count", "u32", m["experts"][1]),
            kv(f"{architecture}.expert_feed_forward_length", "u32", m["ff"]),
        ]
    if "window" in m:
        meta.append(kv(f"{architecture}.attention.sliding_window", "u32", m["window"]))
    if "yarn" in m:
        factor, original = m["yarn"]
        meta += [
            kv(f"{architecture}.rope.scaling.type", "str", "yarn"),
            kv(f"{architecture}.rope.scaling.factor", "f32", factor),
            kv(f"{architecture}.rope.scaling.original_context_length", "u32", original),
        ]
    if m["hd"] * m["heads"] != d or net:
        meta += [kv(f"{architecture}.attention.{of}_length", "u32", m["hd"]) for of in ("key", "value")]
    if net:
        meta += [
            kv(f"{architecture}.rope.dimension_count", "u32", m["rope"]),
            kv(f"{architecture}.rope.dimension_sections", "i32s", [11, 11, 10, 0]),
            kv(f"{architecture}.ssm.conv_kernel", "u32", net["taps"]),
            kv(f"{architecture}.ssm.state_size", "u32", net["e"]),
            kv(f"{architecture}.ssm.group_count", "u32", net["keys"]),
            kv(f"{architecture}.ssm.time_step_rank", "u32", net["heads"]),
            kv(f"{architecture}.ssm.inner_size", "u32", net["heads"] * net["e"]),
            kv(f"{architecture}.full_attention_interval", "u32", 4),
        ]

    def size(kind, n):
        return 4 * n if kind == F32 else n // KINDS[kind][0] * KINDS[kind][1]

    infos, offset = b"", 0
    for name, dims, kind in tensors:
        infos += text(name) + struct.pack("<I", len(dims))
        infos += b"".join(struct.pack("<Q", n) for n in reversed(dims)) + struct.pack("<IQ", kind, offset)
        offset += (size(kind, int(np.prod(dims))) + 31) // 32 * 32
    head = struct.pack("<IIQQ", 0x46554747, 3, len(tensors), len(meta)) + b"".join(meta) + infos
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32))
        for name, dims, kind in tensors:
            n = int(np.prod(dims))
            if kind == F32:
                # Routers choose among all experts, and decays forget.
                random = rng.standard_normal(n).astype(np.float32) * 0.05
                data = (random if "_inp" in name else -np.ones(n, np.float32) if name.endswith("ssm_a")
                        else np.ones(n, np.float32)).tobytes()
                f.write(data + b"\0" * (-len(data) % 32))
                continue
            # In parts, each of whole blocks.
            for start in range(0, n, 1 << 28):
                data = blocks(kind, min(n - start, 1 << 28))
                f.write(data)
            f.write(b"\0" * (-size(kind, n) % 32))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in SHAPES or not set(sys.argv[3:]) <= set(TYPES):
        sys.exit(__doc__)
    main(*sys.argv[1:])
