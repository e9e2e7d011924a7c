//! A mock of the Hugging Face hub for tests. It can disconnect, stall, send wrong data, redirect,
//! and refuse requests.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sha2::{Digest, Sha256};

pub(super) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A received request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) path: String,
    headers: HashMap<String, String>,
    /// Number of earlier requests for this path.
    pub(super) before: usize,
}

impl Request {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// Returns the byte offset at which the requested range starts; 0 without a range.
    pub(super) fn from(&self) -> usize {
        let range = self.header("range").and_then(|r| r.strip_prefix("bytes="));
        range.and_then(|r| r.strip_suffix('-')?.parse().ok()).unwrap_or(0)
    }
}

/// A response. Its content length is that of the body, unless a header overrides it.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
    /// Number of body bytes after which sending stops.
    pub(super) cut: Option<usize>,
    /// How long the connection then stays open.
    pub(super) stall: Duration,
}

impl Answer {
    pub(super) fn new(status: u16, body: impl Into<Vec<u8>>) -> Answer {
        Answer { status, headers: Vec::new(), body: body.into(), cut: None, stall: Duration::ZERO }
    }

    pub(super) fn with(mut self, name: &'static str, value: impl ToString) -> Answer {
        self.headers.retain(|(n, _)| *n != name);
        self.headers.push((name, value.to_string()));
        self
    }

    pub(super) fn cut(self, bytes: usize) -> Answer {
        Answer { cut: Some(bytes), ..self }
    }
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The files of the repository `org/name`.
#[derive(Clone, Debug, Default)]
pub(super) struct Files(pub(super) Vec<(String, Vec<u8>)>);

impl Files {
    /// Answers a request for the contents of a file, or for the list of files, in which all
    /// are large.
    pub(super) fn answer(&self, request: &Request) -> Answer {
        if request.path.starts_with("/api/models/org/name/revision/main") {
            let siblings: Vec<String> = self.0.iter().map(|(name, bytes)| {
                format!(
                    r#"{{"rfilename":"{name}","size":{},"blobId":"{}","lfs":{{"sha256":"{}","size":{}}}}}"#,
                    bytes.len(), COMMIT, sha256(bytes), bytes.len()
                )
            }).collect();
            let text = format!(r#"{{"sha":"{COMMIT}","siblings":[{}]}}"#, siblings.join(","));
            return Answer::new(200, text);
        }
        let path = request.path.replace("%20", " ");
        let name = path.strip_prefix(&format!("/org/name/resolve/{COMMIT}/"));
        let found = self.0.iter().find(|(n, _)| Some(n.as_str()) == name);
        let Some((_, bytes)) = found else { return Answer::new(404, "none") };
        match request.from() {
            0 => Answer::new(200, bytes.clone()),
            from if from >= bytes.len() => Answer::new(416, ""),
            from => Answer::new(206, &bytes[from..])
                .with("Content-Range", format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len())),
        }
    }
}

/// A server that runs until the process ends.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) address: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub(super) fn new(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (seen, answer) = (requests.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, answer) = (seen.clone(), answer.clone());
                std::thread::spawn(move || serve(stream, &seen, &*answer));
            }
        });
        Server { address, requests }
    }

    /// Returns the requests whose path contains `part`.
    pub(super) fn requests(&self, part: &str) -> Vec<Request> {
        let all = self.requests.lock().unwrap();
        all.iter().filter(|request| request.path.contains(part)).cloned().collect()
    }
}

fn serve(stream: TcpStream, seen: &Mutex<Vec<Request>>, answer: &dyn Fn(&Request) -> Answer) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = HashMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.to_owned()),
            None => break,
        };
    }
    let request = {
        let mut seen = seen.lock().unwrap();
        let before = seen.iter().filter(|request| request.path == path).count();
        seen.push(Request { path, headers, before });
        seen.last().cloned().unwrap()
    };
    let answer = answer(&request);
    let mut head = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", answer.status);
    if !answer.headers.iter().any(|(name, _)| *name == "Content-Length") {
        head += &format!("Content-Length: {}\r\n", answer.body.len());
    }
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let body = &answer.body[..answer.cut.unwrap_or(answer.body.len())];
    let mut stream = stream;
    // A client may close early; that is not an error.
    let _ = stream.write_all(format!("{head}\r\n").as_bytes());
    let _ = stream.write_all(body);
    let _ = stream.flush();
    std::thread::sleep(answer.stall);
}
