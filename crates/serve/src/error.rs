//! Errors in the formats of the OpenAI and Anthropic APIs.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::queue::Failure;
use warploom::Error;
use warploom_llm::chat::Message;

/// An error response to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) status: u16,
    pub(super) message: String,
    /// Path of the invalid field of the request.
    pub(super) param: Option<String>,
    pub(super) code: Option<&'static str>,
    /// The allowed methods, if that of the request is wrong.
    pub(super) allow: Option<&'static str>,
}

impl ApiError {
    pub(super) fn new(status: u16, message: impl Into<String>) -> ApiError {
        ApiError { status, message: message.into(), param: None, code: None, allow: None }
    }

    /// Creates an error with status 400 for a field of the request.
    pub(super) fn field(param: impl Into<String>, message: impl Into<String>) -> ApiError {
        let param = param.into();
        let message = format!("{param}: {}", message.into());
        ApiError { status: 400, message, param: Some(param), code: None, allow: None }
    }

    /// Sets a machine-readable code.
    pub(super) fn code(mut self, code: &'static str) -> ApiError {
        self.code = Some(code);
        self
    }

    /// Returns the error type in the OpenAI API that corresponds to the status.
    fn kind(&self) -> &'static str {
        match self.status {
            429 => "rate_limit_error",
            401 => "authentication_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        }
    }

    fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Returns the header field that belongs to the status.
    fn field_of_status(&self) -> Option<(HeaderName, &'static str)> {
        match (self.status, self.allow) {
            (_, Some(method)) => Some((header::ALLOW, method)),
            (401, _) => Some((header::WWW_AUTHENTICATE, "Bearer")),
            (415, _) => Some((header::ACCEPT_ENCODING, "gzip")),
            (429 | 503, _) => Some((header::RETRY_AFTER, "1")),
            _ => None,
        }
    }

    /// Returns the whole response as text, for a connection on which no request is served.
    pub(super) fn to_http1(&self) -> String {
        let body = self.to_json().to_string();
        let field = self.field_of_status();
        let field = field.map_or(String::new(), |(name, value)| format!("{name}: {value}\r\n"));
        let (status, length) = (self.status(), body.len());
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{field}\
             connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    }

    pub(super) fn to_json(&self) -> Value {
        json!({ "error": {
            "message": self.message,
            "type": self.kind(),
            "param": self.param,
            "code": self.code,
        } })
    }

    /// Returns the error in the format of the Anthropic API.
    pub(super) fn to_anthropic(&self) -> Value {
        let kind = match self.status {
            401 => "authentication_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 => "overloaded_error",
            500.. => "api_error",
            _ => "invalid_request_error",
        };
        json!({ "type": "error", "error": { "type": kind, "message": self.message } })
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let kind = [(header::CONTENT_TYPE, "application/json")];
        let mut response = (self.status(), kind, self.to_json().to_string()).into_response();
        if let Some((name, value)) = self.field_of_status() {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        // For an interface with another format of errors.
        response.extensions_mut().insert(self);
        response
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> ApiError {
        match failure {
            Failure::Full(limit) => {
                ApiError::new(429, format!("{limit} requests wait already")).code("queue_full")
            }
            Failure::Late => {
                ApiError::new(503, "the time of the request is over").code("deadline_exceeded")
            }
            Failure::Stopping => ApiError::new(503, "the server ends").code("server_stopping"),
            Failure::Request(error) => ApiError::new(400, error.to_string()),
            Failure::Grammar(error) => {
                ApiError::new(400, error.to_string()).code("grammar_too_complex")
            }
            Failure::Model(error) => ApiError::new(500, error.to_string()).code("no_token"),
            Failure::Device(error) => ApiError::new(500, error.to_string()).code("device_error"),
        }
    }
}

/// Returns the error for a conversation that the chat template cannot render, naming the field.
pub(super) fn refused(field: &str, messages: &[Message], error: &Error) -> ApiError {
    let calls = messages.iter().position(|message| !message.tool_calls.is_empty());
    match calls.filter(|_| error.is_unsupported()) {
        Some(at) => {
            let text = format!("is not supported by this model: {error}");
            // Other interfaces have calls elsewhere.
            let path = match field {
                "messages" => format!("messages[{at}].tool_calls"),
                _ => field.to_owned(),
            };
            ApiError::field(path, text).code("unsupported")
        }
        None => ApiError::field(field, error.to_string()),
    }
}

/// Returns the error for an unknown model, with status 404.
pub(super) fn no_model(id: &str) -> ApiError {
    ApiError::new(404, format!("there is no model {id:?} here")).code("model_not_found")
}

/// Returns the error for a text that does not fit the context.
pub(super) fn too_long(field: &str, what: &str, context: usize) -> ApiError {
    let text = format!("{what} do not fit the context of {context} positions");
    ApiError::field(field, text).code("context_length_exceeded")
}

/// Returns the error for a request that did not come within `limit`.
pub(super) fn late(limit: Duration) -> ApiError {
    ApiError::new(408, format!("the request was incomplete after {} seconds", limit.as_secs_f32()))
}
