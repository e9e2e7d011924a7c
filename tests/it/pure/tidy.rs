//! House rules: layers, sizes of files and functions, the table of environment variables,
//! conditional compilation, reasons for `unsafe`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The crates with their folders, lowest first; a crate may depend only on those before it.
const CRATES: [(&str, &str); 15] = [
    ("warploom-core", "crates/core"),
    ("warploom-wgsl", "crates/wgsl"),
    ("warploom-kernels", "shaders"),
    ("warploom-hal", "crates/hal"),
    ("warploom-cases", "crates/cases"),
    ("warploom-cpu", "crates/cpu"),
    ("warploom-native", "native"),
    ("warploom", "."),
    ("warploom-nn", "crates/nn"),
    ("warploom-tiny-model", "models"),
    ("warploom-models", "crates/models"),
    ("warploom-llm", "crates/llm"),
    ("warploom-serve", "crates/serve"),
    ("warploom-testkit", "crates/testkit"),
    ("warploom-cli", "cli"),
];

/// Modules of the crates that have several, lowest layer first; a module may import only lower
/// ones, and in the lowest layer also each other.
const LAYERS: [(&str, &[&[&str]]); 2] = [
    (
        "crates/core/src",
        &[&["error", "config", "base"], &["sampling", "quant", "ir"], &["reference"]],
    ),
    ("src", &[&["webgpu"], &["memory", "engine"], &["plan"], &["runtime"]]),
];

const MAX_FILE: usize = 500;
const MAX_FILE_WITH_TESTS: usize = 600;
const MAX_FUNCTION: usize = 100;

/// Functions and files beyond the sizes, with the reason.
const EXCEPTIONS: [(&str, &str); 0] = [];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
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

/// Every folder of the workspace with Rust code, except tests.
fn sources() -> Vec<(PathBuf, String)> {
    let crates = CRATES.iter().map(|(_, folder)| format!("{folder}/src"));
    let others = ["desktop/src", "web/src"].map(String::from);
    crates.chain(others).flat_map(|folder| files(&folder, "rs")).collect()
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
fn broken_rule(layers: &[&[&str]], from: &str, to: &str) -> Option<String> {
    let layer = |module| layers.iter().position(|names| names.contains(&module));
    let (a, b) = (layer(from)?, layer(to)?);
    let fine = b < a || from == to || (a == 0 && b == 0);
    (!fine).then(|| format!("{from} (layer {a}) imports {to} (layer {b}): only lower layers"))
}

#[test]
fn modules_import_only_lower_layers() {
    let mut broken = Vec::new();
    for (folder, layers) in LAYERS {
        let known: Vec<&str> = layers.iter().flat_map(|names| names.iter().copied()).collect();
        for module in &known {
            let source = root().join(folder).join(module);
            let exists = source.is_dir() || source.with_extension("rs").is_file();
            assert!(exists, "there is no module {module} in {folder}");
        }
        for (path, text) in files(folder, "rs") {
            let inside = path.strip_prefix(folder).unwrap();
            let first = inside.components().next().unwrap().as_os_str().to_string_lossy();
            let from = first.trim_end_matches(".rs");
            // Tests may import higher layers.
            if from == "lib" || path.to_string_lossy().contains("test") {
                continue;
            }
            assert!(known.contains(&from), "{}: no layer for module {from}", path.display());
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for (number, line) in code.lines().enumerate() {
                let place = format!("{}:{}", path.display(), number + 1);
                if groups(line) {
                    broken.push(format!("{place}: one `use crate::` a module, or it is not seen"));
                }
                for to in imports(line) {
                    if let Some(rule) = broken_rule(layers, from, &to) {
                        broken.push(format!("{place}: {rule}"));
                    }
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_layer_rule_can_fail() {
    let layers = LAYERS[1].1;
    assert!(broken_rule(layers, "engine", "plan").is_some());
    assert!(broken_rule(layers, "engine", "memory").is_some());
    assert!(broken_rule(layers, "plan", "engine").is_none());
    assert_eq!(imports("use crate::plan::Plan; // crate::llm"), ["plan"]);
    assert!(groups("use crate::{llm, plan};") && !groups("use crate::plan::{Plan, Step};"));
}

/// The crates of this workspace that a manifest names as dependencies, without dev-dependencies.
fn dependencies(manifest: &str) -> Vec<String> {
    let manifest: toml::Table = manifest.parse().unwrap();
    let mut tables = vec![manifest.get("dependencies")];
    let targets = manifest.get("target").and_then(|targets| targets.as_table());
    for target in targets.into_iter().flat_map(|targets| targets.values()) {
        tables.push(target.get("dependencies"));
    }
    let names = tables.into_iter().flatten().filter_map(|table| table.as_table());
    names
        .flat_map(|table| table.keys())
        .filter(|name| name.starts_with("warploom"))
        .cloned()
        .collect()
}

#[test]
fn crates_depend_only_on_lower_ones() {
    for (place, (name, folder)) in CRATES.iter().enumerate() {
        let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{folder} is not {name}");
        for needed in dependencies(&manifest) {
            let lower = CRATES[..place].iter().any(|(lower, _)| *lower == needed);
            assert!(lower, "{name} depends on {needed}, which is not before it in the table");
        }
    }
    for folder in fs::read_dir(root().join("crates")).unwrap() {
        let folder = format!("crates/{}", folder.unwrap().file_name().to_string_lossy());
        assert!(CRATES.iter().any(|(_, known)| *known == folder), "{folder} is not in the table");
    }
    // A program that computes compiles no tokenizer, no template engine and no model.
    let facade = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let facade: Vec<String> = dependencies(&facade);
    assert!(
        !facade.iter().any(|name| name.contains("llm") || name.contains("model")),
        "{facade:?}"
    );
}

#[test]
fn files_and_functions_stay_small() {
    let mut large = Vec::new();
    let mut lines = 0;
    let rust = sources().into_iter();
    let rust = rust
        .chain(["benches", "desktop/tests", "tests"].iter().flat_map(|folder| files(folder, "rs")));
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
    let known: BTreeSet<&str> = warploom_core::config::ALL.iter().map(|var| var.name).collect();
    for var in warploom_core::config::ALL {
        assert!(readme.contains(&format!("`{}`", var.name)), "README lacks {}", var.name);
    }
    for (path, text) in sources() {
        for part in text.split("WARPLOOM_").skip(1) {
            let tail: String = part
                .chars()
                .take_while(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || *c == '_')
                .collect();
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
    let others = ["cli/tests", "desktop/tests", "tests", "benches", "examples"];
    for (path, text) in sources().into_iter().chain(others.iter().flat_map(|f| files(f, "rs"))) {
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

/// Words of comments that have a plain or a technical replacement in docs/GLOSSARY.md.
const UNWANTED: [&str; 8] =
    ["told", "tells", "whoever", "so many", "hands on", "whole numbers", "nobody", "somebody"];

/// The unwanted words of a comment line.
fn unwanted(line: &str) -> Vec<&'static str> {
    let Some((_, comment)) = line.split_once("//") else { return Vec::new() };
    let comment = format!(" {} ", comment.to_lowercase());
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let found = |word: &&str| {
        comment.match_indices(*word).any(|(at, _)| {
            let (before, behind) = (&comment[..at], &comment[at + word.len()..]);
            !is_letter(before.chars().next_back()) && !is_letter(behind.chars().next())
        })
    };
    UNWANTED.into_iter().filter(found).collect()
}

#[test]
fn comments_use_plain_words() {
    let shaders = files("shaders", "wgsl");
    for (path, text) in sources().into_iter().chain(shaders) {
        for (number, line) in text.lines().enumerate() {
            let words = unwanted(line);
            assert!(words.is_empty(), "{}:{}: {words:?}", path.display(), number + 1);
        }
    }
    assert_eq!(unwanted("let a = 1; // Nobody is told."), ["told", "nobody"]);
    assert!(unwanted("retold // a stolid hand on it").is_empty());
}

/// Names of the first build, which docs/GLOSSARY.md replaced by the field's terms.
const OLD_NAMES: [&str; 18] = [
    "attn_combine",
    "attn_lanes",
    "attn_spread",
    "detect_blocking",
    "draw_sequence",
    "half_sums",
    "half_weights",
    "hand_on",
    "matmul_halves",
    "matvec_codes",
    "matvec_tiles",
    "product_coop",
    "product_tiles",
    "round_codes",
    "round_half",
    "row_handed",
    "run_blocking",
    "scaled_rows",
];

#[test]
fn old_names_do_not_come_back() {
    let shaders = files("shaders", "wgsl");
    let mut words = 0;
    for (path, text) in sources().into_iter().chain(shaders) {
        for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            assert!(!OLD_NAMES.contains(&word), "{}: {word}", path.display());
            words += 1;
        }
    }
    assert!(words > 100_000, "{words} words");
}

/// Whether a line of code compares with a provider's name. Capabilities and measured constants are
/// fields of a profile (`DeviceProfile`, `Calibration`), which any provider can set.
fn names_provider(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let configured = code.contains("feature = \"");
    let named = |names: &[&str]| names.iter().any(|name| code.contains(&format!("\"{name}\"")));
    // `cpu` and `null` are words elsewhere: the place of an engine, JSON.
    let compared =
        code.contains("provider") && ["==", "!=", "match", "=>"].iter().any(|o| code.contains(o));
    !configured && (named(&["cuda", "webgpu", "opencl"]) || compared && named(&["cpu", "null"]))
}

#[test]
fn only_providers_and_selection_compare_provider_names() {
    let folders = ["src/engine", "src/plan", "src/memory", "src/runtime"];
    let crates = ["crates/llm/src", "crates/serve/src", "shaders/src"];
    let mut found = Vec::new();
    let mut lines = 0;
    for folder in folders.into_iter().chain(crates) {
        for (path, text) in files(folder, "rs") {
            let name = path.to_string_lossy().replace('\\', "/");
            if name.contains("test") || name == "src/runtime/select.rs" {
                continue;
            }
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for (number, line) in code.lines().enumerate() {
                lines += 1;
                if names_provider(line) {
                    found.push(format!("{name}:{}: {}", number + 1, line.trim()));
                }
            }
        }
    }
    let shaders = files("shaders", "wgsl");
    for (path, text) in &shaders {
        if text.lines().any(names_provider) {
            found.push(path.display().to_string());
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(lines > 10_000 && shaders.len() > 50, "{lines} lines, {} shaders", shaders.len());
    assert!(names_provider("if query.profile.provider == \"cuda\" {"));
    assert!(names_provider("\"webgpu\" => vulkan,"));
    assert!(names_provider("builder.profile.provider != \"cpu\""));
    assert!(!names_provider("let place = if cpu { \"cpu\" } else { \"wgsl\" }; // not \"cuda\""));
    assert!(!names_provider("#[cfg(feature = \"cuda\")]"));
}
