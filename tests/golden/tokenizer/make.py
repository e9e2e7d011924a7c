"""Writes cases.json: words and ids of awkward strings, from the Python package `tokenizers`
(its regular expressions are Oniguruma's, not those of the Rust crate as built here).

    pip install tokenizers gguf
    python make.py SmolLM2-135M-Instruct.Q4_1.gguf
"""

import json
import pathlib
import sys

from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers as pt

STRINGS = [
    "Hello, world! It's 2024.",
    "  two spaces\n\n\nthree lines\t\ttabs  ",
    'fn main() {\n    println!("{}", x[0] += 1); // ok\n}',
    "don't DON'T we'll I'd 'tis y'ALL",
    "日本語の文章。中文字符",
    "한국어 مرحبا שלום",
    "😀👩\u200d👩\u200d👧 ❤\ufe0f",
    "3.14159e-10 0xFF 1,000,000 12345 १२३ ½²",
    "café e\u0301 ß İ ﬁ",
    "<|im_start|>user\nHi<|im_end|>\n",
    "<|im_start |> <|im_end",
    "a<|endoftext|>b",
    " \u00a0\u2003\u3000x",
    "\r\n\r\n \r x\n",
    "",
    "â\u0080\u0099 ’s",
    "___init__(self, *args, **kwargs):",
    "https://example.com/a?b=c&d=%20#e",
    "a" * 52,
    " " * 40 + "x",
    "$100 ^_^ a|b `c` ~d <e> +=",
]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
MODERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# As the models' own tokenizer.json has them; "default" as llama.cpp has it.
PRE = {
    "gpt-2": [pt.ByteLevel(add_prefix_space=False, use_regex=True)],
    "smollm": [pt.Digits(individual_digits=True), pt.ByteLevel(add_prefix_space=False)],
    "llama-bpe": [MODERN % "{1,3}"],
    "qwen2": [MODERN % ""],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
}


def pre_tokenizer(steps):
    if isinstance(steps[0], str):
        steps = [pt.Split(Regex(s), "isolated") for s in steps]
        steps.append(pt.ByteLevel(add_prefix_space=False, use_regex=False))
    return pt.Sequence(steps)


def smollm2_ids(path):
    fields = GGUFReader(path).fields
    tokens, merges, types = (
        fields["tokenizer.ggml." + k].contents() for k in ("tokens", "merges", "token_type")
    )
    vocab = {t: i for i, t in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(m.split(" ")) for m in merges]))
    tokenizer.pre_tokenizer = pre_tokenizer(PRE["smollm"])
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True) for t, kind in zip(tokens, types) if kind == 3]
    )
    return [tokenizer.encode(s, add_special_tokens=False).ids for s in STRINGS]


def words(steps):
    split = pre_tokenizer(steps).pre_tokenize_str
    return [[w for w, _ in split(s)] for s in STRINGS]


out = {
    "strings": STRINGS,
    "words": {name: words(steps) for name, steps in PRE.items()},
    "smollm2": smollm2_ids(sys.argv[1]),
}
text = json.dumps(out, ensure_ascii=True, separators=(",", ":")).replace("],[", "],\n[")
pathlib.Path(__file__).with_name("cases.json").write_text(text + "\n")
