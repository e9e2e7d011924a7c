//! Routes and answers the requests on a connection.

use std::fmt::Write;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::answer::{Answer, Kind};
use super::connection::{Connection, Head, NoRequest};
use super::error::{ApiError, no_model, reason, refused, too_long};
use super::inflate::inflated;
use super::queue::{Job, Piece, Ticket};
use super::request::{self, Asked, Text};
use super::{Shared, after};
use warploom_llm::chat::Message;
use warploom_llm::tokenizer::EncodeOptions;

/// How often a waiting request checks whether its client is still connected.
const LOOK: Duration = Duration::from_millis(100);

/// The endpoint of a request.
enum Route {
    Health,
    Models,
    Model(String),
    Text(Kind),
    /// A browser's CORS preflight.
    Preflight,
}

/// Answers the requests of a connection until one side ends it.
pub(super) fn serve(shared: &Shared, stream: TcpStream) {
    let Ok(connection) = Connection::new(stream, shared.options.limits.clone()) else { return };
    let mut client = Client { shared, connection, keep_alive: true, is_1_1: true, is_head: false };
    while client.keep_alive {
        let head = match client.connection.head(&|| shared.is_stopping()) {
            Ok(head) => head,
            Err(reason) => return client.refuse(reason),
        };
        client.is_1_1 = head.is_1_1;
        client.is_head = head.method == "HEAD";
        client.keep_alive = head.keep_alive && !shared.is_stopping();
        let begin = Instant::now();
        match client.request(&head) {
            Ok(()) => {
                let (method, path) = (head.method.as_str(), head.path.as_str());
                tracing::debug!(method, path, seconds = begin.elapsed().as_secs_f32(), "answered");
            }
            Err(Broken::Refused(reason)) => return client.refuse(reason),
            // The client has closed the connection.
            Err(Broken::Gone) => return,
        }
    }
    client.connection.close();
}

/// Sends the error for too many connections, without waiting for a request.
pub(super) fn turn_away(stream: TcpStream, shared: &Shared) {
    let limits = shared.options.limits.clone().write(Duration::from_millis(100));
    let most = limits.connections;
    let Ok(connection) = Connection::new(stream, limits) else { return };
    let mut client = Client { shared, connection, keep_alive: false, is_1_1: true, is_head: false };
    let error = ApiError::new(503, format!("there are {most} connections already"));
    let _ = client.error(&error.code("too_many_connections"));
}

/// Why a connection ends.
enum Broken {
    Gone,
    Refused(NoRequest),
}

impl From<std::io::Error> for Broken {
    fn from(_: std::io::Error) -> Broken {
        Broken::Gone
    }
}

impl From<NoRequest> for Broken {
    fn from(reason: NoRequest) -> Broken {
        Broken::Refused(reason)
    }
}

struct Client<'a> {
    shared: &'a Shared,
    connection: Connection,
    keep_alive: bool,
    is_1_1: bool,
    /// Whether the request is a HEAD request.
    is_head: bool,
}

impl Client<'_> {
    fn refuse(mut self, reason: NoRequest) {
        if let NoRequest::Refused(error) = reason {
            self.keep_alive = false;
            if self.error(&error).is_ok() {
                self.connection.close();
            }
        }
    }

    fn request(&mut self, head: &Head) -> Result<(), Broken> {
        let begin = Instant::now();
        // Errors of the head are answered without reading the body.
        let route = self.route(head).map_err(NoRequest::Refused)?;
        let body = self.connection.body(head)?;
        match route {
            Route::Health => self.health()?,
            Route::Models => {
                let data = json!([self.model()]);
                self.json(200, &json!({ "object": "list", "data": data }))?;
            }
            Route::Model(id) if id == self.shared.name => self.json(200, &self.model())?,
            Route::Model(id) => self.error(&no_model(&id))?,
            Route::Preflight => {
                let fields = head.allowed_fields();
                let more = [
                    ("access-control-allow-methods", "GET, HEAD, POST"),
                    ("access-control-allow-headers", fields.as_str()),
                    ("access-control-max-age", "3600"),
                ];
                self.whole(204, "text/plain", "", &more)?
            }
            Route::Text(kind) => match self.job(kind, head, body, begin) {
                Ok((job, asked)) => self.write(kind, job, &asked)?,
                Err(error) => self.error(&error)?,
            },
        }
        Ok(())
    }

    fn route(&self, head: &Head) -> Result<Route, ApiError> {
        let method = head.method.as_str();
        let (route, want) = match head.path.as_str() {
            "/health" => (Route::Health, "GET"),
            "/v1/models" => (Route::Models, "GET"),
            "/v1/chat/completions" => (Route::Text(Kind::Chat), "POST"),
            "/v1/completions" => (Route::Text(Kind::Completion), "POST"),
            path => match path.strip_prefix("/v1/models/") {
                Some(id) => (Route::Model(unescaped(id)), "GET"),
                None => {
                    self.admit(head)?;
                    let text = format!("there is no {path} here");
                    return Err(ApiError::new(404, text).code("unknown_path"));
                }
            },
        };
        if method == "OPTIONS" && self.shared.options.cors_origin.is_some() {
            return Ok(Route::Preflight);
        }
        if !matches!(route, Route::Health) {
            self.admit(head)?;
        }
        if method != want && (method, want) != ("HEAD", "GET") {
            let text = format!("{} takes {want}, not {method}", head.path);
            let error = ApiError::new(405, text).code("wrong_method");
            let allow = if want == "GET" { "GET, HEAD" } else { want };
            return Err(ApiError { allow: Some(allow), ..error });
        }
        // A page of another origin may send a form or plain text without a preflight.
        let kind = head.content_type.as_deref().unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if want == "POST" && !kind.eq_ignore_ascii_case("application/json") {
            return Err(ApiError::new(415, "content-type: must be application/json"));
        }
        // Answered before the body is read.
        head.coding.clone()?;
        Ok(route)
    }

    fn admit(&self, head: &Head) -> Result<(), ApiError> {
        let Some(key) = &self.shared.options.api_key else { return Ok(()) };
        let given = head.authorization.as_deref().unwrap_or_default();
        let (scheme, given) = given.split_once(' ').unwrap_or_default();
        // Comparing hashes takes constant time and reveals no length.
        let same = blake3::hash(key.as_bytes()) == blake3::hash(given.trim().as_bytes());
        match same && scheme.eq_ignore_ascii_case("bearer") {
            true => Ok(()),
            false => Err(ApiError::new(401, "wrong or no API key").code("invalid_api_key")),
        }
    }

    fn health(&mut self) -> std::io::Result<()> {
        let queue = &self.shared.queue;
        let (status, word) = match (self.shared.is_stopping(), queue.is_failing()) {
            (true, _) => (503, "stopping"),
            (false, true) => (503, "failing"),
            (false, false) => (200, "ok"),
        };
        let state = json!({
            "status": word,
            "sequences": self.shared.sequences,
            "running": queue.running(),
            "waiting": queue.waiting(),
        });
        self.json(status, &state)
    }

    fn model(&self) -> Value {
        json!({
            "id": self.shared.name,
            "object": "model",
            "created": self.shared.since,
            "owned_by": "warploom",
        })
    }

    /// Parses and encodes a request as a job for the scheduler.
    fn job(
        &self,
        kind: Kind,
        head: &Head,
        body: Vec<u8>,
        begin: Instant,
    ) -> Result<(Job, Asked), ApiError> {
        let shared = self.shared;
        let _one = shared.reading.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let base = &shared.options;
        let body = inflated(head.coding.clone()?, body, base.limits.body)?;
        let (prompt, mut asked) = match kind {
            Kind::Chat => {
                let (messages, asked) = request::chat(&body, base)?;
                self.known(&asked)?;
                (self.conversation(&messages)?, asked)
            }
            Kind::Completion => {
                let (text, asked) = request::completion(&body, base)?;
                self.known(&asked)?;
                (self.prompt(text)?, asked)
            }
        };
        let field = if kind == Kind::Chat { "messages" } else { "prompt" };
        if prompt.is_empty() {
            return Err(ApiError::field(field, "is empty"));
        }
        if prompt.len() > shared.context {
            return Err(too_long(field, &format!("{} tokens", prompt.len()), shared.context));
        }
        let job = Job {
            prompt,
            max_tokens: asked.max_tokens.flatten().unwrap_or(shared.context),
            sampling: asked.sampling.clone(),
            stop: std::mem::take(&mut asked.stop),
            deadline: after(begin, shared.options.time),
        };
        Ok((job, asked))
    }

    fn known(&self, asked: &Asked) -> Result<(), ApiError> {
        match &asked.model {
            Some(id) if *id != self.shared.name => Err(no_model(id)),
            _ => Ok(()),
        }
    }

    fn conversation(&self, messages: &[Message]) -> Result<Vec<u32>, ApiError> {
        let shared = self.shared;
        let template = shared.template.as_ref();
        let template =
            template.map_err(|text| ApiError::new(400, text.as_str()).code("no_chat"))?;
        // Checked before the template is rendered.
        self.check_size("messages", messages.iter().map(Message::bytes).sum())?;
        let tokenizer = shared.model.tokenizer();
        let prompt = template.render(messages, true, tokenizer, Some(SystemTime::now()));
        let prompt = prompt.map_err(|e| refused(messages, &e))?;
        self.check_size("messages", prompt.text.len())?;
        let tokens = prompt.encode(tokenizer, true);
        tokens.map_err(|e| ApiError::field("messages", e.to_string()))
    }

    fn prompt(&self, text: Text) -> Result<Vec<u32>, ApiError> {
        let tokenizer = self.shared.model.tokenizer();
        match text {
            Text::Tokens(tokens) => {
                let size = tokenizer.vocabulary();
                match tokens.iter().find(|id| **id as usize >= size) {
                    None => Ok(tokens),
                    Some(id) => {
                        let text = format!("token {id} of a vocabulary of {size}");
                        Err(ApiError::field("prompt", text))
                    }
                }
            }
            Text::Text(text) => {
                self.check_size("prompt", text.len())?;
                let options = EncodeOptions::default().add_bos(true).parse_special(true);
                let tokens = tokenizer.encode(&text, options);
                tokens.map_err(|e| ApiError::field("prompt", e.to_string()))
            }
        }
    }

    /// Refuses a text that would not fit the context even if all its tokens were the longest.
    fn check_size(&self, field: &str, bytes: usize) -> Result<(), ApiError> {
        let shared = self.shared;
        match bytes / shared.longest_token > shared.context {
            true => Err(too_long(field, &format!("{bytes} bytes"), shared.context)),
            false => Ok(()),
        }
    }

    fn write(&mut self, kind: Kind, job: Job, asked: &Asked) -> std::io::Result<()> {
        let due = after(job.deadline, self.shared.options.limits.write);
        let ticket = match self.shared.queue.submit(job) {
            Ok(ticket) => ticket,
            Err(failure) => return self.error(&failure.into()),
        };
        let number = self.shared.answers.fetch_add(1, Ordering::Relaxed);
        let name = if kind == Kind::Chat { "chatcmpl" } else { "cmpl" };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let answer = Answer {
            kind,
            id: format!("{name}-{number:016x}"),
            created: now.map_or(0, |time| time.as_secs()),
            model: &self.shared.name,
            include_usage: asked.include_usage,
        };
        match asked.stream {
            true => self.stream(&answer, &ticket, due),
            false => self.collect(&answer, &ticket),
        }
    }

    /// Waits for the next part of an answer.
    ///
    /// # Errors
    /// Connection aborted if the client has gone.
    fn piece(&self, ticket: &Ticket, looked: &mut Instant) -> std::io::Result<Piece> {
        loop {
            let piece = ticket.next(LOOK);
            if looked.elapsed() >= LOOK {
                *looked = Instant::now();
                if self.connection.is_gone() {
                    return Err(ErrorKind::ConnectionAborted.into());
                }
            }
            if let Some(piece) = piece {
                return Ok(piece);
            }
        }
    }

    fn collect(&mut self, answer: &Answer<'_>, ticket: &Ticket) -> std::io::Result<()> {
        let mut text = String::new();
        let mut looked = Instant::now();
        loop {
            match self.piece(ticket, &mut looked)? {
                Piece::Started => {}
                Piece::Text(more) => text.push_str(&more),
                Piece::Done(done) => return self.json(200, &answer.whole(&text, &done)),
                Piece::Failed(failure) => return self.error(&failure.into()),
            }
        }
    }

    /// Streams an answer. Its head is sent with the first token, so that an earlier failure can
    /// have its own status.
    fn stream(
        &mut self,
        answer: &Answer<'_>,
        ticket: &Ticket,
        due: Instant,
    ) -> std::io::Result<()> {
        let mut looked = Instant::now();
        match self.piece(ticket, &mut looked)? {
            Piece::Failed(failure) => return self.error(&failure.into()),
            Piece::Started | Piece::Text(_) | Piece::Done(_) => {}
        }
        // Without chunks, the end of the connection marks the end of the answer.
        self.keep_alive &= self.is_1_1;
        let mut head = self.head(200, "text/event-stream");
        head.push_str("cache-control: no-cache\r\n");
        if self.is_1_1 {
            head.push_str("transfer-encoding: chunked\r\n");
        }
        head.push_str("\r\n");
        self.connection.send(head.as_bytes(), due)?;
        if let Some(first) = answer.first() {
            self.events(&[first.to_string()], due)?;
        }
        loop {
            match self.piece(ticket, &mut looked)? {
                Piece::Started => {}
                Piece::Text(text) => self.events(&[answer.text(&text).to_string()], due)?,
                Piece::Done(done) => {
                    let mut last: Vec<String> =
                        answer.last(&done).iter().map(Value::to_string).collect();
                    last.push("[DONE]".into());
                    self.events(&last, due)?;
                    break;
                }
                Piece::Failed(failure) => {
                    self.keep_alive = false;
                    let error = ApiError::from(failure);
                    self.events(&[error.to_json().to_string()], due)?;
                    break;
                }
            }
        }
        match self.is_1_1 {
            true => self.connection.send(b"0\r\n\r\n", due),
            false => Ok(()),
        }
    }

    /// Sends events in one chunk.
    fn events(&mut self, events: &[String], due: Instant) -> std::io::Result<()> {
        let data: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        let bytes = match self.is_1_1 {
            true => format!("{:x}\r\n{data}\r\n", data.len()),
            false => data,
        };
        self.connection.send(bytes.as_bytes(), due)
    }

    fn error(&mut self, error: &ApiError) -> std::io::Result<()> {
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

    fn json(&mut self, status: u16, value: &Value) -> std::io::Result<()> {
        self.whole(status, "application/json", &value.to_string(), &[])
    }

    fn whole(
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

/// Decodes the percent escapes of a part of a path.
fn unescaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after.first_chunk::<2>().and_then(|digits| std::str::from_utf8(digits).ok());
        let code = code.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match code.filter(|_| *first == b'%') {
            Some(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
