//! A file with the metadata and tensors of SmolLM2-135M, all zeros: enough for its plans without
//! the model.

use std::sync::{Arc, OnceLock};

use warploom_core::base::Format;
use warploom_llm::Model;
use warploom_models::gguf::Gguf;

use crate::gguf_writer::{Meta, Writer, type_number};

const LAYERS: u32 = 30;
const WIDTH: u64 = 576;
const KV: u64 = 192;
const INNER: u64 = 1536;
const VOCABULARY: u64 = 49_152;

/// The model, built once.
pub(crate) fn model() -> Arc<Model> {
    static MODEL: OnceLock<Arc<Model>> = OnceLock::new();
    MODEL.get_or_init(make).clone()
}

fn make() -> Arc<Model> {
    let mut file = Writer::new()
        .key("general.architecture", Meta::Str("llama".into()))
        .key("llama.block_count", Meta::U32(LAYERS))
        .key("llama.context_length", Meta::U32(8192))
        .key("llama.embedding_length", Meta::U32(WIDTH as u32))
        .key("llama.feed_forward_length", Meta::U32(INNER as u32))
        .key("llama.attention.head_count", Meta::U32(9))
        .key("llama.attention.head_count_kv", Meta::U32(3))
        .key("llama.attention.layer_norm_rms_epsilon", Meta::F32(1e-5))
        .key("llama.rope.freq_base", Meta::F32(100_000.0))
        .key("llama.rope.dimension_count", Meta::U32(64))
        .key("tokenizer.ggml.model", Meta::Str("gpt2".into()))
        .key("tokenizer.ggml.pre", Meta::Str("smollm".into()))
        .key("tokenizer.ggml.tokens", Meta::strings((0..VOCABULARY).map(|i| format!("t{i}"))))
        .key("tokenizer.ggml.merges", Meta::strings([""; 0]));
    let mut add = |name: String, shape: &[u64]| {
        let format = if shape.len() == 1 { Format::F32 } else { Format::Q8_0 };
        let bytes = format.bytes(shape.iter().product()).unwrap() as usize;
        let writer = std::mem::replace(&mut file, Writer::new());
        file = writer.raw_tensor(&name, shape, type_number(format), vec![0; bytes]);
    };
    add("token_embd.weight".into(), &[VOCABULARY, WIDTH]);
    add("output_norm.weight".into(), &[WIDTH]);
    for layer in 0..LAYERS {
        let rows: [(&str, &[u64]); 9] = [
            ("attn_norm", &[WIDTH]),
            ("attn_q", &[WIDTH, WIDTH]),
            ("attn_k", &[KV, WIDTH]),
            ("attn_v", &[KV, WIDTH]),
            ("attn_output", &[WIDTH, WIDTH]),
            ("ffn_norm", &[WIDTH]),
            ("ffn_gate", &[INNER, WIDTH]),
            ("ffn_up", &[INNER, WIDTH]),
            ("ffn_down", &[WIDTH, INNER]),
        ];
        for (name, shape) in rows {
            add(format!("blk.{layer}.{name}.weight"), shape);
        }
    }
    Model::from_gguf(Gguf::from_bytes(file.write().bytes, "SmolLM2-135M of zeros").unwrap())
        .unwrap()
}
