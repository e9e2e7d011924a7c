//! `warploom kernel` as a shell runs it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn warploom(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warploom")).arg("kernel").args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder that is removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("warploom-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        Folder(folder)
    }

    fn pack(&self) -> String {
        self.0.join("mine").to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_new_pack_is_right_and_is_timed() {
    let folder = Folder::new("kernel-new");
    let pack = folder.pack();
    let made = warploom(&["new", &pack]);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    assert!(text(&made.stderr).contains(&format!("next: warploom kernel check {pack}")));
    let again = warploom(&["new", &pack]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("already exists"));

    let checked = warploom(&["check", &pack, "--device", "cpu"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    let lines = text(&checked.stdout);
    assert_eq!(lines.lines().filter(|line| line.contains("right")).count(), 4, "{lines}");

    let timed =
        warploom(&["bench", &pack, "-d", "cpu", "--set", "n=5000", "--runs", "3", "--json"]);
    assert_eq!(timed.status.code(), Some(0), "{}", text(&timed.stderr));
    let object: serde_json::Value = serde_json::from_slice(&timed.stdout).unwrap();
    assert_eq!((&object["device"], &object["values"]["n"]), (&"cpu:0".into(), &5000.0.into()));
    let timing = &object["variants"][0]["timing"];
    assert_eq!(timing["bytes"].as_u64(), Some(3 * 4 * 5000));
    assert!(timing["kernel_s"].as_f64().unwrap() > 0.0, "{timing}");
}

#[test]
fn a_broken_pack_is_reported_and_fails() {
    let folder = Folder::new("kernel-wrong");
    let pack = folder.pack();
    assert_eq!(warploom(&["new", &pack]).status.code(), Some(0));
    let shader = Path::new(&pack).join("mine.wgsl");
    let good = std::fs::read_to_string(&shader).unwrap();

    // A wrong number is reported with both values; no device is used.
    std::fs::write(&shader, good.replace("+ y[", "- y[")).unwrap();
    let wrong = warploom(&["check", &pack, "--device", "cpu", "--json"]);
    assert_eq!(wrong.status.code(), Some(1));
    let object: serde_json::Value = serde_json::from_slice(&wrong.stdout).unwrap();
    assert_eq!(object["right"], false);
    let rows = object["rows"].as_array().unwrap();
    let what = rows.last().unwrap()["outcome"]["what"].as_str().unwrap();
    assert!(what.contains("out: element 0") && what.contains("expected 12.0, got -8.0"), "{what}");

    // A file that is not WGSL is reported with the line.
    std::fs::write(&shader, good.replace("id.x] = ", "id.x] == ")).unwrap();
    let broken = warploom(&["check", &pack, "--device", "cpu"]);
    assert_eq!(broken.status.code(), Some(1));
    assert!(text(&broken.stderr).contains("mine.wgsl:19:"), "{}", text(&broken.stderr));

    let packs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/packs");
    let bare = warploom(&["bench", packs.join("softmax").to_str().unwrap(), "-d", "cpu"]);
    assert!(text(&bare.stderr).contains("no [[case]] in pack.toml"), "{}", text(&bare.stderr));
    let usage = warploom(&["bench", &pack, "--set", "n"]);
    assert_eq!(usage.status.code(), Some(2), "{}", text(&usage.stderr));
    for command in ["check", "bench"] {
        let none = warploom(&[command, "/nowhere", "--json"]);
        let object: serde_json::Value = serde_json::from_slice(&none.stdout).unwrap();
        assert!(object["error"].as_str().unwrap().contains("pack.toml"), "{object}");
    }
    let none = warploom(&["check", "/nowhere"]);
    let message = text(&none.stderr);
    assert!(message.contains("pack.toml") && message.matches("os error").count() == 1, "{message}");
}

#[test]
fn packs_of_the_environment_are_engines_of_every_runtime() {
    let packs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/packs");
    let run = |folders: &[&str]| {
        let folders: Vec<PathBuf> = folders.iter().map(|name| packs.join(name)).collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_warploom"));
        command.env("WARPLOOM_PACKS", std::env::join_paths(folders).unwrap());
        let example = packs.join("scan");
        command.args(["kernel", "check", example.to_str().unwrap(), "--device", "cpu"]);
        command.output().unwrap()
    };
    let fine = run(&["softmax"]);
    assert_eq!(fine.status.code(), Some(0), "{}", text(&fine.stderr));
    for (folders, words) in [
        (&["softmax", "softmax"][..], "engine pack.softmax is already registered"),
        (&["blur"], "pack blur: its manifest has no `implements`"),
        (&["nowhere"], "nowhere/pack.toml"),
    ] {
        let reported = run(folders);
        let said = text(&reported.stderr);
        assert_eq!(reported.status.code(), Some(1), "{said}");
        assert!(said.contains("WARPLOOM_PACKS: ") && said.contains(words), "{said}");
    }
}

#[test]
fn examples_of_the_repository_are_right() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/packs");
    for pack in std::fs::read_dir(examples).unwrap() {
        let pack = pack.unwrap().path();
        let checked = warploom(&["check", pack.to_str().unwrap(), "--device", "cpu"]);
        let message = text(&checked.stdout) + &text(&checked.stderr);
        assert_eq!(checked.status.code(), Some(0), "{}: {message}", pack.display());
    }
}
