//! Each layer of a real model by itself, in every compute mode, against the float64 pass.
//!
//! Over many layers in `Int8` the device and the float64 pass diverge: a value near the midpoint of
//! two quantisation steps rounds differently, and changes later values likewise. So each layer
//! becomes a model: its embedding is the layer's input in the float64 pass, its output is the
//! normalised residual stream, and no error accumulates.

use std::sync::Arc;

use warploom::ComputeMode;
use warploom::runtime::Runtime;
use warploom_core::base::{DType, Format};
use warploom_forward::Forward;
use warploom_llm::tokenizer::EncodeOptions;
use warploom_llm::{Model, Output, Session, StepRequest};
use warploom_models::gguf::{Access, Gguf, TensorInfo, Value, Writer};

use crate::{devices, logits, tell};

const TEXT: &str = "Once upon a time, there was a little dog. One sunny day, he went to the park.";

/// Maximum error of a layer on a device relative to its change: without 8-bit rounding, or if no
/// value came near a midpoint.
const EXACT: f64 = 2e-5;
/// Additional error in units in the last place of the residual stream: the stream is f32, and that
/// of Qwen2.5-Coder-0.5B's first token is 400 times the layer's change, so that ten units, of two
/// norms and their sums, are 2e-4 of it.
const UNITS: f64 = 16.0;
/// The same for the median of all layers and tokens, in both modes: most round nothing differently.
const MIDDLE: f64 = 1e-5;
/// The same if a value rounded to the other step; rounding itself moves more than this.
const OTHER: f64 = 2e-2;
/// Distance to a midpoint, in steps, beyond which no device's arithmetic changes the rounding.
const CLEAR: f64 = 3e-4;

/// A model of one layer of `of`, whose token `i` is embedded as `inputs[i]` `[width]` and whose
/// logits `[width]` are the residual stream after it, normalised.
fn one_layer(of: &Model, layer: usize, inputs: &[Vec<f32>]) -> Arc<Model> {
    let (file, width) = (of.file(), of.config().width);
    assert!(inputs.len() <= width);
    let mut writer = Writer::new();
    let architecture = file.architecture().unwrap().to_owned();
    let counts = format!("{architecture}.block_count");
    let vocabulary = format!("{architecture}.vocab_size");
    for (key, value) in file.metadata() {
        let own = key == "general.architecture" || key.starts_with(&format!("{architecture}."));
        match () {
            () if key == counts => writer.key(key, Value::U32(1)).unwrap(),
            () if key == vocabulary => writer.key(key, Value::U32(width as u32)).unwrap(),
            () if own => writer.key(key, value).unwrap(),
            () => {}
        }
    }
    let names: Vec<String> = (0..width).map(|i| format!("t{i}")).collect();
    writer.key("tokenizer.ggml.model", Value::String("gpt2")).unwrap();
    writer.key("tokenizer.ggml.pre", Value::String("smollm")).unwrap();
    writer.strings("tokenizer.ggml.tokens", names.iter().map(String::as_str)).unwrap();
    writer.strings("tokenizer.ggml.merges", [].into_iter()).unwrap();

    let mut parts: Vec<(String, Vec<u64>, Format, Vec<u8>)> = Vec::new();
    let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let square = vec![width as u64; 2];
    let mut embedding = inputs.concat();
    embedding.resize(width * width, 0.0);
    parts.push(("token_embd.weight".into(), square.clone(), Format::F32, bytes(&embedding)));
    let identity: Vec<f32> =
        (0..width * width).map(|i| f32::from(u8::from(i / width == i % width))).collect();
    parts.push(("output.weight".into(), square, Format::F32, bytes(&identity)));
    let ones = bytes(&vec![1.0; width]);
    parts.push(("output_norm.weight".into(), vec![width as u64], Format::F32, ones));
    let prefix = format!("blk.{layer}.");
    let own = |t: &TensorInfo| t.name().starts_with(&prefix) || t.name().starts_with("rope_");
    for tensor in file.tensors().filter(own) {
        let name = tensor.name().replace(&prefix, "blk.0.");
        let data = file.weights(&tensor).unwrap().into_owned();
        parts.push((name, tensor.shape().to_vec(), tensor.format().unwrap(), data));
    }
    for (name, shape, format, _) in &parts {
        writer.tensor(name, shape, *format).unwrap();
    }
    let mut out = writer.begin(Vec::new()).unwrap();
    parts.iter().for_each(|part| out.write(&part.3).unwrap());
    let name = format!("layer {layer}");
    Model::from_gguf(Gguf::from_bytes(out.finish().unwrap(), &name).unwrap()).unwrap()
}

fn norm(v: &[f64]) -> f64 {
    v.iter().map(|v| v * v).sum::<f64>().sqrt()
}

fn minus(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

/// The result of a layer that changes nothing: the normalised input.
fn unchanged(input: &[f32]) -> Vec<f64> {
    let input: Vec<f64> = input.iter().map(|v| f64::from(*v)).collect();
    let root = norm(&input) / (input.len() as f64).sqrt();
    input.iter().map(|v| v / root).collect()
}

/// The float64 pass, token by token: `[token][width]`, with the smallest distance of a value to a
/// midpoint for each.
fn expected(model: &Model, mode: ComputeMode, count: usize) -> Vec<(Vec<f64>, f64)> {
    let mut forward = Forward::new(model, mode);
    (0..count as u32).map(|token| (forward.run(&[token]), forward.nearest())).collect()
}

/// The same on a device, in one prompt and token by token: `[way][token][width]`.
fn both_ways(
    runtime: &Runtime,
    model: &Arc<Model>,
    mode: ComputeMode,
    count: usize,
) -> [Vec<Vec<f64>>; 2] {
    let builder = Session::builder(model.clone()).runtime(runtime.clone()).context(64);
    let mut session = builder.compute(mode).cache(DType::F32).build().unwrap();
    let tokens: Vec<u32> = (0..count as u32).collect();
    [count, 1].map(|step| {
        session.truncate(0).unwrap();
        let mut rows = Vec::new();
        for run in tokens.chunks(step) {
            let out = session.step(StepRequest::tokens(0, run, Output::AllLogits)).unwrap();
            rows.extend(out.rows().map(|row| row.iter().map(|v| f64::from(*v)).collect()));
        }
        rows
    })
}

/// The error of a device in every layer, token by token, with each distance to a midpoint.
struct Found {
    /// Error relative to the layer's change, the same without the units in the last place, and the
    /// distance to a midpoint in steps.
    shares: Vec<(f64, f64, f64)>,
}

impl Found {
    fn check(&self, mode: ComputeMode, what: &str) {
        let most = |all: &mut dyn Iterator<Item = f64>| all.fold(0.0, f64::max);
        let clear = |s: &&(f64, f64, f64)| mode == ComputeMode::F32 || s.2 >= CLEAR;
        let all = most(&mut self.shares.iter().map(|s| s.0));
        let exact = most(&mut self.shares.iter().filter(clear).map(|s| s.1));
        let mut sorted: Vec<f64> = self.shares.iter().map(|s| s.0).collect();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted[sorted.len() / 2];
        let count = self.shares.iter().filter(clear).count();
        tell(&format!(
            "layers: {what}: the middle one within {middle:.1e} of what a layer changes, {count} \
             without a near tie within {exact:.1e} and {UNITS} units, all {} within {all:.1e}",
            self.shares.len()
        ));
        assert!(middle <= MIDDLE, "{what}: {middle} in the middle");
        assert!(exact <= EXACT, "{what}: {exact} without a near tie");
        assert!(all <= OTHER, "{what}: {all}");
    }
}

#[test]
fn each_layer_by_itself_is_that_of_the_float64_pass() {
    let devices: Vec<_> =
        devices::every(false).into_iter().map(|(label, r)| (label, Arc::new(r))).collect();
    for file in logits::model_files() {
        let model = Model::open(&file, Access::Mmap).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let options = EncodeOptions::default().add_bos(true);
        let tokens = model.tokenizer().encode(TEXT, options).unwrap();
        let inputs = Forward::new(&model, ComputeMode::Int8).inputs(&tokens);
        // The float64 pass of a larger model takes long for each layer.
        let few = model.weight_bytes() >= logits::SMALL && !devices::whole();
        let step = if few { 10 } else { 1 };
        for mode in [ComputeMode::F32, ComputeMode::Int8] {
            let (mut rounding, mut found) = (0.0f64, Vec::new());
            found.resize_with(devices.len(), || Found { shares: Vec::new() });
            for (layer, inputs) in inputs.iter().enumerate().step_by(step) {
                let alone = one_layer(&model, layer, inputs);
                let exact = expected(&alone, ComputeMode::F32, inputs.len());
                let want = expected(&alone, mode, inputs.len());
                let shares = |got: &[f64], want: &[f64], i: usize| {
                    let changes = norm(&minus(&exact[i].0, &unchanged(&inputs[i])));
                    let off = norm(&minus(got, want));
                    let units = UNITS * f64::from(f32::EPSILON) / 2.0 * norm(want);
                    // A NaN must not be lost in a maximum.
                    let share = |v: f64| if v.is_nan() { f64::INFINITY } else { v / changes };
                    (share(off), share(off - off.min(units)))
                };
                for (i, (want, _)) in want.iter().enumerate() {
                    rounding = rounding.max(shares(want, &exact[i].0, i).0);
                }
                for ((_, runtime), found) in devices.iter().zip(&mut found) {
                    // The slowest devices run the first, which differs from all others, and some of
                    // the rest.
                    if layer % devices::sample(runtime.device().profile(), 5) != 0 {
                        continue;
                    }
                    for got in both_ways(runtime, &alone, mode, inputs.len()) {
                        for (i, (got, (want, nearest))) in got.iter().zip(&want).enumerate() {
                            let (share, beyond) = shares(got, want, i);
                            found.shares.push((share, beyond, *nearest));
                        }
                    }
                }
            }
            for ((label, _), found) in devices.iter().zip(&found) {
                found.check(mode, &format!("{name} in {mode} on {label}"));
            }
            if mode == ComputeMode::Int8 {
                tell(&format!("layers: {name}: rounding moves up to {rounding:.1e}"));
                // A device that did not round at all must not pass.
                match logits::rounds(&model) {
                    true => assert!(rounding > 100.0 * MIDDLE, "{rounding}"),
                    false => assert_eq!(rounding, 0.0),
                }
            }
        }
    }
}
