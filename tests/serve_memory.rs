//! A server retains nothing of answered requests.
//!
//! A separate binary, since a counting allocator counts for all its tests.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use warploom::ComputeMode;
use warploom::runtime::Runtime;
use warploom_llm::{Model, Session};
use warploom_models::gguf::Access;
use warploom_serve::{ServeOptions, Server};

const MODEL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../models/warploom-tiny-llama-Q4_K_M.gguf");

/// Requests before each count.
const REQUESTS: usize = 500;
/// Counts.
const ROUNDS: usize = 4;
/// Concurrent clients, and sequences.
const CLIENTS: usize = 4;
/// Live bytes by which counts may differ: 8 per request. A text that a sequence keeps for requests
/// with the same start may be longer than the previous one.
const SLACK: i64 = 4 << 10;

struct Counting;

/// Live allocations of all threads: bytes and count.
static LIVE: AtomicI64 = AtomicI64::new(0);
static PIECES: AtomicI64 = AtomicI64::new(0);

fn count(bytes: i64, pieces: i64) {
    LIVE.fetch_add(bytes, Ordering::Relaxed);
    PIECES.fetch_add(pieces, Ordering::Relaxed);
}

// SAFETY: every call is the system allocator's, which keeps the contract; counting allocates not.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64, 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64, 1);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as i64 - layout.size() as i64, 0);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64), -1);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn server() -> Server {
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    let model = Model::open(MODEL, Access::Copy).unwrap();
    let builder = Session::builder(model).runtime(runtime).context(64).sequences(CLIENTS);
    let session = builder.compute(ComputeMode::Int8).build().unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    Server::start(session, ServeOptions::default().address(address)).unwrap()
}

/// One request of several kinds; whether the server took it.
fn ask(address: SocketAddr, i: usize) -> bool {
    let prompt = ["Once", "Tom and Lily went", "A", "The dog saw a ball"][i % 4];
    let more = match i % 5 {
        0 => r#","stream":true"#,
        1 => r#","temperature":0"#,
        2 => r#","frequency_penalty":0,"seed":7"#,
        3 => r#","stop":["."]"#,
        _ => "",
    };
    // One in fifty is wrong.
    let tokens = if i % 50 == 49 { 0 } else { 1 + i % 3 };
    let body = format!("{{\"prompt\":\"{prompt}\",\"max_tokens\":{tokens}{more}}}");
    let text = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer.starts_with(b"HTTP/1.1 200")
}

/// Requests of concurrent clients; returns the number of good answers.
fn load(address: SocketAddr, requests: usize) -> usize {
    std::thread::scope(|scope| {
        let client = |first: usize| {
            move || (first..requests).step_by(CLIENTS).filter(|i| ask(address, *i)).count()
        };
        let clients: Vec<_> = (0..CLIENTS).map(|first| scope.spawn(client(first))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    })
}

/// Live allocations after the connection threads have ended: bytes and count. The minimum of
/// several readings, since the server's threads run now and then.
fn live() -> (i64, i64) {
    let end = Instant::now() + Duration::from_millis(700);
    let mut least = (i64::MAX, i64::MAX);
    while Instant::now() < end {
        let now = (LIVE.load(Ordering::Relaxed), PIECES.load(Ordering::Relaxed));
        least = least.min(now);
        std::thread::sleep(Duration::from_millis(5));
    }
    least
}

/// Memory of the process, for display: the allocator decides when to return it.
fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.map_or("?".into(), |line| line.trim().to_string())
}

#[test]
fn what_is_live_does_not_grow_with_requests() {
    let server = server();
    let good = REQUESTS - REQUESTS / 50;
    let mut counts = Vec::new();
    for round in 1..=ROUNDS {
        assert_eq!(load(server.address(), REQUESTS), good);
        let (bytes, pieces) = live();
        let resident = resident();
        eprintln!("{}: live {bytes} bytes, {pieces} pieces; {resident}", round * REQUESTS);
        counts.push(bytes);
    }
    // A plan is made at the first run of its kind, which may be late, and is kept. Leaks of
    // requests would show in every round.
    let least = counts.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
    assert!(least <= SLACK, "{counts:?}");
    // The count can fail: 16 bytes for each request show.
    let kept: Vec<Box<[u8; 16]>> = (0..REQUESTS).map(|_| Box::new([1; 16])).collect();
    let grown = live().0 - counts[ROUNDS - 1];
    assert!(grown > SLACK, "{grown} bytes of {} boxes do not show", kept.len());
}
