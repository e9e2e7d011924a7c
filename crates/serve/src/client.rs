//! Writes responses to a connection.

use std::fmt::Write;
use std::time::{Instant, SystemTime};

use serde_json::Value;

use super::connection::Connection;
use super::error::{ApiError, reason};
use super::{Shared, after};

/// A connection, with what its current request needs.
pub(super) struct Client<'a> {
    pub(super) shared: &'a Shared,
    pub(super) connection: Connection,
    pub(super) keep_alive: bool,
    pub(super) is_1_1: bool,
    /// Whether the request is a HEAD request.
    pub(super) is_head: bool,
}

impl Client<'_> {
    /// Sends the head of a stream of events.
    pub(super) fn begin_events(&mut self, due: Instant) -> std::io::Result<()> {
        // Without chunks, the end of the connection marks the end of the answer.
        self.keep_alive &= self.is_1_1;
        let mut head = self.head(200, "text/event-stream");
        head.push_str("cache-control: no-cache\r\n");
        if self.is_1_1 {
            head.push_str("transfer-encoding: chunked\r\n");
        }
        head.push_str("\r\n");
        self.connection.send(head.as_bytes(), due)
    }

    /// Ends a stream of events.
    pub(super) fn end_events(&mut self, due: Instant) -> std::io::Result<()> {
        match self.is_1_1 {
            true => self.connection.send(b"0\r\n\r\n", due),
            false => Ok(()),
        }
    }

    /// Sends events in one chunk.
    pub(super) fn events(&mut self, events: &[String], due: Instant) -> std::io::Result<()> {
        let data: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        let bytes = match self.is_1_1 {
            true => format!("{:x}\r\n{data}\r\n", data.len()),
            false => data,
        };
        self.connection.send(bytes.as_bytes(), due)
    }

    pub(super) fn error(&mut self, error: &ApiError) -> std::io::Result<()> {
        let more = match (error.status, error.allow) {
            (_, Some(method)) => Some(("allow", method)),
            (401, _) => Some(("www-authenticate", "Bearer")),
            (415, _) => Some(("accept-encoding", "gzip")),
            (429 | 503, _) => Some(("retry-after", "1")),
            _ => None,
        };
        let body = error.to_json().to_string();
        self.whole(error.status, "application/json", &body, more.as_slice())
    }

    pub(super) fn json(&mut self, status: u16, value: &Value) -> std::io::Result<()> {
        self.whole(status, "application/json", &value.to_string(), &[])
    }

    pub(super) fn whole(
        &mut self,
        status: u16,
        kind: &str,
        body: &str,
        more: &[(&str, &str)],
    ) -> std::io::Result<()> {
        let mut text = self.head(status, kind);
        for (name, value) in more {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        if status != 204 {
            let _ = write!(text, "content-length: {}\r\n", body.len());
        }
        text.push_str("\r\n");
        if !self.is_head {
            text.push_str(body);
        }
        let due = after(Instant::now(), self.shared.options.limits.write.saturating_mul(2));
        self.connection.send(text.as_bytes(), due)
    }

    /// Returns the head of a response, without the final empty line.
    fn head(&self, status: u16, kind: &str) -> String {
        let mut head = format!(
            "HTTP/1.1 {status} {}\r\ndate: {}\r\ncontent-type: {kind}\r\n",
            reason(status),
            httpdate::fmt_http_date(SystemTime::now()),
        );
        if !self.keep_alive {
            head.push_str("connection: close\r\n");
        } else if !self.is_1_1 {
            head.push_str("connection: keep-alive\r\n");
        }
        if let Some(origin) = &self.shared.options.cors_origin {
            let _ = write!(head, "access-control-allow-origin: {origin}\r\nvary: origin\r\n");
        }
        head
    }
}
