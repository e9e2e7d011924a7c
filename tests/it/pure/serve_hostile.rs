//! Malformed, slow and unauthorised clients: each gets an error, and the server continues.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use warploom_serve::{Limits, ServeOptions, Server};

use crate::serve::{exchange, post, request, server, status};

const CHAT: &str = "/v1/chat/completions";

fn still_answers(server: &Server) {
    let (status, answer) =
        post(server.address(), "/v1/completions", "{\"prompt\":\"A\",\"max_tokens\":1}");
    assert_eq!(status, 200, "{answer}");
}

/// A valid body.
fn hello() -> String {
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"max_tokens\":2}".to_owned()
}

fn head(method: &str, path: &str, fields: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{fields}\r\n")
}

/// `hyper` answers what is no HTTP, without a body, and ends the connection.
#[test]
fn serve_what_is_no_http_ends_its_connection() {
    let server = server(1, ServeOptions::default());
    let json = "Content-Type: application/json\r\n";
    let post = |fields: &str| head("POST", CHAT, &format!("{json}{fields}"));
    let rows: Vec<(String, u16)> = vec![
        ("\r\n\r\nnonsense\r\n\r\n".into(), 400),
        ("GET\r\n\r\n".into(), 400),
        ("GET / HTTP/9.9\r\n\r\n".into(), 400),
        ("GET /health HTTP/1.1\r\nbad field\r\n\r\n".into(), 400),
        (post("Content-Length: -1\r\n"), 400),
        (post("Content-Length: x\r\n"), 400),
        (post("Content-Length: 99999999999999999999999\r\n"), 400),
        (post("Content-Length: 1\r\nContent-Length: 2\r\n"), 400),
        (post("Transfer-Encoding: gzip\r\n"), 400),
        (head("GET", "/health", &format!("A: {}\r\n", "x".repeat(20_000))), 431),
        (head("GET", "/health", &"A: b\r\n".repeat(100)), 431),
    ];
    for (bytes, want) in &rows {
        let keep = bytes.replace("Connection: close\r\n", "");
        let answer = exchange(server.address(), keep.as_bytes());
        let start: String = bytes.chars().take(160).collect();
        assert_eq!(status(&answer), *want, "{start:?}: {answer}");
        assert!(answer.ends_with("\r\n\r\n"), "{start:?}: {answer}");
    }
    // Two lengths allow request smuggling: the chunks count, and nothing is read behind them.
    let both = post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n") + "0\r\n\r\n";
    let both = both.replace("Connection: close\r\n", "") + &head("GET", "/health", "");
    let answer = exchange(server.address(), both.as_bytes());
    assert_eq!((status(&answer), answer.matches("HTTP/1.1").count()), (400, 1), "{answer}");
    still_answers(&server);
}

#[test]
fn serve_malformed_requests_are_refused_with_a_reason() {
    let server = server(1, ServeOptions::default());
    let json = "Content-Type: application/json\r\n";
    let long = format!("{{\"prompt\":\"{}\"}}", "word ".repeat(600));
    let rows: Vec<(String, u16, &str)> = vec![
        (head("GET", "/", ""), 404, "there is no /"),
        (head("GET", "/v1/nothing?x=1", ""), 404, "there is no /v1/nothing"),
        (head("GET", CHAT, ""), 405, "takes POST, not GET"),
        (head("DELETE", "/v1/models", ""), 405, "takes GET, not DELETE"),
        (head("OPTIONS", CHAT, ""), 405, "takes POST"),
        (head("GET", "/v1/models/other", ""), 404, "there is no model"),
        (
            head("POST", CHAT, "Content-Type: text/plain\r\nContent-Length: 2\r\n") + "{}",
            415,
            "json",
        ),
        (head("POST", CHAT, json), 400, "EOF while parsing a value at line 1 column 0"),
        (head("POST", CHAT, &format!("{json}Content-Length: 1048577\r\n")), 413, "1048576"),
        (
            head("POST", CHAT, &format!("{json}Transfer-Encoding: chunked\r\n")) + "zz\r\n",
            400,
            "chunk",
        ),
        (
            head("POST", CHAT, &format!("{json}Transfer-Encoding: chunked\r\n"))
                + &format!("{:x}\r\n{}\r\n0\r\n\r\n", 1_048_577, "x".repeat(1_048_577)),
            413,
            "1048576",
        ),
        (head("POST", CHAT, &format!("{json}Expect: magic\r\n")), 417, "magic"),
        (request(CHAT, "{\"messages\": [}"), 400, "line 1 column 15"),
        (request(CHAT, "nonsense"), 400, "line 1 column 2"),
        (request(CHAT, "{\"messages\":[],\"x\":1}"), 400, "messages"),
        (request(CHAT, &hello().replace("user", "king")), 400, "messages[0].role"),
        (request(CHAT, &hello().replace("\"max_tokens\":2", "\"n\":999")), 400, "from 1 to 128"),
        (request(CHAT, &hello().replace("\"max_tokens\":2", "\"logprobs\":7")), 400, "logprobs"),
        (request(CHAT, &hello().replace("\"max_tokens\":2", "\"audio\":{}")), 400, "audio: is not"),
        (request("/tokenize", "{\"prompt\":1}"), 400, "prompt: must be a string"),
        (request("/detokenize", "{\"tokens\":[999999]}"), 400, "token 999999 of a vocabulary"),
        (head("GET", "/tokenize", ""), 405, "takes POST, not GET"),
        (head("POST", "/metrics", ""), 405, "takes GET, not POST"),
        (request(CHAT, &hello().replace("\"max_tokens\":2", "\"model\":\"gpt-5\"")), 404, "gpt-5"),
        (request("/v1/completions", "{\"prompt\":[999999]}"), 400, "token 999999 of a vocabulary"),
        (request("/v1/completions", "{\"prompt\":[]}"), 400, "prompt: is empty"),
        (request("/v1/completions", &long), 400, "256 positions"),
        (request(CHAT, &"[".repeat(1 << 20)), 400, "recursion limit"),
    ];
    for (bytes, want, words) in &rows {
        let answer = exchange(server.address(), bytes.as_bytes());
        let start: String = bytes.chars().take(160).collect();
        assert_eq!(status(&answer), *want, "{start:?}: {answer}");
        assert!(answer.contains(words), "{start:?}: {answer}");
        assert!(answer.contains("\"error\"") && answer.contains("\"type\""), "{start:?}: {answer}");
    }
    let not_utf8 = request(CHAT, "\u{1}\u{1}").replace('\u{1}', "\u{7f}").into_bytes();
    let not_utf8: Vec<u8> =
        not_utf8.into_iter().map(|b| if b == 0x7f { 0xff } else { b }).collect();
    assert_eq!(status(&exchange(server.address(), &not_utf8)), 400);
    still_answers(&server);
}

#[test]
fn serve_slow_and_half_open_clients_delay_no_other() {
    let read = Duration::from_millis(600);
    let limits = Limits::default().read(read).idle(read);
    let server = server(1, ServeOptions::default().limits(limits));
    let whole = request(CHAT, &hello());
    // Nothing, a part of the head, a part of the body.
    let parts = [0, 20, whole.len() - 5];
    let slow: Vec<TcpStream> = parts
        .iter()
        .map(|count| {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.write_all(&whole.as_bytes()[..*count]).unwrap();
            stream
        })
        .collect();
    still_answers(&server);
    for (mut stream, count) in slow.into_iter().zip(parts) {
        let mut answer = String::new();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(status(&answer), 408, "{count}: {answer}");
    }
    // A byte now and then does not help.
    let mut drip = TcpStream::connect(server.address()).unwrap();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(10) && drip.write_all(b"G").is_ok() {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    // Half a request and the end of it.
    let mut half = TcpStream::connect(server.address()).unwrap();
    half.write_all(&whole.as_bytes()[..whole.len() - 5]).unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    half.read_to_string(&mut answer).unwrap();
    assert_eq!(status(&answer), 400, "{answer}");
    assert!(answer.contains("the body cannot be read"), "{answer}");
    still_answers(&server);
}

#[test]
fn serve_more_connections_than_there_may_be_are_turned_away() {
    let limits = Limits::default().connections(2).read(Duration::from_secs(2));
    let server = server(1, ServeOptions::default().limits(limits));
    let held = [(); 2].map(|()| TcpStream::connect(server.address()).unwrap());
    std::thread::sleep(Duration::from_millis(100));
    let answer = exchange(server.address(), b"");
    assert_eq!(status(&answer), 503, "{answer}");
    assert!(answer.contains("too_many_connections"), "{answer}");
    drop(held);
    std::thread::sleep(Duration::from_millis(500));
    still_answers(&server);
}

#[test]
fn serve_a_key_is_asked_for_everywhere_but_at_health() {
    let api_key = Some("s3cret".to_owned());
    let server = server(1, ServeOptions::default().api_key(api_key));
    let ask =
        |path: &str, fields: &str| exchange(server.address(), head("GET", path, fields).as_bytes());
    assert_eq!(status(&ask("/health", "")), 200);
    for fields in [
        "",
        "Authorization: Bearer\r\n",
        "Authorization: Bearer s3cre\r\n",
        "Authorization: Bearer s3crets\r\n",
        "Authorization: s3cret\r\n",
        "Authorization: Basic s3cret\r\n",
    ] {
        for path in ["/v1/models", "/v1/nothing"] {
            let answer = ask(path, fields);
            assert_eq!(status(&answer), 401, "{fields}: {answer}");
            assert!(answer.contains("invalid_api_key") && answer.contains("www-authenticate"));
        }
    }
    let one = "/v1/models/warploom%2dtiny-llama-Q4_K_M";
    assert_eq!(status(&ask(one, "Authorization: Bearer s3cret\r\n")), 200);
    let answer = ask("/v1/models", "Authorization: Bearer s3cret\r\n");
    assert_eq!(status(&answer), 200, "{answer}");
    assert!(answer.contains("\"warploom-tiny-llama-Q4_K_M\""), "{answer}");
    assert!(!answer.contains("access-control"), "{answer}");
}

#[test]
fn serve_origins_are_let_in_only_where_asked_for() {
    let cors_origin = Some("https://page.example".to_owned());
    let server = server(1, ServeOptions::default().cors_origin(cors_origin));
    let answer = exchange(server.address(), head("OPTIONS", CHAT, "").as_bytes());
    assert_eq!(status(&answer), 204, "{answer}");
    assert!(answer.contains("access-control-allow-origin: https://page.example\r\n"), "{answer}");
    assert!(answer.contains("access-control-allow-headers: authorization"), "{answer}");
    assert!(answer.contains("access-control-max-age: "), "{answer}");

    // Other fields of OpenAI's client are accepted, unknown ones are not.
    let asked = "Access-Control-Request-Headers: authorization,X-Stainless-OS, x-b c,x\"y,,x-z\r\n";
    let answer = exchange(server.address(), head("OPTIONS", CHAT, asked).as_bytes());
    let fields = "authorization, content-type, authorization, x-stainless-os, x-z\r\n";
    assert!(answer.contains(&format!("access-control-allow-headers: {fields}")), "{answer}");
    let long = format!("Access-Control-Request-Headers: {},x-z\r\n", "x".repeat(4000));
    let answer = exchange(server.address(), head("OPTIONS", CHAT, &long).as_bytes());
    let fields = "access-control-allow-headers: authorization, content-type, x-z\r\n";
    assert!(answer.contains(fields), "{answer}");
}

fn read_answer(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut byte = [0];
    while !text.ends_with("\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        text.push(char::from(byte[0]));
    }
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |n| n.parse().unwrap())];
    stream.read_exact(&mut body).unwrap();
    text + &String::from_utf8(body).unwrap()
}

#[test]
fn serve_connections_are_kept_and_bodies_come_in_chunks() {
    let server = server(1, ServeOptions::default());
    let address: SocketAddr = server.address();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let keep = |text: String| text.replace("Connection: close\r\n", "");
    // Two pipelined requests, the second in chunks.
    let body = hello();
    let (a, b) = body.split_at(10);
    let chunked =
        head("POST", CHAT, "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n")
            + &format!(
                "{:x}\r\n{a}\r\n{:X};name=x\r\n{b}\r\n0\r\nTrailer: x\r\n\r\n",
                a.len(),
                b.len()
            );
    let both = keep(request(CHAT, &body)) + &keep(chunked);
    stream.write_all(both.as_bytes()).unwrap();
    let (one, two) = (read_answer(&mut stream), read_answer(&mut stream));
    assert_eq!((status(&one), status(&two)), (200, 200), "{one}{two}");
    assert!(!one.contains("connection: close"), "{one}");
    // A wrong body does not end the connection.
    stream.write_all(keep(request(CHAT, "{}")).as_bytes()).unwrap();
    assert_eq!(status(&read_answer(&mut stream)), 400);
    // A client that asks before it sends.
    let fields = format!(
        "Content-Type: application/json\r\nContent-Length: {}\r\nExpect: 100-continue\r\n",
        body.len()
    );
    stream.write_all(keep(head("POST", CHAT, &fields)).as_bytes()).unwrap();
    assert_eq!(status(&read_answer(&mut stream)), 100);
    stream.write_all(body.as_bytes()).unwrap();
    assert_eq!(status(&read_answer(&mut stream)), 200);
    // The next request of the same connection; the server may end it.
    stream.write_all(head("GET", "/v1/models", "").as_bytes()).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(status(&rest) == 200 && rest.contains("connection: close"), "{rest}");
}
