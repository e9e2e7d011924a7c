//! Parses the JSON of requests.

use serde_json::{Value, json};

use super::ServeOptions;
use super::error::ApiError;
use super::fields::Fields;
use super::message::message;
use warploom_llm::Sampling;
use warploom_llm::chat::Message;

/// Maximum total bytes of the stop strings of a request.
const MAX_STOPS: usize = 16 << 10;
/// Default maximum tokens of a completion, as in the OpenAI API.
const COMPLETION_TOKENS: usize = 16;

/// The fields that both kinds of requests have.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Asked {
    pub(super) model: Option<String>,
    /// The requested maximum, if given; `Some(None)` means the rest of the context.
    pub(super) max_tokens: Option<Option<usize>>,
    pub(super) sampling: Sampling,
    pub(super) stop: Vec<String>,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
}

/// The prompt of a completion.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Text {
    Text(String),
    Tokens(Vec<u32>),
}

/// Parses a body as a JSON object.
///
/// # Errors
/// 400 if the body is not an object, with line and column if it is not JSON.
fn object(body: &[u8]) -> Result<Fields, ApiError> {
    // Some clients write a byte order mark, which a reader may ignore.
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| ApiError::new(400, format!("the body is no JSON: {error}")))?;
    Fields::new(value, "")
}

/// Parses the body of a request for `/v1/chat/completions`.
///
/// # Errors
/// 400, naming the field that is not valid.
pub(super) fn chat(body: &[u8], base: &ServeOptions) -> Result<(Vec<Message>, Asked), ApiError> {
    let mut fields = object(body)?;
    let messages = match fields.take("messages") {
        Some(Value::Array(list)) if !list.is_empty() => {
            let messages = list.into_iter().enumerate();
            messages.map(|(index, value)| message(index, value)).collect::<Result<_, _>>()?
        }
        _ => return Err(ApiError::field("messages", "must be a list with at least one message")),
    };
    let asked = common(&mut fields, base)?;
    for (name, fine) in [
        ("logprobs", vec![json!(false)]),
        ("top_logprobs", vec![json!(0)]),
        ("tools", vec![json!([])]),
        ("tool_choice", vec![json!("none"), json!("auto")]),
        ("functions", vec![json!([])]),
        ("function_call", vec![json!("none"), json!("auto")]),
        ("response_format", vec![json!({ "type": "text" })]),
        ("modalities", vec![json!(["text"])]),
        ("audio", vec![]),
        ("prediction", vec![]),
        ("web_search_options", vec![]),
        ("reasoning_effort", vec![json!("medium")]),
        ("verbosity", vec![json!("medium")]),
    ] {
        fields.only(name, &fine)?;
    }
    fields.ignore(&["parallel_tool_calls"]);
    fields.end()?;
    Ok((messages, asked))
}

/// Parses the body of a request for `/v1/completions`.
///
/// # Errors
/// 400, naming the field that is not valid.
pub(super) fn completion(body: &[u8], base: &ServeOptions) -> Result<(Text, Asked), ApiError> {
    let mut fields = object(body)?;
    let prompt = prompt(fields.take("prompt"))?;
    let mut asked = common(&mut fields, base)?;
    asked.max_tokens = asked.max_tokens.or(Some(Some(COMPLETION_TOKENS)));
    for (name, fine) in [
        ("logprobs", vec![]),
        ("echo", vec![json!(false)]),
        ("suffix", vec![json!("")]),
        ("best_of", vec![json!(1)]),
    ] {
        fields.only(name, &fine)?;
    }
    fields.end()?;
    Ok((prompt, asked))
}

fn common(fields: &mut Fields, base: &ServeOptions) -> Result<Asked, ApiError> {
    let model = fields.text("model")?;
    let max_tokens =
        match (fields.limit("max_tokens", 1)?, fields.limit("max_completion_tokens", 1)?) {
            (Some(Some(a)), Some(Some(b))) if a != b => {
                let text = format!("is {b}, but max_tokens is {a}");
                return Err(ApiError::field("max_completion_tokens", text));
            }
            // Of the two, the one that is a number.
            (a @ Some(Some(_)), _) | (a, None) => a,
            (_, b) => b,
        };
    let stream = fields.flag("stream")?;
    let include_usage = match fields.take("stream_options") {
        None => false,
        Some(_) if !stream => {
            return Err(ApiError::field("stream_options", "is for requests that stream"));
        }
        Some(options) => {
            let mut options = Fields::new(options, "stream_options")?;
            let include_usage = options.flag("include_usage")?;
            options.ignore(&["include_obfuscation"]);
            options.end()?;
            include_usage
        }
    };
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
    for (name, fine) in [
        ("n", vec![json!(1)]),
        ("frequency_penalty", vec![json!(0)]),
        ("presence_penalty", vec![json!(0)]),
        ("logit_bias", vec![json!({})]),
        ("store", vec![json!(false)]),
    ] {
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
    let stop = stop(fields.take("stop"))?;
    Ok(Asked { model, max_tokens, sampling, stop, stream, include_usage })
}

/// Returns a random seed of 32 bits, like those that the command-line program prints.
fn another_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(()) & 0xffff_ffff
}

fn stop(value: Option<Value>) -> Result<Vec<String>, ApiError> {
    let wrong = || {
        let text = format!(
            "must be a string of at least 1 byte, or a list of them, {MAX_STOPS} bytes together"
        );
        ApiError::field("stop", text)
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

/// Parses a prompt: a string, a list of tokens, or a list that contains just one of these.
fn prompt(value: Option<Value>) -> Result<Text, ApiError> {
    let wrong = || {
        ApiError::field("prompt", "must be a string or a list of tokens; several are not supported")
    };
    match value {
        Some(Value::String(text)) => Ok(Text::Text(text)),
        Some(Value::Array(list)) => match list.as_slice() {
            [one @ (Value::String(_) | Value::Array(_))] => match one {
                // One level of nesting only.
                Value::Array(inner) => tokens(inner).map(Text::Tokens).ok_or_else(wrong),
                other => prompt(Some(other.clone())),
            },
            tokens_or_not => tokens(tokens_or_not).map(Text::Tokens).ok_or_else(wrong),
        },
        _ => Err(wrong()),
    }
}

fn tokens(list: &[Value]) -> Option<Vec<u32>> {
    let one = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    list.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use warploom_llm::chat::Role;

    fn refused(body: &str) -> String {
        let base = ServeOptions::default();
        chat(body.as_bytes(), &base).err().map(|e| e.message).unwrap_or_default()
    }

    fn with(fields: &str) -> String {
        format!("{{\"messages\":[{{\"role\":\"user\",\"content\":\"x\"}}],{fields}}}")
    }

    #[test]
    fn what_is_asked_for_is_taken() {
        let body = r#"{"model": "m", "messages": [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
            "max_completion_tokens": 7, "temperature": 0, "top_p": 0.5, "top_k": 3, "min_p": 0.1,
            "repetition_penalty": 1.5, "seed": -2, "stop": ["x", "yz"], "stream": true,
            "stream_options": {"include_usage": true}, "n": 1, "frequency_penalty": 0.0,
            "logprobs": false, "user": "me", "tools": null}"#;
        let (messages, asked) = chat(body.as_bytes(), &ServeOptions::default()).unwrap();
        let want = [Message::new(Role::System, "Be brief."), Message::new(Role::User, "a\nb")];
        assert_eq!(messages, want);
        let sampling = Sampling::default()
            .temperature(0.0)
            .top_k(3)
            .top_p(0.5)
            .min_p(0.1)
            .repetition_penalty(1.5)
            .repeat_last_n(64)
            .seed(u64::MAX - 1);
        let want = Asked {
            model: Some("m".into()),
            max_tokens: Some(Some(7)),
            sampling,
            stop: vec!["x".into(), "yz".into()],
            stream: true,
            include_usage: true,
        };
        assert_eq!(asked, want);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (fields, words) in [
            ("\"temperature\":3", "temperature: must be a number from 0 to 2, is 3"),
            ("\"temperature\":\"hot\"", "temperature: must be a number from 0 to 2, is a string"),
            ("\"top_p\":1.5", "top_p: must be"),
            ("\"top_k\":-2", "top_k: must be an integer of at least 0, or -1 for no limit, is -2"),
            ("\"top_k\":1.5", "top_k: must be an integer"),
            (
                "\"max_tokens\":0",
                "max_tokens: must be an integer of at least 1, or -1 for no limit, is 0",
            ),
            (
                "\"max_tokens\":-2",
                "max_tokens: must be an integer of at least 1, or -1 for no limit, is -2",
            ),
            ("\"max_completion_tokens\":-5", "max_completion_tokens: must be an integer"),
            ("\"max_tokens\":\"-1\"", "max_tokens: must be an integer"),
            ("\"max_tokens\":1,\"max_completion_tokens\":2", "but max_tokens is 1"),
            ("\"n\":2", "n: is not supported"),
            ("\"logprobs\":true", "logprobs: is not supported"),
            ("\"frequency_penalty\":0.5", "frequency_penalty: is not supported"),
            ("\"presence_penalty\":-1", "presence_penalty: is not supported"),
            ("\"logit_bias\":{\"5\":1}", "logit_bias: is not supported"),
            ("\"tools\":[{}]", "tools: is not supported"),
            ("\"response_format\":{\"type\":\"json_object\"}", "response_format: is not"),
            ("\"stop\":[\"\"]", "stop: must be a string of at least 1 byte"),
            ("\"stop\":[\"a\",1]", "stop: must be a string of at least 1 byte"),
            ("\"stream\":1", "stream: must be true or false, is 1"),
            ("\"stream_options\":{}", "stream_options: is for requests that stream"),
            ("\"temprature\":1", "temprature: is not a known field"),
            ("\"seed\":1.5", "seed: must be a 64-bit integer"),
        ] {
            let got = refused(&with(fields));
            assert!(got.contains(words), "{fields}: {got:?}");
        }
        for (body, words) in [
            ("", "the body is no JSON: EOF while parsing a value at line 1 column 0"),
            ("{\"messages\":\n[}", "line 2 column 2"),
            ("[]", "the body must be an object, is a list of 0"),
            ("{}", "messages: must be a list"),
            ("{\"messages\":[]}", "messages: must be a list"),
            ("{\"messages\":[1]}", "messages[0]: must be an object, is 1"),
            ("{\"messages\":[{\"role\":\"king\"}]}", "messages[0].role: must be system"),
            ("{\"messages\":[{\"role\":\"user\"}]}", "messages[0].content: must be a string"),
        ] {
            let got = refused(body);
            assert!(got.contains(words), "{body}: {got:?}");
        }
        let deep = "[".repeat(100_000);
        assert!(refused(&deep).contains("recursion limit"), "{}", refused(&deep));
    }

    #[test]
    fn values_that_ask_for_nothing_are_taken() {
        for fields in [
            "\"n\":1,\"logprobs\":false,\"top_logprobs\":0,\"logit_bias\":{},\"store\":false",
            "\"frequency_penalty\":0,\"presence_penalty\":0.0,\"tools\":[],\"tool_choice\":\"none\"",
            "\"response_format\":{\"type\":\"text\"},\"modalities\":[\"text\"],\"functions\":[]",
            "\"reasoning_effort\":\"medium\",\"verbosity\":\"medium\",\"service_tier\":\"auto\"",
            "\"parallel_tool_calls\":true,\"prompt_cache_key\":\"k\",\"user\":\"u\",\"metadata\":{}",
            "\"max_tokens\":null,\"stop\":null,\"n\":null,\"seed\":null,\"tools\":null,\"stream\":null",
        ] {
            assert_eq!(refused(&with(fields)), "", "{fields}");
        }
        for fields in [
            "\"echo\":false,\"best_of\":1,\"suffix\":\"\",\"logprobs\":null,\"n\":1",
            "\"echo\":null,\"best_of\":null,\"suffix\":null,\"logit_bias\":{}",
        ] {
            let body = format!("{{\"prompt\":\"x\",{fields}}}");
            assert!(completion(body.as_bytes(), &ServeOptions::default()).is_ok(), "{fields}");
        }
        assert_eq!(refused(&format!("\u{feff}{}", with("\"n\":1"))), "");
    }

    #[test]
    fn limits_below_zero_are_none() {
        let base = ServeOptions::default();
        let tokens = |fields: &str| {
            let asked = |fields: &str| chat(with(fields).as_bytes(), &base).unwrap().1.max_tokens;
            let body = format!("{{\"prompt\":\"x\",{fields}}}");
            (asked(fields), completion(body.as_bytes(), &base).unwrap().1.max_tokens)
        };
        assert_eq!(tokens("\"max_tokens\":-1"), (Some(None), Some(None)));
        assert_eq!(tokens("\"max_completion_tokens\":-1"), (Some(None), Some(None)));
        assert_eq!(tokens("\"max_tokens\":null"), (None, Some(Some(16))));
        let seven = (Some(Some(7)), Some(Some(7)));
        assert_eq!(tokens("\"max_tokens\":-1,\"max_completion_tokens\":7"), seven);
        assert_eq!(tokens("\"max_tokens\":7,\"max_completion_tokens\":-1"), seven);
        let sampling = |fields: &str| chat(with(fields).as_bytes(), &base).unwrap().1.sampling;
        assert_eq!(sampling("\"top_k\":-1").top_k, 0);
        // A new seed for each request.
        assert_ne!(sampling("\"seed\":-1").seed, sampling("\"seed\":-1").seed);
        assert!(sampling("\"seed\":-1").seed <= 0xffff_ffff);
    }

    #[test]
    fn stop_strings_are_bounded_by_their_bytes() {
        let stops = |list: &[String]| {
            let fields = format!("\"stop\":{}", json!(list));
            chat(with(&fields).as_bytes(), &ServeOptions::default()).map(|(_, asked)| asked.stop)
        };
        let many: Vec<String> = (0..1500).map(|i| format!("{i:010}")).collect();
        assert_eq!(stops(&many).unwrap(), many);
        let one = "x".repeat(MAX_STOPS);
        let alone = std::slice::from_ref(&one);
        assert_eq!(stops(alone).unwrap(), alone);
        for list in [&[one.clone(), "y".into()][..], &[one + "y"]] {
            let error = stops(list).unwrap_err();
            assert!(error.message.contains("16384 bytes together"), "{}", error.message);
        }
        assert_eq!(stops(&[]).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn prompts_are_text_or_tokens() {
        let of = |prompt: &str| {
            let body = format!("{{\"prompt\":{prompt}}}");
            completion(body.as_bytes(), &ServeOptions::default())
        };
        for (prompt, want) in [
            ("\"x\"", Text::Text("x".into())),
            ("[\"x\"]", Text::Text("x".into())),
            ("[1,2]", Text::Tokens(vec![1, 2])),
            ("[[1,2]]", Text::Tokens(vec![1, 2])),
        ] {
            assert_eq!(of(prompt).unwrap().0, want, "{prompt}");
        }
        for prompt in ["null", "[\"x\",\"y\"]", "[[1],[2]]", "[[[1]]]", "[-1]", "[1.5]", "{}"] {
            assert!(of(prompt).is_err(), "{prompt}");
        }
        assert_eq!(of("\"x\"").unwrap().1.max_tokens, Some(Some(16)));
    }
}
