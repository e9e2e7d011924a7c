//! Idle connections cost no threads, and delay no other client.
//!
//! A separate binary, since other tests of the same process have threads of their own. It has both
//! ends of each connection, so it opens as many as half of the files that the system allows, at
//! most `WARPLOOM_TEST_CONNECTIONS` (2,000).

#![cfg(target_os = "linux")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use warploom::ComputeMode;
use warploom::runtime::Runtime;
use warploom_llm::{Model, Session};
use warploom_models::gguf::Access;
use warploom_serve::{Limits, ServeOptions, Server};

const MODEL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../models/warploom-tiny-llama-Q4_K_M.gguf");

/// Files that are open besides the connections.
const OTHER_FILES: usize = 200;
/// Most memory of the process for a connection, in bytes. `Limits::connections` says what it is.
const MEMORY: usize = 32 << 10;

fn server() -> Server {
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    let model = Model::open(MODEL, Access::Copy).unwrap();
    let builder = Session::builder(model).runtime(runtime).context(64).sequences(2);
    let session = builder.compute(ComputeMode::Int8).build().unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let wait = Duration::from_secs(300);
    let limits = Limits::default().read(wait).idle(wait);
    Server::start(session, ServeOptions::default().address(address).limits(limits)).unwrap()
}

/// A line of a file of this process, such as the soft limit of open files.
fn field(file: &str, name: &str) -> usize {
    let text = std::fs::read_to_string(format!("/proc/self/{file}")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap_or(usize::MAX)
}

fn threads() -> usize {
    field("status", "Threads:")
}

fn resident() -> usize {
    field("status", "VmRSS:") << 10
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// Sends a request and reads its answer, which ends with `end`.
fn ask(stream: &mut TcpStream, request: &str, end: &str) {
    stream.write_all(request.as_bytes()).unwrap();
    let (mut answer, mut bytes) = (String::new(), [0; 4096]);
    while !answer.ends_with(end) {
        let count = stream.read(&mut bytes).unwrap();
        assert!(count > 0, "{answer}");
        answer.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
    }
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

fn generate(stream: &mut TcpStream) {
    let body = "{\"prompt\":\"Once\",\"max_tokens\":2}";
    let head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    ask(stream, &request, "}}");
}

#[test]
fn idle_connections_cost_no_threads() {
    let server = server();
    let address = server.address();
    // What is started at the first request is there.
    generate(&mut connect(address));
    let files = field("limits", "Max open files");
    let most = std::env::var("WARPLOOM_TEST_CONNECTIONS");
    let most = most.map_or(2000, |count| count.parse().unwrap());
    let count = most.min(files.saturating_sub(OTHER_FILES) / 2);
    let (threads_before, resident_before) = (threads(), resident());
    let begin = Instant::now();
    let mut idle: Vec<TcpStream> = Vec::new();
    for i in 0..count {
        let mut stream = connect(address);
        // Half of them have sent a request, which leaves a buffer.
        if i % 2 == 0 {
            ask(&mut stream, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n", "}");
        }
        idle.push(stream);
    }
    let opened = begin.elapsed();
    let memory = resident().saturating_sub(resident_before) / count;
    let begin = Instant::now();
    generate(&mut connect(address));
    let answered = begin.elapsed();
    eprintln!(
        "{count} idle connections, opened in {opened:.1?}: {} threads, before {threads_before}; \
         {memory} bytes each; an answer in {answered:.1?}",
        threads()
    );
    assert!(threads() <= threads_before, "{} threads, before {threads_before}", threads());
    assert!(memory < MEMORY, "{memory} bytes for a connection");
    assert!(answered < Duration::from_secs(20), "{answered:?}");
    // Idle ones are answered too, whether they have sent something or not.
    for stream in idle.iter_mut().step_by(count / 7) {
        generate(stream);
    }
    server.stop(Duration::from_secs(1)).unwrap();
    // The server has closed them.
    for stream in &mut idle {
        assert_eq!(stream.read(&mut [0; 64]).unwrap_or(0), 0);
    }
}
