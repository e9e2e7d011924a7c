//! Valid GGUF files that are not valid models: one for each contradiction of metadata, vocabulary
//! and tensors.
#![allow(dead_code, reason = "shared by test binaries of which none uses all")]

use super::gguf_writer::{Meta, Writer, type_number};
use warploom_core::base::Format;

/// A file that must be refused, naming `field` and saying `words`.
pub(crate) struct BadModel {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) field: String,
    pub(crate) words: &'static str,
}

const TOKENS: usize = 8;

/// Metadata of a model of one layer.
fn keys() -> Vec<(&'static str, Meta)> {
    vec![
        ("general.architecture", Meta::Str("llama".into())),
        ("llama.block_count", Meta::U32(1)),
        ("llama.context_length", Meta::U32(64)),
        ("llama.embedding_length", Meta::U32(64)),
        ("llama.feed_forward_length", Meta::U32(96)),
        ("llama.attention.head_count", Meta::U32(4)),
        ("llama.attention.head_count_kv", Meta::U32(2)),
        ("llama.attention.layer_norm_rms_epsilon", Meta::F32(1e-5)),
        ("tokenizer.ggml.model", Meta::Str("gpt2".into())),
        ("tokenizer.ggml.pre", Meta::Str("smollm".into())),
        ("tokenizer.ggml.tokens", Meta::strings((0..TOKENS).map(|i| format!("t{i}")))),
        ("tokenizer.ggml.merges", Meta::strings([""; 0])),
    ]
}

/// Its tensors, with their shapes.
fn tensors() -> Vec<(&'static str, Vec<u64>, u32)> {
    let f32 = type_number(Format::F32);
    [
        ("token_embd.weight", vec![TOKENS as u64, 64]),
        ("output_norm.weight", vec![64]),
        ("blk.0.attn_norm.weight", vec![64]),
        ("blk.0.attn_q.weight", vec![64, 64]),
        ("blk.0.attn_k.weight", vec![32, 64]),
        ("blk.0.attn_v.weight", vec![32, 64]),
        ("blk.0.attn_output.weight", vec![64, 64]),
        ("blk.0.ffn_norm.weight", vec![64]),
        ("blk.0.ffn_gate.weight", vec![96, 64]),
        ("blk.0.ffn_up.weight", vec![96, 64]),
        ("blk.0.ffn_down.weight", vec![64, 96]),
    ]
    .map(|(name, shape)| (name, shape, f32))
    .into()
}

fn file(keys: &[(&str, Meta)], tensors: &[(&str, Vec<u64>, u32)]) -> Vec<u8> {
    let file = keys.iter().fold(Writer::new(), |w, (key, value)| w.key(key, value.clone()));
    let add = |w: Writer, (name, shape, kind): &(&str, Vec<u64>, u32)| {
        w.raw_tensor(name, shape, *kind, vec![0; 4 * shape.iter().product::<u64>() as usize])
    };
    tensors.iter().fold(file, add).write().bytes
}

/// The file from which all others are derived: it opens.
pub(crate) fn good() -> Vec<u8> {
    file(&keys(), &tensors())
}

/// The same with rows of `ffn_down` in Q6_K, which GPUs store in another layout.
pub(crate) fn good_with_kept_rows() -> Vec<u8> {
    let (mut keys, mut tensors, wide) = (keys(), tensors(), Format::Q6Kx8.block_len());
    keys.retain(|(key, _)| *key != "llama.feed_forward_length");
    keys.push(("llama.feed_forward_length", Meta::U32(wide as u32)));
    for (name, shape, kind) in &mut tensors {
        match *name {
            "blk.0.ffn_gate.weight" | "blk.0.ffn_up.weight" => *shape = vec![wide, 64],
            "blk.0.ffn_down.weight" => (*shape, *kind) = (vec![64, wide], type_number(Format::Q6K)),
            _ => {}
        }
    }
    file(&keys, &tensors)
}

/// All of them.
pub(crate) fn all() -> Vec<BadModel> {
    let mut all = Vec::new();
    for (at, (changes, words)) in metadata().into_iter().enumerate() {
        let mut keys = keys();
        for (key, value) in &changes {
            keys.retain(|(k, _)| k != key);
            keys.extend(value.clone().map(|value| (*key, value)));
        }
        // The last change is the wrong one; earlier ones make it relevant.
        let (field, _) = changes[changes.len() - 1];
        let name = format!("metadata {at}, {field}: {words}");
        all.push(BadModel { name, bytes: file(&keys, &tensors()), field: field.into(), words });
    }
    for (name, shape, kind, words) in shapes() {
        let mut tensors = tensors();
        tensors.retain(|tensor| tensor.0 != name);
        tensors.extend(shape.map(|shape| (name, shape, kind)));
        let bytes = file(&keys(), &tensors);
        all.push(BadModel { name: format!("{name}: {words}"), bytes, field: name.into(), words });
    }
    all
}

type Changes = Vec<(&'static str, Option<Meta>)>;

fn metadata() -> Vec<(Changes, &'static str)> {
    let one = |key, value: Meta| vec![(key, Some(value))];
    let none = |key| vec![(key, None)];
    let strings = |items: &[&str]| Meta::strings(items.iter().copied());
    // A SentencePiece vocabulary, in which bytes have tokens.
    let pieces = |key, value: Meta| {
        let scores = Meta::f32s([0.0; TOKENS]);
        let model = Some(Meta::Str("llama".into()));
        vec![
            ("tokenizer.ggml.model", model),
            ("tokenizer.ggml.scores", Some(scores)),
            ("tokenizer.ggml.token_type", Some(Meta::i32s([6, 1, 1, 1, 1, 1, 1, 1]))),
            (key, Some(value)),
        ]
    };
    let spelled = |first: &str| {
        let rest = (1..TOKENS).map(|i| format!("t{i}"));
        Meta::strings(std::iter::once(first.to_owned()).chain(rest))
    };
    vec![
        (none("general.architecture"), "no metadata key"),
        (one("general.architecture", Meta::U32(7)), "should be"),
        (none("llama.block_count"), "missing"),
        (one("llama.block_count", Meta::U32(0)), "must be from 1"),
        (one("llama.block_count", Meta::U64(u64::MAX)), "must be from 1"),
        (one("llama.block_count", Meta::I32(-1)), "should be"),
        (one("llama.context_length", Meta::U64(1 << 62)), "must be from 1"),
        (one("llama.embedding_length", Meta::U64(1 << 32)), "must be from 1"),
        (one("llama.feed_forward_length", Meta::U64(1 << 63)), "must be from 1"),
        (one("llama.attention.head_count", Meta::U32(0)), "must be from 1"),
        (one("llama.attention.head_count", Meta::U32(6)), "does not divide"),
        (one("llama.attention.head_count_kv", Meta::U32(3)), "does not divide"),
        (one("llama.attention.key_length", Meta::U64(u64::MAX)), "must be from 1"),
        (one("llama.attention.layer_norm_rms_epsilon", Meta::F32(f32::NAN)), "must be above"),
        (one("llama.rope.dimension_count", Meta::U32(u32::MAX)), "must be from 1"),
        (one("llama.rope.freq_base", Meta::F32(0.0)), "must be above"),
        (one("llama.vocab_size", Meta::U64(u64::MAX)), "must be from 1"),
        (one("llama.vocab_size", Meta::U32(9)), "has 8"),
        (none("tokenizer.ggml.model"), "no metadata key"),
        (none("tokenizer.ggml.tokens"), "no metadata key"),
        (one("tokenizer.ggml.tokens", Meta::i32s([1, 2])), "should be"),
        (one("tokenizer.ggml.tokens", strings(&[])), "0 entries"),
        (one("tokenizer.ggml.tokens", strings(&["a", "b", "a"])), "element 2 repeats element 0"),
        (one("tokenizer.ggml.tokens", spelled(&"x".repeat(65_537))), "element 0 has 65537 bytes"),
        (one("tokenizer.ggml.tokens", Meta::strings((0..9).map(|i| format!("t{i}")))), "9 tokens"),
        (one("tokenizer.ggml.token_type", Meta::i32s([1, 1])), "2 entries for 8 tokens"),
        (one("tokenizer.ggml.token_type", Meta::i32s([1, 1, 1, 9, 1, 1, 1, 1])), "element 3 is 9"),
        (one("tokenizer.ggml.token_type", Meta::f32s([1.0; TOKENS])), "should be"),
        (none("tokenizer.ggml.merges"), "no metadata key"),
        (one("tokenizer.ggml.merges", strings(&["t1t2"])), "element 0"),
        (one("tokenizer.ggml.merges", strings(&["t1 t99"])), "not a token"),
        (one("tokenizer.ggml.merges", strings(&["t1 t2"])), "not a token"),
        (one("tokenizer.ggml.bos_token_id", Meta::U32(8)), "there are 8 tokens"),
        (one("tokenizer.ggml.eos_token_id", Meta::U32(u32::MAX)), "there are 8 tokens"),
        (one("tokenizer.ggml.eot_token_id", Meta::I32(-1)), "should be"),
        (one("tokenizer.ggml.add_bos_token", Meta::Bool(true)), "bos_token_id is absent"),
        (pieces("tokenizer.ggml.tokens", spelled("<0x100>")), "element 0"),
        (pieces("tokenizer.ggml.tokens", spelled("<0xGG>")), "element 0"),
        (pieces("tokenizer.ggml.tokens", spelled("")), "element 0"),
        (
            vec![
                ("tokenizer.ggml.model", Some(Meta::Str("llama".into()))),
                ("tokenizer.ggml.scores", Some(Meta::f32s([0.0; 3]))),
            ],
            "3",
        ),
        (vec![("split.count", Some(Meta::U16(3))), ("split.no", None)], "no metadata key"),
        (
            vec![("split.count", Some(Meta::U16(3))), ("split.no", Some(Meta::U16(3)))],
            "3 of 3 parts",
        ),
        (
            vec![
                ("split.no", Some(Meta::U16(0))),
                ("split.tensors.count", Some(Meta::I32(11))),
                ("split.count", Some(Meta::U16(u16::MAX))),
            ],
            "one of 65535 parts",
        ),
    ]
}

/// A tensor, its shape if present, its type, and the error text.
fn shapes() -> Vec<(&'static str, Option<Vec<u64>>, u32, &'static str)> {
    let (f32, i32) = (type_number(Format::F32), 26);
    vec![
        ("token_embd.weight", None, f32, "no tensor"),
        ("token_embd.weight", Some(vec![TOKENS as u64, 32]), f32, "not [tokens, 64]"),
        ("token_embd.weight", Some(vec![512]), f32, "not [tokens, 64]"),
        ("output_norm.weight", None, f32, "no tensor"),
        ("output_norm.weight", Some(vec![65]), f32, "asks for [64]"),
        ("blk.0.attn_q.weight", None, f32, "no tensor"),
        ("blk.0.attn_q.weight", Some(vec![64, 64, 1]), f32, "asks for [64, 64]"),
        ("blk.0.attn_q.weight", Some(vec![64, 64]), i32, "not numbers of a product"),
        ("blk.0.attn_k.weight", Some(vec![64, 64]), f32, "asks for [32, 64]"),
        ("blk.0.ffn_gate.weight", Some(vec![64, 96]), f32, "asks for [96, 64]"),
        ("blk.0.ffn_down.weight", Some(vec![]), f32, "asks for [64, 96]"),
        ("output.weight", Some(vec![TOKENS as u64 + 1, 64]), f32, "asks for [8, 64]"),
        ("rope_freqs.weight", Some(vec![9]), f32, "not [8]"),
    ]
}
