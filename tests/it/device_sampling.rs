//! A seed gives one text, whether the host or the device samples, with or without run-ahead, alone
//! or in a batch.

use std::ops::ControlFlow;
use std::sync::Arc;

use warploom::base::ComputeMode;
use warploom::provider::DeviceKind;
use warploom::runtime::Runtime;
use warploom::sampling::{Choice, Draw, choose};
use warploom_llm::tokenizer::EncodeOptions;
use warploom_llm::{GenerateOptions, Model, Sampler, Sampling, Session, SessionOptions, Wanted};

use crate::plans::embedded;
use crate::{devices, tell};

const CONTEXT: usize = 96;
const PROMPTS: [&str; 4] =
    ["Once upon a time", "Tom", "The little dog ran to the park and saw a big red ball", "A"];

fn session(runtime: &Runtime, model: &Arc<Model>, sequences: usize) -> Session {
    let options = SessionOptions {
        context: Some(CONTEXT),
        sequences: Some(sequences),
        compute: Some(ComputeMode::F32),
        ..Default::default()
    };
    Session::new(runtime.clone(), model.clone(), options, &mut |_, _| {}).unwrap()
}

/// Different settings, as in requests of a server: the default, hot and unlimited, greedy, narrow.
fn sampling(i: usize) -> Sampling {
    let usual = Sampling { seed: 41 + i as u64, ..Sampling::default() };
    match i {
        0 => usual,
        1 => Sampling { temperature: 1.3, top_k: 0, top_p: 1.0, min_p: 0.0, ..usual },
        2 => Sampling { temperature: 0.0, ..usual },
        _ => Sampling { top_k: 300, top_p: 0.7, min_p: 0.0, ..usual },
    }
}

fn prompt(model: &Model, i: usize) -> Vec<u32> {
    let options = EncodeOptions { add_bos: true, parse_special: false };
    model.tokenizer().encode(PROMPTS[i], options).unwrap()
}

/// Whether the rounding of logits, which differs between plans, cannot change the sampled token.
fn is_clear(logits: &[f32], draw: &Draw, token: u32) -> bool {
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
        let bytes = session.run_blocking(&next, Wanted::Logits).unwrap();
        let mut logits: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
        let token = sampler.sample(&mut logits, &seen).unwrap();
        if !is_clear(&logits, &sampling.draw(seen.len()), token) {
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
    let draw = sampling.draw(prompt.len());
    let mut tokens = vec![session.draw_sequence_blocking(0, prompt, &draw).unwrap().unwrap()];
    while tokens.len() < count {
        let at = prompt.len() + tokens.len();
        if ahead > 1 {
            let draws: Vec<Draw> = (at..at + ahead).map(|at| sampling.draw(at)).collect();
            tokens.extend(session.draw_ahead_blocking(0, &draws).unwrap());
        } else {
            let last = [*tokens.last().unwrap()];
            let drawn = session.draw_sequence_blocking(0, &last, &sampling.draw(at)).unwrap();
            tokens.push(drawn.unwrap());
        }
    }
    tokens
}

/// All in a batch, each after its prompt, one run per token.
fn together(session: &mut Session, prompts: &[Vec<u32>], count: usize) -> Vec<Vec<u32>> {
    let mut texts: Vec<Vec<u32>> = Vec::new();
    for (i, prompt) in prompts.iter().enumerate() {
        let first = session.draw_sequence_blocking(i, prompt, &sampling(i).draw(prompt.len()));
        texts.push(vec![first.unwrap().unwrap()]);
    }
    for _ in 1..count {
        let row = |(i, text): (usize, &Vec<u32>)| {
            let draw = sampling(i).draw(prompts[i].len() + text.len());
            (i, *text.last().unwrap(), draw)
        };
        let rows: Vec<(usize, u32, Draw)> = texts.iter().enumerate().map(row).collect();
        let drawn = session.draw_each_blocking(&rows).unwrap();
        texts.iter_mut().zip(drawn).for_each(|(text, token)| text.push(token.unwrap()));
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
            let options = GenerateOptions {
                max_tokens: count,
                sampling,
                parse_special: false,
                ignore_stop: true,
            };
            let mut on_event = |_: warploom_llm::Event<'_>| ControlFlow::Continue(());
            let text = one.generate_blocking(PROMPTS[i], &options, &mut on_event).unwrap();
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
fn a_draw_is_required_and_a_row_without_a_token_is_an_error() {
    let model = embedded();
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    let mut session = session(&runtime, &model, 2);
    let error = session.run_blocking(&[5], Wanted::Drawn).unwrap_err();
    assert!(error.is_invalid() && error.to_string().contains("draw_sequence"), "{error}");
    let error = session.run_each_blocking(&[(0, 5), (1, 6)], Wanted::Drawn).unwrap_err();
    assert!(error.is_invalid(), "{error}");
    assert_eq!(session.past(), 0);
    // A sequence without a sampled token cannot continue.
    let draw = sampling(0).draw(0);
    assert!(session.draw_ahead_blocking(0, &[draw]).is_err());
    session.draw_sequence_blocking(0, &[5], &draw).unwrap().unwrap();
    let draws = [draw; CONTEXT];
    let error = session.draw_ahead_blocking(0, &draws).unwrap_err().to_string();
    assert!(error.contains("do not fit a context of 96 positions"), "{error}");
    assert_eq!(session.draw_ahead_blocking(0, &draws[..3]).unwrap().len(), 3);
    // A greedy token may follow a sampled one, and vice versa.
    session.run_ahead_blocking(0, 2).unwrap();
    session.draw_ahead_blocking(0, &draws[..2]).unwrap();
    assert_eq!(session.past(), 8);
}
