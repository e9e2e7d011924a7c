//! Real models on every device: logits against a float64 pass over the same weights, and greedy
//! tokens wherever the gap between the two best logits requires equality.

use std::path::PathBuf;
use std::sync::Arc;

use warploom::ComputeMode;
use warploom::runtime::Runtime;
use warploom_core::base::{DType, Format};
use warploom_forward::Forward;
use warploom_llm::tokenizer::EncodeOptions;
use warploom_llm::{Model, Output, Session, StepRequest};
use warploom_models::gguf::Access;

use crate::{Need, devices, gguf_files, skip, tell};

/// Maximum difference of a logit from the float64 pass.
pub(crate) const LOGIT: f64 = 1e-3;
/// Maximum distance of a device from exact results with 8-bit activations, relative to that of the
/// float64 pass with the same rounding: root mean squares over all prompts. A value near the
/// midpoint of two steps rounds differently and moves later values over midpoints in all following
/// layers. A nudged pass moves as much, so the measure is the farthest of `NUDGED` passes; `layers`
/// checks each layer by itself.
const ROUNDING: f64 = 1.5;
/// Passes in which ties of different values round the other way.
const NUDGED: u64 = 3;
/// Tokens generated after each prompt.
const GREEDY: usize = 6;

pub(crate) const PROMPTS: [&str; 5] = [
    "Once upon a time, there was a little",
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "One sunny day, Lily and her dog went to the park. They saw",
    "1, 2, 3, 4,",
];

/// Weights up to this size also run at WebGPU's floor and with all prompts: for larger ones the
/// float64 pass takes up to a second per token.
pub(crate) const SMALL: u64 = 32 << 20;

/// Model files of this machine: always those of `models/`, the others if present.
pub(crate) fn model_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in gguf_files::model_folders() {
        let inside = ["", "tiny-llama", "tiny-bitnet"].map(|name| folder.join(name));
        for folder in inside {
            let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            found.retain(|path| path.extension().is_some_and(|e| e == "gguf"));
            found.sort();
            files.extend(found);
        }
    }
    let name = |path: &PathBuf| path.file_name().map(|n| n.to_owned());
    let mut seen = Vec::new();
    files.retain(|path| {
        let new = !seen.contains(&name(path));
        seen.push(name(path));
        new
    });
    files
}

/// Whether `Int8` rounds anything of a model: only operands of quantised weights.
pub(crate) fn rounds(model: &Model) -> bool {
    model.file().tensors().any(|t| t.format().is_ok_and(Format::is_quantised))
}

/// Index and value of the largest, and how far the second is below it.
pub(crate) fn best(logits: &[f64]) -> (u32, f64) {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    (order[0] as u32, logits[order[0]] - logits[order[1]])
}

fn difference(expected: &[f64], actual: &[f32]) -> f64 {
    assert_eq!(expected.len(), actual.len());
    let each = expected.iter().zip(actual).map(|(e, a)| (e - f64::from(*a)).abs());
    // A NaN must not be lost in a maximum.
    each.fold(0.0, |most, d| if d > most || d.is_nan() { d } else { most })
}

struct Script {
    prompt: Vec<u32>,
    logits: Vec<f64>,
    /// Without rounding.
    exact: Vec<f64>,
    /// With rounding, nudged.
    nudged: Vec<Vec<f64>>,
    /// Greedy tokens of the float64 pass, each with the gap to the second best.
    greedy: Vec<(u32, f64)>,
}

fn scripts(model: &Model, mode: ComputeMode, cache: DType) -> Vec<Script> {
    let mut forward = Forward::new(model, mode);
    if cache == DType::F16 {
        forward = forward.with_f16_cache();
    }
    let mut plain = (mode != ComputeMode::F32).then(|| Forward::new(model, ComputeMode::F32));
    let options = EncodeOptions::default().add_bos(true);
    let one = |text: &&str| {
        forward.reset();
        let prompt = model.tokenizer().encode(text, options).unwrap();
        let logits = forward.run(&prompt);
        let exact = match &mut plain {
            Some(plain) => {
                plain.reset();
                plain.run(&prompt)
            }
            None => logits.clone(),
        };
        let mut greedy = vec![best(&logits)];
        let mut nudged = Vec::new();
        for _ in 1..GREEDY {
            let next = forward.run(&[greedy[greedy.len() - 1].0]);
            greedy.push(best(&next));
        }
        for seed in (1..=NUDGED).filter(|_| mode == ComputeMode::Int8) {
            forward.reset();
            forward.nudged(seed);
            nudged.push(forward.run(&prompt));
        }
        forward.nudged(0);
        Script { prompt, logits, exact, nudged, greedy }
    };
    let all = model.weight_bytes() < SMALL || devices::whole();
    let prompts = if all { &PROMPTS[..] } else { &PROMPTS[1..2] };
    prompts.iter().map(one).collect()
}

/// The error of a device against a script, and that of the script against exact results.
#[derive(Default)]
struct Distances {
    /// Largest difference of a logit.
    most: f64,
    /// Squares of differences from exact numbers: of the device, and of the farthest pass.
    squares: [f64; 2],
    /// Greedy tokens that were compared.
    compared: usize,
}

impl Distances {
    /// 1 if the device is as far from exact results as the farthest pass.
    fn share(&self) -> f64 {
        (self.squares[0] / self.squares[1]).sqrt()
    }
}

/// Sum of squares of differences.
fn squares(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum()
}

/// The logits after these tokens.
fn logits_after(session: &mut Session, tokens: &[u32]) -> Vec<f32> {
    session.step(StepRequest::tokens(0, tokens, Output::Logits)).unwrap().into_logits()
}

/// The best token after this one.
fn best_after(session: &mut Session, token: u32) -> u32 {
    session.step(StepRequest::tokens(0, &[token], Output::Greedy)).unwrap().token().unwrap()
}

/// Runs the prompts on a device; `limit` is half the gap that makes a winner clear.
fn follow(
    runtime: &Runtime,
    model: &Arc<Model>,
    (mode, cache): (ComputeMode, DType),
    limit: f64,
    scripts: &[Script],
) -> Distances {
    let builder = Session::builder(model.clone()).runtime(runtime.clone()).context(128);
    let mut session = builder.compute(mode).cache(cache).build().unwrap();
    let mut found = Distances::default();
    for script in scripts {
        session.truncate(0).unwrap();
        let logits = logits_after(&mut session, &script.prompt);
        let difference = difference(&script.logits, &logits);
        assert!(difference <= limit, "logits differ by {difference}, at most {limit}");
        found.most = found.most.max(difference);
        let logits: Vec<f64> = logits.into_iter().map(f64::from).collect();
        let passes = script.nudged.iter().chain([&script.logits]);
        found.squares[0] += squares(&logits, &script.exact);
        found.squares[1] += passes.map(|p| squares(p, &script.exact)).fold(0.0, f64::max);
        // The device follows the reference's own tokens, so that one near tie does not end it.
        for pair in script.greedy.windows(2) {
            let token = best_after(&mut session, pair[0].0);
            if pair[1].1 > 2.0 * limit {
                assert_eq!(token, pair[1].0, "a gap of {}", pair[1].1);
                found.compared += 1;
            }
        }
    }
    found
}

/// Maximum difference of a logit from the float64 pass: with rounding, twice the effect of
/// rounding.
fn limit(rounds: bool, scripts: &[Script]) -> f64 {
    let moved = |script: &Script| {
        let passes = script
            .nudged
            .iter()
            .chain([&script.logits])
            .flat_map(|pass| pass.iter().zip(&script.exact).map(|(a, b)| (a - b).abs()));
        passes.fold(0.0, f64::max)
    };
    match rounds {
        false => LOGIT,
        true => 2.0 * scripts.iter().map(moved).fold(0.0, f64::max),
    }
}

#[test]
fn logits_and_greedy_tokens_are_those_of_a_float64_pass() {
    for file in model_files() {
        let model = Model::open(&file, Access::Mmap).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let small = model.weight_bytes() < SMALL;
        for mode in [ComputeMode::F32, ComputeMode::Int8] {
            let scripts = scripts(&model, mode, DType::F32);
            // The floor multiplies as any other device does, and one mode shows that.
            let floor = small && mode == ComputeMode::F32;
            let rounds = mode == ComputeMode::Int8 && rounds(&model);
            let limit = limit(rounds, &scripts);
            for (label, runtime) in devices::every(floor) {
                // Minutes for each model, and the small ones run the same kernels.
                if !small && devices::sample(runtime.device().profile(), 2) > 1 {
                    skip(Need::Time, &format!("{name} in {mode} on {label}: too slow"));
                    continue;
                }
                let profile = runtime.device().profile();
                let some = scripts.len().div_ceil(devices::sample_software(profile, 3));
                let scripts = &scripts[..some];
                let found = follow(&runtime, &model, (mode, DType::F32), limit, scripts);
                let (most, compared, share) = (found.most, found.compared, found.share());
                // In some models rounding moves logits too far for a clear winner.
                let least = if rounds { 0 } else { 2 * scripts.len() };
                assert!(compared >= least, "only {compared} tokens had a clear winner");
                assert!(!rounds || share <= ROUNDING, "{name} on {label}: {share} of rounding");
                let rounding = match rounds {
                    true => format!(" of {limit:.1e}, {share:.3} of what rounding moves"),
                    false => String::new(),
                };
                tell(&format!(
                    "logits: {name} in {mode} on {label}: within {most:.1e}{rounding}, {compared} \
                     tokens equal"
                ));
            }
        }
    }
    for name in ["SmolLM2", "Qwen2.5-Coder-0.5B", "tiny-bitnet-TQ1_0"] {
        // The same file with a lowercase name.
        let is =
            |file: &PathBuf| file.to_string_lossy().to_lowercase().contains(&name.to_lowercase());
        if !model_files().iter().any(is) {
            skip(Need::Models, &format!("WARPLOOM_TEST_MODELS names no folder with {name}"));
        }
    }
}

/// Keys and values in f16 on every device, against the pass that rounds only those.
#[test]
fn an_f16_cache_moves_logits_as_rounding_does() {
    let files = model_files();
    let small = files.iter().filter(|file| file.ends_with("warploom-tiny-llama-Q4_K_M.gguf"));
    for file in small {
        let model = Model::open(file, Access::Mmap).unwrap();
        let how = (ComputeMode::F32, DType::F16);
        let (scripts, exact) = (scripts(&model, how.0, how.1), scripts(&model, how.0, DType::F32));
        let pairs = || scripts.iter().zip(&exact).map(|(a, b)| (&a.logits, &b.logits));
        let moved: f64 = pairs().map(|(a, b)| squares(a, b)).sum();
        // A value near the midpoint of two f16 values rounds differently: an error of twice the
        // rounding. A few values, those of the first token, dominate all.
        let each = pairs().flat_map(|(a, b)| a.iter().zip(b).map(|(a, b)| (a - b).abs()));
        let limit = 2.0 * each.fold(0.0, f64::max);
        let count: usize = scripts.iter().map(|script| script.logits.len()).sum();
        let moved = (moved / count as f64).sqrt();
        for (label, runtime) in devices::every(true) {
            let some = devices::sample_software(runtime.device().profile(), 2);
            let scripts = &scripts[..scripts.len() / some];
            let count: usize = scripts.iter().map(|script| script.logits.len()).sum();
            let found = follow(&runtime, &model, how, limit, scripts);
            let off = (found.squares[0] / count as f64).sqrt();
            tell(&format!(
                "logits: a cache of f16 on {label}: within {:.1e} of {limit:.1e}, {} tokens equal, \
                 {off:.1e} from the pass that rounding moves by {moved:.1e}",
                found.most, found.compared
            ));
            // Truncation, or a half-written word, would cause a larger error.
            assert!(off <= 2.0 * moved, "{label}: {off} of {moved}");
            assert!(found.compared >= 2 * scripts.len(), "only {} tokens", found.compared);
        }
    }
}

/// A file, the golden file with llama.cpp's results, the file that they come from, and their
/// maximum difference from ours: it rounds activations to f16, or differently in some kernels.
/// Ternary weights are equal in both files.
const GOLDEN: [(&str, &str, &str, f64); 2] = [
    ("warploom-tiny-llama-F16.gguf", "golden.json", "warploom-tiny-llama-F16.gguf", 0.02),
    (
        "warploom-tiny-bitnet-TQ2_0.gguf",
        "golden-bitnet.json",
        "warploom-tiny-bitnet-F16.gguf",
        0.02,
    ),
];

/// Top ten logits, and greedy ids with their gaps, by llama.cpp in f16.
#[test]
fn models_agree_with_their_golden_files() {
    for (name, golden, of, tolerance) in GOLDEN {
        let Some(file) = model_files().into_iter().find(|f| f.ends_with(name)) else {
            skip(Need::Models, &format!("{name} is not here"));
            continue;
        };
        let golden = std::fs::read_to_string(file.with_file_name(golden)).unwrap();
        let golden: serde_json::Value = serde_json::from_str(&golden).unwrap();
        let prompts = golden["models"][of]["prompts"].as_array().unwrap();
        let model = Model::open(&file, Access::Copy).unwrap();
        for (label, runtime) in devices::every(false) {
            let step = devices::sample_software(runtime.device().profile(), 4);
            let prompts: Vec<_> = prompts.iter().step_by(step).collect();
            let most = agrees(runtime, &model, &prompts, tolerance, &label);
            let count = prompts.len();
            tell(&format!("golden: {name} on {label}: {count} prompts agree, within {most:.1e}"));
        }
    }
}

/// Largest difference of a logit from llama.cpp's.
fn agrees(
    runtime: Runtime,
    model: &Arc<Model>,
    prompts: &[&serde_json::Value],
    tolerance: f64,
    label: &str,
) -> f64 {
    let ids = |value: &serde_json::Value| -> Vec<u32> {
        value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect()
    };
    let builder = Session::builder(model.clone()).runtime(runtime);
    let mut session = builder.compute(ComputeMode::F32).build().unwrap();
    let mut most = 0.0f64;
    for prompt in prompts {
        session.truncate(0).unwrap();
        let logits = logits_after(&mut session, &ids(&prompt["tokens"]));
        for pair in prompt["top10"].as_array().unwrap() {
            let (id, value) = (pair[0].as_u64().unwrap() as usize, pair[1].as_f64().unwrap());
            let difference = (f64::from(logits[id]) - value).abs();
            assert!(difference <= tolerance, "{label}: logit {id} is {} not {value}", logits[id]);
            most = most.max(difference);
        }
        let greedy = ids(&prompt["greedy"]);
        let gaps = prompt["greedy_top1_minus_top2"].as_array().unwrap();
        for (at, pair) in greedy.windows(2).enumerate().take(24) {
            let token = best_after(&mut session, pair[0]);
            if gaps[at + 1].as_f64().unwrap() > tolerance {
                assert_eq!(token, pair[1], "{label}: greedy token {}", at + 1);
            }
        }
    }
    most
}
