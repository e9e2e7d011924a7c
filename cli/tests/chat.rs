//! Conversations and downloads as a shell runs them.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const ARGS: [&str; 7] = ["chat", "--device", "cpu", "--temperature", "0", "-n", "16"];

fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_warploom"))
}

/// The output for these lines.
fn chat(args: &[&str], lines: &str) -> Output {
    let mut child = command()
        .args(ARGS)
        .args(args)
        // Without this variable a graphics library of the system writes to standard error.
        .env("XDG_RUNTIME_DIR", std::env::temp_dir())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn events(output: &Output) -> Vec<Value> {
    let lines = text(&output.stdout);
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == kind).collect()
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("warploom-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn chat_answers_lines_and_keeps_what_was_said() {
    let lines = "Hello!\n\nTell me of \\\na fox.\n";
    let plain = chat(&["--quiet"], lines);
    assert_eq!(plain.status.code(), Some(0), "{}", text(&plain.stderr));
    assert!(plain.stderr.is_empty(), "{}", text(&plain.stderr));

    let json = chat(&["--json", "--system", "Be brief."], lines);
    let events = events(&json);
    assert_eq!(events[0]["event"], "ready");
    let answers = of(&events, "answer");
    assert_eq!(answers.len(), 2);
    let pieces: String = of(&events, "text").iter().map(|e| e["text"].as_str().unwrap()).collect();
    let whole: String = answers.iter().map(|e| e["text"].as_str().unwrap()).collect();
    assert_eq!(pieces, whole);
    assert_eq!(answers[0]["reused_tokens"], 0);
    let (reused, read) = (&answers[1]["reused_tokens"], &answers[1]["prompt_tokens"]);
    assert!(reused.as_u64() > read.as_u64() && read.as_u64() < Some(24), "{}", answers[1]);

    let reported = chat(&[], "Hello!\n");
    assert!(text(&reported.stderr).contains("tokens/s; read "), "{}", text(&reported.stderr));
    assert!(text(&plain.stdout).starts_with(text(&reported.stdout).trim_end()));
}

#[test]
fn chat_commands_do_what_the_help_says() {
    let folder = folder("chat");
    let file = folder.join("talk.json");
    let path = file.to_str().unwrap();
    let lines = format!(
        "/system You are a cat.\n/system\nHello!\n/tokens\n/retry\n/stats\nAnd a dog?\n/undo\n/save {path}\n\
         /set max-tokens 3\n/set\nGo on.\n/reset\n/tokens\n/load {path}\n/system\n/help\n/exit\nnever\n"
    );
    let output = chat(&["--json"], &lines);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let events = events(&output);
    let answers = of(&events, "answer");
    assert_eq!(answers.len(), 4);
    assert_eq!(answers[0]["text"], answers[1]["text"]);
    // Another answer to the same message reads only the last token.
    assert_eq!(answers[1]["prompt_tokens"], 1);
    assert_eq!((&answers[3]["tokens"], &answers[3]["finish"]), (&3.into(), &"length".into()));
    let notes: Vec<&str> =
        of(&events, "note").iter().map(|e| e["text"].as_str().unwrap()).collect();
    let words = [
        "You are a cat.",
        "of 512 positions",
        "tokens/s; wrote",
        "taken back: And a dog?",
        "3 messages are in",
        "\"max_tokens\":3",
        "has 1 messages",
        "3 messages from",
        "You are a cat.",
        "/undo",
    ];
    assert_eq!(notes.len(), words.len(), "{notes:?}");
    for (note, words) in notes.iter().zip(words) {
        assert!(note.contains(words), "{note}, want {words}");
    }
    let saved: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!((&saved["schema"], &saved["messages"][0]["role"]), (&1.into(), &"system".into()));

    // A failing script ends with the reason; no other file is replaced.
    std::fs::write(&file, "something else").unwrap();
    let rows = [
        (format!("Hi\n/save {path}\n"), "not a conversation"),
        (format!("/load {path}\nHi\n"), "not a conversation"),
        ("/sing\nHi\n".to_owned(), "no /sing"),
        ("/undo\n".to_owned(), "nothing to take back"),
        (format!("{}\n", "word ".repeat(600)), "512 positions"),
    ];
    for (lines, words) in rows {
        let output = chat(&["--quiet"], &lines);
        assert_eq!(output.status.code(), Some(1), "{lines:.80}");
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"something else");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// An interrupt ends the answer, not the conversation.
#[cfg(unix)]
#[test]
fn chat_an_interrupt_breaks_off_the_answer() {
    // The model may finish before the signal arrives; then the signal ends the process.
    let interrupted = (0..10).any(|seed| {
        let mut child = command()
            .args(["chat", "--device", "cpu", "--json", "-n", "400", "--seed"])
            .arg(seed.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(b"Write a long story about a fox.\n").unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        lines.by_ref().find(|line| line.as_ref().unwrap().contains("\"text\"")).unwrap().unwrap();
        // The shell's built-in: some machines have no such program.
        let order = format!("kill -INT {}", child.id());
        assert!(Command::new("sh").args(["-c", &order]).status().unwrap().success());
        let answer = lines.by_ref().map(Result::unwrap).find(|line| line.contains("\"answer\""));
        let interrupted = answer.is_some_and(|line| line.contains("\"interrupted\""));
        if interrupted {
            // The next message is answered.
            stdin.write_all(b"/set max-tokens 2\nHello\n").unwrap();
            drop(stdin);
            assert!(lines.map(Result::unwrap).any(|line| line.contains("\"answer\"")));
            assert_eq!(child.wait().unwrap().code(), Some(0));
        } else {
            drop(stdin);
            child.wait().unwrap();
        }
        interrupted
    });
    assert!(interrupted, "ten answers ended before they were interrupted");
}

/// Serves a list with one file, and that file.
fn hub(name: &'static str, bytes: Vec<u8>, sha256: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut request = String::new();
            while !request.ends_with("\r\n\r\n") && reader.read_line(&mut request).unwrap() > 0 {}
            let list = format!(
                "{{\"sha\":\"{}\",\"siblings\":[{{\"rfilename\":\"{name}\",\"size\":{},\"lfs\":\
                 {{\"sha256\":\"{sha256}\",\"size\":{}}}}}]}}",
                "a".repeat(40),
                bytes.len(),
                bytes.len()
            );
            let body = if request.contains("/resolve/") { &bytes[..] } else { list.as_bytes() };
            let head = format!(
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        }
    });
    address
}

#[test]
fn a_name_on_the_hub_is_enough() {
    let folder = folder("hub");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models");
    let mut bytes = Vec::new();
    let file = root.join("warploom-tiny-llama-Q4_K_M.gguf");
    std::fs::File::open(file).unwrap().read_to_end(&mut bytes).unwrap();
    let golden: Value =
        serde_json::from_slice(&std::fs::read(root.join("golden.json")).unwrap()).unwrap();
    let sha256 = &golden["models"]["warploom-tiny-llama-Q4_K_M.gguf"]["sha256"];
    let sha256 = sha256.as_str().unwrap().to_owned().leak();
    let endpoint = hub("tiny-Q4_K_M.gguf", bytes, sha256);
    let run = |args: &[&str]| {
        let mut command = command();
        command.args(args).env("HF_ENDPOINT", &endpoint).env("HF_HOME", &folder);
        command.env_remove("HF_HUB_CACHE").env_remove("HF_HUB_OFFLINE").output().unwrap()
    };
    let refused = run(&["download", "org/tiny", "--offline"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("offline"), "{}", text(&refused.stderr));

    let args =
        ["generate", "-m", "org/tiny:Q4_K_M", "--device", "cpu", "-t", "0", "-n", "4", "Once"];
    let made = run(&args);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    assert!(!made.stdout.is_empty());
    let found = run(&["download", "org/tiny", "--offline", "--json"]);
    let object: Value = serde_json::from_slice(&found.stdout).unwrap();
    let path = object["path"].as_str().unwrap();
    assert!(path.ends_with("tiny-Q4_K_M.gguf") && Path::new(path).is_file(), "{path}");

    let none = run(&["download", "org/tiny:Q8_0"]);
    assert!(text(&none.stderr).contains("org/tiny has tiny-Q4_K_M.gguf"), "{}", text(&none.stderr));
    let wrong = run(&["download", "tiny"]);
    assert!(text(&wrong.stderr).contains("org/name:Q4_K_M"), "{}", text(&wrong.stderr));
    std::fs::remove_dir_all(&folder).unwrap();
}
