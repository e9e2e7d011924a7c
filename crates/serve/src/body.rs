//! Reads the bodies of requests within the limits of size, time and memory.

use std::borrow::Cow;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, HeaderName, header};
use http_body_util::BodyExt;
use tokio::time::timeout_at;

use super::after;
use super::error::{ApiError, late};
use super::inflate::{Coding, coding, inflated};
use super::service::Shared;

/// How many bodies of the largest size may be in memory at once.
const MAX_BODIES: usize = 256;

/// A body in memory, which counts among those of all clients until it is dropped.
pub(super) struct Held {
    bytes: Vec<u8>,
    coding: Coding,
    /// When the request came.
    pub(super) begin: Instant,
    shared: Arc<Shared>,
}

impl Held {
    /// Returns the text of the body. It may be as large as a body may be, so this is for one
    /// request at a time.
    ///
    /// # Errors
    /// 400 if the body does not match its coding; 413 if it is too large decompressed.
    pub(super) fn text(&self) -> Result<Cow<'_, [u8]>, ApiError> {
        inflated(self.coding, &self.bytes, self.shared.options.limits.body)
    }

    fn take(&mut self, data: &Bytes) -> Result<(), ApiError> {
        let limit = self.shared.options.limits.body;
        if data.len() > limit - self.bytes.len() {
            return Err(too_large(limit));
        }
        let others = self.shared.bodies.fetch_add(data.len(), Ordering::Relaxed);
        // Counted from here on, and until the drop.
        self.bytes.extend_from_slice(data);
        let most = limit.saturating_mul(MAX_BODIES);
        match others + data.len() > most {
            true => {
                let text = format!("the bodies of all requests have more than {most} bytes");
                Err(ApiError::new(503, text).code("too_many_bodies"))
            }
            false => Ok(()),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.bodies.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

impl FromRequest<Arc<Shared>> for Held {
    type Rejection = ApiError;

    /// Checks the head of a request with JSON, and then reads its body.
    ///
    /// # Errors
    /// 400 if the body ends early; 408 if it takes too long; 413 if it is too large; 415 and 417
    /// for a field of the head; 503 if the bodies of all clients are too large.
    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<Held, ApiError> {
        let limits = &shared.options.limits;
        let coding = check(request.headers(), limits.body)?;
        let begin = Instant::now();
        let mut held = Held { bytes: Vec::new(), coding, begin, shared: shared.clone() };
        let due = after(begin, limits.read).into();
        let mut body = request.into_body();
        loop {
            match timeout_at(due, body.frame()).await {
                Err(_) => return Err(late(limits.read)),
                Ok(None) => return Ok(held),
                Ok(Some(Err(error))) => return Err(unreadable(&error)),
                // Fields after the body have no meaning here.
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        held.take(&data)?;
                    }
                }
            }
        }
    }
}

/// Checks the head of a request, before any of its body is read.
fn check(headers: &HeaderMap, limit: usize) -> Result<Coding, ApiError> {
    // A page of another origin may send a form or plain text without a preflight.
    let kind = list(headers, header::CONTENT_TYPE);
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        return Err(ApiError::new(415, "content-type: must be application/json"));
    }
    let expect = list(headers, header::EXPECT);
    if !expect.is_empty() && !expect.eq_ignore_ascii_case("100-continue") {
        return Err(ApiError::new(417, format!("expect: {expect:?}")));
    }
    let length = list(headers, header::CONTENT_LENGTH).parse::<usize>();
    if length.is_ok_and(|bytes| bytes > limit) {
        return Err(too_large(limit));
    }
    coding(&list(headers, header::CONTENT_ENCODING))
}

/// Returns the values of a field as one list.
fn list(headers: &HeaderMap, name: HeaderName) -> String {
    let values = headers.get_all(name).into_iter();
    let values = values.map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned());
    values.collect::<Vec<_>>().join(", ")
}

/// Returns the error for a body that ends early or is not as its head says.
fn unreadable(error: &axum::Error) -> ApiError {
    let mut text = String::new();
    let mut next: Option<&dyn Error> = Some(error);
    while let Some(error) = next {
        let line = error.to_string();
        // Some errors print their source too.
        if !text.ends_with(&line) {
            text = if text.is_empty() { line } else { format!("{text}: {line}") };
        }
        next = error.source();
    }
    ApiError::new(400, format!("the body cannot be read: {text}"))
}

fn too_large(limit: usize) -> ApiError {
    ApiError::new(413, format!("the body has more than {limit} bytes"))
}
