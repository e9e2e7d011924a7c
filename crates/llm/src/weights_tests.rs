//! Tests files with a missing or extra tensor, or with one of the wrong shape.

use super::*;
use crate::config::{DeltaNet, Experts, SharedExpert, Sharing};
use crate::test_file::{Entry, gguf};

/// Returns the config of a small model with this architecture, and all its required tensors with
/// their shapes.
fn small(architecture: &'static str) -> (Config, Vec<(String, Vec<u64>)>) {
    let architecture = crate::config::Architecture::of(architecture).unwrap();
    let experts = architecture.experts.map(|routing| Experts {
        count: 4,
        active: 2,
        feed_forward: 12,
        dense_layers: 0,
        gate: routing.gate,
        normalised: routing.normalises,
        scale: 1.0,
        has_selection_bias: routing.has_selection_bias,
        shared: match routing.shared {
            Sharing::None => None,
            sharing => Some(SharedExpert { feed_forward: 6, gated: sharing == Sharing::Gated }),
        },
        is_beside: routing.is_beside,
    });
    let delta_net = architecture.delta_nets.then_some(DeltaNet {
        period: 2,
        key_heads: 1,
        heads: 2,
        head_dim: 4,
        taps: 4,
    });
    let config = Config {
        architecture,
        experts,
        delta_net,
        layers: if architecture.delta_nets { 2 } else { 1 },
        width: 8,
        heads: 2,
        kv_heads: 1,
        head_dim: 4,
        feed_forward: 12,
        vocabulary: 6,
        context: 6,
        token_types: 2,
        rope_dim: 4,
        tied_output: false,
        ..crate::shapes::smollm2_135m()
    };
    let required = |_: &str, _: &[u64], need| Ok((need == Need::Required).then_some(Format::F32));
    let table = table(&config, required).unwrap();
    let stored = table.into_iter().filter(|w| !w.name.starts_with("rope."));
    (config, stored.map(|w| (w.name, w.shape)).collect())
}

fn read(config: &Config, tensors: &[(String, Vec<u64>)]) -> Result<Vec<Weight>> {
    let tensors: Vec<(&str, &[u64])> =
        tensors.iter().map(|(name, shape)| (name.as_str(), &shape[..])).collect();
    of_file(&gguf(&[("general.architecture", Entry::Text("test"))], &tensors), config)
}

#[test]
fn each_tensor_that_is_missing_or_wrong_is_named() {
    for name in crate::config::Architecture::names() {
        let (config, tensors) = small(name);
        assert!(tensors.len() > 8, "{name}: {tensors:?}");
        assert!(read(&config, &tensors).unwrap().len() > tensors.len());
        for at in 0..tensors.len() {
            let mut missing = tensors.clone();
            let (lost, _) = missing.remove(at);
            let error = read(&config, &missing).unwrap_err();
            assert!(error.is_bad_file() && error.to_string().contains(&lost), "{name}: {error}");
            let mut wrong = tensors.clone();
            *wrong[at].1.last_mut().unwrap() += 2;
            let error = read(&config, &wrong).unwrap_err();
            assert!(error.is_bad_file() && error.to_string().contains(&lost), "{name}: {error}");
        }
    }
}

#[test]
fn scales_and_biases_of_a_matrix_are_read_and_nothing_else() {
    let (config, mut tensors) = small("bitnet");
    let plain = tensors.len();
    tensors.push(("blk.0.attn_q.scale".into(), vec![1]));
    tensors.push(("blk.0.ffn_down.bias".into(), vec![8]));
    tensors.push((ROPE_FACTORS.into(), vec![2]));
    let read_all = read(&config, &tensors).unwrap();
    let find = |name: &str| read_all.iter().find(|w| w.name == name).unwrap();
    assert_eq!(find("blk.0.attn_q.scale").shape, [1]);
    assert_eq!(find("blk.0.ffn_down.bias").format, Format::F32);
    let wrong = ("blk.0.attn_q.scale".to_owned(), vec![8]);
    assert!(read(&config, &[&tensors[..plain], &[wrong]].concat()).unwrap_err().is_bad_file());

    for name in ["blk.0.attn_q_norm.weight", "blk.1.attn_q.weight", "blk.0.attn_q.lora_a", "x"] {
        let more = (name.to_owned(), vec![4]);
        let error = read(&config, &[&tensors[..], &[more]].concat()).unwrap_err();
        let text = error.to_string();
        assert!(error.is_unsupported(), "{text}");
        for part in ["test.gguf", &format!("{name:?} at offset"), "architecture bitnet"] {
            assert!(text.contains(part), "{text:?} lacks {part:?}");
        }
    }
}
