//! Greedy text of models on every device of this machine, as one table: a row for each model and
//! prompt, a column for each device (`--nocapture` shows it).
//!
//! `tests/golden/greedy.json` has the text of a float64 pass over the same weights, with the gap
//! between the two best logits at each token. A device may choose another token only if that gap is
//! at most `TOLERANCE`; it then continues from the recorded token, so that the rest is checked too.
//! `UPDATE_GOLDEN=1` rewrites the file for the models that are present.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use warploom::ComputeMode;
use warploom::runtime::Runtime;
use warploom_forward::Forward;
use warploom_llm::tokenizer::EncodeOptions;
use warploom_llm::{GenerateOptions, Model, Sampling, Session};
use warploom_models::gguf::Access;

use crate::logits::{LOGIT, PROMPTS, best};
use crate::{Need, devices, gguf_files, skip, tell};

/// The models, by the names of their files.
const MODELS: [&str; 3] = [
    "warploom-tiny-llama-Q4_K_M.gguf",
    "warploom-tiny-bitnet-TQ2_0.gguf",
    "SmolLM2-135M-Instruct.Q4_1.gguf",
];
/// Tokens that are written after each prompt.
const TOKENS: usize = 32;
/// The largest gap that leaves the winner open: each of two logits may differ by `LOGIT`.
const TOLERANCE: f64 = 2.0 * LOGIT;
/// Files up to this size are run on slow devices.
const SMALL: u64 = 32 << 20;

/// The record of a file.
#[derive(Deserialize, Serialize)]
struct Recorded {
    /// Of the file's bytes.
    blake3: String,
    rows: Vec<Row>,
}

/// The text of the float64 pass after a prompt.
#[derive(Clone, Deserialize, Serialize)]
struct Row {
    prompt: String,
    tokens: Vec<u32>,
    greedy: Vec<u32>,
    /// Gap of each token to the second best logit.
    gaps: Vec<f64>,
}

/// The records by file name, embedded in the binary, which may run on another machine.
fn golden() -> BTreeMap<String, Recorded> {
    serde_json::from_str(include_str!("../../golden/greedy.json")).unwrap()
}

fn digest(path: &Path) -> String {
    blake3::hash(&std::fs::read(path).unwrap()).to_hex().to_string()
}

fn encode(model: &Model, prompt: &str) -> Vec<u32> {
    let options = EncodeOptions::default().add_bos(true);
    model.tokenizer().encode(prompt, options).unwrap()
}

fn record(path: &Path) -> Recorded {
    let model = Model::open(path, Access::Mmap).unwrap();
    let mut forward = Forward::new(&model, ComputeMode::F32);
    let mut row = |prompt: &str| {
        forward.reset();
        let tokens = encode(&model, prompt);
        let (mut greedy, mut gaps) = (Vec::new(), Vec::new());
        let mut logits = forward.run(&tokens);
        while greedy.len() < TOKENS {
            let (token, gap) = best(&logits);
            greedy.push(token);
            gaps.push((gap * 1e6).round() / 1e6);
            logits = forward.run(&[token]);
        }
        Row { prompt: prompt.into(), tokens, greedy, gaps }
    };
    Recorded { blake3: digest(path), rows: PROMPTS.map(&mut row).into() }
}

/// A different choice of a device: the token position and the gap there.
struct Written {
    others: Vec<(usize, f64)>,
    /// The first token against a clear winner, with both tokens.
    wrong: Option<(usize, [u32; 2])>,
}

/// Generates freely as long as the session agrees with the record.
fn write(session: &mut Session, row: &Row) -> Written {
    let mut found = Written { others: Vec::new(), wrong: None };
    let mut at = 0;
    while at < TOKENS {
        let prompt: Vec<u32> = row.tokens.iter().chain(&row.greedy[..at]).copied().collect();
        let options = GenerateOptions::default()
            .max_tokens(TOKENS - at)
            .sampling(Sampling::default().temperature(0.0))
            .ignore_stop(true);
        session.truncate(0).unwrap();
        let mut go_on = |_: warploom_llm::Event<'_>| ControlFlow::Continue(());
        let written = session.generate_tokens(&prompt, &[], &options, &mut go_on);
        let written = written.unwrap().tokens;
        assert_eq!(written.len(), TOKENS - at, "tokens that were asked for");
        let mut pairs = written.iter().zip(&row.greedy[at..]);
        let Some(equal) = pairs.position(|(is, recorded)| is != recorded) else { break };
        at += equal;
        found.others.push((at, row.gaps[at]));
        // NaN is not a near tie.
        let open = row.gaps[at] <= TOLERANCE;
        if found.wrong.is_none() && !open {
            found.wrong = Some((at, [written[equal], row.greedy[at]]));
        }
        at += 1;
    }
    found
}

/// The words of the table.
fn cell(written: &Written) -> String {
    if written.others.is_empty() {
        return format!("equal, {TOKENS} tokens");
    }
    let one = |(at, gap): &(usize, f64)| {
        format!("differs at token {at}: gap {gap:.6}, tolerance {TOLERANCE}")
    };
    written.others.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn session(runtime: &Runtime, model: &Arc<Model>) -> Session {
    let builder = Session::builder(model.clone()).runtime(runtime.clone()).context(128);
    builder.compute(ComputeMode::F32).build().unwrap()
}

/// The rows of one model: the text of each device after each prompt.
fn rows(
    (name, model): (&str, &Arc<Model>),
    recorded: &[Row],
    runtimes: &[(String, Runtime)],
    wrong: &mut Vec<String>,
) -> Vec<String> {
    let mut lines: Vec<String> =
        recorded.iter().map(|row| format!("| {name} | {:?} |", row.prompt)).collect();
    for (label, runtime) in runtimes {
        // A slow device runs some prompts, the slowest only those of small models.
        let profile = runtime.device().profile();
        let small = model.weight_bytes() < SMALL;
        let step = devices::sample_software(profile, if small { 3 } else { PROMPTS.len() });
        let (runs, begin) = (small || devices::sample(profile, 3) == 1, Instant::now());
        let mut session = runs.then(|| session(runtime, model));
        for (i, (row, line)) in recorded.iter().zip(&mut lines).enumerate() {
            let Some(session) = session.as_mut().filter(|_| i % step == 0) else {
                line.push_str(" not run, too slow |");
                continue;
            };
            let written = write(session, row);
            line.push_str(&format!(" {} |", cell(&written)));
            wrong.extend(written.wrong.map(|(at, [is, recorded])| {
                let (prompt, gap) = (&row.prompt, row.gaps[at]);
                format!(
                    "{name}, {prompt:?}, on {label}: token {at} is {is}, not {recorded}, which \
                     leads by {gap}"
                )
            }));
        }
        if runs {
            tell(&format!("greedy: {name} on {label}: {:.1} s", begin.elapsed().as_secs_f64()));
        }
    }
    lines
}

#[test]
fn greedy_text_is_the_same_on_every_device() {
    let mut golden_rows = golden();
    let files = MODELS.map(|name| (name, gguf_files::find_model(name)));
    if std::env::var("UPDATE_GOLDEN").is_ok_and(|v| v == "1") {
        for (name, path) in &files {
            golden_rows.extend(path.iter().map(|path| (name.to_string(), record(path))));
        }
        let text = serde_json::to_string(&golden_rows).unwrap();
        // A line for each row, so that a change of one shows as one.
        let text = text.replace("{\"prompt\"", "\n{\"prompt\"").replace("]}]}", "]}\n]}");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/greedy.json");
        std::fs::write(path, text + "\n").unwrap();
    }
    let runtimes = devices::every(false);
    let ids: Vec<String> = runtimes.iter().map(|(_, r)| r.device().profile().id()).collect();
    let mut table = vec![
        format!("| model | prompt | {} |", ids.join(" | ")),
        format!("|{}", " --- |".repeat(2 + ids.len())),
    ];
    let mut wrong = Vec::new();
    for (name, path) in &files {
        let Some(path) = path else {
            let why = "skipped, WARPLOOM_TEST_MODELS names no folder with it";
            table.push(format!("| {name} | {why} |"));
            skip(Need::Models, &format!("WARPLOOM_TEST_MODELS names no folder with {name}"));
            continue;
        };
        let recorded = &golden_rows[*name];
        assert_eq!(recorded.blake3, digest(path), "{name} is not the file that was recorded");
        let model = Model::open(path, Access::Mmap).unwrap();
        for row in &recorded.rows {
            assert_eq!(row.tokens, encode(&model, &row.prompt), "{name}: tokens of a prompt");
            assert!(row.greedy.len() == TOKENS && row.gaps.len() == TOKENS, "{name}: a row");
            let clear = row.gaps.iter().filter(|gap| **gap > TOLERANCE).count();
            assert!(2 * clear > TOKENS, "{name}, {:?}: {clear} clear winners", row.prompt);
        }
        table.extend(rows((name, &model), &recorded.rows, &runtimes, &mut wrong));
    }
    tell(&table.join("\n"));
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// A planted fault: another token is an error if the winner is clear, and only reported if it is
/// not.
#[test]
fn another_token_is_wrong_where_the_winner_is_clear() {
    let path = gguf_files::find_model(MODELS[0]).unwrap();
    let model = Model::open(&path, Access::Mmap).unwrap();
    let runtime = Runtime::builder().device("cpu").trusting(true).build().unwrap();
    let mut session = session(&runtime, &model);
    let row = &golden()[MODELS[0]].rows[0];
    for (gap, fails) in [(TOLERANCE, false), (2.0 * TOLERANCE, true), (f64::NAN, true)] {
        let mut other = row.clone();
        (other.greedy[3], other.gaps[3]) = (row.greedy[3] + 1, gap);
        let written = write(&mut session, &other);
        assert_eq!(written.others[0].0, 3, "{}", cell(&written));
        let wrong = written.wrong.filter(|(at, _)| *at == 3);
        let expected = fails.then_some((3, [row.greedy[3], row.greedy[3] + 1]));
        assert_eq!(wrong, expected, "{}", cell(&written));
    }
}
