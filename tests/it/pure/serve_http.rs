//! HTTP/2, TLS, compressed bodies, slow readers, and the routes in the server of an application.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use warploom_serve::{Limits, ServeOptions, Server, Service, Tls, router};

use crate::serve::{
    STORY, events, exchange, generated, health, post, request, server, session, status,
    until_running,
};

type Sender = http2::SendRequest<Full<Bytes>>;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A client with HTTP/2, and the task of its connection.
async fn client<T>(stream: T, window: u32) -> (Sender, JoinHandle<()>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    (sender, tokio::spawn(async move { drop(connection.await) }))
}

async fn connected(address: SocketAddr) -> (Sender, JoinHandle<()>) {
    client(tokio::net::TcpStream::connect(address).await.unwrap(), 1 << 16).await
}

async fn send(sender: &Sender, path: &str, body: &str) -> Response<Incoming> {
    let method = if body.is_empty() { "GET" } else { "POST" };
    let request = Request::builder().method(method).uri(format!("http://localhost{path}"));
    let request = request.header("content-type", "application/json");
    let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
    sender.clone().send_request(request).await.unwrap()
}

async fn ask(sender: &Sender, path: &str, body: &str) -> (u16, String) {
    let answer = send(sender, path, body).await;
    let status = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

fn story(max_tokens: usize, stream: bool) -> String {
    format!("{{\"prompt\":\"{STORY}\",\"max_tokens\":{max_tokens},\"stream\":{stream}}}")
}

#[test]
fn serve_http2_has_many_answers_on_one_connection() {
    let server = server(2, ServeOptions::default());
    let want = generated(STORY, 8);
    runtime().block_on(async {
        let (sender, _task) = connected(server.address()).await;
        let tasks = (0..8).map(|i| {
            let sender = sender.clone();
            tokio::spawn(
                async move { ask(&sender, "/v1/completions", &story(8, i % 2 == 0)).await },
            )
        });
        for (i, task) in tasks.collect::<Vec<_>>().into_iter().enumerate() {
            let (status, body) = task.await.unwrap();
            assert_eq!(status, 200, "{body}");
            let texts = body.split_terminator("\n\n").filter_map(|event| {
                let event = event.strip_prefix("data: ").unwrap_or(event);
                let value: serde_json::Value = serde_json::from_str(event).ok()?;
                value["choices"][0]["text"].as_str().map(String::from)
            });
            assert_eq!(texts.collect::<String>(), want, "{i}: {body}");
        }
        let (status, body) = ask(&sender, "/v1/nothing", "").await;
        assert!(status == 404 && body.contains("unknown_path"), "{body}");
        // A client that resets a stream cancels its answer, and keeps the connection.
        let mut long = send(&sender, "/v1/completions", &story(240, true)).await.into_body();
        long.frame().await.unwrap().unwrap();
        drop(long);
        let address = server.address();
        tokio::task::spawn_blocking(move || until_running(address, 0)).await.unwrap();
        assert_eq!(ask(&sender, "/health", "").await.0, 200);
    });
    server.stop(Duration::from_secs(5)).unwrap();
}

#[test]
fn serve_idle_connections_and_readers_that_stall_are_ended() {
    let (wait, enough) = (Duration::from_millis(400), Duration::from_secs(20));
    let limits = Limits::default().idle(wait).write(wait);
    let server = server(1, ServeOptions::default().limits(limits));
    let head = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    // An idle connection ends without a word.
    let mut idle = TcpStream::connect(server.address()).unwrap();
    idle.set_read_timeout(Some(enough)).unwrap();
    idle.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    idle.read_to_string(&mut answer).unwrap();
    assert_eq!((status(&answer), answer.matches("HTTP/1.1").count()), (200, 1), "{answer}");
    // More answers than buffers of sockets hold, none of which are read for a while.
    let count = 20_000;
    let mut stalled = TcpStream::connect(server.address()).unwrap();
    stalled.set_write_timeout(Some(wait)).unwrap();
    stalled.set_read_timeout(Some(enough)).unwrap();
    let _ = stalled.write_all(head.repeat(count).as_bytes());
    std::thread::sleep(wait * 3);
    let (mut answers, mut bytes) = (0, vec![0; 1 << 16]);
    while let Ok(read @ 1..) = stalled.read(&mut bytes) {
        answers += bytes[..read].windows(9).filter(|part| part == b"HTTP/1.1 ").count();
    }
    assert!((1..count).contains(&answers), "{answers}");
    // The same with HTTP/2, where windows hold the data back.
    runtime().block_on(async {
        let (sender, task) = connected(server.address()).await;
        assert_eq!(ask(&sender, "/health", "").await.0, 200);
        tokio::time::timeout(enough, task).await.expect("an idle connection ends").unwrap();
        let stream = tokio::net::TcpStream::connect(server.address()).await.unwrap();
        let (sender, task) = client(stream, 16).await;
        let unread = send(&sender, "/metrics", "").await;
        tokio::time::timeout(enough, task).await.expect("a stalled one ends").unwrap();
        drop(unread);
    });
    assert_eq!(health(server.address())["status"], "ok");
}

/// A certificate for localhost, its key, and the key of another one (`tests/golden/tls/make.sh`).
const CERTIFICATE: &str = include_str!("../../golden/tls/localhost.pem");
const KEY: &str = include_str!("../../golden/tls/localhost.key");
const OTHER_KEY: &str = include_str!("../../golden/tls/other.key");

async fn encrypted(
    server: &Server,
    protocol: &str,
) -> tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let stream = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol.as_bytes()));
    stream
}

#[test]
fn serve_encrypts_with_a_certificate() {
    let tls = Tls::from_pem(CERTIFICATE.as_bytes(), KEY.as_bytes()).unwrap();
    assert!(!format!("{tls:?}").contains("PRIVATE"), "{tls:?}");
    let wait = Duration::from_millis(500);
    let limits = Limits::default().read(wait);
    let server = server(2, ServeOptions::default().tls(Some(tls)).limits(limits));
    let want = generated(STORY, 8);
    runtime().block_on(async {
        let stream = encrypted(&server, "h2").await;
        let (sender, _task) = client(stream, 1 << 16).await;
        let (status, body) = ask(&sender, "/v1/completions", &story(8, false)).await;
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert!(status == 200 && body["choices"][0]["text"] == want.as_str(), "{body}");
        let mut stream = encrypted(&server, "http/1.1").await;
        let body = request("/v1/completions", &story(8, true));
        stream.write_all(body.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let events = events(&answer);
        let text =
            |event: &serde_json::Value| event["choices"][0]["text"].as_str().map(String::from);
        assert_eq!(events.iter().filter_map(text).collect::<String>(), want);
        // Late in the middle of a request: the error is encrypted too.
        let mut stream = encrypted(&server, "http/1.1").await;
        stream.write_all(b"GET /hea").await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&answer));
    });
    // No handshake, in time or at all.
    let plain = exchange(server.address(), b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(!plain.contains("HTTP"), "{plain}");
    let begin = Instant::now();
    assert_eq!(exchange(server.address(), b""), "");
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    server.stop(Duration::from_secs(5)).unwrap();
}

#[test]
fn serve_wrong_certificates_are_named() {
    let folder = std::env::temp_dir().join(format!("warploom-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let broken = CERTIFICATE.replace("BEGIN CERTIFICATE-----\n", "BEGIN CERTIFICATE-----\n!");
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let cert = file("one.pem", CERTIFICATE);
    let key = file("one.key", KEY);
    let other = file("other.key", OTHER_KEY);
    let broken = file("broken.pem", &broken);
    let empty = file("empty.pem", "");
    assert!(Tls::open(&cert, &key).is_ok());
    let none = folder.join("none.pem");
    assert!(Tls::open(&none, &key).unwrap_err().is_io());
    for (cert, key, words) in [
        (&none, &key, ["cannot read", "none.pem"]),
        (&cert, &none, ["cannot read", "none.pem"]),
        (&key, &key, ["one.key", "has no certificate"]),
        (&empty, &key, ["empty.pem", "has no certificate"]),
        (&broken, &key, ["broken.pem", "certificate 0"]),
        (&cert, &cert, ["one.pem", "has no private key"]),
        (&cert, &other, ["other.key", "is not the key"]),
    ] {
        let error = Tls::open(cert, key).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{words:?}: {error}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn serve_compressed_bodies_are_inflated_up_to_the_limit() {
    let server = server(1, ServeOptions::default());
    let send = |coding: &str, body: &[u8]| {
        let head = format!(
            "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: \
             close\r\nContent-Encoding: {coding}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        exchange(server.address(), &[head.as_bytes(), body].concat())
    };
    let text = b"{\"prompt\": \"The sun is\"}";
    let packed = gzip(text);
    for coding in ["gzip", "GZip", "x-gzip", "identity, gzip"] {
        let answer = send(coding, &packed);
        assert!(status(&answer) == 200 && answer.contains("\"count\""), "{coding}: {answer}");
    }
    assert_eq!(status(&send("identity", text)), 200);
    // Several members form one body.
    let (a, b) = text.split_at(9);
    assert_eq!(status(&send("gzip", &[gzip(a), gzip(b)].concat())), 200);
    let answer = send("br", &packed);
    assert!(status(&answer) == 415 && answer.contains("unsupported_encoding"), "{answer}");
    assert!(answer.contains("accept-encoding: gzip"), "{answer}");
    let mut wrong = packed.clone();
    wrong[packed.len() - 6] ^= 1;
    let junk = [packed.as_slice(), b"xyz"].concat();
    let short = &packed[..packed.len() - 3];
    for (what, body) in [("checksum", &wrong[..]), ("junk", &junk), ("end", short), ("text", text)]
    {
        let answer = send("gzip", body);
        assert!(status(&answer) == 400, "{what}: {answer}");
        assert!(answer.contains("content-encoding: "), "{what}: {answer}");
    }
    // A decompression bomb, and one without any output.
    let bomb = gzip(&vec![b' '; 64 << 20]);
    assert!(bomb.len() < 100_000);
    let answer = send("gzip", &bomb);
    assert!(status(&answer) == 413 && answer.contains("1048576 bytes inflated"), "{answer}");
    let empty = gzip(b"");
    let many = empty.repeat((1 << 20) / empty.len() + 1);
    let answer = send("gzip", &many);
    assert!(status(&answer) == 413 && answer.contains("1048576"), "{answer}");
    let (status, answer) = post(server.address(), "/tokenize", "{\"prompt\":\"A\"}");
    assert_eq!(status, 200, "{answer}");
}

/// The blocking calls work in a program with a runtime of its own, also if they fail.
#[test]
fn serve_starts_and_stops_in_a_task() {
    runtime().block_on(async {
        let first = server(1, ServeOptions::default());
        let options = ServeOptions::default().address(first.address());
        let error = Server::start(session(1), options).unwrap_err();
        assert!(error.is_io() && error.to_string().contains("cannot listen on 127"), "{error}");
        let small = ServeOptions::default().limits(Limits::default().head(4096));
        let error = Server::start(session(1), small).unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains("limits.head: 4096"), "{error}");
        first.stop(Duration::from_secs(1)).unwrap();
    });
}

#[test]
fn serve_routes_are_part_of_an_application() {
    let options = ServeOptions::default().api_key(Some("s3cret".into()));
    let service = Service::start(session(1), options).unwrap();
    let own = axum::Router::new().route("/hello", axum::routing::get(|| async { "hello" }));
    let app = own.nest("/llm", router(&service));
    let runtime = runtime();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move { axum::serve(listener, app).await });
    let get = |path: &str, fields: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{fields}\r\n");
        exchange(address, head.as_bytes())
    };
    let key = "Authorization: Bearer s3cret\r\n";
    assert!(get("/hello", "").ends_with("hello"));
    assert_eq!(status(&get("/llm/health", "")), 200);
    assert_eq!(status(&get("/llm/v1/models", "")), 401);
    let models = get("/llm/v1/models", key);
    assert!(status(&models) == 200 && models.contains(service.model()), "{models}");
    let nothing = get("/llm/nothing", key);
    assert!(status(&nothing) == 404 && nothing.contains("unknown_path"), "{nothing}");
    let others = get("/nothing", "");
    assert!(status(&others) == 404 && !others.contains("unknown_path"), "{others}");
    let generate = |stream: bool| {
        let body = request("/llm/v1/completions", &story(4, stream));
        exchange(address, body.replacen("Host", &format!("{key}Host"), 1).as_bytes())
    };
    let (whole, streamed) = (generate(false), generate(true));
    assert_eq!(status(&whole), 200, "{whole}");
    assert!(events(&streamed).len() > 3, "{streamed}");
    // The routes outlive the service.
    assert!(service.is_alive());
    service.stop(Duration::from_secs(5)).unwrap();
    let answer = generate(false);
    assert!(status(&answer) == 503 && answer.contains("server_stopping"), "{answer}");
    assert_eq!(status(&get("/llm/health", "")), 503);
    assert!(get("/hello", "").ends_with("hello"));
}
