//! The fields that requests for chats and completions share: sampling, lengths, stops, streams.

use serde_json::{Value, json};

use super::MAX_ANSWERS;
use crate::ServeOptions;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::logits::LogitEdits;
use warploom_llm::Sampling;

/// Maximum total bytes of the stop strings of a request.
pub(super) const MAX_STOPS: usize = 16 << 10;
/// Maximum number of tokens with a bias.
const MAX_BIASES: usize = 4096;

/// The fields that both kinds of requests have.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) model: Option<String>,
    /// The requested maximum, if given; `Some(None)` means the rest of the context.
    pub(crate) max_tokens: Option<Option<usize>>,
    pub(crate) sampling: Sampling,
    pub(crate) edits: LogitEdits,
    pub(crate) stop: Vec<String>,
    pub(crate) ignore_end: bool,
    /// Number of answers for each prompt.
    pub(crate) n: usize,
    /// Number of most probable tokens to report; `None` reports no log probabilities.
    pub(crate) logprobs: Option<usize>,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
}

pub(super) fn common(fields: &mut Fields, base: &ServeOptions) -> Result<Asked, ApiError> {
    let model = fields.text("model")?;
    let max_tokens = max_tokens(fields)?;
    let stream = fields.flag("stream")?;
    let include_usage = match fields.take("stream_options") {
        None => false,
        Some(_) if !stream => {
            return Err(ApiError::field("stream_options", "is for requests that stream"));
        }
        Some(options) => {
            let mut options = Fields::new(options, "stream_options")?;
            let include_usage = options.flag("include_usage")?;
            options.only("continuous_usage_stats", &[json!(false)])?;
            options.ignore(&["include_obfuscation"]);
            options.end()?;
            include_usage
        }
    };
    let sampling = sampling(fields, base)?;
    let edits = LogitEdits {
        frequency_penalty: fields.number("frequency_penalty", -2.0, 2.0)?.unwrap_or(0.0),
        presence_penalty: fields.number("presence_penalty", -2.0, 2.0)?.unwrap_or(0.0),
        bias: bias(fields.take("logit_bias"))?,
        min_tokens: fields.count("min_tokens", 0)?.unwrap_or(0),
        ends: Vec::new(),
    };
    let n = fields.count_to("n", 1, MAX_ANSWERS)?.unwrap_or(1);
    let ignore_end = fields.flag("ignore_eos")?;
    for (name, fine) in [("store", vec![json!(false)]), ("use_beam_search", vec![json!(false)])] {
        fields.only(name, &fine)?;
    }
    fields.ignore(&[
        "user",
        "metadata",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
    ]);
    let stop = stop("stop", fields.take("stop"))?;
    Ok(Asked {
        model,
        max_tokens,
        sampling,
        edits,
        stop,
        ignore_end,
        n,
        logprobs: None,
        stream,
        include_usage,
    })
}

/// Parses the fields that say how a token is chosen; what is absent is as in `base`.
pub(super) fn sampling(fields: &mut Fields, base: &ServeOptions) -> Result<Sampling, ApiError> {
    let (seed, base) = (base.seed, &base.sampling);
    let mut sampling = base.clone();
    sampling.temperature = fields.number("temperature", 0.0, 2.0)?.unwrap_or(base.temperature);
    sampling.top_p = fields.number("top_p", 0.0, 1.0)?.unwrap_or(base.top_p);
    // For `top_k`, 0 means no limit.
    sampling.top_k = fields.limit("top_k", 0)?.map_or(base.top_k, Option::unwrap_or_default);
    sampling.min_p = fields.number("min_p", 0.0, 1.0)?.unwrap_or(base.min_p);
    let penalty = fields.number("repetition_penalty", 0.01, 100.0)?;
    sampling.repetition_penalty = penalty.unwrap_or(base.repetition_penalty);
    sampling.seed = fields.seed("seed")?.or(seed).unwrap_or_else(another_seed);
    Ok(sampling)
}

impl Asked {
    /// Creates what an interface has that writes one answer, without changes to the logits.
    pub(super) fn one(sampling: Sampling) -> Asked {
        Asked {
            model: None,
            max_tokens: None,
            sampling,
            edits: LogitEdits::default(),
            stop: Vec::new(),
            ignore_end: false,
            n: 1,
            logprobs: None,
            stream: false,
            include_usage: true,
        }
    }
}

fn max_tokens(fields: &mut Fields) -> Result<Option<Option<usize>>, ApiError> {
    match (fields.limit("max_tokens", 1)?, fields.limit("max_completion_tokens", 1)?) {
        (Some(Some(a)), Some(Some(b))) if a != b => {
            let text = format!("is {b}, but max_tokens is {a}");
            Err(ApiError::field("max_completion_tokens", text))
        }
        // Of the two, the one that is a number.
        (a @ Some(Some(_)), _) | (a, None) => Ok(a),
        (_, b) => Ok(b),
    }
}

/// Returns a random seed of 32 bits, like those that the command-line program prints.
fn another_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(()) & 0xffff_ffff
}

/// Parses an object of token ids and biases from -100 to 100.
fn bias(value: Option<Value>) -> Result<Vec<(u32, f32)>, ApiError> {
    let map = match value {
        None => return Ok(Vec::new()),
        Some(Value::Object(map)) if map.len() <= MAX_BIASES => map,
        Some(_) => {
            let text = format!("must be an object of at most {MAX_BIASES} tokens and their biases");
            return Err(ApiError::field("logit_bias", text));
        }
    };
    let each = map.iter().map(|(token, bias)| {
        let number = bias.as_f64().filter(|bias| (-100.0..=100.0).contains(bias));
        match (token.parse(), number) {
            (Ok(token), Some(bias)) => Ok((token, bias as f32)),
            (Ok(_), None) => {
                let text = format!("the bias of {token} must be a number from -100 to 100");
                Err(ApiError::field("logit_bias", text))
            }
            (Err(_), _) => {
                let shown: String = token.chars().take(40).collect();
                Err(ApiError::field("logit_bias", format!("{shown:?} is not the id of a token")))
            }
        }
    });
    each.collect()
}

pub(super) fn stop(name: &str, value: Option<Value>) -> Result<Vec<String>, ApiError> {
    let wrong = || {
        let text = format!(
            "must be a string of at least 1 byte, or a list of them, {MAX_STOPS} bytes together"
        );
        ApiError::field(name, text)
    };
    let list = match value {
        None => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(Value::String(text)) => vec![Value::String(text)],
        Some(_) => return Err(wrong()),
    };
    let mut left = MAX_STOPS;
    let each = list.into_iter().map(|item| match item {
        Value::String(text) if (1..=left).contains(&text.len()) => {
            left -= text.len();
            Ok(text)
        }
        _ => Err(wrong()),
    });
    each.collect()
}
