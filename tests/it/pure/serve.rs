//! The HTTP endpoint over real sockets, with the small model on the CPU.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use warploom::ComputeMode;
use warploom::runtime::Runtime;
use warploom_llm::chat::{Chat, ChatOptions};
use warploom_llm::{GenerateOptions, Sampling, Session};
use warploom_serve::{ServeOptions, Server};

use crate::plans::embedded;

pub(crate) fn session(sequences: usize) -> Session {
    session_of(sequences, 256)
}

fn session_of(sequences: usize, context: usize) -> Session {
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    // In `Int8` the logits of a sequence among others can differ from those of it alone (by 0.1 of
    // 13 where two of three rows were the same), so that another token wins a tie.
    let builder = Session::builder(embedded()).runtime(runtime).context(context);
    builder.sequences(sequences).compute(ComputeMode::F32).build().unwrap()
}

/// A server on a free port of this machine.
pub(crate) fn server(sequences: usize, options: ServeOptions) -> Server {
    server_of(session(sequences), options)
}

/// A server with room for the description of tools.
pub(crate) fn wide_server(sequences: usize) -> Server {
    server_of(session_of(sequences, 512), ServeOptions::default())
}

fn server_of(session: Session, options: ServeOptions) -> Server {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let sampling = Sampling::greedy();
    Server::start(session, options.address(address).sampling(sampling)).unwrap()
}

/// A request as bytes; the connection ends after it.
pub(crate) fn request(path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// Sends bytes, and reads until the server closes the connection.
pub(crate) fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    // A server that refuses early may not take all of it.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

pub(crate) fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn json(answer: &str) -> serde_json::Value {
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}"))
}

pub(crate) fn post(address: SocketAddr, path: &str, body: &str) -> (u16, serde_json::Value) {
    let answer = exchange(address, request(path, body).as_bytes());
    (status(&answer), json(&answer))
}

pub(crate) fn health(address: SocketAddr) -> serde_json::Value {
    json(&exchange(address, b"GET /health HTTP/1.0\r\n\r\n"))
}

/// The body of an answer in chunks.
pub(crate) fn unchunked(answer: &str) -> String {
    let (head, mut rest) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("transfer-encoding: chunked"), "{head}");
    let mut body = String::new();
    loop {
        let (size, after) = rest.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            assert_eq!(after, "\r\n");
            return body;
        }
        body.push_str(&after[..size]);
        rest = after[size..].strip_prefix("\r\n").unwrap();
    }
}

/// The objects of a stream, without the mark at its end.
pub(crate) fn events(answer: &str) -> Vec<serde_json::Value> {
    let body = unchunked(answer);
    let mut data: Vec<&str> =
        body.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap()).collect();
    assert_eq!(data.pop(), Some("[DONE]"));
    data.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

pub(crate) const STORY: &str = "Once upon a time";

/// The library's own text.
pub(crate) fn generated(prompt: &str, max_tokens: usize) -> String {
    let options = GenerateOptions::default()
        .max_tokens(max_tokens)
        .sampling(Sampling::greedy())
        .parse_special(true);
    let done = session(1).generate(prompt, &options, &mut |_| ControlFlow::Continue(()));
    done.unwrap().text
}

#[test]
fn serve_streams_what_it_answers_whole_and_what_generate_writes() {
    // With two sequences the second request would take the other one: five tokens are not copied.
    let server = server(1, ServeOptions::default());
    let body = |more: &str| format!("{{\"prompt\":\"{STORY}\",\"max_tokens\":40{more}}}");
    let want = generated(STORY, 40);
    let (status, whole) = post(server.address(), "/v1/completions", &body(""));
    assert_eq!(status, 200, "{whole}");
    assert_eq!(whole["choices"][0]["text"], want.as_str());
    assert_eq!(whole["choices"][0]["finish_reason"], "length");
    assert_eq!(whole["usage"]["completion_tokens"], 40);
    let more = ",\"stream\":true,\"stream_options\":{\"include_usage\":true}";
    let answer = exchange(server.address(), request("/v1/completions", &body(more)).as_bytes());
    let events = events(&answer);
    let (usage, pieces) = events.split_last().unwrap();
    let text: String = pieces.iter().map(|e| e["choices"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(text, want);
    assert!(pieces.len() > 20 && pieces.iter().all(|event| event["usage"].is_null()));
    assert_eq!(usage["choices"], serde_json::json!([]));
    assert_eq!(usage["usage"]["total_tokens"], whole["usage"]["total_tokens"]);
    // The second time the prompt was cached, except for the token that always runs.
    let prompt = whole["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(usage["usage"]["prompt_tokens_details"]["cached_tokens"], prompt - 1);
    assert_eq!(health(server.address())["running"], 0);
    server.stop(Duration::from_secs(5)).unwrap();
}

#[test]
fn serve_chats_by_the_template_of_the_file() {
    let server = server(2, ServeOptions::default());
    let mut chat = Chat::new(session(1)).unwrap();
    chat.set_system(Some("Be brief."));
    let options = ChatOptions::default().max_tokens(30).sampling(Sampling::greedy());
    let go_on = &mut |_: warploom_llm::Event<'_>| ControlFlow::Continue(());
    let want = chat.send("What is the capital of France?", &options, go_on).unwrap();
    let body = |more: &str| {
        format!(
            "{{\"messages\":[{{\"role\":\"system\",\"content\":\"Be brief.\"}},{{\"role\":\"user\",\
             \"content\":[{{\"type\":\"text\",\"text\":\"What is the capital of France?\"}}]}}],\
             \"max_tokens\":30{more}}}"
        )
    };
    let (status, whole) = post(server.address(), "/v1/chat/completions", &body(""));
    assert_eq!(status, 200, "{whole}");
    assert_eq!(whole["object"], "chat.completion");
    assert_eq!(whole["choices"][0]["message"]["content"], want.generated.text.as_str());
    assert_eq!(whole["usage"]["prompt_tokens"], want.generated.prompt_tokens);
    let answer = request("/v1/chat/completions", &body(",\"stream\":true"));
    let events = events(&exchange(server.address(), answer.as_bytes()));
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    let piece =
        |e: &serde_json::Value| e["choices"][0]["delta"]["content"].as_str().map(String::from);
    assert_eq!(events.iter().filter_map(piece).collect::<String>(), want.generated.text);
    let last = &events.last().unwrap()["choices"][0];
    assert_eq!(last["finish_reason"], whole["choices"][0]["finish_reason"]);
    // A stop string ends it before itself.
    let word = want.generated.text.split(' ').nth(3).unwrap();
    let stop = format!(",\"stop\":\"{word}\"");
    let (_, whole) = post(server.address(), "/v1/chat/completions", &body(&stop));
    let before = want.generated.text.split(word).next().unwrap();
    assert_eq!(whole["choices"][0]["message"]["content"], before);
    assert_eq!(whole["choices"][0]["finish_reason"], "stop");
}

#[test]
fn serve_writes_many_answers_at_once_each_its_own() {
    let prompts = ["The sun is", "One sunny day, Lily", "Pip was a tiny mouse who", STORY];
    let wants = prompts.map(|prompt| generated(prompt, 24));
    let server = server(4, ServeOptions::default());
    let address = server.address();
    let ask = |prompt: &str| {
        let body = format!("{{\"prompt\":\"{prompt}\",\"max_tokens\":24}}");
        post(address, "/v1/completions", &body).1["choices"][0]["text"].clone()
    };
    // More clients than sequences: some begin while others are in the middle.
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..12).map(|i| scope.spawn(move || ask(prompts[i % 4]))).collect();
        for (i, thread) in threads.into_iter().enumerate() {
            assert_eq!(thread.join().unwrap(), wants[i % 4].as_str(), "{}", prompts[i % 4]);
        }
    });
}

#[test]
fn serve_a_seed_gives_the_same_answer_again() {
    let server = server(2, ServeOptions::default());
    let ask = |seed: u64| {
        let body = format!(
            "{{\"prompt\":\"{STORY}\",\"max_tokens\":24,\"temperature\":1.5,\"top_p\":1,\
             \"top_k\":0,\"min_p\":0,\"seed\":{seed}}}"
        );
        post(server.address(), "/v1/completions", &body).1["choices"][0]["text"].clone()
    };
    assert_eq!(ask(1), ask(1));
    assert_ne!(ask(1), ask(2));
}

/// Begins a stream and waits for its first event.
fn begun(address: SocketAddr) -> BufReader<TcpStream> {
    let body = format!("{{\"prompt\":\"{STORY}\",\"max_tokens\":240,\"stream\":true}}");
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(request("/v1/completions", &body).as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while !line.starts_with("data: ") {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0);
    }
    reader
}

/// Waits until this many requests run.
pub(crate) fn until_running(address: SocketAddr, count: u64) {
    let begin = Instant::now();
    while health(address)["running"] != count {
        assert!(begin.elapsed() < Duration::from_secs(20), "{}", health(address));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn serve_a_client_that_goes_frees_its_sequence_and_a_full_queue_refuses() {
    let server = server(1, ServeOptions::default().queue(1));
    let address = server.address();
    let body = format!("{{\"prompt\":\"{STORY}\",\"max_tokens\":2}}");
    let running = begun(address);
    // One waits, whole and not streamed; the next finds the queue full.
    let mut waiting = TcpStream::connect(address).unwrap();
    waiting.write_all(request("/v1/completions", &body).as_bytes()).unwrap();
    let begin = Instant::now();
    while health(address)["waiting"] != 1 {
        assert!(begin.elapsed() < Duration::from_secs(20));
    }
    let (status, error) = post(address, "/v1/completions", &body);
    assert_eq!((status, &error["error"]["code"]), (429, &"queue_full".into()), "{error}");
    // A waiting client may leave too: the next one takes its place in the queue.
    drop(waiting);
    std::thread::sleep(Duration::from_millis(300));
    drop(running);
    let (status, answer) = post(address, "/v1/completions", &body);
    assert_eq!(status, 200, "{answer}");
    until_running(address, 0);
}

#[test]
fn serve_64_connections_for_some_seconds() {
    let server = server(4, ServeOptions::default());
    let address = server.address();
    let want = generated(STORY, 8);
    let end = Instant::now() + Duration::from_secs(4);
    let counts: Vec<usize> = std::thread::scope(|scope| {
        let client = |index: usize| {
            let mut answers = 0;
            while Instant::now() < end || answers == 0 {
                let more = if index.is_multiple_of(2) { ",\"stream\":true" } else { "" };
                let body = format!("{{\"prompt\":\"{STORY}\",\"max_tokens\":8{more}}}");
                let answer = exchange(address, request("/v1/completions", &body).as_bytes());
                assert_eq!(status(&answer), 200, "{answer}");
                let text: String = match more {
                    "" => json(&answer)["choices"][0]["text"].as_str().unwrap().to_owned(),
                    _ => events(&answer)
                        .iter()
                        .map(|event| event["choices"][0]["text"].as_str().unwrap())
                        .collect(),
                };
                assert_eq!(text, want);
                answers += 1;
            }
            answers
        };
        let threads: Vec<_> = (0..64).map(|i| scope.spawn(move || client(i))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    // No request is left.
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(most - least <= 3 + most / 3, "{counts:?}");
    until_running(address, 0);
    server.stop(Duration::from_secs(5)).unwrap();
}

#[test]
fn serve_ends_within_its_grace() {
    let ended = server(1, ServeOptions::default());
    let address = ended.address();
    let mut idle = TcpStream::connect(address).unwrap();
    let mut running = begun(address);
    let begin = Instant::now();
    ended.stop(Duration::from_millis(50)).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    let mut rest = String::new();
    running.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("server_stopping") || rest.contains("[DONE]"), "{rest}");
    assert_eq!(idle.read(&mut [0; 64]).unwrap(), 0);
    assert!(TcpStream::connect(address).is_err());

    // With time enough, more than any clock can tell, the answer is whole.
    let ended = server(1, ServeOptions::default().time(Duration::MAX));
    let mut running = begun(ended.address());
    ended.stop(Duration::MAX).unwrap();
    let mut rest = String::new();
    running.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("[DONE]") && rest.contains("\"length\""), "{rest}");
}
