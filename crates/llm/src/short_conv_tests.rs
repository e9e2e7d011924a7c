//! Tests keys of short convolutions and of factors of queries, with one wrong value each.

use crate::config::tests::config_of;
use crate::config::{ShortConvs, Temperature};
use crate::test_file::Entry::{Float, Integer, Integers};

#[test]
fn layers_without_keys_are_convolutions() {
    let heads = |counts: &[i32]| ("attention.head_count_kv", Integers(counts.to_vec()));
    let taps = ("shortconv.l_cache", Integer(3));
    let more = [("block_count", Integer(4)), heads(&[0, 2, 0, 2]), taps.clone()];
    let lfm = config_of("lfm2", &more).unwrap();
    assert_eq!(
        lfm.short_convs,
        Some(ShortConvs { taps: 3, layers: vec![true, false, true, false] })
    );
    assert_eq!((lfm.kv_heads, lfm.state_elements(0), lfm.state_elements(1)), (2, [128, 0], [0, 0]));
    assert!(lfm.is_recurrent() && lfm.has_keys(1) && !lfm.has_keys(2));
    for (more, key, words) in [
        (
            vec![heads(&[0, 2]), ("shortconv.l_cache", Integer(1))],
            "shortconv.l_cache",
            "at least 2",
        ),
        (
            vec![heads(&[0, 2]), ("shortconv.l_cache", Integer(0))],
            "shortconv.l_cache",
            "0, must be",
        ),
        (vec![heads(&[0, 2])], "shortconv.l_cache", "missing"),
        (vec![heads(&[0, 0]), taps.clone()], "attention.head_count_kv", "no layer has attention"),
        (vec![heads(&[0, 3]), taps.clone()], "attention.head_count_kv", "3 does not divide"),
        (vec![heads(&[0]), taps.clone()], "attention.head_count_kv", "1 values for 2 layers"),
        (vec![heads(&[2, 1]), taps], "attention.head_count_kv", "2 and 1"),
    ] {
        let text = config_of("lfm2", &more).unwrap_err().to_string();
        for part in ["test.gguf", &format!("lfm2.{key}"), words] {
            assert!(text.contains(part), "{text:?} lacks {part:?}");
        }
    }
}

#[test]
fn factors_of_queries_are_read_or_refused() {
    let scale = |number: f32| ("attention.temperature_scale", Float(number));
    let length = |number: u64| ("rope.scaling.original_context_length", Integer(number));
    let read = |more: &[_]| config_of("mistral3", more).unwrap().temperature;
    let want = |scale, length| Some(Temperature { scale, length });
    assert_eq!(read(&[scale(0.1), length(16)]), want(0.1, 16));
    assert_eq!(read(&[scale(0.1)]), want(0.1, 128));
    assert_eq!((read(&[scale(0.0)]), read(&[])), (None, None));
    for (more, words) in [
        (vec![scale(f32::NAN)], "mistral3.attention.temperature_scale"),
        (vec![scale(-1.0)], "-1, must be above 0"),
        (vec![scale(0.1), length(0)], "original_context_length"),
    ] {
        let text = config_of("mistral3", &more).unwrap_err().to_string();
        assert!(text.contains(words), "{text}");
    }
    let error = config_of("llama", &[scale(0.1)]).unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("temperature_scale"), "{error}");
}
