//! Folders of WGSL files as packs: every valid compute shader gives the right results on every
//! device, or is refused with file, line and a reason in WGSL's terms.
//!
//! ```text
//! WARPLOOM_WGSL_CORPUS=naga/tests/in:test/tint WARPLOOM_WGSL_REPORT=/tmp/report.tsv \
//!     cargo test --test wgsl_corpus -- --nocapture
//! ```
//!
//! The manifest of a file follows from the variables of its entry point. A shader that writes no
//! buffer gets one that counts its invocations, so that there is a result. The report has a line
//! for each file, written before it runs and after: a second run continues after a file that ended
//! the process, and counts it. Without the variable the test runs the few shaders below.
//! `WARPLOOM_WGSL_DEVICES` names the devices (default: all), `WARPLOOM_NVRTC` the folder of
//! NVIDIA's compiler.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use naga::valid::{Capabilities, ValidationFlags, Validator};
use naga::{AddressSpace, Module, ShaderStage, StorageAccess, TypeInner};
use warploom::kernel::pack::{Case, Pack};
use warploom::kernel::{Constant, KernelSpec, SourceSpec};
use warploom::runtime::{Detection, Runtime};
use warploom_kernels::codegen::spec_wgsl;
use warploom_native::cuda::Nvrtc;
use warploom_testkit::pack::{self, Outcome};
use warploom_wgsl::translate::{Options, cuda, parse};

const SHADER: &str = "shader.wgsl";

/// Elements of a runtime-sized array.
const ELEMENTS: u32 = 8;

/// The outcome of an entry point, and the reason.
type Result = (&'static str, String);

/// A manifest for an entry point, and the text with its additions.
fn manifest(text: &str, entry: &str) -> (String, String) {
    let mut lines = format!("name = \"corpus\"\nentry = {entry:?}\ngroups = 1\n");
    let plain = format!("{lines}outputs = [\"none: [1]\"]\n");
    let Ok(module) = naga::front::wgsl::parse_str(text) else { return (plain, text.into()) };
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
    let Ok(info) = validator.validate(&module) else { return (plain, text.into()) };
    let is = |p: &naga::EntryPoint| p.stage == ShaderStage::Compute && p.name == entry;
    let Some(number) = module.entry_points.iter().position(is) else { return (plain, text.into()) };
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    let mut defaults = Vec::new();
    for (h, variable) in module.global_variables.iter() {
        if info.get_entry_point(number)[h].is_empty() {
            continue;
        }
        let name = variable.name.clone().unwrap_or_default();
        match variable.space {
            AddressSpace::Storage { access } => {
                let tensor = format!("{:?}", format!("{name}: [{}]", words(&module, variable.ty)));
                if access.contains(StorageAccess::STORE) {
                    outputs.push(tensor.clone());
                }
                inputs.push((name, tensor));
            }
            AddressSpace::Uniform => fields(&module, &name, variable.ty, &mut defaults),
            _ => {}
        }
    }
    let mut text = text.to_string();
    if outputs.is_empty() {
        if let Some(counted) = counting(&text, entry) {
            text = counted;
        }
        outputs.push("\"corpus_count: [4]\"".into());
    }
    let tensors: Vec<&str> = inputs.iter().map(|(_, tensor)| tensor.as_str()).collect();
    let _ =
        writeln!(lines, "inputs = [{}]\noutputs = [{}]", tensors.join(", "), outputs.join(", "));
    let mut set = String::new();
    for (_, found) in module.overrides.iter().filter(|(_, found)| found.init.is_none()) {
        let _ = write!(set, "{} = 1, ", found.name.as_deref().unwrap_or_default());
    }
    let _ = writeln!(lines, "constants = {{ {} }}", set.trim_end_matches(", "));
    let defaults: Vec<String> = defaults.iter().map(|name| format!("{name:?} = 1")).collect();
    let _ = writeln!(lines, "defaults = {{ {} }}", defaults.join(", "));
    let small: Vec<String> =
        inputs.iter().map(|(name, _)| format!("{name:?} = \"random(0, 2)\"")).collect();
    let _ = writeln!(lines, "[[case]]\ninputs = {{ {} }}", small.join(", "));
    (lines, text)
}

/// Words of a buffer's type, with some elements of a runtime-sized array.
fn words(module: &Module, ty: naga::Handle<naga::Type>) -> u32 {
    let inner = &module.types[ty].inner;
    let least = inner.size(module.to_ctx());
    let stride = match inner {
        TypeInner::Array { size: naga::ArraySize::Dynamic, stride, .. } => Some(*stride),
        TypeInner::Struct { members, .. } => {
            members.last().and_then(|member| match module.types[member.ty].inner {
                TypeInner::Array { size: naga::ArraySize::Dynamic, stride, .. } => Some(stride),
                _ => None,
            })
        }
        _ => None,
    };
    least.saturating_add(stride.map_or(0, |stride| stride * (ELEMENTS - 1))).div_ceil(4)
}

/// Names of the fields of a uniform block.
fn fields(module: &Module, name: &str, ty: naga::Handle<naga::Type>, to: &mut Vec<String>) {
    match &module.types[ty].inner {
        TypeInner::Struct { members, .. } => {
            members.iter().for_each(|m| part(module, m.name.clone().unwrap_or_default(), m.ty, to));
        }
        _ => part(module, name.to_string(), ty, to),
    }
}

fn part(module: &Module, name: String, ty: naga::Handle<naga::Type>, to: &mut Vec<String>) {
    let vector = |name: &str, size: naga::VectorSize, to: &mut Vec<String>| {
        to.extend(
            ["x", "y", "z", "w"][..size as usize].iter().map(|part| format!("{name}.{part}")),
        );
    };
    match &module.types[ty].inner {
        TypeInner::Vector { size, .. } => vector(&name, *size, to),
        TypeInner::Matrix { columns, rows, .. } => {
            (0..*columns as u32).for_each(|i| vector(&format!("{name}[{i}]"), *rows, to));
        }
        TypeInner::Array { base, size: naga::ArraySize::Constant(n), .. } => {
            (0..n.get().min(1024)).for_each(|i| part(module, format!("{name}[{i}]"), *base, to));
        }
        TypeInner::Struct { members, .. } => {
            for member in members {
                let inner = member.name.clone().unwrap_or_default();
                part(module, format!("{name}.{inner}"), member.ty, to);
            }
        }
        _ => to.push(name),
    }
}

/// The text with a buffer that counts invocations, with unchanged line numbers.
fn counting(text: &str, entry: &str) -> Option<String> {
    let mut from = 0;
    let start = loop {
        let at = from + text[from..].find("fn ")?;
        let rest = text[at + 3..].trim_start();
        let word = rest.strip_prefix(entry).filter(|rest| rest.trim_start().starts_with('('));
        if let Some(rest) = word {
            break text.len() - rest.len();
        }
        from = at + 3;
    };
    let mut depth = 0;
    let mut body = None;
    for (i, c) in text[start..].char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            '{' if depth == 0 => {
                body = Some(start + i + 1);
                break;
            }
            _ => {}
        }
    }
    let body = body?;
    let buffer =
        "@group(3) @binding(77) var<storage, read_write> corpus_count: array<atomic<u32>, 4>;";
    let (head, tail) = text.split_at(body);
    Some(format!("{head} atomicAdd(&corpus_count[0], 1u); {tail}\n{buffer}\n"))
}

/// A reason without names and numbers.
fn kind(what: &str) -> String {
    let first = what.lines().next().unwrap_or_default();
    let mut out = String::new();
    let mut quoted = false;
    for c in first.chars() {
        match c {
            '`' | '"' => quoted = !quoted,
            _ if quoted => {}
            c if c.is_ascii_digit() => {
                if !out.ends_with('#') {
                    out.push('#');
                }
            }
            c => out.push(c),
        }
    }
    out.chars().take(150).collect()
}

/// Whether a message names a position in the shader.
fn faults_of(message: &str) -> Option<&'static str> {
    let first = message.lines().next().unwrap_or_default();
    let place = first.find(&format!("{SHADER}:")).map(|at| &first[at + SHADER.len() + 1..]);
    if !place.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        return Some("NO LINE");
    }
    let own = [
        "naga",
        "wgpu",
        "Capabilit",
        "Handle",
        "Expression",
        "TypeInner",
        "Scalar {",
        "::",
        "Some(",
    ];
    own.iter().any(|word| first.contains(word)).then_some("WORDS OF A LIBRARY")
}

struct Bench {
    runtimes: Vec<Runtime>,
    nvrtc: Option<&'static Nvrtc>,
}

impl Bench {
    fn new() -> Bench {
        let named = std::env::var("WARPLOOM_WGSL_DEVICES").ok();
        let ids: Vec<String> = match named {
            Some(names) => names.split(',').filter(|n| !n.is_empty()).map(str::to_string).collect(),
            None => {
                let found = Detection::detect("auto").unwrap();
                let devices = found.devices.iter().filter(|device| device.rank.is_some());
                devices.map(|device| device.profile.id()).collect()
            }
        };
        let open = |id: String| Runtime::builder().device(id).build().unwrap();
        Bench { runtimes: ids.into_iter().map(open).collect(), nvrtc: Nvrtc::open().ok() }
    }

    fn run(&self, text: &str, entry: &str) -> Result {
        let (manifest, text) = std::thread::scope(|scope| {
            let large = std::thread::Builder::new().stack_size(1 << 30);
            large.spawn_scoped(scope, || manifest(text, entry)).unwrap().join().unwrap()
        });
        let pack = match Pack::from_sources(&manifest, &[(SHADER, &text)]) {
            Ok(pack) => pack,
            Err(error) => return ("refused", error.to_string()),
        };
        let case = match pack::cases(&pack) {
            Ok(cases) => cases[0].clone(),
            Err(error) => return ("refused", error.to_string()),
        };
        let (row, job) = pack::in_interpreter(&pack, &case);
        let Some(job) = job else {
            let Outcome::Wrong { what } = row.outcome else { return ("WRONG", "no job".into()) };
            // Faults of a checked run are the shader's own.
            let found = ["out of bounds", "race", "barrier", "step limit"];
            let its_own = found.iter().any(|word| what.contains(word));
            return (if its_own { "fault found" } else { "refused" }, what);
        };
        for runtime in &self.runtimes {
            let row = pack::on_device(&job, runtime);
            match row.outcome {
                Outcome::Right { .. } => {}
                Outcome::Wrong { what } => return ("WRONG", format!("{}: {what}", row.place)),
                Outcome::Unsupported { why } => {
                    return ("NOT HERE", format!("{}: {why}", row.place));
                }
            }
        }
        if let Some(nvrtc) = self.nvrtc
            && let Err(why) = by_nvrtc(nvrtc, &pack, &case)
        {
            return ("CUDA", why);
        }
        ("right", String::new())
    }
}

/// The shader as CUDA C through NVIDIA's compiler.
fn by_nvrtc(nvrtc: &Nvrtc, pack: &Pack, case: &Case) -> std::result::Result<(), String> {
    let compile = || {
        let values: Vec<(&str, f64)> = case.values.iter().map(|(k, v)| (k.as_str(), *v)).collect();
        let custom = pack.call(&pack.operands(&case.values, None)?, &values)?;
        let spec = KernelSpec::Source(SourceSpec {
            name: custom.name.clone(),
            wgsl: custom.wgsl.0.to_string(),
            entry: custom.entry.clone(),
            bindings: Vec::new(),
            param_words: 0,
            constants: (custom.constants.iter())
                .map(|(name, value)| (name.clone(), Constant::F64(value.to_bits())))
                .collect(),
            twins: Vec::new(),
        });
        let (module, info) = parse(&spec_wgsl(&spec)?)?;
        cuda(&module, &info, &Options { entry: custom.entry, ..Options::default() })
    };
    let translated = compile().map_err(|e| e.to_string())?;
    let checked = nvrtc.compile(&translated.text, "sm_90a");
    checked.map(|_| ()).map_err(|log| format!("{log}"))
}

/// Entry points of compute shaders, found in the text.
fn entries(text: &str) -> Vec<String> {
    if !text.contains("@compute") && !text.contains("@ compute") {
        return Vec::new();
    }
    // Deeper texts than the library takes are for it to refuse, not for this thread to fall over.
    let parsed = std::thread::scope(|scope| {
        let large = std::thread::Builder::new().stack_size(1 << 30);
        large
            .spawn_scoped(scope, || naga::front::wgsl::parse_str(text).ok())
            .unwrap()
            .join()
            .unwrap()
    });
    match parsed {
        Some(module) => {
            let points = module.entry_points.iter();
            points.filter(|p| p.stage == ShaderStage::Compute).map(|p| p.name.clone()).collect()
        }
        // Refused by the parser, whatever the name.
        None => vec!["main".into()],
    }
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    if folder.is_file() {
        return found.push(folder.into());
    }
    let mut all: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    for path in all {
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|e| e == "wgsl") {
            found.push(path);
        }
    }
}

/// Lines of a report: file, entry point, what, why.
#[derive(Default)]
struct Report {
    path: Option<PathBuf>,
    done: BTreeSet<String>,
    rows: Vec<(String, &'static str, String)>,
}

impl Report {
    fn open(path: Option<PathBuf>) -> Report {
        let mut report = Report { path, ..Report::default() };
        let text = report.path.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        let mut begun = None;
        for line in text.unwrap_or_default().lines() {
            let mut parts = line.split('\t');
            let (Some(what), Some(key)) = (parts.next(), parts.next()) else { continue };
            report.done.insert(key.into());
            let why = parts.next().unwrap_or_default().to_string();
            let all = [
                "right",
                "refused",
                "fault found",
                "WRONG",
                "NOT HERE",
                "CUDA",
                "CRASH",
                "no compute",
            ];
            if what == "begun" {
                begun = Some(key.to_string());
            } else if let Some(what) = all.iter().find(|known| **known == what) {
                begun = None;
                report.rows.push((key.into(), what, why));
            }
        }
        if let Some(key) = begun {
            report.add(key, "CRASH", "the process ended".into());
        }
        report
    }

    fn line(&self, what: &str, key: &str, why: &str) {
        let Some(path) = &self.path else { return };
        let mut file = std::fs::File::options().create(true).append(true).open(path).unwrap();
        let why = why.replace(['\t', '\n'], " ⏎ ");
        writeln!(file, "{what}\t{key}\t{why}").unwrap();
    }

    fn add(&mut self, key: String, what: &'static str, why: String) {
        self.line(what, &key, &why);
        self.rows.push((key, what, why));
    }

    /// The table of counts.
    fn table(&self) -> String {
        let mut counts: BTreeMap<(&str, String), (usize, &str)> = BTreeMap::new();
        for (key, what, why) in &self.rows {
            let why = why.replace(" ⏎ ", "\n");
            let lost = faults_of(&why).filter(|_| *what == "refused").unwrap_or_default();
            let kind = format!("{lost} {}", kind(&why));
            let row = counts.entry((what, kind)).or_insert((0, key));
            row.0 += 1;
        }
        let mut rows: Vec<_> = counts.into_iter().collect();
        rows.sort_by_key(|((what, _), (count, _))| (what.to_string(), usize::MAX - count));
        let mut out = String::new();
        for ((what, kind), (count, first)) in rows {
            let _ = writeln!(out, "{count:6} {what:<12} {kind}   e.g. {first}");
        }
        out
    }
}

fn through(bench: &Bench, name: &str, text: &str, report: &mut Report) {
    let entries = entries(text);
    if entries.is_empty() && !report.done.contains(name) {
        report.add(name.into(), "no compute", String::new());
    }
    for entry in entries {
        let key = format!("{name} {entry}");
        if report.done.contains(&key) {
            continue;
        }
        report.line("begun", &key, "");
        let run = catch_unwind(AssertUnwindSafe(|| bench.run(text, &entry)));
        let (what, why) = run.unwrap_or_else(|_| ("CRASH", "a panic".into()));
        report.add(key, what, why);
    }
}

#[test]
fn shaders_are_right_or_refused_with_a_line() {
    let bench = Bench::new();
    let mut report = Report::open(std::env::var_os("WARPLOOM_WGSL_REPORT").map(PathBuf::from));
    match std::env::var_os("WARPLOOM_WGSL_CORPUS") {
        Some(folders) => {
            for folder in std::env::split_paths(&folders) {
                let mut all = Vec::new();
                files(&folder, &mut all);
                for path in all {
                    let Ok(text) = std::fs::read_to_string(&path) else { continue };
                    let name = path.strip_prefix(&folder).unwrap_or(&path).display().to_string();
                    through(&bench, &name, &text, &mut report);
                }
            }
        }
        None => {
            for (name, text) in OWN {
                through(&bench, name, text, &mut report);
            }
            let count = |of: &str| report.rows.iter().filter(|(_, what, _)| *what == of).count();
            let found = [count("right"), count("refused"), count("no compute")];
            assert_eq!(found, [2, 1, 1], "right, refused and without compute of our own shaders");
        }
    }
    println!("{}", report.table());
    let wrong = report.rows.iter().filter(|(_, what, why)| match *what {
        "right" | "no compute" | "fault found" => false,
        "refused" => faults_of(&why.replace(" ⏎ ", "\n")).is_some(),
        _ => true,
    });
    let wrong: Vec<String> = wrong.map(|(key, what, why)| format!("{what} {key}: {why}")).collect();
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Our own shaders: valid ones, and refused ones.
const OWN: [(&str, &str); 4] = [
    ("nothing", "@compute @workgroup_size(4) fn main() {}"),
    (
        "sized",
        "override N = 4; @group(0) @binding(0) var<storage, read_write> y: array<i32>;
        var<workgroup> a: array<i32, N * 2>;
        @compute @workgroup_size(N) fn main(@builtin(local_invocation_index) i: u32) {
            a[i] = y[i]; workgroupBarrier(); y[i] = a[u32(N) - 1u - i];
        }",
    ),
    (
        "half",
        "enable f16; @group(0) @binding(0) var<storage, read_write> y: array<f16>;
        @compute @workgroup_size(1) fn main() { y[0] = 1.0h; }",
    ),
    ("vertex", "@vertex fn main() -> @builtin(position) vec4<f32> { return vec4<f32>(); }"),
];
