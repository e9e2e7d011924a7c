//! Models with logits that are not finite: an error that names position and logit, for every way to
//! choose tokens, and only for the affected sequence. CPU drivers are skipped with a message.

use std::ops::ControlFlow;
use std::sync::Arc;

use warploom::provider::DeviceKind;
use warploom::runtime::Runtime;
use warploom_core::base::{ComputeMode, DType, Format};
use warploom_core::sampling::{NoToken, SampleParams};
use warploom_llm::{Event, Finish, GenerateOptions, Model, Output, Sampling, Session, StepRequest};
use warploom_models::gguf::Gguf;

use crate::gguf_writer::{Meta, Writer, type_number};
use crate::{devices, tell};

/// Tokens, each a letter, and as many columns.
const TOKENS: usize = 64;
/// The letter of token 0.
const FIRST: u8 = b'!';
const CONTEXT: usize = 48;

/// The fault in the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    None,
    /// The logit of this token is NaN for any text.
    Logit(u32),
    /// The logit of this token is infinite after the token before it, and NaN after others.
    Infinite(u32),
    /// The embedding of this token is NaN, and so is everything that sees it.
    Embedding(u32),
}

/// A model of one layer that counts: after token `i` the best is `i + 1` by far. Its layer adds
/// nothing, but propagates values that are not finite.
pub(crate) fn counting(format: Format, fault: Fault) -> Arc<Model> {
    let keys = [
        ("general.architecture", Meta::Str("llama".into())),
        ("llama.block_count", Meta::U32(1)),
        ("llama.context_length", Meta::U32(CONTEXT as u32)),
        ("llama.embedding_length", Meta::U32(TOKENS as u32)),
        ("llama.feed_forward_length", Meta::U32(96)),
        ("llama.attention.head_count", Meta::U32(4)),
        ("llama.attention.head_count_kv", Meta::U32(2)),
        ("llama.attention.layer_norm_rms_epsilon", Meta::F32(1e-5)),
        ("tokenizer.ggml.model", Meta::Str("gpt2".into())),
        ("tokenizer.ggml.pre", Meta::Str("smollm".into())),
        ("tokenizer.ggml.add_bos_token", Meta::Bool(false)),
        (
            "tokenizer.ggml.tokens",
            Meta::strings((0..TOKENS as u8).map(|i| char::from(FIRST + i).to_string())),
        ),
        ("tokenizer.ggml.merges", Meta::strings([""; 0])),
    ];
    let (n, f32) = (TOKENS as u64, Format::F32);
    let tensors = [
        ("token_embd.weight", vec![n, n], format),
        ("output.weight", vec![n, n], format),
        ("output_norm.weight", vec![n], f32),
        ("blk.0.attn_norm.weight", vec![n], f32),
        ("blk.0.attn_q.weight", vec![n, n], format),
        ("blk.0.attn_k.weight", vec![32, n], format),
        ("blk.0.attn_v.weight", vec![32, n], format),
        ("blk.0.attn_output.weight", vec![n, n], format),
        ("blk.0.ffn_norm.weight", vec![n], f32),
        ("blk.0.ffn_gate.weight", vec![96, n], format),
        ("blk.0.ffn_up.weight", vec![96, n], format),
        ("blk.0.ffn_down.weight", vec![n, 96], format),
    ];
    let file = keys.into_iter().fold(Writer::new(), |w, (key, value)| w.key(key, value));
    let file = tensors.iter().fold(file, |file, (name, shape, format)| {
        let values = values(name, shape);
        let mut data = warploom_core::quant::encode(*format, &values).unwrap();
        let at = |row: u32, column: u32| (row * TOKENS as u32 + column) as usize;
        match (*name, fault) {
            ("output.weight", Fault::Logit(token)) => {
                spoil(&mut data, *format, at(token, token + 7), f32::NAN);
            }
            ("output.weight", Fault::Infinite(token)) => {
                spoil(&mut data, *format, at(token, token - 1), f32::INFINITY);
            }
            ("token_embd.weight", Fault::Embedding(token)) => {
                spoil(&mut data, *format, at(token, token), f32::NAN);
            }
            _ => {}
        }
        file.raw_tensor(name, shape, type_number(*format), data)
    });
    Model::from_gguf(Gguf::from_bytes(file.write().bytes, "counting").unwrap()).unwrap()
}

fn values(name: &str, shape: &[u64]) -> Vec<f32> {
    let count = shape.iter().product::<u64>() as usize;
    let ones = |is: &dyn Fn(usize, usize) -> bool, one: f32| {
        (0..count).map(|i| if is(i / TOKENS, i % TOKENS) { one } else { 0.0 }).collect()
    };
    match name {
        "token_embd.weight" => ones(&|row, column| row == column, 1.0),
        "output.weight" => ones(&|row, column| row == (column + 1) % TOKENS, 3.0),
        _ if shape.len() == 1 => vec![1.0; count],
        _ => vec![0.0; count],
    }
}

/// Puts a number that is not finite at an element: in packed formats as the factor of its block.
fn spoil(data: &mut [u8], format: Format, at: usize, value: f32) {
    match format {
        Format::F32 => data[4 * at..][..4].copy_from_slice(&value.to_le_bytes()),
        Format::Q8_0 => {
            let factor = half::f16::from_f32(value).to_le_bytes();
            data[34 * (at / 32)..][..2].copy_from_slice(&factor);
        }
        other => panic!("no fault of {other} is known here"),
    }
}

/// The best token; the one that min-p keeps; the same, chosen by the host because of a penalty.
pub(crate) fn samplings() -> [(&'static str, Sampling); 3] {
    let drawn = Sampling::default().min_p(0.5).temperature(1.0);
    let penalised = drawn.clone().repetition_penalty(1.01);
    [("greedy", Sampling::greedy()), ("drawn", drawn), ("by the host", penalised)]
}

fn session(
    runtime: &Runtime,
    model: &Arc<Model>,
    sequences: usize,
    compute: ComputeMode,
    deterministic: bool,
) -> Session {
    let cache = if compute == ComputeMode::F32 { DType::F32 } else { DType::F16 };
    let builder = Session::builder(model.clone()).runtime(runtime.clone()).sequences(sequences);
    builder.compute(compute).cache(cache).deterministic(deterministic).build().unwrap()
}

type Chosen = Result<u32, NoToken>;

/// What follows each of these.
fn each(session: &mut Session, tokens: &[(usize, u32)], output: Output<'_>) -> Vec<Chosen> {
    let out = session.step(StepRequest::batch(tokens, output)).unwrap();
    out.next_tokens().iter().map(|next| next.token).collect()
}

/// What follows these of one sequence.
fn one(session: &mut Session, sequence: usize, tokens: &[u32], output: Output<'_>) -> Chosen {
    let out = session.step(StepRequest::tokens(sequence, tokens, output)).unwrap();
    out.next_tokens()[0].token
}

fn ahead(
    session: &mut Session,
    sequences: &[usize],
    count: usize,
    output: Output<'_>,
) -> warploom::Result<Vec<u32>> {
    session.step(StepRequest::run_ahead(sequences, count, output))?.tokens()
}

/// The text after these tokens, and how it ends or why not.
fn generate(
    session: &mut Session,
    prompt: &[u32],
    sampling: &Sampling,
) -> (String, Result<Finish, String>) {
    session.truncate(0).unwrap();
    let options =
        GenerateOptions::default().max_tokens(12).sampling(sampling.clone()).ignore_stop(true);
    let mut text = String::new();
    let mut show = |event: Event<'_>| {
        if let Event::Text(more) = event {
            text.push_str(more);
        }
        ControlFlow::Continue(())
    };
    let done = session.generate_tokens(prompt, &[], &options, &mut show);
    (text, done.map(|done| done.finish).map_err(|e| e.to_string()))
}

fn letters(tokens: std::ops::Range<u32>) -> String {
    tokens.map(|token| char::from(FIRST + token as u8)).collect()
}

/// Formats and modes: one mode quantises activations of packed weights to 8 bits.
fn kinds(kind: DeviceKind) -> Vec<(Format, ComputeMode, bool)> {
    let all = vec![
        (Format::Q8_0, ComputeMode::Int8, false),
        (Format::F32, ComputeMode::F32, false),
        (Format::Q8_0, ComputeMode::F32, true),
    ];
    let few = if kind == DeviceKind::Software { 2 } else { 3 };
    all.into_iter().take(if devices::whole() { 3 } else { few }).collect()
}

/// Whether these tests skip a device, with a message. Each model compiles its own kernels, for
/// which CPU drivers take minutes; the conformance cases of `Op::Greedy` run on them.
pub(crate) fn is_left_out(label: &str, runtime: &Runtime) -> bool {
    let is_slow = runtime.device().profile().kind == DeviceKind::Software && !devices::whole();
    if is_slow {
        crate::skip(
            crate::Need::Time,
            &format!("{label} compiles too slowly: WARPLOOM_TEST_ALL=1 runs it"),
        );
    }
    is_slow
}

#[test]
fn generation_ends_with_an_error_that_names_position_and_logit() {
    for (label, runtime) in devices::every(false) {
        if is_left_out(&label, &runtime) {
            continue;
        }
        let mut count = 0;
        for (format, compute, deterministic) in kinds(runtime.device().profile().kind) {
            for fault in [Fault::None, Fault::Logit(5), Fault::Infinite(4), Fault::Embedding(9)] {
                let model = counting(format, fault);
                let mut session = session(&runtime, &model, 1, compute, deterministic);
                for (way, sampling) in samplings() {
                    let what = format!("{label}: {format} {compute} {fault:?} {way}");
                    let (text, done) = generate(&mut session, &[1, 2, 3], &sampling);
                    let (want, parts): (String, &[&str]) = match fault {
                        Fault::None => (letters(4..16), &[]),
                        Fault::Logit(_) => (String::new(), &["position 3:", " 5 is NaN"]),
                        Fault::Infinite(_) => (String::new(), &["position 3:", " 4 is "]),
                        // 4 to 9 are at positions 3 to 8.
                        Fault::Embedding(_) => (letters(4..10), &["position 9:", " 0 is NaN"]),
                    };
                    assert_eq!(text, want, "{what}: {done:?}");
                    match done {
                        Ok(finish) => assert!(parts.is_empty(), "{what}: {finish:?}"),
                        Err(error) => {
                            assert!(!parts.is_empty(), "{what}: {error}");
                            let all = parts.iter().all(|part| error.contains(part));
                            assert!(all, "{what}: {error}");
                        }
                    }
                    count += 1;
                }
            }
        }
        tell(&format!("finite: {label}: {count} texts, of which three in four end with an error"));
    }
}

#[test]
fn runs_ahead_end_with_the_error_and_leave_the_cache_as_it_was() {
    let params: Vec<SampleParams> = (0..10).map(|at| Sampling::greedy().params(at)).collect();
    for (label, runtime) in devices::every(false) {
        if is_left_out(&label, &runtime) {
            continue;
        }
        let (format, compute, deterministic) = kinds(runtime.device().profile().kind)[0];
        let model = counting(format, Fault::Embedding(9));
        let mut session = session(&runtime, &model, 1, compute, deterministic);
        let fails = |error: warploom::Error, position: &str| {
            let text = error.to_string();
            assert!(error.is_invalid() && text.contains(position), "{label}: {text}");
            assert!(text.contains("logit 0 is NaN or plus infinity"), "{label}: {text}");
        };
        for count in [4, 10] {
            session.truncate(0).unwrap();
            assert_eq!(one(&mut session, 0, &[4, 5], Output::Greedy), Ok(6), "{label}");
            let first = ahead(&mut session, &[0], 3, Output::Greedy).unwrap();
            assert_eq!(first, [7, 8, 9], "{label}");
            // The next run reads 9; those behind it read a word that is no token.
            fails(ahead(&mut session, &[0], count, Output::Greedy).unwrap_err(), "position 6:");
            assert_eq!(session.past(), 5, "{label}");
            assert!(ahead(&mut session, &[0], 1, Output::Greedy).is_err(), "nothing goes on");
            session.truncate(0).unwrap();
            one(&mut session, 0, &[6], Output::Sample(&params[..1])).unwrap();
            let output = Output::Sample(&params[..count]);
            fails(ahead(&mut session, &[0], count, output).unwrap_err(), "position 4:");
            assert_eq!(session.past(), 1, "{label}");
        }
        // What was run behind the fault is in the cache, and is not seen any more.
        session.truncate(0).unwrap();
        assert_eq!(one(&mut session, 0, &[20], Output::Greedy), Ok(21), "{label}");
        let more = ahead(&mut session, &[0], 12, Output::Greedy).unwrap();
        assert_eq!(more, Vec::from_iter(22..34), "{label}");
        // A step without a token is done: reading its token is the error.
        let out = session.step(StepRequest::tokens(0, &[9, 10], Output::Greedy)).unwrap();
        fails(out.token().unwrap_err(), "position 15:");
        assert_eq!(session.past(), 15, "{label}");
        assert!(ahead(&mut session, &[0], 1, Output::Greedy).is_err(), "{label}");
        session.truncate(13).unwrap();
        let none = Err(NoToken::NotFinite(0));
        assert_eq!(one(&mut session, 0, &[9], Output::Greedy), none, "{label}");
        assert!(ahead(&mut session, &[0], 1, Output::Greedy).is_err(), "{label}");
    }
}

#[test]
fn a_sequence_that_fails_leaves_the_others_right() {
    for (label, runtime) in devices::every(false) {
        if is_left_out(&label, &runtime) {
            continue;
        }
        for (format, compute, deterministic) in kinds(runtime.device().profile().kind) {
            let model = counting(format, Fault::Embedding(9));
            let mut all = session(&runtime, &model, 3, compute, deterministic);
            let begin = |all: &mut Session, prompts: [&[u32]; 3]| {
                for (sequence, prompt) in prompts.into_iter().enumerate() {
                    all.truncate_sequence(sequence, 0).unwrap();
                    let request = StepRequest::tokens(sequence, prompt, Output::Nothing);
                    all.step(request).unwrap();
                }
            };
            let none = Err(NoToken::NotFinite(0));
            // The fault of the second one stays in the cache from the first round to the second.
            for round in 0..2 {
                let what = format!("{label}: {format} {compute}, round {round}");
                begin(&mut all, [&[1], &[7, 8], &[30, 31, 32, 33, 34]]);
                let best = each(&mut all, &[(0, 2), (1, 9), (2, 35)], Output::Greedy);
                assert_eq!(best, [Ok(3), none, Ok(36)], "{what}");
                let params = [Sampling::greedy().params(9); 3];
                let tokens = [(2, 36), (1, 12), (0, 3)];
                let drawn = each(&mut all, &tokens, Output::Sample(&params));
                assert_eq!(drawn, [Ok(37), none, Ok(4)], "{what}");
                // Read as tokens, the output names the sequence that has none.
                let request = StepRequest::batch(&[(2, 37), (1, 3)], Output::Greedy);
                let text = all.step(request).unwrap().tokens().unwrap_err().to_string();
                assert!(text.contains("sequence 1") && text.contains("position 5:"), "{text}");
                assert_eq!([0, 1, 2].map(|i| all.past_of(i)), [3, 5, 8], "{what}");
                all.truncate_sequence(2, 7).unwrap();
                // In the place of what failed another text is as it should be.
                all.truncate_sequence(1, 0).unwrap();
                assert_eq!(one(&mut all, 1, &[50], Output::Greedy), Ok(51), "{what}");
                let best = each(&mut all, &[(1, 51), (0, 4), (2, 37)], Output::Greedy);
                assert_eq!(best, [Ok(52), Ok(5), Ok(38)], "{what}");
                let more = ahead(&mut all, &[0, 1], 3, Output::Greedy).unwrap();
                assert_eq!(more, [6, 53, 7, 54, 8, 55], "{what}");
                // 9 follows 8, and with it the first one fails.
                let error = ahead(&mut all, &[1, 0], 6, Output::Greedy).unwrap_err().to_string();
                assert!(error.contains("sequence 0") && error.contains("position 9:"), "{error}");
                assert_eq!([0, 1].map(|i| all.past_of(i)), [7, 5], "{what}");
            }
        }
        tell(&format!("finite: {label}: batches fail one by one"));
    }
}
