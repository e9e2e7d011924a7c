//! Reads HTTP/1.1 requests from a connection and sends bytes, with limits on time and size.
//!
//! `httparse` parses the head; this module applies the limits. Nothing beyond [`Limits`] is read
//! into memory, and no client, however slow, holds a thread longer than they allow.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::after;
use super::error::ApiError;
use super::inflate::{Coding, coding};

/// Maximum header fields of a request.
const MAX_FIELDS: usize = 64;
/// Maximum bytes of a chunk size line, and of the trailer fields after the last chunk.
const MAX_CHUNK_LINE: usize = 1024;
/// Maximum bytes of the list of header fields that a page may send.
const MAX_ALLOWED: usize = 2048;
/// How often a waiting connection checks whether the server is stopping.
const SLICE: Duration = Duration::from_millis(200);
/// Maximum bytes and time for reading what a client still sends when its connection is closed.
const LINGER: (usize, Duration) = (1 << 20, Duration::from_secs(1));

/// Limits on clients and their requests.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Maximum bytes of a request's head. Default 16 KiB.
    pub head: usize,
    /// Maximum bytes of a request's body, both as received and after decompression. Default 1 MiB.
    pub body: usize,
    /// Maximum time for a client to send a request. Default 20 seconds.
    pub read: Duration,
    /// Maximum time between two requests on a connection. Default 30 seconds.
    pub idle: Duration,
    /// Maximum time without progress while a response is sent. Default 20 seconds.
    pub write: Duration,
    /// Maximum concurrent connections of all clients. Default 256.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head: 16 << 10,
            body: 1 << 20,
            read: Duration::from_secs(20),
            idle: Duration::from_secs(30),
            write: Duration::from_secs(20),
            connections: 256,
        }
    }
}

warploom_llm::setters!(Limits {
    head: usize,
    body: usize,
    read: Duration,
    idle: Duration,
    write: Duration,
    connections: usize,
});

/// How the end of a body is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Bytes(usize),
    Chunked,
}

/// The head of a request.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) method: String,
    /// Path of the request target, without the query string.
    pub(super) path: String,
    /// Whether the request is HTTP/1.1, so that responses may be chunked.
    pub(super) is_1_1: bool,
    pub(super) keep_alive: bool,
    pub(super) authorization: Option<String>,
    pub(super) content_type: Option<String>,
    /// The content coding of the body, or the error if it is not supported.
    pub(super) coding: Result<Coding, ApiError>,
    /// Header fields that a browser wants to send, from its preflight request.
    wanted_fields: Option<String>,
    length: Length,
    expects_continue: bool,
}

impl Head {
    /// Returns the header fields that a page may send: those that the server uses, and those that
    /// the preflight request asks for and the server ignores, as far as they have valid names and
    /// fit the size limit.
    pub(super) fn allowed_fields(&self) -> String {
        let mut fields = "authorization, content-type".to_owned();
        let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        let wanted = self.wanted_fields.as_deref().unwrap_or_default();
        for name in wanted.split(',').map(str::trim) {
            let fits = !name.is_empty() && fields.len() + 2 + name.len() <= MAX_ALLOWED;
            if fits && name.bytes().all(is_token) {
                fields.push_str(", ");
                fields.push_str(&name.to_ascii_lowercase());
            }
        }
        fields
    }
}

/// Why no request was read.
#[derive(Debug)]
pub(super) enum NoRequest {
    /// The client closed the connection or was idle for too long, or the server is stopping: no
    /// response is sent.
    Ended,
    /// The client receives this error, and the connection is closed.
    Refused(ApiError),
}

impl From<ApiError> for NoRequest {
    fn from(error: ApiError) -> NoRequest {
        NoRequest::Refused(error)
    }
}

/// The connection of a client.
pub(super) struct Connection {
    stream: TcpStream,
    /// Bytes received but not yet consumed.
    buffer: Vec<u8>,
    limits: Limits,
    /// Deadline for the request being read.
    due: Instant,
    asked: usize,
}

impl Connection {
    /// Takes over the connection of a client and sets the options of its socket.
    ///
    /// # Errors
    /// System errors if the options cannot be set.
    pub(super) fn new(stream: TcpStream, limits: Limits) -> std::io::Result<Connection> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(limits.write))?;
        let due = after(Instant::now(), limits.read);
        Ok(Connection { stream, buffer: Vec::new(), limits, due, asked: 0 })
    }

    /// Reads the head of the next request. Stops waiting for it if `stopping` returns true.
    pub(super) fn head(&mut self, stopping: &dyn Fn() -> bool) -> Result<Head, NoRequest> {
        if self.buffer.is_empty() {
            self.first_byte(stopping)?;
        }
        self.asked += 1;
        self.due = after(Instant::now(), self.limits.read);
        let mut looked = 0;
        loop {
            // Only the end of a line can end a head.
            if self.buffer[looked..].contains(&b'\n') {
                looked = self.buffer.len();
                if let Some((head, length)) = parse(&self.buffer, self.limits.body)? {
                    self.buffer.drain(..length);
                    return Ok(head);
                }
            }
            if self.buffer.len() >= self.limits.head {
                let text = format!("the head has more than {} bytes", self.limits.head);
                return Err(ApiError::new(431, text).into());
            }
            let room = self.limits.head - self.buffer.len();
            self.fill(room)?;
        }
    }

    fn first_byte(&mut self, stopping: &dyn Fn() -> bool) -> Result<(), NoRequest> {
        let begin = Instant::now();
        let wait = if self.asked == 0 { self.limits.read } else { self.limits.idle };
        loop {
            let left = wait.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return match self.asked {
                    0 => Err(late(self.limits.read).into()),
                    _ => Err(NoRequest::Ended),
                };
            }
            match self.read(left.min(SLICE), 4096) {
                Ok(0) => return Err(NoRequest::Ended),
                Ok(_) => return Ok(()),
                Err(error) if is_timeout(&error) && stopping() => return Err(NoRequest::Ended),
                Err(error) if is_timeout(&error) => {}
                Err(_) => return Err(NoRequest::Ended),
            }
        }
    }

    /// Receives more bytes of a request, at most `room`.
    fn fill(&mut self, room: usize) -> Result<(), NoRequest> {
        let left = self.due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late(self.limits.read).into());
        }
        match self.read(left, room) {
            Ok(0) => Err(NoRequest::Ended),
            Ok(_) => Ok(()),
            Err(error) if is_timeout(&error) => Err(late(self.limits.read).into()),
            Err(_) => Err(NoRequest::Ended),
        }
    }

    fn read(&mut self, wait: Duration, room: usize) -> std::io::Result<usize> {
        self.stream.set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
        let mut bytes = [0; 16 << 10];
        let room = room.min(bytes.len());
        loop {
            match self.stream.read(&mut bytes[..room]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(count) => {
                    self.buffer.extend_from_slice(&bytes[..count]);
                    return Ok(count);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the body of a request.
    pub(super) fn body(&mut self, head: &Head) -> Result<Vec<u8>, NoRequest> {
        if head.expects_continue && self.buffer.is_empty() && head.length != Length::Bytes(0) {
            let sent = self.send(b"HTTP/1.1 100 Continue\r\n\r\n", self.due);
            sent.map_err(|_| NoRequest::Ended)?;
        }
        match head.length {
            Length::Bytes(bytes) => self.exactly(bytes),
            Length::Chunked => self.chunks(),
        }
    }

    fn exactly(&mut self, bytes: usize) -> Result<Vec<u8>, NoRequest> {
        while self.buffer.len() < bytes {
            self.fill(bytes - self.buffer.len())?;
        }
        let rest = self.buffer.split_off(bytes);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    fn chunks(&mut self) -> Result<Vec<u8>, NoRequest> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let size = match httparse::parse_chunk_size(&line) {
                Ok(httparse::Status::Complete((_, size))) => size,
                _ => return Err(ApiError::new(400, "a chunk without its length").into()),
            };
            if size == 0 {
                // Trailer fields may follow; they are ignored.
                let mut bytes = 0;
                loop {
                    let line = self.line()?;
                    bytes += line.len();
                    if line == b"\r\n" {
                        return Ok(body);
                    }
                    if bytes > MAX_CHUNK_LINE {
                        return Err(ApiError::new(400, "too many fields after a body").into());
                    }
                }
            }
            if size > (self.limits.body - body.len()) as u64 {
                return Err(too_large(self.limits.body).into());
            }
            body.extend(self.exactly(size as usize)?);
            if self.exactly(2)? != b"\r\n" {
                return Err(ApiError::new(400, "a chunk that is longer than its length").into());
            }
        }
    }

    /// Reads a line, including its line end.
    fn line(&mut self) -> Result<Vec<u8>, NoRequest> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                return self.exactly(end + 1);
            }
            if self.buffer.len() >= MAX_CHUNK_LINE {
                return Err(ApiError::new(400, "a chunk whose length has no end").into());
            }
            self.fill(MAX_CHUNK_LINE - self.buffer.len())?;
        }
    }

    /// Returns whether the client has closed its side, so that no response is needed. A close is
    /// not detected while bytes that the client sent are unread.
    pub(super) fn is_gone(&self) -> bool {
        if self.stream.set_nonblocking(true).is_err() {
            return true;
        }
        let peeked = self.stream.peek(&mut [0]);
        let gone = match peeked {
            Ok(count) => count == 0,
            Err(error) => !is_timeout(&error) && error.kind() != ErrorKind::Interrupted,
        };
        self.stream.set_nonblocking(false).is_err() || gone
    }

    /// Sends all bytes.
    ///
    /// # Errors
    /// System errors; timed out if the client accepts no bytes for as long as the write limit, or
    /// not all of them by `due`.
    pub(super) fn send(&mut self, mut bytes: &[u8], due: Instant) -> std::io::Result<()> {
        while !bytes.is_empty() {
            if Instant::now() >= due {
                return Err(ErrorKind::TimedOut.into());
            }
            match self.stream.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Closes the connection after briefly reading what the client still sends: with unread bytes,
    /// the system would reset the connection, and the client would lose the response.
    pub(super) fn close(mut self) {
        if self.stream.shutdown(Shutdown::Write).is_err() {
            return;
        }
        let (bytes, time) = LINGER;
        let (mut taken, begin) = (0, Instant::now());
        while taken < bytes {
            let left = time.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return;
            }
            self.buffer.clear();
            match self.read(left, usize::MAX) {
                Ok(0) | Err(_) => return,
                Ok(count) => taken += count,
            }
        }
    }
}

fn is_timeout(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn late(limit: Duration) -> ApiError {
    ApiError::new(408, format!("the request was incomplete after {} seconds", limit.as_secs_f32()))
}

fn too_large(limit: usize) -> ApiError {
    ApiError::new(413, format!("the body has more than {limit} bytes"))
}

/// Parses the head at the start of `bytes`, and returns it with its length; `None` if it is
/// incomplete.
fn parse(bytes: &[u8], max_body: usize) -> Result<Option<(Head, usize)>, ApiError> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let end = match request.parse(bytes) {
        Ok(httparse::Status::Complete(end)) => end,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(ApiError::new(431, format!("more than {MAX_FIELDS} header fields")));
        }
        Err(error) => return Err(ApiError::new(400, format!("no HTTP request: {error}"))),
    };
    let is_1_1 = request.version == Some(1);
    let target = request.path.unwrap_or_default();
    let mut head = Head {
        method: request.method.unwrap_or_default().to_owned(),
        path: target.split('?').next().unwrap_or_default().to_owned(),
        is_1_1,
        keep_alive: is_1_1,
        authorization: None,
        content_type: None,
        coding: Ok(Coding::Plain),
        wanted_fields: None,
        length: Length::Bytes(0),
        expects_continue: false,
    };
    let mut length: Option<usize> = None;
    let mut codings: Vec<String> = Vec::new();
    for field in request.headers.iter() {
        // Only these fields are used, and they are ASCII; others may contain any bytes.
        let value = String::from_utf8_lossy(field.value).trim().to_owned();
        match field.name.to_ascii_lowercase().as_str() {
            "content-length" => {
                let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
                // More digits than the type holds exceed any limit.
                let bytes = match digits {
                    true => value.parse().unwrap_or(usize::MAX),
                    false => return Err(ApiError::new(400, format!("content-length: {value:?}"))),
                };
                if length.is_some_and(|other| other != bytes) {
                    return Err(ApiError::new(400, "content-length twice"));
                }
                length = Some(bytes);
            }
            "transfer-encoding" if value.eq_ignore_ascii_case("chunked") => {
                if head.length == Length::Chunked {
                    return Err(ApiError::new(400, "transfer-encoding twice"));
                }
                head.length = Length::Chunked;
            }
            "transfer-encoding" => {
                return Err(ApiError::new(501, format!("transfer-encoding: {value:?}")));
            }
            "connection" => {
                let has =
                    |word: &str| value.split(',').any(|w| w.trim().eq_ignore_ascii_case(word));
                head.keep_alive = !has("close") && (is_1_1 || has("keep-alive"));
            }
            "expect" if value.eq_ignore_ascii_case("100-continue") => {
                head.expects_continue = is_1_1
            }
            "expect" => return Err(ApiError::new(417, format!("expect: {value:?}"))),
            "authorization" => head.authorization = Some(value),
            "content-type" => head.content_type = Some(value),
            // Several fields form one list.
            "content-encoding" => {
                codings.push(value);
                head.coding = coding(&codings.join(", "));
            }
            "access-control-request-headers" => head.wanted_fields = Some(value),
            _ => {}
        }
    }
    match length {
        // Two lengths allow request smuggling.
        Some(_) if head.length == Length::Chunked => {
            return Err(ApiError::new(400, "both content-length and transfer-encoding"));
        }
        Some(bytes) if bytes > max_body => return Err(too_large(max_body)),
        Some(bytes) => head.length = Length::Bytes(bytes),
        None => {}
    }
    Ok(Some((head, end)))
}
