"""Trains small tokenizers of every kind with the trainers of the Python package `tokenizers`, and
writes each as NAME.json, with cases.json: 200 strings and their ids in each of them, and in
variants of them that differ in one part (each normaliser, each pre-tokenizer, each flag of an added
token).

keys.json holds every key that the packages know: of each kind of part of a tokenizer.json, and of
tokenizer_config.json what the code of `transformers` takes from it.

    pip install tokenizers==0.23.3 transformers==5.24.0 sentencepiece protobuf
    python make.py
"""

import inspect
import json
import pathlib
import random
import re
import tempfile

import sentencepiece as spm
import transformers
from sentencepiece import sentencepiece_model_pb2 as proto
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers as nz
from tokenizers import pre_tokenizers as pt, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
MIXED = [
    "The quick brown fox jumps over 13 lazy dogs; don't they?",
    "Größe, façade, naïve, São Paulo, Ærøskøbing, İstanbul",
    "Привет, мир! Как дела? Ёжик", "こんにちは世界。日本語の文章です。", "你好，世界！中文字符很多。",
    "한국어 문장입니다. 안녕하세요", "مرحبا بالعالم", "שלום עולם", "नमस्ते दुनिया।", "Γειά σου Κόσμε", "ไทย ภาษา",
    "😀 👩\u200d👩\u200d👧 ❤\ufe0f 🇩🇪", "e\u0301 a\u0308 ﬁ ① ½ Ⅳ ＡＢＣ",
]
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPACE = "\u2581"


def strings():
    """200 strings, shortest kinds first."""
    out = ["", " ", "  ", "\n", "\t", "\r\n", "   \n\n  \t ", "\u00a0\u2003\u3000", "\u2028x\u2029", "\x00\x01\x7f\x1b"]
    out += MIXED
    tokens = ["<s>", "</s>", "<|user|>", "<mask>", "<left>", "<Norm>", "word", "[X]", "<|end|>"]
    for token in tokens:
        out += [token, f" {token} ", f"a{token}b", f"a {token} b", f"a \n{token}\t b", f"  {token}\n\n{token}  "]
        out += [token.upper() + " x", f"é{token}é", f"_{token}1", f"{token}{token}."]
    out += [f"x{SPACE}y", SPACE, f"{SPACE}{SPACE}a", "<0x41>", "##ing", "a</w>", "Ġa", "don't DON'T 'tis", "  lead", "trail  "]
    out += ["a" * 40, "ab " * 12, " " * 17 + "x", "x\n\n\n\ny", "1234567890", "3.14e-10 0xFF", "a-b_c", "?!...", "(x[0])", "A B C"]
    out += ["ﬁne ①②③ ½ ｶﾞ", "e\u0301e\u0301", "\u1100\u1161\u11a8", "\u0301x", "x\u0301\u0302", "\ufeffx", "a\u200db", "a\u00adb", "ẞ ß İ ı", "ΑΣ ΑΣΑ"]
    rng = random.Random(46)
    parts = tokens + ["a", "the ", " ", "\n", "é", "e\u0301", "日", "😀", "İ", "1", "_", ".", "\u00a0", "ß", SPACE, "ing", "  ", "Ж"]
    while len(out) < 200:
        out.append("".join(rng.choice(parts) for _ in range(rng.randint(3, 9))))
    return out[:200]


STRINGS = strings()
CORPUS = MIXED * 6 + [
    line for page in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
    for line in (ROOT / page).read_text().splitlines()[:120]
]


def tok(content, **flags):
    return AddedToken(content, **{"special": True, "normalized": False, **flags})


CONTROLS = [tok("<s>"), tok("</s>"), tok("<|user|>"), tok("<|end|>")]
FLAGS = [
    tok("<s>"), tok("</s>", normalized=True), tok("<|user|>", rstrip=True), tok("<|end|>", lstrip=True, rstrip=True),
    tok("<mask>", lstrip=True), tok("<left>", special=False, lstrip=True), tok("<Norm>", special=False, normalized=True),
    tok("word", special=False, single_word=True), tok("[X]", special=False, single_word=True, lstrip=True, rstrip=True),
]


def trained(model, trainer, normalizer=None, pre=None, decoder=None, post=None, added=CONTROLS):
    made = Tokenizer(model)
    if normalizer is not None:
        made.normalizer = normalizer
    if pre is not None:
        made.pre_tokenizer = pre
    made.train_from_iterator(CORPUS, trainer)
    if decoder is not None:
        made.decoder = decoder
    special = [t for t in added if t.special]
    made.add_special_tokens(special)
    made.add_tokens([t for t in added if not t.special])
    if post is not None:
        made.post_processor = post(made)
    return made


def bpe(size=400, **more):
    return trainers.BpeTrainer(vocab_size=size, show_progress=False, **more)


def bytes_bpe(**more):
    return trained(
        models.BPE(**more.pop("model", {})), bpe(initial_alphabet=pt.ByteLevel.alphabet()),
        decoder=decoders.ByteLevel(), **more,
    )


def pieces(normalizer, pre, decoder, **more):
    fallback = [f"<0x{b:02X}>" for b in range(256)]
    made = trained(
        models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True),
        bpe(700, special_tokens=["<unk>", "<s>", "</s>"] + fallback, limit_alphabet=120),
        normalizer, pre, decoder, **more,
    )
    # The trainer knows bytes as special tokens only; in real files they are plain ones.
    file = json.loads(made.to_str())
    file["added_tokens"] = [t for t in file["added_tokens"] if not t["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(file))


def template(single):
    def post(made):
        names = [name for name in single.split() if name != "$A"]
        return processors.TemplateProcessing(
            single=single, special_tokens=[(name, made.token_to_id(name)) for name in names]
        )
    return post


def charsmap():
    """A small compiled map of characters, as SentencePiece writes it."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        rules = {"ﬁ": "fi", "①": "1", "½": "1/2", "\u00a0": " ", "\u3000": " ", "İ": "i", "\u00ad": "", "e\u0301": "é", "ß": "ss"}
        line = lambda text: " ".join(f"{ord(c):X}" for c in text)
        (folder / "rules.tsv").write_text("".join(f"{line(a)}\t{line(b)}\n" for a, b in rules.items()))
        (folder / "text.txt").write_text("\n".join(CORPUS))
        spm.SentencePieceTrainer.train(
            input=str(folder / "text.txt"), model_prefix=str(folder / "m"), vocab_size=400, minloglevel=2,
            normalization_rule_tsv=str(folder / "rules.tsv"), num_threads=1,
        )
        message = proto.ModelProto()
        message.ParseFromString((folder / "m.model").read_bytes())
        return message.normalizer_spec.precompiled_charsmap


def unigram(normalizer, byte_fallback=False, **more):
    special = ["<unk>", "<s>", "</s>"]
    special += [f"<0x{b:02X}>" for b in range(256)] if byte_fallback else []
    made = trained(
        models.Unigram(), trainers.UnigramTrainer(
            vocab_size=650 if byte_fallback else 400, special_tokens=special, unk_token="<unk>", show_progress=False
        ), normalizer, pt.Metaspace(), decoders.Metaspace(), **more,
    )
    if byte_fallback:
        file = json.loads(made.to_str())
        file["model"]["byte_fallback"] = True
        file["added_tokens"] = [t for t in file["added_tokens"] if not t["content"].startswith("<0x")]
        file["decoder"] = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, file["decoder"]]}
        made = Tokenizer.from_str(json.dumps(file))
    return made


def wordpiece(normalizer, pre, **more):
    made = trained(
        models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=30),
        trainers.WordPieceTrainer(vocab_size=400, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False),
        normalizer, pre, decoders.WordPiece(), post=template("[CLS] $A [SEP]"), **more,
    )
    return made


def all_kinds():
    to_piece = nz.Replace(" ", SPACE)
    from_piece = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    split = pt.Sequence([pt.Split(Regex(LLAMA3), "isolated"), pt.ByteLevel(add_prefix_space=False, use_regex=False)])
    return {
        "bytes-gpt2": bytes_bpe(pre=pt.ByteLevel(add_prefix_space=False)),
        "bytes-llama3": bytes_bpe(
            pre=split, normalizer=nz.NFC(), model={"ignore_merges": True}, post=template("<s> $A")
        ),
        "bytes-flags": bytes_bpe(
            pre=pt.Sequence([pt.Digits(individual_digits=True), pt.ByteLevel(add_prefix_space=False)]), added=FLAGS
        ),
        "bytes-lowercase-flags": bytes_bpe(
            pre=pt.ByteLevel(add_prefix_space=True), normalizer=nz.Sequence([nz.NFKC(), nz.Lowercase()]), added=FLAGS,
            post=lambda made: processors.RobertaProcessing(("</s>", made.token_to_id("</s>")), ("<s>", made.token_to_id("<s>"))),
        ),
        "pieces-prepend": pieces(
            nz.Sequence([nz.Prepend(SPACE), to_piece]), None, decoders.Sequence([*from_piece, decoders.Strip(" ", 1, 0)]),
            post=template("<s> $A"),
        ),
        "pieces-replace": pieces(to_piece, None, decoders.Sequence(from_piece)),
        "pieces-first-flags": pieces(
            None, pt.Metaspace(prepend_scheme="first", split=False), decoders.Sequence([*from_piece, decoders.Strip(" ", 1, 0)]),
            added=FLAGS,
        ),
        "pieces-unk": trained(
            models.BPE(unk_token="<unk>", fuse_unk=False), bpe(special_tokens=["<unk>"], limit_alphabet=60),
            nz.NFKD(), pt.Metaspace(prepend_scheme="always", split=True), decoders.Metaspace(), added=FLAGS,
        ),
        "wordpiece-bert": wordpiece(nz.BertNormalizer(), pt.BertPreTokenizer(), added=FLAGS),
        "wordpiece-cased": wordpiece(
            nz.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False),
            pt.Sequence([pt.Whitespace(), pt.Punctuation("merged_with_previous")]),
        ),
        "unigram-nmt": unigram(
            nz.Sequence([nz.Nmt(), nz.NFKC(), nz.Replace(Regex(" {2,}"), " ")]), added=FLAGS, post=template("$A </s>")
        ),
        "unigram-precompiled": unigram(nz.Precompiled(charsmap())),
        "unigram-bytes": unigram(None, byte_fallback=True),
        "words": trained(
            models.WordLevel(unk_token="<unk>"),
            trainers.WordLevelTrainer(vocab_size=300, special_tokens=["<unk>"], show_progress=False),
            nz.Sequence([nz.NFD(), nz.StripAccents(), nz.Lowercase(), nz.Strip()]),
            pt.Sequence([pt.WhitespaceSplit(), pt.Punctuation(), pt.Digits(individual_digits=False)]), added=FLAGS,
        ),
        "bpe-prefix": trained(
            models.BPE(unk_token="<unk>", continuing_subword_prefix="##"),
            bpe(special_tokens=["<unk>"], continuing_subword_prefix="##"), nz.NFC(), pt.BertPreTokenizer(), decoders.WordPiece(),
        ),
        "bpe-suffix": trained(
            models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"),
            bpe(special_tokens=["<unk>"], end_of_word_suffix="</w>"), nz.Lowercase(), pt.Whitespace(), decoders.BPEDecoder(),
        ),
    }


NORMALIZERS = [
    nz.NFC(), nz.NFD(), nz.NFKC(), nz.NFKD(), nz.Lowercase(), nz.Nmt(), nz.Strip(), nz.Strip(left=False),
    nz.Strip(right=False), nz.StripAccents(), nz.Prepend("x"), nz.Replace("a", "bb"), nz.Replace(Regex(r"^\s+|\d$"), "-"),
    nz.BertNormalizer(), nz.BertNormalizer(strip_accents=False), nz.Sequence([nz.NFD(), nz.StripAccents(), nz.Prepend(" ")]),
    nz.Precompiled(charsmap()), nz.Sequence([]),
]
PRE_TOKENIZERS = [
    pt.BertPreTokenizer(), pt.CharDelimiterSplit("a"), pt.Digits(True), pt.Digits(False), pt.FixedLength(3), pt.Metaspace(),
    pt.Metaspace(prepend_scheme="never"), pt.Metaspace(prepend_scheme="first", split=False), pt.Whitespace(), pt.WhitespaceSplit(),
    pt.UnicodeScripts(), pt.Split(" ", "removed"), pt.Split(Regex("[aeiou]"), "merged_with_next", invert=True),
    pt.Split(Regex(r"^.|\w+$"), "contiguous"),
    *(pt.Punctuation(b) for b in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")),
]


def variants():
    """Parts put into a file of `all_kinds`."""
    for part in NORMALIZERS:
        yield "bytes-flags", {"normalizer": json.loads(part.__getstate__())}
        yield "words", {"normalizer": json.loads(part.__getstate__())}
    yield "bytes-gpt2", {"normalizer": {"type": "ByteLevel"}, "pre_tokenizer": None}
    for part in PRE_TOKENIZERS:
        yield "wordpiece-cased", {"pre_tokenizer": json.loads(part.__getstate__())}


def main():
    rows = []
    made = all_kinds()
    for name, tokenizer in made.items():
        file = json.loads(tokenizer.to_str())
        (HERE / f"{name}.json").write_text(json.dumps(file, ensure_ascii=True, separators=(",", ":")) + "\n")
        ids = [tokenizer.encode(s, add_special_tokens=False).ids for s in STRINGS]
        around = tokenizer.encode("a", add_special_tokens=True).ids
        inner = tokenizer.encode("a", add_special_tokens=False).ids
        at = next(k for k in range(len(around)) if around[k : k + len(inner)] == inner)
        rows.append({
            "file": name, "count": tokenizer.get_vocab_size(), "ids": ids, "around": [around[:at], around[at + len(inner) :]],
            "decoded": [tokenizer.decode(i) for i in ids[::4]],
        })
    for name, patch in variants():
        file = {**json.loads(made[name].to_str()), **patch}
        try:
            tokenizer = Tokenizer.from_str(json.dumps(file))
        except Exception as error:
            # Two added tokens that a normaliser makes equal cannot be told apart.
            rows.append({"file": name, "patch": patch, "error": str(error).splitlines()[0][:60], "count": made[name].get_vocab_size()})
            continue
        rows.append({
            "file": name, "patch": patch, "count": tokenizer.get_vocab_size(),
            "ids": [tokenizer.encode(s, add_special_tokens=False).ids for s in STRINGS[::6]],
        })
    text = json.dumps({"strings": STRINGS, "rows": rows}, ensure_ascii=True, separators=(",", ":"))
    (HERE / "cases.json").write_text(text.replace('},{"file"', '},\n{"file"') + "\n")


def known_keys():
    """Keys by section, as the packages write and read them."""
    parts = {
        "normalizer": [*NORMALIZERS, nz.ByteLevel()],
        "pre_tokenizer": [*PRE_TOKENIZERS, pt.ByteLevel(), pt.Sequence([])],
        "decoder": [
            decoders.ByteLevel(), decoders.WordPiece(), decoders.Metaspace(), decoders.Sequence([]), decoders.Replace("a", "b"),
            decoders.Fuse(), decoders.Strip("a", 0, 0), decoders.ByteFallback(), decoders.BPEDecoder(), decoders.CTC(),
        ],
        "post_processor": [
            processors.BertProcessing(("a", 0), ("b", 1)), processors.RobertaProcessing(("a", 0), ("b", 1)),
            processors.ByteLevel(), processors.TemplateProcessing(), processors.Sequence([]),
        ],
    }
    modules = {"normalizer": nz, "pre_tokenizer": pt, "decoder": decoders, "post_processor": processors}
    abstract = {"Normalizer", "PreTokenizer", "Decoder", "DecodeStream", "PostProcessor"}
    sections = {}
    for part, steps in parts.items():
        kinds = {name for name, kind in vars(modules[part]).items() if inspect.isclass(kind)} - abstract
        missing = kinds - {type(step).__name__ for step in steps}
        assert not missing, (part, missing)
        for step in steps:
            state = json.loads(step.__getstate__())
            sections[f"{part} {state['type']}"] = sorted(state)
    for model in (models.BPE(), models.WordPiece(), models.WordLevel(unk_token="a"), models.Unigram()):
        file = json.loads(Tokenizer(model).to_str())
        sections["model " + file["model"]["type"]] = sorted(file["model"])
        sections["tokenizer.json"] = sorted(file)
    one = Tokenizer(models.BPE())
    one.add_tokens(["a"])
    sections["added_tokens"] = sorted(json.loads(one.to_str())["added_tokens"][0])
    taken = set()
    for module in (transformers.tokenization_utils_base, transformers.tokenization_utils_tokenizers):
        for pattern in (
            r'kwargs(?:\.pop|\.get|\.setdefault)\(\s*"(\w+)"', r'"(\w+)" (?:not )?in (?:init_)?kwargs',
            r'init_kwargs\["(\w+)"\]', r'tokenizer_config(?:\.get\(|\.pop\(|\[)"(\w+)"',
        ):
            taken |= set(re.findall(pattern, inspect.getsource(module)))
    named = transformers.PreTrainedTokenizerBase.SPECIAL_TOKENS_ATTRIBUTES
    sections["tokenizer_config.json"] = sorted(taken | set(named))
    sections["special_tokens_map.json"] = sorted(named) + ["additional_special_tokens", "extra_special_tokens"]
    (HERE / "keys.json").write_text(json.dumps(sections, separators=(",", ":")).replace('],"', '],\n"') + "\n")


def token(content, **flags):
    base = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False, "special": True}
    return {"content": content, **base, **flags}


# What stands beside a tokenizer.json, each with what it changes in the ids of a text.
BESIDE = [
    {},
    {"tokenizer_config.json": {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "the", "model_max_length": 512}},
    {"tokenizer_config.json": {"unk_token": "ing", "extra_special_tokens": ["ab", "[X]"], "image_token": "quick"}},
    {"tokenizer_config.json": {"additional_special_tokens": ["over", {"__type": "AddedToken", **token("brown", rstrip=True)}]}},
    {"tokenizer_config.json": {"mask_token": {"__type": "AddedToken", **token("the", lstrip=True, rstrip=True)}}},
    {"tokenizer_config.json": {"added_tokens_decoder": {
        "400": token("<s>", rstrip=True), "404": token("<mask>", special=False, single_word=True), "300": None,
    }}},
    {"tokenizer_config.json": {"add_prefix_space": True, "legacy": True, "clean_up_tokenization_spaces": True, "do_lower_case": True}},
    {"tokenizer_config.json": {"add_bos_token": True, "bos_token": "<s>"}},
    {"special_tokens_map.json": {"cls_token": token("the", rstrip=True), "additional_special_tokens": ["dog"], "bos_token": "over"}},
    {"added_tokens.json": {"<new>": 409, "<s>": 400}},
    {"added_tokens.json": {"<new>": 409}, "special_tokens_map.json": {"sep_token": "<new>"}},
    {"tokenizer_config.json": {"pad_token": "<new>", "eos_token": "<newer>"}},
]
SENTENCES = ["<s> the quick brown fox</s>", "a <new> b <newer>", " over the lazy  dogs <mask> x", "[X] the <|user|>\n ab", "thething <mask>ing the"]


def beside():
    """The ids that `transformers` gives with other files beside one tokenizer.json."""
    rows = []
    for files in BESIDE:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "tokenizer.json").write_text((HERE / "bytes-flags.json").read_text())
            made = {}
            for name, content in files.items():
                content = {**content}
                if "added_tokens_decoder" in content:
                    # An id of the vocabulary becomes a token of its own.
                    vocab = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
                    listed = {id: t for id, t in content["added_tokens_decoder"].items() if t}
                    listed[str(vocab["Ġthe"])] = token("Ġthe", special=False)
                    content["added_tokens_decoder"] = listed
                made[name] = content
            config = made.setdefault("tokenizer_config.json", {})
            config["tokenizer_class"] = "PreTrainedTokenizerFast"
            for name, content in made.items():
                (folder / name).write_text(json.dumps(content))
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            ids = [tokenizer.encode(text, add_special_tokens=False) for text in SENTENCES]
            rows.append({"files": made, "ids": ids, "with_special": tokenizer.encode("ab")})
    text = json.dumps({"sentences": SENTENCES, "rows": rows}, separators=(",", ":"))
    (HERE / "beside.json").write_text(text.replace('},{"files"', '},\n{"files"') + "\n")


main()
known_keys()
beside()
