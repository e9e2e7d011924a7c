//! A seed gives one text, whether the host or the device samples, with or without run-ahead, alone
//! or in a batch.

use std::ops::ControlFlow;
use std::sync::Arc;

use warploom::provider::DeviceKind;
use warploom::runtime::Runtime;
use warploom_core::base::ComputeMode;
use warploom_core::sampling::{Choice, SampleParams, choose};
use warploom_llm::tokenizer::EncodeOptions;
use warploom_llm::{GenerateOptions, Model, Output, Sampler, Sampling, Session, StepRequest};

use crate::plans::embedded;
use crate::{devices, tell};

const CONTEXT: usize = 96;
const PROMPTS: [&str; 4] =
    ["Once upon a time", "Tom", "The little dog ran to the park and saw a big red ball", "A"];

fn session(runtime: &Runtime, model: &Arc<Model>, sequences: usize) -> Session {
    let builder = Session::builder(model.clone()).runtime(runtime.clone()).context(CONTEXT);
    builder.sequences(sequences).compute(ComputeMode::F32).build().unwrap()
}

/// Samples the token after these of a sequence.
fn sample(session: &mut Session, sequence: usize, tokens: &[u32], params: SampleParams) -> u32 {
    let output = Output::Sample(std::slice::from_ref(&params));
    session.step(StepRequest::tokens(sequence, tokens, output)).unwrap().token().unwrap()
}

/// Samples the tokens that follow in the first sequence.
fn sample_ahead(session: &mut Session, params: &[SampleParams]) -> warploom::Result<Vec<u32>> {
    let output = Output::Sample(params);
    session.step(StepRequest::run_ahead(&[0], params.len(), output))?.tokens()
}

/// Different settings, as in requests of a server: the default, hot and unlimited, greedy, narrow.
fn sampling(i: usize) -> Sampling {
    let usual = Sampling::default().seed(41 + i as u64);
    match i {
        0 => usual,
        1 => usual.temperature(1.3).top_k(0).top_p(1.0).min_p(0.0),
        2 => usual.temperature(0.0),
        _ => usual.top_k(300).top_p(0.7).min_p(0.0),
    }
}

fn prompt(model: &Model, i: usize) -> Vec<u32> {
    let options = EncodeOptions::default().add_bos(true);
    model.tokenizer().encode(PROMPTS[i], options).unwrap()
}

/// Whether rounding of logits, which differs from plan to plan, cannot change what is drawn.
fn is_clear(logits: &[f32], draw: &SampleParams, token: u32) -> bool {
    (0..8u32).all(|round| {
        let noise = |id: usize| match (id as u32 ^ round).wrapping_mul(0x9e37_79b1) >> 31 {
            0 => 1e-3,
            _ => -1e-3,
        };
        let moved: Vec<f32> = logits.iter().enumerate().map(|(id, l)| l + noise(id)).collect();
        choose(&moved, draw, &mut Choice::default()) == token
    })
}

/// The host's sample of the logits, as far as it is unambiguous.
fn by_host(session: &mut Session, prompt: &[u32], sampling: &Sampling, count: usize) -> Vec<u32> {
    session.truncate(0).unwrap();
    let mut sampler = Sampler::new(sampling.clone()).unwrap();
    let (mut seen, mut tokens) = (prompt.to_vec(), Vec::new());
    let mut next = prompt.to_vec();
    while tokens.len() < count {
        let logits = session.step(StepRequest::tokens(0, &next, Output::Logits)).unwrap();
        let mut logits = logits.into_logits();
        let token = sampler.sample(&mut logits, &seen).unwrap();
        if !is_clear(&logits, &sampling.params(seen.len()), token) {
            break;
        }
        seen.push(token);
        tokens.push(token);
        next = vec![token];
    }
    tokens
}

/// The device samples: `ahead` tokens in flight after the first, or one at a time.
fn by_device(
    session: &mut Session,
    prompt: &[u32],
    sampling: &Sampling,
    count: usize,
    ahead: usize,
) -> Vec<u32> {
    session.truncate(0).unwrap();
    let mut tokens = vec![sample(session, 0, prompt, sampling.params(prompt.len()))];
    while tokens.len() < count {
        let at = prompt.len() + tokens.len();
        if ahead > 1 {
            let params: Vec<_> = (at..at + ahead).map(|at| sampling.params(at)).collect();
            tokens.extend(sample_ahead(session, &params).unwrap());
        } else {
            let last = [*tokens.last().unwrap()];
            tokens.push(sample(session, 0, &last, sampling.params(at)));
        }
    }
    tokens
}

/// All in a batch, each after its prompt, one run per token.
fn together(session: &mut Session, prompts: &[Vec<u32>], count: usize) -> Vec<Vec<u32>> {
    let mut texts: Vec<Vec<u32>> = Vec::new();
    for (i, prompt) in prompts.iter().enumerate() {
        texts.push(vec![sample(session, i, prompt, sampling(i).params(prompt.len()))]);
    }
    for _ in 1..count {
        let row = |(i, text): (usize, &Vec<u32>)| {
            let params = sampling(i).params(prompts[i].len() + text.len());
            ((i, *text.last().unwrap()), params)
        };
        let (last, params): (Vec<_>, Vec<_>) = texts.iter().enumerate().map(row).unzip();
        let drawn = session.step(StepRequest::batch(&last, Output::Sample(&params))).unwrap();
        let drawn = drawn.tokens().unwrap();
        texts.iter_mut().zip(drawn).for_each(|(text, token)| text.push(token));
    }
    texts
}

#[test]
fn a_seed_gives_one_text_however_it_is_drawn() {
    let model = embedded();
    for (label, runtime) in devices::every(false) {
        let profile = runtime.device().profile();
        // Four more plans.
        if devices::compiles_slowly(&label, &runtime) {
            continue;
        }
        let count = if profile.kind == DeviceKind::Software { 9 } else { 24 };
        let prompts: Vec<Vec<u32>> = (0..PROMPTS.len()).map(|i| prompt(&model, i)).collect();
        let mut one = session(&runtime, &model, 1);
        let mut clear = 0;
        let mut hosts = Vec::new();
        for (i, prompt) in prompts.iter().enumerate() {
            let sampling = sampling(i);
            let want = by_host(&mut one, prompt, &sampling, count);
            for ahead in [1, 4] {
                let have = by_device(&mut one, prompt, &sampling, count, ahead);
                assert_eq!(have[..want.len()], want, "{label}: {i}, {ahead} ahead");
            }
            one.truncate(0).unwrap();
            let options =
                GenerateOptions::default().max_tokens(count).sampling(sampling).ignore_stop(true);
            let mut on_event = |_: warploom_llm::Event<'_>| ControlFlow::Continue(());
            let text = one.generate(PROMPTS[i], &options, &mut on_event).unwrap();
            assert_eq!(text.tokens[..want.len()], want, "{label}: {i}, generated");
            clear += want.len();
            hosts.push(want);
        }
        drop(one);
        let texts = together(&mut session(&runtime, &model, prompts.len()), &prompts, count);
        for (i, (text, want)) in texts.iter().zip(&hosts).enumerate() {
            assert_eq!(text[..want.len()], want[..], "{label}: {i} among others");
        }
        assert!(clear * 2 > count * PROMPTS.len(), "{label}: only {clear} tokens are clear");
        tell(&format!("drawn: {label}: {clear} tokens of {} texts, five ways", PROMPTS.len()));
    }
}

#[test]
fn each_sampled_token_needs_its_parameters() {
    let model = embedded();
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    let mut session = session(&runtime, &model, 2);
    let params = [sampling(0).params(0); CONTEXT];
    let mut refused = |request: StepRequest<'_>, part: &str| {
        let error = session.step(request).unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains(part), "{error}");
    };
    let two = Output::Sample(&params[..2]);
    refused(StepRequest::tokens(0, &[5], two), "2 sampling parameters for 1 tokens");
    let one = Output::Sample(&params[..1]);
    refused(StepRequest::batch(&[(0, 5), (1, 6)], one), "1 sampling parameters for 2 tokens");
    // Nothing goes on from a sequence that has drawn nothing.
    refused(StepRequest::run_ahead(&[0], 1, one), "chose none");
    assert_eq!(session.past(), 0);
    sample(&mut session, 0, &[5], params[0]);
    let error = sample_ahead(&mut session, &params).unwrap_err().to_string();
    assert!(error.contains("do not fit a context of 96 positions"), "{error}");
    assert_eq!(sample_ahead(&mut session, &params[..3]).unwrap().len(), 3);
    // A best token may follow a drawn one, and the other way round.
    session.step(StepRequest::run_ahead(&[0], 2, Output::Greedy)).unwrap();
    sample_ahead(&mut session, &params[..2]).unwrap();
    assert_eq!(session.past(), 8);
}
