//! Tiny models of every architecture, with weights from a formula (`tests/golden/architectures`):
//! logits against Python's `transformers`, read from a GGUF file as llama.cpp's converter writes it
//! and from a folder as `transformers` writes it.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value as Json;
use warploom::ComputeMode;
use warploom::runtime::Runtime;
use warploom_core::base::Format;
use warploom_forward::Forward;
use warploom_llm::config::Architecture;
use warploom_llm::{Model, Output, Session, StepRequest};
use warploom_models::gguf::{Access, Gguf, Value};

use super::architecture_files::{gguf, gguf_bytes, golden, label, logits, name, prompts};
use super::architecture_folders::folder;
use crate::gguf_writer::{Meta, Writer};
use crate::{devices, tell};

/// Maximum difference of a logit; the largest is 28.
const LOGIT: f64 = 1e-3;

pub(super) fn difference(expected: &[f64], actual: impl Iterator<Item = f64>) -> f64 {
    let each = expected.iter().zip(actual).map(|(a, b)| (a - b).abs());
    // A NaN must not be lost in a maximum.
    each.fold(0.0, |most, d| if d > most || d.is_nan() { d } else { most })
}

/// Writes the files that `tests/golden/architectures/llama_cpp.py` reads, into the folder that
/// `WARPLOOM_WRITE_MODELS` names.
#[test]
#[ignore = "writes files for another program"]
fn files_are_written_for_llama_cpp() {
    let folder = PathBuf::from(std::env::var_os("WARPLOOM_WRITE_MODELS").expect("a folder"));
    for (i, row) in golden().iter().enumerate() {
        std::fs::write(folder.join(format!("{i}.gguf")), gguf_bytes(row)).unwrap();
    }
}

/// Real models are compared with the float64 pass, and the float64 pass with another library.
#[test]
fn the_float64_pass_agrees_with_transformers() {
    let golden = golden();
    for row in &golden {
        let model = Model::from_gguf(gguf(row)).unwrap();
        let mut forward = Forward::new(&model, ComputeMode::F32);
        for (i, prompt) in prompts(row).iter().enumerate() {
            forward.reset();
            let difference = difference(&logits(row, i), forward.run(prompt).into_iter());
            assert!(difference <= 1e-4, "{}, prompt {i}: {difference}", label(row));
        }
    }
    let named: Vec<&str> = golden.iter().map(name).collect();
    let decodes = |name: &&str| Architecture::of(name).is_some_and(|row| !row.encodes);
    for architecture in Architecture::names().filter(decodes) {
        assert!(named.contains(&architecture), "models.json has no {architecture}");
    }
}

/// Largest difference of a logit on one device, the prompts read at once and in pieces.
fn run(runtime: &Runtime, model: &Arc<Model>, row: &Json) -> f64 {
    let builder = Session::builder(model.clone()).runtime(runtime.clone()).context(32);
    let mut session = builder.compute(ComputeMode::F32).build().unwrap();
    let mut most = 0.0f64;
    for (i, prompt) in prompts(row).iter().enumerate() {
        // The last token alone is a decode step; with four before it, a short prefill.
        for last in [0, 1, 5] {
            let Some(first) = prompt.len().checked_sub(last) else { continue };
            let (first, last) = prompt.split_at(first);
            session.truncate(0).unwrap();
            let mut out = Vec::new();
            for piece in [first, last].into_iter().filter(|piece| !piece.is_empty()) {
                let request = StepRequest::tokens(0, piece, Output::Logits);
                out = session.step(request).unwrap().into_logits();
            }
            let difference = difference(&logits(row, i), out.iter().map(|v| f64::from(*v)));
            assert!(difference <= LOGIT, "{}, prompt {i}: {difference}", label(row));
            most = most.max(difference);
        }
    }
    most
}

#[test]
fn every_architecture_gives_the_logits_of_transformers_on_every_device() {
    let golden = golden();
    for (device, runtime) in devices::every(true) {
        let mut message = format!("architectures: {device}:");
        // Their kernels are the same but for a few: some stand for all if kernels compile slowly.
        let step = devices::sample(runtime.device().profile(), 3);
        for row in golden.iter().step_by(step) {
            let model = Model::from_gguf(gguf(row)).unwrap();
            let most = run(&runtime, &model, row);
            message += &format!(" {} {most:.1e}", label(row));
        }
        tell(&message);
    }
}

/// Some files of ternary weights have a separate scale for each matrix.
#[test]
fn the_scale_of_a_matrix_is_applied() {
    let golden = golden();
    let row = golden.iter().find(|row| name(row) == "bitnet").unwrap();
    let plain = gguf(row);
    let mut file = Writer::new();
    for (key, value) in plain.metadata() {
        let value = match value {
            Value::U32(n) => Meta::U32(n),
            Value::F32(x) => Meta::F32(x),
            Value::String(text) => Meta::Str(text.into()),
            Value::Array(_) => Meta::strings(plain.strings(key).unwrap()),
            other => panic!("{key}: {other:?}"),
        };
        file = file.key(key, value);
    }
    for info in plain.tensors() {
        let mut values: Vec<f32> = bytemuck::pod_collect_to_vec(plain.bytes(&info).unwrap());
        if let Some(stem) = info.name().strip_suffix(".weight")
            && ["attn_k", "attn_output", "ffn_up", "ffn_down"].iter().any(|m| stem.ends_with(m))
        {
            values.iter_mut().for_each(|value| *value /= 4.0);
            file = file.tensor(&format!("{stem}.scale"), &[1], Format::F32, &[4.0]);
        }
        file = file.tensor(info.name(), info.shape(), Format::F32, &values);
    }
    let model = Model::from_gguf(Gguf::from_bytes(file.write().bytes, "scaled").unwrap()).unwrap();
    for (_, runtime) in devices::every(false) {
        run(&runtime, &model, row);
    }
}

#[test]
fn every_architecture_is_read_from_a_folder() {
    let golden = golden();
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    for row in &golden {
        let place = folder(row);
        // Only files in GGUF are read.
        let refused = [
            ("qwen35", "qwen3_5"),
            ("gpt-oss", "gpt_oss"),
            ("gemma4", "gemma4_text"),
            ("lfm2", "lfm2"),
            ("glm4moe", "glm4_moe"),
            ("ernie4_5-moe", "ernie4_5_moe"),
        ];
        if let Some((_, kind)) = refused.iter().find(|(begin, _)| name(row).starts_with(begin)) {
            let error = Model::open(&place.0, Access::Mmap).unwrap_err();
            assert!(error.is_unsupported() && error.to_string().contains(kind), "{error}");
            continue;
        }
        let model = Model::open(&place.0, Access::Mmap).unwrap();
        assert_eq!(model.config().architecture.name, name(row));
        run(&runtime, &model, row);
    }
}
