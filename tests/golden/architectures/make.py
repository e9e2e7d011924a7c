"""Writes models.json: tiny models of every architecture whose weights a formula gives, and their
logits by the Python package `transformers` in float32 on the CPU.

    pip install torch transformers
    python make.py          # all of them
    python make.py NAME     # those of an architecture; the others stay as they are
"""

import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

from formula import numbers

VOCABULARY = 96
SIZES = dict(
    vocab_size=VOCABULARY,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    rms_norm_eps=1e-6,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)


def yarn(**changes):
    """YaRN from 8 positions, which all prompts of `YARN_PROMPTS` but the first exceed."""
    return dict(rope_parameters={**dict(
        rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=8), **changes})


QWEN35 = dict(
    num_hidden_layers=4, head_dim=32, linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2,
    linear_num_value_heads=4)
GEMMA4 = dict(
    num_hidden_layers=4, head_dim=16, global_head_dim=32, sliding_window=8, vocab_size_per_layer_input=VOCABULARY,
    hidden_size_per_layer_input=0, layer_types=["sliding_attention"] * 3 + ["full_attention"])
GPT_OSS = dict(head_dim=32, num_local_experts=8, num_experts_per_tok=3, sliding_window=8)

# Name here, class, what is not as in SIZES; for YaRN, a name of the variant.
MODELS = [
    ("llama", "Llama", dict(rope_parameters=dict(
        rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0,
        high_freq_factor=4.0, original_max_position_embeddings=32))),
    ("qwen2", "Qwen2", dict(rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    ("qwen3", "Qwen3", dict(head_dim=32, tie_word_embeddings=True)),
    ("gemma3", "Gemma3", dict(
        num_hidden_layers=7, head_dim=32, query_pre_attn_scalar=24, sliding_window=8,
        rope_parameters=dict(
            full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e6),
            sliding_attention=dict(rope_type="default", rope_theta=1e4)))),
    ("lfm2", "Lfm2", dict(
        num_hidden_layers=5, norm_eps=1e-6, conv_L_cache=3, block_auto_adjust_ff_dim=False,
        layer_types=["conv", "conv", "full_attention", "conv", "full_attention"])),
    ("mistral3", "Ministral3", dict(head_dim=32, **yarn(
        rope_theta=50.0, beta_fast=1.5, beta_slow=0.25, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3)), "yarn"),
    # Embeddings of layers, and keys that layers share.
    ("gemma4", "Gemma4", dict(
        GEMMA4, num_hidden_layers=8, layer_types=(["sliding_attention"] * 3 + ["full_attention"]) * 2,
        num_kv_shared_layers=4, hidden_size_per_layer_input=16, use_double_wide_mlp=True, final_logit_softcapping=8.0)),
    # Keys that are values, and other counts of heads in layers without a window.
    ("gemma4", "Gemma4", dict(
        GEMMA4, attention_k_eq_v=True, num_global_key_value_heads=1, final_logit_softcapping=8.0), "large"),
    ("gemma4", "Gemma4", dict(
        GEMMA4, attention_k_eq_v=True, num_global_key_value_heads=1, enable_moe_block=True, num_experts=8,
        top_k_experts=3, moe_intermediate_size=48, final_logit_softcapping=8.0), "experts"),
    # Caps of about the size of scores and logits.
    ("gemma2", "Gemma2", dict(
        num_hidden_layers=4, head_dim=32, query_pre_attn_scalar=32, sliding_window=8, attn_logit_softcapping=1.5,
        final_logit_softcapping=8.0)),
    ("gemma2", "Gemma2", dict(
        num_hidden_layers=2, head_dim=32, query_pre_attn_scalar=24, sliding_window=8), "scale"),
    ("phi3", "Phi3", dict(sliding_window=8, rope_parameters=dict(
        rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5))),
    ("bitnet", "BitNet", dict(hidden_act="silu", tie_word_embeddings=True)),
    ("bitnet-b1.58", "BitNet", dict(hidden_act="relu2", tie_word_embeddings=True)),
    ("qwen3moe", "Qwen3Moe", dict(
        head_dim=32, num_local_experts=8, num_experts_per_tok=3, moe_intermediate_size=48, norm_topk_prob=True)),
    ("qwen35", "Qwen3_5", QWEN35),
    ("qwen35moe", "Qwen3_5Moe", dict(
        num_experts=8, num_experts_per_tok=3, moe_intermediate_size=48, shared_expert_intermediate_size=40, **QWEN35)),
    ("gpt-oss", "GptOss", dict(GPT_OSS, rope_parameters=dict(rope_type="default", rope_theta=1e4))),
    ("gpt-oss", "GptOss", dict(GPT_OSS, **yarn(rope_theta=50.0, beta_fast=1.5, beta_slow=0.25, truncate=False)), "yarn"),
    ("ernie4_5", "Ernie4_5", dict(head_dim=16)),
    ("ernie4_5-moe", "Ernie4_5_Moe", dict(
        num_hidden_layers=3, moe_num_experts=8, moe_k=3, moe_intermediate_size=48, moe_num_shared_experts=2,
        moe_layer_start_index=1, moe_layer_end_index=2, moe_layer_interval=1)),
    ("glm4moe", "Glm4Moe", dict(
        num_hidden_layers=3, head_dim=32, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=48,
        n_shared_experts=1, first_k_dense_replace=1, n_group=1, topk_group=1, routed_scaling_factor=1.5,
        norm_topk_prob=True, use_qk_norm=True, attention_bias=True,
        rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5))),
    ("glm4moe", "Glm4Moe", dict(
        num_hidden_layers=2, head_dim=32, n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=48,
        n_shared_experts=2, first_k_dense_replace=1, n_group=1, topk_group=1, use_qk_norm=False,
        rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5)), "no norms"),
    ("smollm3", "SmolLM3", dict(num_hidden_layers=5)),
    ("seed_oss", "SeedOss", dict(head_dim=32)),
    ("olmo2", "Olmo2", dict()),
    ("exaone4", "Exaone4", dict(num_hidden_layers=4, head_dim=16, sliding_window=8, sliding_window_pattern=4)),
    ("exaone4", "Exaone4", dict(
        head_dim=16, sliding_window=None, layer_types=["full_attention"] * 2), "no window"),
    ("granite", "Granite", dict(
        embedding_multiplier=3.0, residual_multiplier=0.5, attention_multiplier=0.3, logits_scaling=2.0)),
    ("llama", "Llama", yarn(), "yarn"),
    ("llama", "Llama", yarn(rope_theta=50.0, beta_fast=1.5, beta_slow=0.25, attention_factor=1.75),
     "yarn, attention_factor"),
    ("llama", "Mistral", dict(sliding_window=None, head_dim=32, **yarn(
        rope_theta=50.0, beta_fast=1.5, beta_slow=0.25, truncate=False, mscale=4.0, mscale_all_dim=0.5)),
     "yarn, mscale"),
    ("qwen3", "Qwen3", dict(head_dim=32, **yarn(rope_theta=1e6, factor=8.0)), "yarn"),
]


def prompts(lengths):
    return [[(7 * i * i + 3 * i + 5) % VOCABULARY for i in range(n)] for n in lengths]


PROMPTS = prompts((1, 21))
YARN_PROMPTS = prompts((7, 9, 17, 29))


def weight(name, shape, less_one):
    x = numbers(name, int(np.prod(shape))).reshape(shape)
    if name.endswith("layer_scalar"):
        return x / 4 + 1
    if name.endswith(("norm.weight", "layernorm.weight", "norm_1.weight", "norm_2.weight", "router.scale", "per_expert_scale")):
        return x / 4 + (0 if less_one and not name.endswith("linear_attn.norm.weight") else 1)
    if name.endswith(("embed_tokens.weight", "embed_tokens_per_layer.weight")):
        return x
    return x / (4 if name.endswith(".bias") else 8)


def logits(name, kind, changes, variant=None):
    # These store the weights of norms minus 1.
    less_one = kind in ("Gemma2", "Gemma3", "Qwen3_5", "Qwen3_5Moe")
    # Models that also read pictures have a config of their texts.
    config_of = getattr(transformers, kind + "TextConfig", None) or getattr(transformers, kind + "Config")
    model_of = getattr(transformers, kind + "ForCausalLM")
    config = config_of(**{**SIZES, **changes})
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        # Names and shapes as files have them, which may differ from those in memory.
        model_of(config).save_pretrained(folder)
        path = folder + "/model.safetensors"
        stored = load_file(path)
        tensors = {tensor: list(value.shape) for tensor, value in stored.items()}
        save_file({tensor: torch.from_numpy(weight(tensor, tuple(shape), less_one))
                   for tensor, shape in tensors.items()}, path, metadata={"format": "pt"})
        model = model_of.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        given = YARN_PROMPTS if (variant or "").startswith("yarn") else PROMPTS
        out = [model(torch.tensor([p])).logits[0, -1].tolist() for p in given]
    text = json.loads(config.to_json_string())
    for key in ("transformers_version", "architectures", "_name_or_path", "chunk_size_feed_forward"):
        text.pop(key, None)
    print(name, [round(max(map(abs, o)), 2) for o in out], text)
    own = dict(variant=variant, prompts=given) if variant else {}
    return dict(name=name, **own, config=text, tensors=tensors, logits=[[round(v, 6) for v in o] for o in out])


file = pathlib.Path(__file__).with_name("models.json")
names = sys.argv[1:]
stored = {(m["name"], m.get("variant")): m for m in json.loads(file.read_text())["models"]} if names else {}


def row(name, kind, changes, variant=None):
    return stored[name, variant] if names and name not in names else logits(name, kind, changes, variant)


out = {"prompts": PROMPTS, "models": [row(*m) for m in MODELS]}
text = json.dumps(out, separators=(",", ":")).replace('{"name"', '\n{"name"').replace('"tensors"', '\n"tensors"').replace('"logits"', '\n"logits"')
file.write_text(text + "\n")
