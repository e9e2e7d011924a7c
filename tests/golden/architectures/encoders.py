"""Writes encoders.json: tiny encoders whose weights a formula gives, and the vectors of texts by the
Python package `transformers` in float32 on the CPU: of the mean, the first and the last token.

    pip install torch transformers
    python encoders.py          # all of them
    python encoders.py NAME     # those of an architecture; the others stay as they are
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
    ("gemma-embedding", "Gemma3Text", dict(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=7, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, query_pre_attn_scalar=32, max_position_embeddings=64, sliding_window=8,
        use_bidirectional_attention=True, rope_parameters=dict(
            full_attention=dict(rope_type="default", rope_theta=1e6),
            sliding_attention=dict(rope_type="default", rope_theta=1e4)))),
]
QWEN3 = dict(
    vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=32, tie_word_embeddings=True, rms_norm_eps=1e-6)
# Language models, whose vectors are those of the last token.
DECODERS = [("qwen3", "Qwen3", dict(QWEN3, max_position_embeddings=64))]
# Shapes of the dense layers after the vector of a text.
DENSE = {"gemma-embedding": {"dense_2.weight": [96, 64], "dense_3.weight": [48, 96]}}
# Of different lengths, so that a run of all is ragged.
TEXTS = [[(7 * i * i + (3 + n) * i + 5) % VOCABULARY for i in range(n)] for n in (1, 21, 6, 64)]


def weight(name, shape, less_one=False):
    x = numbers(name, int(np.prod(shape))).reshape(shape)
    if name.endswith("norm.weight"):
        return x / 4 + (0 if less_one else 1)
    if name.endswith((".LayerNorm.weight", "norm1.weight", "norm2.weight", "emb_ln.weight")):
        return x / 4 + 1
    if name.endswith(("embeddings.weight", "embed_tokens.weight")):
        return x
    return x / (4 if name.endswith(".bias") else 8)


def vectors(name, kind, changes):
    config = getattr(transformers, kind + "Config")(**changes)
    model_of = getattr(transformers, kind + "Model")
    options = dict(add_pooling_layer=False) if "ert" in kind else {}
    less_one = kind.startswith("Gemma")
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model_of(config, **options).save_pretrained(folder)
        path = folder + "/model.safetensors"
        tensors = {tensor: list(value.shape) for tensor, value in load_file(path).items()}
        save_file({tensor: torch.from_numpy(weight(tensor, tuple(shape), less_one))
                   for tensor, shape in tensors.items()}, path, metadata={"format": "pt"})
        model = model_of.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", **options).eval()
        states = [model(torch.tensor([text])).last_hidden_state[0] for text in TEXTS]
    text = json.loads(config.to_json_string())
    for key in ("transformers_version", "architectures", "_name_or_path", "chunk_size_feed_forward"):
        text.pop(key, None)
    dense = DENSE.get(name, {})
    matrices = [torch.from_numpy(weight(tensor, tuple(shape))) for tensor, shape in dense.items()]
    def rows(pool):
        out = []
        for state in states:
            vector = pool(state)
            for matrix in matrices:
                vector = matrix @ vector
            out.append([round(v, 6) for v in vector.tolist()])
        return out
    print(name, [round(float(state.abs().max()), 2) for state in states])
    return dict(name=name, config=text, tensors={**tensors, **dense}, mean=rows(lambda h: h.mean(0)), first=rows(lambda h: h[0]),
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

# The question of Qwen3-Reranker, as the model's card has it.
QUESTION = (
    '<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct '
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web '
    'search query, retrieve relevant passages that answer the query\n<Query>: {query}\n<Document>: {document}'
    '<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n')
QUESTIONS = [("who wrote Faust", "Goethe wrote it."), ("who wrote Faust", "A cat sleeps."), ("yes", "no")]
# Characters of ASCII, but for a few; the words yes and no, and a control token.
CHARACTERS = [chr(c) for c in range(33, 127) if chr(c) not in "`^~\\"] + ["\u0120", "\u010a", "ye", "yes", "no", "<|im_end|>"]
MERGES = [("y", "e"), ("ye", "s"), ("n", "o")]


def answers(name, kind, changes):
    """The share of yes among the answers yes and no of a language model, for each question."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
    assert len(CHARACTERS) == VOCABULARY
    tokenizer = Tokenizer(models.BPE({text: i for i, text in enumerate(CHARACTERS)}, MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens([AddedToken("<|im_end|>", special=True, normalized=False)])
    yes, no = CHARACTERS.index("yes"), CHARACTERS.index("no")
    config = getattr(transformers, kind + "Config")(**changes)
    model_of = getattr(transformers, kind + "ForCausalLM")
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model_of(config).save_pretrained(folder)
        path = folder + "/model.safetensors"
        tensors = {tensor: list(value.shape) for tensor, value in load_file(path).items()}
        save_file({tensor: torch.from_numpy(weight(tensor, tuple(shape))) for tensor, shape in tensors.items()}, path,
                  metadata={"format": "pt"})
        model = model_of.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        def score(query, document):
            ids = tokenizer.encode(QUESTION.replace("{query}", query).replace("{document}", document)).ids
            logits = model(torch.tensor([ids])).logits[0, -1]
            return round(torch.softmax(logits[[yes, no]], 0)[0].item(), 6)
        each = [score(*pair) for pair in QUESTIONS]
    text = json.loads(config.to_json_string())
    for key in ("transformers_version", "architectures", "_name_or_path", "chunk_size_feed_forward"):
        text.pop(key, None)
    print(name, each)
    return dict(name=name, config=text, tensors=tensors, tokens=CHARACTERS, merges=[" ".join(m) for m in MERGES],
                questions=QUESTIONS, scores=each)


file = pathlib.Path(__file__).with_name("encoders.json")
names = sys.argv[1:]
stored = json.loads(file.read_text()) if names else {}


def rows(group, make, models):
    """Rows of a group; those that are not asked for are the stored ones, in their order."""
    old = iter([row for row in stored.get(group, []) if row["name"] not in names])
    return [make(*m) if not names or m[0] in names else next(old) for m in models]


out = {"texts": TEXTS, "models": rows("models", vectors, MODELS), "pairs": PAIRS,
       "rerankers": rows("rerankers", scores, RERANKERS), "decoders": rows("decoders", vectors, DECODERS),
       "answers": rows("answers", answers, [("qwen3", "Qwen3", dict(QWEN3, max_position_embeddings=1024))])}
text = json.dumps(out, separators=(",", ":")).replace('{"name"', '\n{"name"').replace('"tensors"', '\n"tensors"')
file.write_text(text + "\n")
