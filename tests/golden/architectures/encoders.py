"""Writes encoders.json: tiny encoders whose weights a formula gives, and the vectors of texts by the
Python package `transformers` in float32 on the CPU: of the mean, the first and the last token.

    pip install torch transformers
    python encoders.py
"""

import json
import pathlib
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

from formula import numbers

VOCABULARY = 96
MODELS = [
    ("bert", "Bert", dict(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
        max_position_embeddings=64, type_vocab_size=2, layer_norm_eps=1e-12)),
    # Its first position is the one after the token of padding.
    ("bert", "XLMRoberta", dict(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=67, type_vocab_size=1, layer_norm_eps=1e-5, pad_token_id=2)),
    ("nomic-bert", "NomicBert", dict(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
        max_position_embeddings=64, type_vocab_size=2, layer_norm_eps=1e-12)),
]
# Of different lengths, so that a run of all is ragged.
TEXTS = [[(7 * i * i + (3 + n) * i + 5) % VOCABULARY for i in range(n)] for n in (1, 21, 6, 64)]


def weight(name, shape):
    x = numbers(name, int(np.prod(shape))).reshape(shape)
    if name.endswith((".LayerNorm.weight", "norm1.weight", "norm2.weight", "emb_ln.weight")):
        return x / 4 + 1
    if name.endswith("embeddings.weight"):
        return x
    return x / (4 if name.endswith(".bias") else 8)


def vectors(name, kind, changes):
    config = getattr(transformers, kind + "Config")(**changes)
    model_of = getattr(transformers, kind + "Model")
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model_of(config, add_pooling_layer=False).save_pretrained(folder)
        path = folder + "/model.safetensors"
        tensors = {tensor: list(value.shape) for tensor, value in load_file(path).items()}
        save_file({tensor: torch.from_numpy(weight(tensor, tuple(shape))) for tensor, shape in tensors.items()}, path,
                  metadata={"format": "pt"})
        model = model_of.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", add_pooling_layer=False).eval()
        states = [model(torch.tensor([text])).last_hidden_state[0] for text in TEXTS]
    text = json.loads(config.to_json_string())
    for key in ("transformers_version", "architectures", "_name_or_path", "chunk_size_feed_forward"):
        text.pop(key, None)
    def rows(pool):
        return [[round(v, 6) for v in pool(state).tolist()] for state in states]
    print(name, [round(float(state.abs().max()), 2) for state in states])
    return dict(name=name, config=text, tensors=tensors, mean=rows(lambda h: h.mean(0)), first=rows(lambda h: h[0]),
                last=rows(lambda h: h[-1]))


def scores(name, kind, changes):
    """The sigmoid of the score of each pair, by a model of pairs."""
    config = getattr(transformers, kind + "Config")(**changes, num_labels=1)
    model_of = getattr(transformers, kind + "ForSequenceClassification")
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model_of(config).save_pretrained(folder)
        path = folder + "/model.safetensors"
        tensors = {tensor: list(value.shape) for tensor, value in load_file(path).items()}
        save_file({tensor: torch.from_numpy(weight(tensor, tuple(shape))) for tensor, shape in tensors.items()}, path,
                  metadata={"format": "pt"})
        model = model_of.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        def score(a, b):
            first = [2, *a, 3]
            types = [0] * len(first) + [1] * (len(b) + 1)
            out = model(torch.tensor([first + b + [3]]), token_type_ids=torch.tensor([types]))
            return round(torch.sigmoid(out.logits[0, 0]).item(), 6)
        each = [score(a, b) for a, b in PAIRS]
    text = json.loads(config.to_json_string())
    for key in ("transformers_version", "_name_or_path", "chunk_size_feed_forward", "id2label", "label2id"):
        text.pop(key, None)
    text["architectures"] = [kind + "ForSequenceClassification"]
    print(name, each)
    return dict(name=name, config=text, tensors=tensors, scores=each)


# Tokens of a query and a text: 2 begins them, 3 ends each.
PAIRS = [([4, 6], [4]), ([4, 6], [6, 7]), ([4, 6], [4, 5, 7, 6, 6, 4, 5, 5]), ([6], [4])]
RERANKERS = [("bert", "Bert", MODELS[0][2])]
out = {"texts": TEXTS, "models": [vectors(*m) for m in MODELS], "pairs": PAIRS,
       "rerankers": [scores(*m) for m in RERANKERS]}
text = json.dumps(out, separators=(",", ":")).replace('{"name"', '\n{"name"').replace('"tensors"', '\n"tensors"')
pathlib.Path(__file__).with_name("encoders.json").write_text(text + "\n")
