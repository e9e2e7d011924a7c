//! `/v1/embeddings`: vectors of texts, by an encoder.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use serde_json::{Value, json};

use super::Shared;
use super::error::{ApiError, no_model, too_long};
use super::prepare::check_tokens;
use super::request;
use warploom_llm::Embedder;

/// Maximum number of texts of a request, as in the OpenAI API.
const MAX_TEXTS: usize = 2048;

/// The encoder of a server, which embeds the texts of one request at a time.
pub(super) struct Encoder {
    embedder: Mutex<Embedder>,
    /// Requests that wait for it or use it.
    requests: AtomicUsize,
}

impl Encoder {
    pub(super) fn new(embedder: Embedder) -> Encoder {
        Encoder { embedder: Mutex::new(embedder), requests: AtomicUsize::new(0) }
    }

    /// Returns the number of requests that wait for the encoder or use it.
    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

/// A request among those that wait, which is taken back on drop.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(encoder: &'a Encoder, most: usize) -> Result<Waiting<'a>, ApiError> {
        let waiting = Waiting(&encoder.requests);
        // One of them is being embedded.
        match waiting.0.fetch_add(1, Ordering::Relaxed) > most {
            true => {
                Err(ApiError::new(429, format!("{most} requests wait already")).code("queue_full"))
            }
            false => Ok(waiting),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A text of a request.
enum Input {
    Text(String),
    Tokens(Vec<u32>),
}

/// What a request asks for.
struct Asked {
    inputs: Vec<Input>,
    dimensions: Option<usize>,
    is_base64: bool,
}

/// Embeds the texts of a request.
///
/// # Errors
/// 400, naming the field that is not valid, and if the model is no encoder; 404 for another model;
/// 429 if too many requests wait.
pub(super) fn embeddings(shared: &Shared, body: &[u8]) -> Result<Value, ApiError> {
    let Some(encoder) = &shared.encoder else {
        let text = "this model generates text: start the server with an encoder, such as bert";
        return Err(ApiError::new(400, text).code("no_embeddings"));
    };
    let asked = {
        let _one = shared.reading.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        asked(shared, body)?
    };
    let _waiting = Waiting::new(encoder, shared.options.queue)?;
    let mut embedder = encoder.embedder.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if asked.dimensions.is_some_and(|count| count > embedder.width()) {
        let text = format!("vectors of this model have {} elements", embedder.width());
        return Err(ApiError::field("dimensions", text));
    }
    let mut tokens = Vec::with_capacity(asked.inputs.len());
    let name =
        |i: usize| if asked.inputs.len() == 1 { "input".into() } else { format!("input[{i}]") };
    for (i, input) in asked.inputs.iter().enumerate() {
        let encoded = match input {
            Input::Tokens(tokens) => Ok(tokens.clone()),
            Input::Text(text) => embedder.encode(text),
        };
        let encoded = encoded.map_err(|e| ApiError::field(name(i), e.to_string()))?;
        if encoded.len() > embedder.context() || encoded.is_empty() {
            let what = format!("{} tokens", encoded.len());
            return Err(too_long(&name(i), &what, embedder.context()));
        }
        tokens.push(encoded);
    }
    let vectors = embedder.embed_tokens(&tokens);
    drop(embedder);
    let vectors = vectors.map_err(|e| ApiError::new(500, e.to_string()).code("device_error"))?;
    let data = vectors.into_iter().enumerate().map(|(i, vector)| {
        let vector = shortened(vector, asked.dimensions);
        json!({ "object": "embedding", "index": i, "embedding": written(&vector, asked.is_base64) })
    });
    let count: usize = tokens.iter().map(Vec::len).sum();
    Ok(json!({
        "object": "list",
        "data": data.collect::<Vec<_>>(),
        "model": shared.name,
        "usage": { "prompt_tokens": count, "total_tokens": count },
    }))
}

fn asked(shared: &Shared, body: &[u8]) -> Result<Asked, ApiError> {
    let mut fields = request::object(body)?;
    if let Some(id) = fields.text("model")?.filter(|id| *id != shared.name) {
        return Err(no_model(&id));
    }
    let is_base64 = match fields.text("encoding_format")?.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(ApiError::field("encoding_format", "must be float or base64")),
    };
    let dimensions = fields.count("dimensions", 1)?;
    let inputs = inputs(fields.take("input"))?;
    fields.ignore(&["user"]);
    fields.end()?;
    for (i, input) in inputs.iter().enumerate() {
        if let Input::Tokens(tokens) = input {
            check_tokens(shared, &format!("input[{i}]"), tokens)?;
        }
    }
    Ok(Asked { inputs, dimensions, is_base64 })
}

/// Reads a text, a list of texts, the tokens of a text, or a list of those.
fn inputs(value: Option<Value>) -> Result<Vec<Input>, ApiError> {
    let wrong = || {
        let text = format!(
            "must be a string, a list of 1 to {MAX_TEXTS} strings, tokens, or lists of tokens"
        );
        ApiError::field("input", text)
    };
    let list = match value {
        Some(Value::String(text)) => return Ok(vec![Input::Text(text)]),
        Some(Value::Array(list)) if !list.is_empty() => list,
        _ => return Err(wrong()),
    };
    if list[0].is_number() {
        return Ok(vec![Input::Tokens(request::tokens(&list).ok_or_else(wrong)?)]);
    }
    if list.len() > MAX_TEXTS {
        return Err(wrong());
    }
    let each = list.into_iter().map(|item| match item {
        Value::String(text) => Ok(Input::Text(text)),
        Value::Array(tokens) => request::tokens(&tokens).map(Input::Tokens).ok_or_else(wrong),
        _ => Err(wrong()),
    });
    each.collect()
}

/// Keeps the first elements of a vector, and divides it by its new length.
fn shortened(mut vector: Vec<f32>, dimensions: Option<usize>) -> Vec<f32> {
    if let Some(count) = dimensions.filter(|count| *count < vector.len()) {
        vector.truncate(count);
        let length = vector.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
        if length > 0.0 {
            vector.iter_mut().for_each(|v| *v = (f64::from(*v) / length) as f32);
        }
    }
    vector
}

/// Returns a vector as numbers, or as base64 of their bytes, the least significant first.
fn written(vector: &[f32], is_base64: bool) -> Value {
    match is_base64 {
        false => json!(vector),
        true => {
            let bytes: Vec<u8> = vector.iter().flat_map(|v| v.to_le_bytes()).collect();
            base64::engine::general_purpose::STANDARD.encode(bytes).into()
        }
    }
}
