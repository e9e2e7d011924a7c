//! Tests files whose layers differ, with one wrong value each.

use crate::config::tests::config_of;
use crate::test_file::Entry::{self, Float, Integer, Integers};

/// The keys of a model of six layers, the third and the last of which have no window.
fn keys() -> Vec<(&'static str, Entry)> {
    vec![
        ("block_count", Integer(6)),
        ("attention.sliding_window", Integer(16)),
        ("attention.sliding_window_pattern", Integers(vec![1, 1, 0, 1, 1, 0])),
        ("attention.key_length", Integer(32)),
        ("attention.value_length", Integer(32)),
        ("attention.key_length_swa", Integer(16)),
        ("attention.value_length_swa", Integer(16)),
        ("attention.head_count_kv", Integers(vec![2, 2, 1, 2, 2, 1])),
        ("attention.shared_kv_layers", Integer(3)),
        ("feed_forward_length", Integers(vec![96, 96, 96, 192, 192, 192])),
        ("embedding_length_per_layer_input", Integer(8)),
        ("rope.dimension_count", Integer(32)),
        ("rope.dimension_count_swa", Integer(16)),
        ("final_logit_softcapping", Float(30.0)),
    ]
}

#[test]
fn sizes_are_those_of_the_layer() {
    let gemma = config_of("gemma4", &keys()).unwrap();
    let of = |f: &dyn Fn(usize) -> usize| (0..6).map(f).collect::<Vec<_>>();
    assert_eq!(of(&|layer| gemma.head_dim_of(layer)), [16, 16, 32, 16, 16, 32]);
    assert_eq!(of(&|layer| gemma.kv_heads_of(layer)), [2, 2, 1, 2, 2, 1]);
    assert_eq!(of(&|layer| gemma.rope_dim_of(layer)), [16, 16, 32, 16, 16, 32]);
    assert_eq!(of(&|layer| gemma.feed_forward_of(layer)), [96, 96, 96, 192, 192, 192]);
    assert_eq!(of(&|layer| gemma.keys_of(layer)), [0, 1, 2, 1, 1, 2]);
    assert_eq!((gemma.layer_sizes.embedding, gemma.attention_scale), (8, 1.0));
    assert_eq!(gemma.local_rope_frequencies().unwrap().len(), 8);
    // A window that is longer than the context still says what a layer is.
    let mut long = keys();
    long[1].1 = Integer(4096);
    assert_eq!(config_of("gemma4", &long).unwrap().head_dim_of(0), 16);
}

#[test]
fn impossible_sizes_are_refused_with_their_key() {
    for (key, value, words) in [
        ("attention.shared_kv_layers", Integer(6), "6 of 6 layers"),
        ("attention.shared_kv_layers", Integer(u64::MAX), "18446744073709551615 of 6 layers"),
        (
            "attention.shared_kv_layers",
            Integer(4),
            "4: no layer of its kind has the keys of layer 2",
        ),
        ("embedding_length_per_layer_input", Integer(1 << 31), "2147483648, must be from 1"),
        ("attention.head_count_kv", Integers(vec![2, 2, 3, 2, 2, 3]), "3 does not divide"),
        ("attention.head_count_kv", Integers(vec![2, 2, 0, 2, 2, 1]), "0 of layer 2, must be"),
        ("attention.head_count_kv", Integers(vec![2, 2, 1, 2, 2]), "5 values for 6 layers"),
        ("attention.head_count_kv", Integers(vec![2, 1, 1, 2, 2, 1]), "2 and 1 in layers with"),
        ("attention.sliding_window_pattern", Integers(vec![1, 1, 0, 1, 0, 0]), "each 3th"),
        ("attention.sliding_window_pattern", Integers(vec![1, 1, 2, 1, 1, 0]), "2 of layer 2"),
        ("attention.key_length_swa", Integer(7), "7 elements"),
        ("attention.value_length_swa", Integer(8), "8, but keys have 16"),
        ("rope.dimension_count_swa", Integer(32), "32, must be from 1 to 16"),
        ("feed_forward_length", Integers(vec![96, 96, -1, 96, 96, 96]), "-1 of layer 2, must be"),
        ("final_logit_softcapping", Float(0.0), "0, must be above 0"),
        ("final_logit_softcapping", Float(f32::NAN), "NaN, must be above 0"),
        ("attention.sliding_window", Integer(0), "0, must be from 1"),
    ] {
        let mut keys = keys();
        keys.retain(|(name, _)| *name != key);
        keys.push((key, value));
        let text = config_of("gemma4", &keys).unwrap_err().to_string();
        for part in ["test.gguf", &format!("gemma4.{key}"), words] {
            assert!(text.contains(part), "{text:?} lacks {part:?}");
        }
    }
}
