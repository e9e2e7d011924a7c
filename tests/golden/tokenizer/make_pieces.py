"""Trains a small vocabulary of SentencePiece's BPE on this project's own pages and writes
sentencepiece.json: its tokens, scores and types, and the ids of the strings of cases.json by the
Python package, with a space put before them and without.

    pip install sentencepiece protobuf
    python make_pieces.py
"""

import json
import pathlib
import random
import tempfile

import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as proto

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
STRINGS = json.loads((HERE / "cases.json").read_text())["strings"] + [
    "\u2581 written out\u2581",
    "\x00\x01\x7f",
    "<s>a</s><unk><0x41>",
    " \n \n  \t",
    "x" + " " * 9 + "y",
]
PROMPT = "<user>hi  there<user>\n"


def train():
    pages = [(ROOT / page).read_text() for page in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "pages.txt"
        text.write_text("\n".join(pages))
        spm.SentencePieceTrainer.train(
            input=str(text), model_prefix=f"{folder}/pages", model_type="bpe", vocab_size=640,
            byte_fallback=True, character_coverage=0.9995, normalization_rule_name="identity",
            remove_extra_whitespaces=False, num_threads=1, minloglevel=2,
            user_defined_symbols=["<user>", "\u2581" * 4],
        )
        return (pathlib.Path(folder) / "pages.model").read_bytes()


def loaded(model, prefix):
    message = proto.ModelProto()
    message.ParseFromString(model)
    message.normalizer_spec.add_dummy_prefix = prefix
    return spm.SentencePieceProcessor(model_proto=message.SerializeToString())


def type_of(sp, i):
    """As GGUF numbers them."""
    if sp.is_unknown(i):
        return 2
    if sp.is_control(i):
        return 3
    if sp.is_byte(i):
        return 6
    return 4 if sp.id_to_piece(i) in ("<user>", "\u2581" * 4) else 1


model = train()
with_prefix, without = loaded(model, True), loaded(model, False)
n = range(with_prefix.get_piece_size())
tokens = [with_prefix.id_to_piece(i) for i in n]
types = [type_of(with_prefix, i) for i in n]
normal = {t: i for i, t in enumerate(tokens) if types[i] == 1}
# What transformers' converter makes of the scores: best first.
merges = []
for token, i in normal.items():
    cuts = [(token[:k], token[k:]) for k in range(1, len(token))]
    cuts = [(normal[l], normal[r]) for l, r in cuts if l in normal and r in normal]
    merges += [(-with_prefix.get_score(i), i, l, r) for l, r in cuts]
merges = [f"{tokens[l]} {tokens[r]}" for _, _, l, r in sorted(merges)]
rng = random.Random(1)
letters = "  aeinorst.,\n\u00e9\U0001f600"
random_strings = ["".join(rng.choice(letters) for _ in range(60)) for _ in range(40)]
out = {
    "tokens": tokens,
    "scores": [round(with_prefix.get_score(i), 6) for i in n],
    "types": types,
    "merges": merges,
    "strings": STRINGS + random_strings,
    "with_prefix": [with_prefix.encode(s) for s in STRINGS + random_strings],
    "without": [without.encode(s) for s in STRINGS + random_strings],
    "prompt": PROMPT,
    "prompt_without": without.encode(PROMPT),
}
text = json.dumps(out, ensure_ascii=True, separators=(",", ":")).replace("],[", "],\n[")
(HERE / "sentencepiece.json").write_text(text + "\n")
