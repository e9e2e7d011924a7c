//! The house rules: layers, sizes of files and functions, the table of environment variables,
//! conditions of compilation, `unsafe` with its reason.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Layers, lowest first; a module may import only lower ones (of layer 0 also its own, and
/// `serve` the `llm` beside it).
const LAYERS: [&[&str]; 10] = [
    &["error", "config", "base"],
    &["draw", "quant", "ir"],
    &["reference", "kernel", "gguf", "safetensors", "download"],
    &["codegen", "interpret", "translate", "provider"],
    &["webgpu", "cpu", "native"],
    &["memory", "engine"],
    &["plan"],
    &["runtime"],
    &["llm", "serve"],
    &["lib", "testkit"],
];

const MAX_FILE: usize = 500;
const MAX_FILE_WITH_TESTS: usize = 600;
const MAX_FUNCTION: usize = 100;

/// Functions and files beyond the sizes, with the reason.
const EXCEPTIONS: [(&str, &str); 0] = [];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(under: &str, extension: &str) -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, extension: &str, found: &mut Vec<(PathBuf, String)>) {
        let mut entries: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if !name.starts_with("target") && name != "node_modules" && name != "pkg" {
                    walk(&path, extension, found);
                }
            } else if path.extension().is_some_and(|e| e == extension) {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(root()).unwrap().to_path_buf(), text));
            }
        }
    }
    let mut found = Vec::new();
    let folder = root().join(under);
    if folder.is_dir() {
        walk(&folder, extension, &mut found);
    }
    found
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|names| names.contains(&module))
}

/// The top module of a file under `src/`.
fn module_of(path: &Path) -> String {
    let inside = path.strip_prefix("src").unwrap();
    let first = inside.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
    first.trim_end_matches(".rs").to_string()
}

/// Modules that a line of code names after `crate::`.
fn imports(line: &str) -> Vec<String> {
    let code = line.split("//").next().unwrap_or_default();
    code.split("crate::")
        .skip(1)
        .map(|rest| rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect())
        .collect()
}

/// Whether a line of code begins a group of modules, which `imports` does not read.
fn groups(line: &str) -> bool {
    line.split("//").next().unwrap_or_default().contains("crate::{")
}

/// The rule that an import breaks, if any.
fn broken_rule(from: &str, to: &str) -> Option<String> {
    let (a, b) = (layer(from)?, layer(to)?);
    let fine = b < a || from == to || (a == 0 && b == 0) || (from, to) == ("serve", "llm");
    (!fine).then(|| format!("{from} (layer {a}) imports {to} (layer {b}): only lower layers"))
}

#[test]
fn modules_import_only_lower_layers() {
    let mut broken = Vec::new();
    for (path, text) in files("src", "rs") {
        let from = module_of(&path);
        // Tests may reach up: they check a module with what is built on it.
        if path.to_string_lossy().contains("test") && from != "testkit" {
            continue;
        }
        assert!(layer(&from).is_some(), "{}: no layer for module {from}", path.display());
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            if groups(line) {
                let place = format!("{}:{}", path.display(), number + 1);
                broken
                    .push(format!("{place}: one `use crate::` for each module, or it is not seen"));
            }
            for to in imports(line) {
                if let Some(rule) = broken_rule(&from, &to) {
                    broken.push(format!("{}:{}: {rule}", path.display(), number + 1));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_layer_rule_can_fail() {
    assert!(broken_rule("ir", "plan").is_some());
    assert!(broken_rule("engine", "memory").is_some());
    assert!(broken_rule("plan", "engine").is_none());
    assert_eq!(imports("use crate::plan::Plan; // crate::llm"), ["plan"]);
    assert!(groups("use crate::{llm, plan};") && !groups("use crate::plan::{Plan, Step};"));
}

#[test]
fn every_module_in_the_table_exists() {
    for module in LAYERS.into_iter().flatten() {
        let source = root().join("src").join(module);
        let exists = source.is_dir() || source.with_extension("rs").is_file();
        assert!(exists, "there is no module {module}");
    }
}

#[test]
fn files_and_functions_stay_small() {
    let mut large = Vec::new();
    let mut lines = 0;
    let sources = ["src", "cli/src", "web/src", "benches", "tests"];
    let rust = sources.iter().flat_map(|folder| files(folder, "rs"));
    for (path, text) in rust.chain(files("shaders", "wgsl")) {
        let name = path.to_string_lossy().replace('\\', "/");
        let all = text.lines().count();
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default().lines().count();
        lines += code;
        if (code > MAX_FILE || all > MAX_FILE_WITH_TESTS)
            && !EXCEPTIONS.iter().any(|(exception, _)| *exception == name)
        {
            large.push(format!("{name}: {code} lines, {all} with tests"));
        }
        if name.ends_with(".rs") {
            large.extend(long_functions(&name, &text));
        }
    }
    crate::tell(&format!("tidy: {lines} lines without unit tests"));
    assert!(large.is_empty(), "{}", large.join("\n"));
}

/// Functions longer than the limit, by the indentation of their closing brace.
fn long_functions(name: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    for (start, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let is_function = [
            "fn ",
            "pub fn ",
            "pub(super) fn ",
            "pub(crate) fn ",
            "async fn ",
            "pub async fn ",
            "unsafe fn ",
            "pub unsafe fn ",
            "pub(super) unsafe fn ",
        ]
        .iter()
        .any(|head| code.starts_with(head));
        if !is_function || code.ends_with(';') {
            continue;
        }
        let indent = line.len() - code.len();
        let close = format!("{}}}", " ".repeat(indent));
        let length = lines[start..].iter().position(|l| *l == close).unwrap_or(0);
        let function = format!("{name}:{}", start + 1);
        if length > MAX_FUNCTION && !EXCEPTIONS.iter().any(|(e, _)| *e == function) {
            found.push(format!("{function}: a function of {length} lines"));
        }
    }
    found
}

#[test]
fn every_variable_is_in_the_table_and_in_the_readme() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let known: BTreeSet<&str> = warploom::config::ALL.iter().map(|var| var.name).collect();
    for var in warploom::config::ALL {
        assert!(readme.contains(&format!("`{}`", var.name)), "README lacks {}", var.name);
    }
    for (path, text) in files("src", "rs").into_iter().chain(files("cli/src", "rs")) {
        for part in text.split("WARPLOOM_").skip(1) {
            let tail: String =
                part.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
            let name = format!("WARPLOOM_{tail}");
            let known = known.contains(name.as_str())
                || tail.starts_with("TEST")
                || tail.starts_with("REQUIRE");
            assert!(tail.is_empty() || known, "{}: {name} is not in config::ALL", path.display());
        }
        let tests = path.to_string_lossy().contains("test");
        if !path.ends_with("config.rs") && !tests {
            let reads = text.split("#[cfg(test)]").next().unwrap_or_default().contains("env::var");
            assert!(!reads, "{} reads the environment itself", path.display());
        }
    }
}

#[test]
fn nothing_is_left_half_done() {
    let marks = ["TO", "DO"].concat();
    let marks = [
        marks,
        ["FIX", "ME"].concat(),
        ["unimpl", "emented!"].concat(),
        ["to", "do!("].concat(),
        ["db", "g!("].concat(),
    ];
    for (path, text) in
        ["src", "cli", "web", "tests", "benches"].iter().flat_map(|folder| files(folder, "rs"))
    {
        for mark in &marks {
            assert!(!text.contains(mark.as_str()), "{} holds {mark}", path.display());
        }
    }
}

#[test]
fn the_manifest_pins_what_must_not_move() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    for line in ["tokenizers = { version = \"=0.23.2\"", "wgpu = { version = \"30.0.1\""] {
        assert!(manifest.contains(line), "Cargo.toml lacks {line}");
    }
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    for name in ["wgpu", "naga", "half"] {
        let count = lock.matches(&format!("name = \"{name}\"\n")).count();
        assert_eq!(count, 1, "Cargo.lock holds {count} versions of {name}");
    }
}
