//! Tests files with one wrong value each, and compares rotary frequencies with published ones.

use super::*;
use crate::config_variants::LONG_ROPE_FACTORS;
use crate::test_file::{Entry, gguf};
use Entry::{Float, Integer, Text};

/// Returns the metadata keys of a small valid model.
fn base() -> Vec<(&'static str, Entry)> {
    vec![
        ("general.architecture", Text("llama")),
        ("llama.block_count", Integer(2)),
        ("llama.embedding_length", Integer(64)),
        ("llama.attention.head_count", Integer(4)),
        ("llama.attention.head_count_kv", Integer(2)),
        ("llama.feed_forward_length", Integer(96)),
        ("llama.context_length", Integer(128)),
        ("llama.attention.layer_norm_rms_epsilon", Float(1e-5)),
    ]
}

const EMBEDDING: (&str, &[u64]) = ("token_embd.weight", &[8, 64]);

fn config(changes: &[(&'static str, Option<Entry>)], tensors: &[(&str, &[u64])]) -> Result<Config> {
    let mut keys = base();
    for (key, value) in changes {
        keys.retain(|(k, _)| k != key);
        keys.extend(value.clone().map(|v| (*key, v)));
    }
    Config::from_gguf(&gguf(&keys, tensors))
}

/// Reads the config of that model under a different architecture, with additional keys.
pub(crate) fn config_of(architecture: &'static str, more: &[(&str, Entry)]) -> Result<Config> {
    let key = |key: &str| match key.strip_prefix("llama.") {
        Some(rest) => format!("{architecture}.{rest}"),
        None => key.to_owned(),
    };
    let more = more.iter().map(|(name, value)| (format!("{architecture}.{name}"), value.clone()));
    let mut keys: Vec<(String, Entry)> =
        base().into_iter().map(|(name, value)| (key(name), value)).collect();
    for (name, value) in more {
        keys.retain(|(k, _)| *k != name);
        keys.push((name, value));
    }
    keys[0].1 = Text(architecture);
    let keys: Vec<(&str, Entry)> = keys.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
    Config::from_gguf(&gguf(&keys, &[EMBEDDING]))
}

#[test]
fn windows_and_bases_are_those_of_the_layer() {
    let plain = config_of("gemma3", &[]).unwrap();
    assert_eq!((plain.window, plain.local_rope_base), (None, Some(10_000.0)));
    assert!(!plain.is_local(0));

    let more = [
        ("attention.sliding_window", Integer(16)),
        ("block_count", Integer(13)),
        ("rope.freq_base", Float(1e6)),
        ("rope.scaling.type", Text("linear")),
        ("rope.scaling.factor", Float(8.0)),
    ];
    let gemma = config_of("gemma3", &more).unwrap();
    assert_eq!(gemma.window, Some(Window { size: 16, period: Some(6) }));
    let all: Vec<usize> = (0..13).filter(|layer| gemma.window(*layer).is_none()).collect();
    assert_eq!(all, [5, 11]);
    assert!(gemma.is_local(4) && !gemma.is_local(5));
    // The second of eight pairs: local layers keep their own base and are not scaled.
    let (global, local) = (gemma.rope_frequencies(None).unwrap(), gemma.local_rope_frequencies());
    assert!((f64::from(global[1]) - 1e6f64.powf(-0.125) / 8.0).abs() < 1e-8, "{}", global[1]);
    assert!((f64::from(local.unwrap()[1]) - 1e4f64.powf(-0.125)).abs() < 1e-7);

    let more = [
        ("attention.sliding_window", Integer(16)),
        ("attention.sliding_window_pattern", Integer(2)),
        ("rope.freq_base_swa", Float(500.0)),
        ("attention.scale", Float(0.5)),
    ];
    let other = config_of("gemma3", &more).unwrap();
    assert_eq!([0, 1].map(|layer| other.window(layer)), [Some(16), None]);
    assert_eq!((other.local_rope_base, other.attention_scale), (Some(500.0), 0.5));

    let phi = config_of("phi3", &[("attention.sliding_window", Integer(16))]).unwrap();
    assert_eq!([0, 1, 5].map(|layer| phi.window(layer)), [Some(16); 3]);
    assert!(!phi.is_local(0) && phi.local_rope_frequencies().is_none());
    // A window as long as the context has no effect.
    for size in [0, 128, 1 << 20] {
        let phi = config_of("phi3", &[("attention.sliding_window", Integer(size))]).unwrap();
        assert_eq!(phi.window, None, "{size}");
    }
}

#[test]
fn the_largest_gemma_scales_by_its_width() {
    let wide = ("attention.key_length", Integer(32));
    let scale = |layers| {
        config_of("gemma3", &[wide.clone(), ("block_count", Integer(layers))])
            .unwrap()
            .attention_scale
    };
    assert_eq!(scale(34), (1.0 / 32f64.sqrt()) as f32);
    assert_eq!(scale(62), 0.25);
    let other = config_of("qwen3", &[wide, ("block_count", Integer(62))]).unwrap();
    assert_eq!(other.attention_scale, (1.0 / 32f64.sqrt()) as f32);
}

#[test]
fn numbers_of_other_architectures_are_checked() {
    let rows = [
        ("attention.sliding_window", Integer(u64::MAX), "must be from 1"),
        ("attention.sliding_window", Text("16"), "string"),
        ("attention.sliding_window_pattern", Integer(0), "0, must be from 1 to 4096"),
        ("attention.sliding_window_pattern", Integer(1 << 40), "must be from 1 to 4096"),
        ("attention.scale", Float(0.0), "0, must be above 0"),
        ("attention.scale", Float(f32::NAN), "NaN, must be"),
        ("rope.freq_base_swa", Float(f32::INFINITY), "inf, must be"),
    ];
    for (key, value, words) in rows {
        let more = [("attention.sliding_window", Integer(16)), (key, value)];
        let text = config_of("gemma3", &more).unwrap_err().to_string();
        for part in ["test.gguf", &format!("gemma3.{key}"), words] {
            assert!(text.contains(part), "{text:?} lacks {part:?}");
        }
    }
    let unsupported = [
        ("qwen2", "attention.sliding_window", Integer(16), "a window of 16 keys"),
        ("gemma3", "final_logit_softcapping", Float(30.0), "a soft cap of logits, 30"),
        ("gemma3", "attn_logit_softcapping", Float(50.0), "a soft cap of scores, 50"),
        ("phi3", "rope.scaling.attn_factor", Float(1.19), "a factor on rotated heads, 1.19"),
        ("phi3", "rope.scaling.type", Text("longrope"), "\"longrope\" is not supported"),
        ("qwen3", "expert_count", Integer(128), "128 experts"),
    ];
    for (architecture, key, value, words) in unsupported {
        let error = config_of(architecture, &[(key, value)]).unwrap_err();
        let text = error.to_string();
        assert!(error.is_unsupported(), "{text}");
        for part in ["test.gguf", &format!("{architecture}.{key}"), words] {
            assert!(text.contains(part), "{text:?} lacks {part:?}");
        }
    }
    let neutral =
        [("final_logit_softcapping", Float(0.0)), ("rope.scaling.attn_factor", Float(1.0))];
    assert!(config_of("gemma3", &neutral).is_ok());
    let long = [EMBEDDING, (LONG_ROPE_FACTORS, &[8])];
    let error = config(&[], &long).unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("longrope"), "{error}");
}

#[test]
fn a_valid_file_is_read_with_its_defaults() {
    let got = config(&[], &[EMBEDDING]).unwrap();
    let want = Config {
        architecture: &Architecture::LLAMA,
        layers: 2,
        width: 64,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        feed_forward: 96,
        experts: None,
        delta_net: None,
        short_convs: None,
        temperature: None,
        layer_sizes: LayerSizes::default(),
        context: 128,
        vocabulary: 8,
        token_types: 0,
        pooling: Pooling::Last,
        dense: Vec::new(),
        norm_epsilon: 1e-5,
        attention_scale: 0.25,
        score_cap: None,
        logit_cap: None,
        window: None,
        rope_base: 10_000.0,
        local_rope_base: None,
        rope_dim: 16,
        rope_scaling: RopeScaling::None,
        has_rope_factors: false,
        unrotated_period: None,
        embedding_scale: 1.0,
        residual_scale: 1.0,
        logit_scale: 1.0,
        tied_output: true,
    };
    assert_eq!(got, want);
    assert_eq!(got.kv_width(), 32);
    let got = config(
        &[
            ("llama.attention.head_count_kv", None),
            ("llama.attention.key_length", Some(Integer(32))),
            ("llama.attention.value_length", Some(Integer(32))),
            ("llama.rope.dimension_count", Some(Integer(8))),
            ("llama.rope.freq_base", Some(Float(5e5))),
            ("llama.rope.scale_linear", Some(Float(4.0))),
            ("llama.vocab_size", Some(Integer(8))),
        ],
        &[EMBEDDING, ("output.weight", &[8, 64]), (ROPE_FACTORS, &[4])],
    )
    .unwrap();
    assert_eq!((got.kv_heads, got.head_dim, got.rope_dim), (4, 32, 8));
    assert_eq!((got.rope_base, got.tied_output, got.has_rope_factors), (5e5, false, true));
    assert_eq!(got.rope_scaling, RopeScaling::Linear { factor: 4.0 });
}

#[test]
fn the_small_model_has_the_numbers_of_its_card() {
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let path = root.join("models/warploom-tiny-llama-Q4_K_M.gguf");
    let got =
        Config::from_gguf(&Gguf::open(path, warploom_models::gguf::Access::Mmap).unwrap()).unwrap();
    let sizes = [got.layers, got.width, got.heads, got.kv_heads, got.head_dim, got.feed_forward];
    assert_eq!(sizes, [8, 256, 8, 4, 32, 768]);
    assert_eq!((got.context, got.vocabulary, got.rope_dim), (512, 4096, 32));
    assert_eq!((got.norm_epsilon, got.rope_base), (1e-5, 10_000.0));
    assert!(got.tied_output && !got.has_rope_factors);
}

#[test]
fn each_wrong_number_is_refused_with_file_and_key() {
    let rows: &[(&'static str, Option<Entry>, &str)] = &[
        ("llama.block_count", None, "missing"),
        ("llama.block_count", Some(Integer(0)), "0, must be from 1 to 4096"),
        ("llama.block_count", Some(Integer(1 << 40)), "must be from 1 to 4096"),
        ("llama.block_count", Some(Text("two")), "string"),
        ("llama.embedding_length", Some(Integer(0)), "must be from 1"),
        ("llama.embedding_length", Some(Integer(u64::MAX)), "must be from 1"),
        ("llama.attention.head_count", Some(Integer(0)), "must be from 1 to 64"),
        ("llama.attention.head_count", Some(Integer(6)), "6 does not divide embedding_length, 64"),
        ("llama.attention.head_count_kv", Some(Integer(3)), "3 does not divide"),
        ("llama.attention.head_count_kv", Some(Integer(8)), "must be from 1 to 4"),
        ("llama.attention.key_length", Some(Integer(7)), "7 elements"),
        ("llama.attention.key_length", Some(Integer(1 << 30)), "must be from 1 to 262144"),
        ("llama.attention.value_length", Some(Integer(8)), "8, but keys have 16"),
        ("llama.feed_forward_length", Some(Integer(0)), "must be from 1"),
        ("llama.context_length", Some(Integer(0)), "must be from 1"),
        ("llama.attention.layer_norm_rms_epsilon", None, "missing"),
        ("llama.attention.layer_norm_rms_epsilon", Some(Float(f32::NAN)), "NaN, must be"),
        ("llama.attention.layer_norm_rms_epsilon", Some(Float(0.0)), "0, must be above 0"),
        ("llama.rope.freq_base", Some(Float(-1.0)), "-1, must be above 1"),
        ("llama.rope.freq_base", Some(Float(f32::INFINITY)), "inf, must be"),
        ("llama.rope.dimension_count", Some(Integer(18)), "must be from 1 to 16"),
        ("llama.rope.dimension_count", Some(Integer(5)), "5 is odd"),
        ("llama.rope.scale_linear", Some(Float(0.0)), "0, must be above 0"),
        ("llama.vocab_size", Some(Integer(9)), "9, but tensor token_embd.weight has 8"),
    ];
    for (key, value, words) in rows {
        let error = config(&[(*key, value.clone())], &[EMBEDDING]).unwrap_err();
        let text = error.to_string();
        assert!(error.is_bad_file(), "{text}");
        for part in ["test.gguf", key, words] {
            assert!(text.contains(part), "{key} {value:?}: {text:?} lacks {part:?}");
        }
    }
}

#[test]
fn wrong_tensors_are_refused() {
    type Tensors<'a> = &'a [(&'a str, &'a [u64])];
    let rows: [(Tensors<'_>, &str); 4] = [
        (&[], "token_embd.weight"),
        (&[("token_embd.weight", &[8, 32])], "has shape [8, 32], not [tokens, 64]"),
        (&[("token_embd.weight", &[64])], "has shape [64]"),
        (&[EMBEDDING, (ROPE_FACTORS, &[4])], "has shape [4], not [8]"),
    ];
    for (tensors, words) in rows {
        let error = config(&[], tensors).unwrap_err();
        assert!(error.is_bad_file() && error.to_string().contains(words), "{error}");
    }
}

#[test]
fn what_is_not_known_is_unsupported_and_the_known_is_listed() {
    let rows = [
        (
            "general.architecture",
            Text("mamba"),
            "known: llama, qwen2, qwen3, gemma3, gemma4, gemma2, phi3, qwen3moe",
        ),
        ("llama.rope.scaling.type", Text("longrope"), "known: none, linear, llama3, yarn"),
        ("llama.expert_count", Integer(8), "8 experts"),
    ];
    for (key, value, words) in rows {
        let error = config(&[(key, Some(value))], &[EMBEDDING]).unwrap_err();
        let text = error.to_string();
        assert!(error.is_unsupported(), "{text}");
        assert!(text.contains("test.gguf") && text.contains(key) && text.contains(words), "{text}");
    }
}

#[test]
fn plain_frequencies_are_powers_of_the_base() {
    let config = config(&[], &[EMBEDDING]).unwrap();
    let got = config.rope_frequencies(None).unwrap();
    assert_eq!(got.len(), 8);
    for (i, f) in got.iter().enumerate() {
        let want = (1.0 / 10_000f64.powf(i as f64 / 8.0)) as f32;
        assert!((f - want).abs() <= want * 1e-7, "{i}: {f}, want {want}");
    }
    let halved = config.rope_frequencies(Some(&[2.0; 8])).unwrap();
    assert!(got.iter().zip(&halved).all(|(a, b)| *a == 2.0 * b));
    for bad in [&[1.0f32; 7][..], &[1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]] {
        assert!(config.rope_frequencies(Some(bad)).unwrap_err().is_bad_file());
    }
}

/// Llama 3.1 8B: base 500000, heads of 128, factor 8, low 1, high 4, 8192 positions. Expected
/// values come from the published Python code, run in float64.
#[test]
fn llama3_scaling_is_the_published_one() {
    let changes = [
        ("llama.rope.freq_base", Some(Float(500_000.0))),
        ("llama.attention.key_length", Some(Integer(128))),
        ("llama.rope.scaling.type", Some(Text("llama3"))),
        ("llama.rope.scaling.factor", Some(Float(8.0))),
        ("llama.rope.scaling.low_freq_factor", Some(Float(1.0))),
        ("llama.rope.scaling.high_freq_factor", Some(Float(4.0))),
        ("llama.rope.scaling.original_context_length", Some(Integer(8192))),
    ];
    let got = config(&changes, &[EMBEDDING]).unwrap().rope_frequencies(None).unwrap();
    let rows = [
        (0, 1.0),
        (1, 0.814617233857),
        (20, 0.016560440081),
        (28, 0.00321144599475),
        (29, 0.0021665707635),
        (30, 0.00137189356776),
        (31, 0.00085675141292),
        (32, 0.000524846160993),
        (33, 0.000312693750384),
        (34, 0.000178507812768),
        (35, 9.55621235396e-05),
        (36, 7.78465527393e-05),
        (50, 4.41153467456e-06),
        (63, 3.06892598891e-07),
    ];
    for (i, want) in rows {
        assert!((f64::from(got[i]) - want).abs() <= want * 1e-6, "{i}: {}, want {want}", got[i]);
    }
    let mut wrong = changes.to_vec();
    wrong[5].1 = Some(Float(0.5));
    let error = config(&wrong, &[EMBEDDING]).unwrap_err().to_string();
    assert!(error.contains("high_freq_factor at byte ") && error.contains(": 0.5"), "{error}");
}

/// The keys of a mixture of experts that is valid.
fn mixture() -> Vec<(&'static str, Entry)> {
    vec![
        ("expert_count", Integer(8)),
        ("expert_used_count", Integer(2)),
        ("expert_feed_forward_length", Integer(48)),
    ]
}

/// The keys of gated delta nets that are valid.
fn delta_nets() -> Vec<(&'static str, Entry)> {
    vec![
        ("ssm.state_size", Integer(16)),
        ("ssm.time_step_rank", Integer(4)),
        ("ssm.group_count", Integer(2)),
        ("ssm.inner_size", Integer(64)),
        ("ssm.conv_kernel", Integer(4)),
    ]
}

fn changed(
    mut keys: Vec<(&'static str, Entry)>,
    name: &'static str,
    value: Entry,
) -> Vec<(&'static str, Entry)> {
    keys.retain(|(key, _)| *key != name);
    keys.push((name, value));
    keys
}

#[test]
fn experts_are_read_and_impossible_ones_refused() {
    let got = config_of("qwen3moe", &mixture()).unwrap();
    let experts = got.experts.unwrap();
    assert_eq!((experts.count, experts.active, got.feed_forward), (8, 2, 48));
    assert!(experts.normalised && experts.scale == 1.0 && experts.shared.is_none());
    let wrong = [
        ("expert_count", Integer(0), "0, must be from 1 to 4096"),
        ("expert_count", Integer(1 << 31), "2147483648, must be from 1 to 4096"),
        ("expert_used_count", Integer(0), "0, must be from 1 to 8"),
        ("expert_used_count", Integer(9), "9, must be from 1 to 8"),
        ("expert_feed_forward_length", Integer(u64::MAX), "must be from 1 to 1048576"),
        ("expert_weights_scale", Float(-1.0), "-1, must be above 0"),
    ];
    for (name, value, words) in wrong {
        let error = config_of("qwen3moe", &changed(mixture(), name, value)).unwrap_err();
        let text = error.to_string();
        assert!(error.is_bad_file() && text.contains(name) && text.contains(words), "{text}");
    }
    let other = [
        ("expert_group_count", Integer(4), "4 groups of experts"),
        ("interleave_moe_layer_step", Integer(2), "2 layers between those with experts"),
        ("expert_shared_count", Integer(2), "2 shared experts"),
        ("expert_gating_func", Integer(7), "gate 7"),
    ];
    for (name, value, words) in other {
        let error = config_of("qwen3moe", &changed(mixture(), name, value)).unwrap_err();
        assert!(error.is_unsupported() && error.to_string().contains(words), "{error}");
    }
}

#[test]
fn layers_without_experts_and_shared_experts_are_read() {
    let keys = changed(mixture(), "leading_dense_block_count", Integer(1));
    let keys = changed(keys, "expert_shared_count", Integer(2));
    let got = config_of("glm4moe", &keys).unwrap();
    let experts = got.experts.as_ref().unwrap();
    assert_eq!((experts.feed_forward, got.feed_forward), (48, 96));
    assert_eq!(experts.shared, Some(SharedExpert { feed_forward: 96, gated: false }));
    assert!(got.experts_of(0).is_none() && got.experts_of(1).is_some());
    let wrong = [
        ("expert_shared_count", Integer(1 << 31), "2147483648, must be from 1 to 21845"),
        ("leading_dense_block_count", Integer(1 << 31), "2147483648, must be from 1 to 4096"),
    ];
    for (name, value, words) in wrong {
        let error = config_of("glm4moe", &changed(keys.clone(), name, value)).unwrap_err();
        let text = error.to_string();
        assert!(error.is_bad_file() && text.contains(name) && text.contains(words), "{text}");
    }
    let error = config_of("glm4moe", &mixture()).unwrap_err().to_string();
    assert!(error.contains("expert_shared_count: the key is missing"), "{error}");
}

#[test]
fn delta_nets_are_read_and_impossible_ones_refused() {
    let got = config_of("qwen35", &delta_nets()).unwrap();
    let net = got.delta_net.clone().unwrap();
    assert_eq!((net.period, net.channels(), net.inner()), (4, 128, 64));
    assert!(got.delta_net_of(2).is_some() && got.delta_net_of(3).is_none());
    let wrong = [
        ("ssm.state_size", Integer(0), "0, must be from 1 to 4096"),
        ("ssm.group_count", Integer(3), "3 does not divide ssm.time_step_rank, 4"),
        ("ssm.inner_size", Integer(65), "65, not 4 heads of 16 elements"),
        ("ssm.conv_kernel", Integer(1), "1, must be at least 2"),
        ("ssm.conv_kernel", Integer(65), "65, must be from 1 to 64"),
        ("full_attention_interval", Integer(0), "0, must be from 1"),
        ("nextn_predict_layers", Integer(2), "2 of 2 blocks"),
    ];
    for (name, value, words) in wrong {
        let error = config_of("qwen35", &changed(delta_nets(), name, value)).unwrap_err();
        let text = error.to_string();
        assert!(error.is_bad_file() && text.contains(name) && text.contains(words), "{text}");
    }
}
