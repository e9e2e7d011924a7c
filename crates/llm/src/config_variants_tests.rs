//! Tests what only some architectures have.

use crate::config::Pooling;
use crate::config::tests::config_of;
use crate::test_file::Entry::{Float, Integer};

#[test]
fn soft_caps_and_windows_of_gemma2_are_read_or_refused() {
    let gemma = config_of("gemma2", &[("context_length", Integer(8192))]).unwrap();
    assert_eq!((gemma.score_cap, gemma.logit_cap), (Some(50.0), Some(30.0)));
    assert_eq!([0, 1, 2].map(|layer| gemma.window(layer)), [Some(4096), None, Some(4096)]);
    let caps = [("attn_logit_softcapping", Float(2.0)), ("final_logit_softcapping", Float(5.0))];
    let gemma = config_of("gemma2", &caps).unwrap();
    assert_eq!((gemma.score_cap, gemma.logit_cap), (Some(2.0), Some(5.0)));
    for (key, value, words) in [
        ("attn_logit_softcapping", Float(0.0), "0, must be above 0"),
        ("attn_logit_softcapping", Float(f32::NAN), "NaN, must be above 0"),
        ("final_logit_softcapping", Float(-1.0), "-1, must be above 0"),
        ("final_logit_softcapping", Float(f32::INFINITY), "inf, must be above 0"),
        ("attention.sliding_window", Integer(0), "0, must be from 1"),
    ] {
        let error = config_of("gemma2", &[(key, value)]).unwrap_err();
        let text = error.to_string();
        assert!(error.is_bad_file(), "{text}");
        for part in ["test.gguf", &format!("gemma2.{key}"), words] {
            assert!(text.contains(part), "{text:?} lacks {part:?}");
        }
    }
}

#[test]
fn dense_layers_and_windows_of_an_encoder_are_read_or_refused() {
    let dense = |first: [u64; 2], second: u64| {
        vec![
            ("dense_2_feat_in", Integer(first[0])),
            ("dense_2_feat_out", Integer(first[1])),
            ("dense_3_feat_in", Integer(second)),
            ("dense_3_feat_out", Integer(64)),
            ("attention.sliding_window", Integer(200)),
        ]
    };
    let gemma = config_of("gemma-embedding", &dense([64, 96], 96)).unwrap();
    assert_eq!(gemma.dense, [[96, 64], [64, 96]]);
    // Half of it on both sides is less than the context, 128.
    assert_eq!(gemma.window(0), Some(200));
    assert_eq!((gemma.pooling, gemma.window(5)), (Pooling::Mean, None));
    for (more, key, words) in [
        (dense([63, 96], 96), "dense_2_feat_in", "63, but the vector before it has 64"),
        (dense([64, 96], 64), "dense_3_feat_in", "64, but the vector before it has 96"),
        (dense([64, 0], 96), "dense_2_feat_out", "0, must be from 1"),
        (dense([64, 1 << 31], 96), "dense_2_feat_out", "2147483648, must be from 1"),
    ] {
        let text = config_of("gemma-embedding", &more).unwrap_err().to_string();
        for part in ["test.gguf", key, words] {
            assert!(text.contains(part), "{text:?} lacks {part:?}");
        }
    }
}
