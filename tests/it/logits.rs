//! Real models on every device: logits against a float64 pass over the same weights, greedy
//! tokens wherever the gap between the two best logits says that they must agree.

use std::path::PathBuf;
use std::sync::Arc;

use warploom::gguf::Access;
use warploom::llm::tokenizer::EncodeOptions;
use warploom::llm::{Model, Session, SessionOptions, Wanted};
use warploom::runtime::Runtime;

use crate::devices;
use crate::forward::Forward;
use crate::tell;

/// Most that a logit may differ from the float64 pass.
const LOGIT: f64 = 1e-3;
/// Tokens that are written after each prompt.
const GREEDY: usize = 6;

const PROMPTS: [&str; 5] = [
    "Once upon a time, there was a little",
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "One sunny day, Lily and her dog went to the park. They saw",
    "1, 2, 3, 4,",
];

/// Model files of this machine: the embedded one always, the others where they are.
pub(crate) fn model_files() -> Vec<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut files = vec![root.join("models/warploom-tiny-llama-Q4_K_M.gguf")];
    let folders = [
        Some(root.join("../shared/models/tiny-llama")),
        std::env::var_os("WARPLOOM_TEST_MODELS").map(PathBuf::from),
    ];
    for folder in folders.into_iter().flatten() {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        found.retain(|path| path.extension().is_some_and(|e| e == "gguf"));
        found.sort();
        files.extend(found);
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

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Index and value of the largest, and how far the second is below it.
fn best(logits: &[f64]) -> (u32, f64) {
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
    /// Greedy tokens of the float64 pass, each with the gap to the second best.
    greedy: Vec<(u32, f64)>,
}

fn scripts(model: &Model) -> Vec<Script> {
    let mut forward = Forward::new(model);
    let options = EncodeOptions { add_bos: true, parse_special: false };
    let one = |text: &&str| {
        forward.reset();
        let prompt = model.tokenizer().encode(text, options).unwrap();
        let logits = forward.run(&prompt);
        let mut greedy = vec![best(&logits)];
        for _ in 1..GREEDY {
            let next = forward.run(&[greedy[greedy.len() - 1].0]);
            greedy.push(best(&next));
        }
        Script { prompt, logits, greedy }
    };
    PROMPTS.iter().map(one).collect()
}

/// Largest difference of a logit on this device, and how many greedy tokens were compared.
fn follow(runtime: &Arc<Runtime>, model: &Arc<Model>, scripts: &[Script]) -> (f64, usize) {
    let options = SessionOptions { context: Some(128) };
    let mut session =
        Session::new(runtime.clone(), model.clone(), options, &mut |_, _| {}).unwrap();
    let (mut most, mut compared) = (0.0f64, 0);
    for script in scripts {
        session.truncate(0).unwrap();
        let logits = session.run_blocking(&script.prompt, Wanted::Logits).unwrap();
        let difference = difference(&script.logits, &floats(&logits));
        assert!(difference <= LOGIT, "logits differ by {difference}");
        most = most.max(difference);
        // The device follows the reference's own tokens, so that one near tie does not end it.
        for pair in script.greedy.windows(2) {
            let token = session.run_blocking(&[pair[0].0], Wanted::Token).unwrap();
            let token = u32::from_le_bytes(token.try_into().unwrap());
            if pair[1].1 > 2.0 * LOGIT {
                assert_eq!(token, pair[1].0, "a gap of {}", pair[1].1);
                compared += 1;
            }
        }
    }
    (most, compared)
}

#[test]
fn logits_and_greedy_tokens_are_those_of_a_float64_pass() {
    for file in model_files() {
        let model = Model::open(&file, Access::Mmap).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let scripts = scripts(&model);
        let small = model.weight_bytes() < 32 << 20;
        for (label, runtime) in devices::every(small) {
            let (most, compared) = follow(&Arc::new(runtime), &model, &scripts);
            assert!(compared >= 10, "only {compared} tokens had a clear winner");
            tell(&format!("logits: {name} on {label}: within {most:.1e}, {compared} tokens equal"));
        }
    }
    if model_files().iter().all(|f| !f.to_string_lossy().contains("SmolLM2")) {
        tell("logits: SmolLM2 skipped, WARPLOOM_TEST_MODELS names no folder that holds it");
    }
}

/// Top ten logits, and greedy ids with their gaps, as llama.cpp gave them for the F16 file.
#[test]
fn the_f16_model_agrees_with_its_golden_file() {
    let name = "warploom-tiny-llama-F16.gguf";
    let Some(file) = model_files().into_iter().find(|f| f.ends_with(name)) else {
        tell(&format!("golden: {name} skipped, it is not here"));
        return;
    };
    let golden = std::fs::read_to_string(file.with_file_name("golden.json")).unwrap();
    let golden: serde_json::Value = serde_json::from_str(&golden).unwrap();
    let prompts = golden["models"][name]["prompts"].as_array().unwrap();
    let model = Model::open(&file, Access::Copy).unwrap();
    let ids = |value: &serde_json::Value| -> Vec<u32> {
        value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect()
    };
    for (label, runtime) in devices::every(false) {
        let options = SessionOptions::default();
        let mut session =
            Session::new(Arc::new(runtime), model.clone(), options, &mut |_, _| {}).unwrap();
        for prompt in prompts {
            session.truncate(0).unwrap();
            let logits =
                floats(&session.run_blocking(&ids(&prompt["tokens"]), Wanted::Logits).unwrap());
            for pair in prompt["top10"].as_array().unwrap() {
                let (id, value) = (pair[0].as_u64().unwrap() as usize, pair[1].as_f64().unwrap());
                let difference = (f64::from(logits[id]) - value).abs();
                assert!(difference <= 0.02, "{label}: logit {id} is {} not {value}", logits[id]);
            }
            let greedy = ids(&prompt["greedy"]);
            let gaps = prompt["greedy_top1_minus_top2"].as_array().unwrap();
            for (at, pair) in greedy.windows(2).enumerate().take(24) {
                let token = session.run_blocking(&[pair[0]], Wanted::Token).unwrap();
                let token = u32::from_le_bytes(token.try_into().unwrap());
                if gaps[at + 1].as_f64().unwrap() > 0.02 {
                    assert_eq!(token, pair[1], "{label}: greedy token {}", at + 1);
                }
            }
        }
        tell(&format!("golden: {name} on {label}: {} prompts agree", prompts.len()));
    }
}
