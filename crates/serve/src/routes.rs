//! The routes of the API, and who may use them.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{MatchedPath, Path, Request, State};
use axum::handler::Handler;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use serde_json::{Value, json};

use super::answer::Kind;
use super::body::Held;
use super::embeddings::{self, Encoder};
use super::error::{ApiError, no_model};
use super::generate::{generate, json as answer};
use super::prepare::Prepared;
use super::service::{Service, Shared};
use super::tokens;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Maximum bytes of the list of header fields that a page may send.
const MAX_ALLOWED: usize = 2048;

/// The paths of Anthropic's interface, whose errors have a format of their own.
const MESSAGES: &str = "/v1/messages";
const COUNT_TOKENS: &str = "/v1/messages/count_tokens";

/// Returns the routes of an API, for an application that has a server already: to be merged with
/// its own, or nested under a path.
///
/// ```
/// # fn nested(service: &warploom_serve::Service) -> axum::Router {
/// axum::Router::new().nest("/llm", warploom_serve::router(service))
/// # }
/// ```
///
/// Clients then use `/llm/v1/chat/completions`; `examples/axum.rs` is a whole program. The key,
/// the CORS header and the limits on bodies, on the queue and on time are those of the service's
/// options. The address, TLS and the limits on connections are the application's, whose runtime
/// must be tokio's. A router outlives its [`Service`]; it then answers requests for texts and
/// vectors with status 503.
pub fn router(service: &Service) -> Router {
    routes(service.shared().clone())
}

type Shares = State<Arc<Shared>>;

/// Returns the routes of what a service and its listener share.
pub(super) fn routes(shared: Arc<Shared>) -> Router {
    let guarded = Router::new()
        .route("/v1/models", reading(models))
        .route("/v1/models/{*id}", reading(model))
        .route("/metrics", reading(metrics))
        .route("/props", reading(props))
        .route("/tokenize", writing(tokenize))
        .route("/detokenize", writing(detokenize))
        .route("/v1/embeddings", writing(embed))
        .route("/v1/rerank", writing(rerank))
        .route("/v1/chat/completions", writing(chat))
        .route("/v1/completions", writing(completion))
        .route("/v1/responses", writing(responses))
        .route(MESSAGES, writing(messages))
        .route(COUNT_TOKENS, writing(count_tokens))
        .fallback(unknown)
        .layer(from_fn_with_state(shared.clone(), admit));
    let open = Router::new().route("/health", reading(health));
    let all = open.merge(guarded).layer(from_fn_with_state(shared.clone(), common));
    all.with_state(shared)
}

/// A route for GET and HEAD.
fn reading<T: 'static>(handler: impl Handler<T, Arc<Shared>>) -> MethodRouter<Arc<Shared>> {
    let others = |shared, method, uri, headers| other(shared, method, uri, headers, "GET");
    get(handler).fallback(others)
}

/// A route for POST.
fn writing<T: 'static>(handler: impl Handler<T, Arc<Shared>>) -> MethodRouter<Arc<Shared>> {
    let others = |shared, method, uri, headers| other(shared, method, uri, headers, "POST");
    post(handler).fallback(others)
}

/// Answers a method that a route does not take: a browser's preflight, or a mistake.
async fn other(
    State(shared): Shares,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    want: &'static str,
) -> Response {
    if is_preflight(&shared, &method) {
        let more = [
            (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST".to_owned()),
            (header::ACCESS_CONTROL_ALLOW_HEADERS, allowed_fields(&headers)),
            (header::ACCESS_CONTROL_MAX_AGE, "3600".to_owned()),
        ];
        return (StatusCode::NO_CONTENT, more).into_response();
    }
    let text = format!("{} takes {want}, not {method}", uri.path());
    let error = ApiError::new(405, text).code("wrong_method");
    let allow = if want == "GET" { "GET, HEAD" } else { want };
    ApiError { allow: Some(allow), ..error }.into_response()
}

fn is_preflight(shared: &Shared, method: &Method) -> bool {
    method == Method::OPTIONS && shared.options.cors_origin.is_some()
}

/// Returns the header fields that a page may send: those that the server uses, and those that the
/// preflight request asks for and the server ignores, as far as they have valid names and fit the
/// size limit.
fn allowed_fields(headers: &HeaderMap) -> String {
    let mut fields = "authorization, content-type".to_owned();
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let wanted = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS);
    let wanted = wanted.and_then(|value| value.to_str().ok()).unwrap_or_default();
    for name in wanted.split(',').map(str::trim) {
        let fits = !name.is_empty() && fields.len() + 2 + name.len() <= MAX_ALLOWED;
        if fits && name.bytes().all(is_token) {
            fields.push_str(", ");
            fields.push_str(&name.to_ascii_lowercase());
        }
    }
    fields
}

/// Adds what all responses have, and logs them.
async fn common(State(shared): Shares, request: Request, next: Next) -> Response {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let begin = Instant::now();
    let mut response = next.run(request).await;
    if [MESSAGES, COUNT_TOKENS].contains(&uri.path())
        && let Some(error) = response.extensions_mut().remove::<ApiError>()
    {
        let text = error.to_anthropic().to_string();
        // The length is that of the other format.
        response.headers_mut().remove(header::CONTENT_LENGTH);
        *response.body_mut() = text.into();
    }
    let origin = shared.options.cors_origin.as_deref();
    if let Some(origin) = origin.and_then(|origin| HeaderValue::from_str(origin).ok()) {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
    let (path, status) = (uri.path(), response.status().as_u16());
    tracing::debug!(%method, path, status, seconds = begin.elapsed().as_secs_f32(), "answered");
    response
}

/// Lets in what has the key. A preflight cannot have it.
async fn admit(State(shared): Shares, request: Request, next: Next) -> Response {
    let is_known = request.extensions().get::<MatchedPath>().is_some();
    let is_preflight = is_known && is_preflight(&shared, request.method());
    match is_preflight || has_key(&shared, request.headers()) {
        true => next.run(request).await,
        false => ApiError::new(401, "wrong or no API key").code("invalid_api_key").into_response(),
    }
}

fn has_key(shared: &Shared, headers: &HeaderMap) -> bool {
    let Some(key) = &shared.options.api_key else { return true };
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    // Comparing hashes takes constant time and reveals no length.
    let same = |given: &str| blake3::hash(key.as_bytes()) == blake3::hash(given.trim().as_bytes());
    let bearer = text(header::AUTHORIZATION).and_then(|given| given.split_once(' '));
    let is_bearer = bearer.is_some_and(|(scheme, given)| {
        let same = same(given);
        same && scheme.eq_ignore_ascii_case("bearer")
    });
    // Anthropic's clients send this field.
    is_bearer || text(API_KEY).is_some_and(same)
}

async fn unknown(uri: Uri) -> ApiError {
    ApiError::new(404, format!("there is no {} here", uri.path())).code("unknown_path")
}

async fn health(State(shared): Shares) -> Response {
    let queue = &shared.queue;
    let (status, word) = match (shared.is_stopping(), queue.is_failing()) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
        (false, true) => (StatusCode::SERVICE_UNAVAILABLE, "failing"),
        (false, false) => (StatusCode::OK, "ok"),
    };
    let encoder = shared.encoder.as_deref();
    let state = json!({
        "status": word,
        "sequences": shared.sequences,
        "running": queue.running() + encoder.map_or(0, Encoder::requests),
        "waiting": queue.waiting(),
    });
    (status, answer(&state)).into_response()
}

async fn models(State(shared): Shares) -> Response {
    answer(&json!({ "object": "list", "data": [described(&shared)] }))
}

async fn model(
    State(shared): Shares,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let Path(id) = id.map_err(|e| ApiError::new(400, e.body_text()))?;
    match id == shared.name {
        true => Ok(answer(&described(&shared))),
        false => Err(no_model(&id)),
    }
}

/// Returns the model as an object of the API.
fn described(shared: &Shared) -> Value {
    json!({
        "id": shared.name,
        "object": "model",
        "created": shared.since,
        "owned_by": "warploom",
    })
}

async fn metrics(State(shared): Shares) -> Response {
    let text = shared.queue.metrics.text(&shared.queue);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

async fn props(State(shared): Shares) -> Response {
    answer(&tokens::props(&shared))
}

async fn tokenize(State(shared): Shares, body: Held) -> Result<Response, ApiError> {
    let owned = shared.clone();
    let work = move || tokens::tokenize(&owned, &body.text()?);
    Ok(answer(&shared.reading.run(work).await?))
}

async fn detokenize(State(shared): Shares, body: Held) -> Result<Response, ApiError> {
    let owned = shared.clone();
    let work = move || tokens::detokenize(&owned, &body.text()?);
    Ok(answer(&shared.reading.run(work).await?))
}

async fn embed(State(shared): Shares, body: Held) -> Result<Response, ApiError> {
    Ok(answer(&embeddings::embeddings(&shared, body).await?))
}

async fn rerank(State(shared): Shares, body: Held) -> Result<Response, ApiError> {
    Ok(answer(&embeddings::rerank(&shared, body).await?))
}

async fn chat(State(shared): Shares, body: Held) -> Result<Response, ApiError> {
    text(&shared, Kind::Chat, body).await
}

async fn completion(State(shared): Shares, body: Held) -> Result<Response, ApiError> {
    text(&shared, Kind::Completion, body).await
}

async fn responses(State(shared): Shares, body: Held) -> Result<Response, ApiError> {
    text(&shared, Kind::Responses, body).await
}

async fn messages(State(shared): Shares, body: Held) -> Result<Response, ApiError> {
    text(&shared, Kind::Messages, body).await
}

async fn count_tokens(State(shared): Shares, body: Held) -> Result<Response, ApiError> {
    generates(&shared)?;
    let count = Prepared::count(&shared, Kind::Messages, body).await?;
    Ok(answer(&json!({ "input_tokens": count })))
}

async fn text(shared: &Arc<Shared>, kind: Kind, body: Held) -> Result<Response, ApiError> {
    generates(shared)?;
    generate(shared, Prepared::new(shared, kind, body).await?).await
}

/// Refuses a request for text from an encoder.
fn generates(shared: &Shared) -> Result<(), ApiError> {
    match shared.encoder {
        None => Ok(()),
        Some(_) => {
            let text = "this model is an encoder, which generates no text: use /v1/embeddings or \
                        /v1/rerank";
            Err(ApiError::new(400, text).code("no_text"))
        }
    }
}
