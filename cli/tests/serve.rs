//! The server as a shell runs it: its address and its end.

#![cfg(all(unix, feature = "serve", feature = "embedded-model"))]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};

fn serve(port: &str, args: &[&str]) -> (Child, BufReader<ChildStderr>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_warploom"))
        .args(["serve", "--device", "cpu", "--port", port, "--parallel", "2", "--context", "256"])
        .args(args)
        // Without this variable a graphics library of the system writes to standard error.
        .env("XDG_RUNTIME_DIR", std::env::temp_dir())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    (child, stderr)
}

/// The lines up to the one with the address.
fn startup_lines(stderr: &mut BufReader<ChildStderr>) -> String {
    let mut all = String::new();
    while !all.contains("/v1\n") {
        assert!(stderr.read_line(&mut all).unwrap() > 0, "{all}");
    }
    all
}

fn signal(child: &Child, name: &str) {
    // The shell's built-in: some machines have no such program.
    let order = format!("kill {name} {}", child.id());
    assert!(Command::new("sh").args(["-c", &order]).status().unwrap().success());
}

#[test]
fn serve_prints_its_address_answers_and_stops_at_a_signal() {
    for name in ["-TERM", "-INT"] {
        let (mut child, mut stderr) = serve("0", &["--temperature", "0", "--repeat-penalty", "1"]);
        let lines = startup_lines(&mut stderr);
        assert!(lines.contains("2 sequences of 256 positions"), "{lines}");
        let address = lines.rsplit("http://").next().unwrap().trim().strip_suffix("/v1").unwrap();
        let body = "{\"prompt\":\"Once upon a time\",\"max_tokens\":200,\"stream\":true}";
        let mut stream = TcpStream::connect(address).unwrap();
        write!(
            stream,
            "POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\n\
             Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        // In the middle of an answer, which is still completed.
        let mut answer = BufReader::new(stream);
        let mut text = String::new();
        while !text.contains("data: ") {
            assert!(answer.read_line(&mut text).unwrap() > 0, "{text}");
        }
        signal(&child, name);
        answer.read_to_string(&mut text).unwrap();
        assert!(text.contains("[DONE]"), "{text}");
        assert_eq!(child.wait().unwrap().code(), Some(0));
        let mut rest = String::new();
        stderr.read_to_string(&mut rest).unwrap();
        assert!(rest.contains("ending: "), "{rest}");
    }
}

#[test]
fn serve_warns_of_strangers_and_refuses_an_address_in_use() {
    let (mut child, mut stderr) = serve("0", &["--host", "0.0.0.0"]);
    let lines = startup_lines(&mut stderr);
    assert!(lines.contains("warning: 0.0.0.0 is reachable from other machines"), "{lines}");
    let port = lines.rsplit(':').next().unwrap().trim().strip_suffix("/v1").unwrap();
    let (mut second, mut error) = serve(port, &[]);
    let mut text = String::new();
    error.read_to_string(&mut text).unwrap();
    assert_eq!(second.wait().unwrap().code(), Some(1));
    assert!(text.contains("cannot listen on 127.0.0.1:"), "{text}");
    signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0));

    // A certificate that cannot be used is an error before the model is read.
    let missing = ["--tls-cert", "no-such-cert.pem", "--tls-key", "no-such-key.pem"];
    let (mut child, mut error) = serve("0", &missing);
    let mut text = String::new();
    error.read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(text.contains("cannot read no-such-cert.pem"), "{text}");

    let (mut child, mut stderr) = serve("0", &["--host", "0.0.0.0", "--api-key", "s3cret"]);
    let lines = startup_lines(&mut stderr);
    assert!(!lines.contains("warning") && !lines.contains("s3cret"), "{lines}");
    signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
