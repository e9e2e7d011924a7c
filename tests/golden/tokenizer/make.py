"""Writes cases.json: words and ids of awkward strings, from the Python package `tokenizers`
(its regular expressions are Oniguruma's, not those of the Rust crate as built here).

    pip install tokenizers gguf
    python make.py SmolLM2-135M-Instruct.Q4_1.gguf Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf
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
    "HTTPServer getURLs iPhone's IT'S ÉCOLE",
    "नमस्ते दुनिया। ไทย ภาษา",
    "你好，世界！ひらがなカタカナ…。",
]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
MODERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
HEAD = r"[^\r\n\p{L}\p{N}]?"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
# As the models' own tokenizer.json has them; "default", "falcon", "bloom" and "viking" as llama.cpp
# has them.
PRE = {
    "gpt-2": [pt.ByteLevel(add_prefix_space=False, use_regex=True)],
    "smollm": [pt.Digits(individual_digits=True), pt.ByteLevel(add_prefix_space=False)],
    "llama-bpe": [MODERN % "{1,3}"],
    "dbrx": [MODERN % "{1,3}"],
    "qwen2": [MODERN % ""],
    "qwen35": [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
        r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "gpt-4o": [
        rf"{HEAD}{UPPER}*{LOWER}+{SUFFIX}?|{HEAD}{UPPER}+{LOWER}*{SUFFIX}?|\p{{N}}{{1,3}}{TAIL}"
    ],
    "tekken": [rf"{HEAD}{UPPER}*{LOWER}+|{HEAD}{UPPER}+{LOWER}*|\p{{N}}{TAIL}"],
    "deepseek-v3": [
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
    "deepseek-coder": [
        "[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+",
        "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}",
    ],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "bloom": [BLOOM],
    "viking": [BLOOM, r"\p{N}"],
    "seed-coder": [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}"
        r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "bailingmoe": [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
    ],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
}


def pre_tokenizer(steps):
    if isinstance(steps[0], str):
        steps = [pt.Split(Regex(s), "isolated") for s in steps]
        steps.append(pt.ByteLevel(add_prefix_space=False, use_regex=False))
    return pt.Sequence(steps)


def model_ids(path, pre):
    fields = GGUFReader(path).fields
    tokens, merges, types = (
        fields["tokenizer.ggml." + k].contents() for k in ("tokens", "merges", "token_type")
    )
    vocab = {t: i for i, t in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(m.split(" ")) for m in merges]))
    tokenizer.pre_tokenizer = pre_tokenizer(PRE[pre])
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
    "smollm2": model_ids(sys.argv[1], "smollm"),
    "qwen2.5": model_ids(sys.argv[2], "qwen2"),
}
text = json.dumps(out, ensure_ascii=True, separators=(",", ":")).replace("],[", "],\n[")
pathlib.Path(__file__).with_name("cases.json").write_text(text + "\n")
