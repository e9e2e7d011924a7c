//! The same prompt on several devices, token by token, in 32 bits: where the answers differ, and by
//! how much the logits do.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use warploom::{ComputeMode, Error, Result, Runtime};
use warploom_llm::chat::Template;
use warploom_llm::{Model, Output, Session, StepRequest};

use super::{Ask, prompt_tokens};

/// Maximum number of tokens that are compared: the logits of each are kept.
pub const MOST_TOKENS: usize = 64;

/// A token and its logits on two devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Text of the token.
    pub text: String,
    /// Its logit on the first device.
    pub first: f32,
    /// Its logit on the other device.
    pub here: f32,
}

/// The first token that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Its index in the answer.
    pub at: usize,
    /// What the first device chose.
    pub first: Choice,
    /// What the other device chose.
    pub here: Choice,
}

/// The answer of one device.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Id of the device.
    pub device: String,
    /// Name of the device.
    pub name: String,
    /// Texts of the tokens.
    pub tokens: Vec<String>,
    /// Number of tokens at the beginning that are those of the first device.
    pub equal: usize,
    /// The first token that differs; `None` if none does.
    pub difference: Option<Difference>,
    /// Largest difference of a logit up to there.
    pub largest: f32,
    /// Seconds from the prompt to the first token.
    pub first_token: f64,
    /// Tokens per second after it. All logits are read back, so it is slower than an answer.
    pub rate: f64,
}

/// What a device computed, before it is compared.
pub(super) struct Trace {
    device: String,
    name: String,
    /// Tokens, each with the logits that it was chosen by.
    steps: Vec<(u32, Vec<f32>)>,
    first_token: f64,
    rate: f64,
}

/// The devices that answered so far; the first one is what the others are compared with.
#[derive(Default)]
pub struct Comparison {
    first: Option<Trace>,
}

impl Comparison {
    /// Generates the most probable answer on a device, and compares it with that of the first
    /// device. `on` receives the number of tokens, and returns whether to continue.
    ///
    /// # Errors
    /// Errors of the prompt, of loading the model on the device, and of running it.
    pub fn run(
        &mut self,
        model: &Arc<Model>,
        device: &str,
        ask: &Ask,
        on: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<Compared> {
        let trace = trace(model, device, ask, on)?;
        let text = |id: u32| {
            let bytes = model.tokenizer().token_bytes(id)?;
            Ok(String::from_utf8_lossy(bytes).into_owned())
        };
        let compared = compared(self.first.as_ref().unwrap_or(&trace), &trace, &text)?;
        self.first.get_or_insert(trace);
        Ok(compared)
    }
}

fn trace(
    model: &Arc<Model>,
    device: &str,
    ask: &Ask,
    on: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<Trace> {
    let prompt = prompt_tokens(model, Template::of(model).ok().as_ref(), ask)?;
    let limit = ask.max_tokens.clamp(1, MOST_TOKENS);
    let runtime = Runtime::builder().device(device).build()?;
    let profile = runtime.device().profile().clone();
    let mut session = Session::builder(model.clone())
        .runtime(runtime)
        .context((prompt.len() + limit).min(model.config().context))
        .compute(ComputeMode::F32)
        .build()?;
    let begin = Instant::now();
    let mut logits = session.step(StepRequest::tokens(0, &prompt, Output::Logits))?.into_logits();
    let (first_token, first) = (begin.elapsed().as_secs_f64(), Instant::now());
    let mut steps = Vec::new();
    loop {
        let id = most_probable(&logits)
            .ok_or_else(|| Error::device(format!("{device}: the logits have no number")))?;
        steps.push((id, std::mem::take(&mut logits)));
        let ends = model.tokenizer().is_stop(id)
            || steps.len() == limit
            || session.past() == session.context();
        if on(steps.len()).is_break() || ends {
            break;
        }
        logits = session.step(StepRequest::tokens(0, &[id], Output::Logits))?.into_logits();
    }
    let rate = (steps.len() - 1) as f64 / first.elapsed().as_secs_f64().max(1e-9);
    Ok(Trace { device: profile.id(), name: profile.name, steps, first_token, rate })
}

/// Returns the token with the largest logit; of equal ones the first, as devices choose it.
fn most_probable(logits: &[f32]) -> Option<u32> {
    let numbers = logits.iter().enumerate().filter(|(_, logit)| !logit.is_nan());
    let best = numbers.reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map(|(id, _)| id as u32)
}

fn compared(first: &Trace, here: &Trace, text: &dyn Fn(u32) -> Result<String>) -> Result<Compared> {
    let pairs = || first.steps.iter().zip(&here.steps);
    let equal = pairs().take_while(|(a, b)| a.0 == b.0).count();
    let difference = match pairs().nth(equal) {
        None => None,
        Some((a, b)) => {
            let choice = |id: u32| {
                let logit = |row: &[f32]| row.get(id as usize).copied().unwrap_or(f32::NAN);
                Ok(Choice { text: text(id)?, first: logit(&a.1), here: logit(&b.1) })
            };
            let (first, here): (Result<Choice>, Result<Choice>) = (choice(a.0), choice(b.0));
            Some(Difference { at: equal, first: first?, here: here? })
        }
    };
    // Later tokens follow other texts.
    let rows = pairs().take(equal + 1).flat_map(|(a, b)| a.1.iter().zip(&b.1));
    let largest = rows.map(|(a, b)| (a - b).abs()).filter(|d| d.is_finite()).fold(0.0, f32::max);
    let tokens = here.steps.iter().map(|(id, _)| text(*id)).collect::<Result<_>>()?;
    Ok(Compared {
        device: here.device.clone(),
        name: here.name.clone(),
        tokens,
        equal,
        difference,
        largest,
        first_token: here.first_token,
        rate: here.rate,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(device: &str, rows: &[[f32; 3]]) -> Trace {
        let steps = rows.iter().map(|row| (most_probable(row).unwrap(), row.to_vec()));
        let (device, name) = (device.to_owned(), String::new());
        Trace { device, name, steps: steps.collect(), first_token: 0.0, rate: 0.0 }
    }

    #[test]
    fn the_first_token_that_differs_has_both_logits() {
        let text = |id: u32| Ok(["a", "b", "c"][id as usize].to_owned());
        let first = trace("cpu:0", &[[1.0, 3.0, 2.0], [4.0, 5.0, 5.5], [9.0, 0.0, 0.0]]);
        let same = compared(&first, &first, &text).unwrap();
        assert_eq!((same.equal, same.difference, same.largest), (3, None, 0.0));
        assert_eq!(same.tokens, ["b", "c", "a"]);
        let other = trace("webgpu:0", &[[1.0, 3.25, 2.0], [4.0, 5.6, 5.5], [0.0, 9.0, 0.0]]);
        let found = compared(&first, &other, &text).unwrap();
        let want = Difference {
            at: 1,
            first: Choice { text: "c".into(), first: 5.5, here: 5.5 },
            here: Choice { text: "b".into(), first: 5.0, here: 5.6 },
        };
        assert_eq!((found.equal, found.difference), (1, Some(want)));
        // Up to that token: what follows has another text before it.
        assert!((found.largest - 0.6).abs() < 1e-6, "{}", found.largest);
    }

    #[test]
    fn of_equal_logits_the_first_is_chosen_and_nan_never() {
        assert_eq!(most_probable(&[1.0, 2.0, 2.0]), Some(1));
        assert_eq!(most_probable(&[f32::NAN, f32::NEG_INFINITY, -3.0]), Some(2));
        assert_eq!(most_probable(&[f32::NAN]), None);
    }
}
