//! The command as a shell sees it: exit codes, and what goes where.

use std::process::{Command, Output};

fn warploom(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warploom")).args(args).output().unwrap()
}

/// The text of the embedded model, on the CPU, which is everywhere.
#[test]
fn generate_writes_text_and_one_object() {
    let args =
        ["generate", "Once upon a time", "--device", "cpu", "--temperature", "0", "-n", "12"];
    let plain = warploom(&args);
    assert_eq!(plain.status.code(), Some(0), "{}", text(&plain.stderr));
    let written = text(&plain.stdout);
    assert!(written.split_whitespace().count() >= 8, "{written:?}");
    assert!(text(&plain.stderr).contains("selected=cpu:0"));
    let json = warploom(&[&args[..], &["--json"]].concat());
    let object: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(object["text"].as_str(), Some(written.trim_end_matches('\n')));
    assert_eq!((&object["tokens"], &object["finish"]), (&12.into(), &"length".into()));
    assert!(object["compute_mode"].as_str().unwrap().starts_with("F32"));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn help_and_version_are_results() {
    for args in [&["--help"][..], &["generate", "--help"], &["--version"]] {
        let output = warploom(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(text(&output.stdout).contains("warploom"), "{args:?}");
        assert!(output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn wrong_usage_is_2_and_says_so_on_standard_error() {
    let rows: [(&[&str], &str); 4] = [
        (&[], "Usage"),
        (&["sing"], "unrecognized subcommand"),
        (&["generate", "--temperature", "hot"], "0 or more"),
        (&["bench", "--tokens", "0"], "above 0"),
    ];
    for (args, words) in rows {
        let output = warploom(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains(words), "{args:?}: {stderr}");
    }
}

#[test]
fn a_failure_is_1_with_one_line_on_standard_error() {
    for command in ["generate", "bench"] {
        let output = warploom(&[command, "--model", "no-such-file.gguf", "--json"]);
        assert_eq!(output.status.code(), Some(1), "{command}");
        assert!(output.stdout.is_empty(), "{command}");
        let stderr = text(&output.stderr);
        assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{stderr}");
    }
}
