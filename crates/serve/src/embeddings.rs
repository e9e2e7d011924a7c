//! `/v1/embeddings` and `/v1/rerank`: vectors of texts, and scores of texts for a query, by an encoder.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine as _;
use serde_json::{Value, json};

use super::body::Held;
use super::error::{ApiError, no_model, too_long};
use super::gate::Gate;
use super::prepare::check_tokens;
use super::queue::Failure;
use super::request;
use super::service::Shared;
use warploom_llm::Embedder;

/// Maximum number of texts of a request, as in the OpenAI API.
const MAX_TEXTS: usize = 2048;

/// The encoder of a server, which embeds the texts of one request at a time.
pub(super) struct Encoder {
    embedder: Mutex<Embedder>,
    /// Admits the request whose texts are embedded.
    gate: Gate,
    /// Requests that wait for it or use it.
    requests: AtomicUsize,
}

impl Encoder {
    pub(super) fn new(embedder: Embedder) -> Encoder {
        Encoder {
            embedder: Mutex::new(embedder),
            gate: Gate::new(1),
            requests: AtomicUsize::new(0),
        }
    }

    fn embedder(&self) -> MutexGuard<'_, Embedder> {
        self.embedder.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns the number of requests that wait for the encoder or use it.
    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

/// A request among those that wait, which is taken back on drop.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(shared: &Shared, encoder: &'a Encoder) -> Result<Waiting<'a>, ApiError> {
        if shared.is_stopping() {
            return Err(Failure::Stopping.into());
        }
        let most = shared.options.queue;
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
/// 429 if too many requests wait; 503 if the server stops.
pub(super) async fn embeddings(shared: &Arc<Shared>, body: Held) -> Result<Value, ApiError> {
    let Some(encoder) = shared.encoder.clone() else {
        let text = "this model generates text: start the server with an encoder, such as bert";
        return Err(ApiError::new(400, text).code("no_embeddings"));
    };
    let owned = shared.clone();
    let asked = shared.reading.run(move || asked(&owned, &body.text()?)).await?;
    let _waiting = Waiting::new(shared, &encoder)?;
    let (owned, working) = (shared.clone(), encoder.clone());
    encoder.gate.run(move || embed(&owned, &working, &asked)).await
}

/// Computes the vectors that a request asks for.
fn embed(shared: &Shared, encoder: &Encoder, asked: &Asked) -> Result<Value, ApiError> {
    let mut embedder = encoder.embedder();
    if embedder.reranks() {
        let text = "this model is a reranker, which gives no vectors: use /v1/rerank";
        return Err(ApiError::new(400, text).code("no_embeddings"));
    }
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
    check_model(shared, fields.text("model")?)?;
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

/// What a request for scores asks for.
struct Ranking {
    query: String,
    texts: Vec<String>,
    /// How many texts are returned.
    top: usize,
    with_texts: bool,
}

/// Orders the texts of a request by how well they answer its query.
///
/// # Errors
/// Same as [`embeddings`]; 400 also if the encoder is no reranker.
pub(super) async fn rerank(shared: &Arc<Shared>, body: Held) -> Result<Value, ApiError> {
    let Some(encoder) = shared.encoder.clone() else {
        let text = "this model generates text: start the server with a reranker, such as bert";
        return Err(ApiError::new(400, text).code("no_reranker"));
    };
    let owned = shared.clone();
    let asked = shared.reading.run(move || ranking(&owned, &body.text()?)).await?;
    let _waiting = Waiting::new(shared, &encoder)?;
    let (owned, working) = (shared.clone(), encoder.clone());
    encoder.gate.run(move || score(&owned, &working, &asked)).await
}

fn ranking(shared: &Shared, body: &[u8]) -> Result<Ranking, ApiError> {
    let mut fields = request::object(body)?;
    check_model(shared, fields.text("model")?)?;
    let query = fields.text("query")?;
    let query = query.ok_or_else(|| ApiError::field("query", "must be a string"))?;
    let texts = documents(fields.take("documents"))?;
    let top = fields.count("top_n", 1)?.unwrap_or(usize::MAX);
    let with_texts = fields.flag("return_documents")?;
    fields.ignore(&["user"]);
    fields.end()?;
    Ok(Ranking { query, texts, top, with_texts })
}

/// Computes the scores that a request asks for.
fn score(shared: &Shared, encoder: &Encoder, asked: &Ranking) -> Result<Value, ApiError> {
    let mut embedder = encoder.embedder();
    if !embedder.reranks() {
        let text = "this model gives vectors, not scores: use /v1/embeddings";
        return Err(ApiError::new(400, text).code("no_reranker"));
    }
    let scores = embedder.rerank(&asked.query, &asked.texts);
    drop(embedder);
    let scores = scores.map_err(|e| match e.is_invalid() {
        true => ApiError::field("documents", e.to_string()).code("context_length_exceeded"),
        false => ApiError::new(500, e.to_string()).code("device_error"),
    })?;
    let mut order: Vec<usize> = (0..asked.texts.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    order.truncate(asked.top);
    let results = order.into_iter().map(|i| {
        let mut result = json!({ "index": i, "relevance_score": scores[i] });
        if asked.with_texts {
            result["document"] = json!({ "text": asked.texts[i] });
        }
        result
    });
    let results: Vec<Value> = results.collect();
    Ok(json!({ "object": "list", "model": shared.name, "results": results }))
}

fn check_model(shared: &Shared, id: Option<String>) -> Result<(), ApiError> {
    match id.filter(|id| *id != shared.name) {
        Some(id) => Err(no_model(&id)),
        None => Ok(()),
    }
}

/// Reads a list of texts, each a string or an object with one.
fn documents(value: Option<Value>) -> Result<Vec<String>, ApiError> {
    let wrong =
        || ApiError::field("documents", format!("must be a list of 1 to {MAX_TEXTS} strings"));
    let list = match value {
        Some(Value::Array(list)) if (1..=MAX_TEXTS).contains(&list.len()) => list,
        _ => return Err(wrong()),
    };
    let each = list.into_iter().map(|item| match item {
        Value::String(text) => Ok(text),
        Value::Object(mut map) => match map.remove("text") {
            Some(Value::String(text)) => Ok(text),
            _ => Err(wrong()),
        },
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
