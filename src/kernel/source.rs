//! From a catalogue spec to WGSL text.
//!
//! Assets are the files of `shaders/`, embedded. `shaders/README.md` tells how they are written.
//! Two equal specs give equal text.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::catalogue::{self, Entry};
use super::spec::{AssetSpec, Constant};
use crate::error::{Error, Result};

/// A file's text by its name without folder and ending.
type Files<'a> = &'a dyn Fn(&str) -> Option<&'static str>;

macro_rules! assets {
    ($($name:literal: $path:literal,)*) => {
        /// Name (without folder and ending), path in the package and text of every shader file.
        pub const ASSETS: &[(&str, &str, &str)] = &[
            $(($name, concat!("shaders/", $path), include_str!(concat!("../../shaders/", $path))),)*
        ];
    };
}

assets! {
    "argmax": "argmax.wgsl",
    "attn_combine": "attn_combine.wgsl",
    "attn_decode": "attn_decode.wgsl",
    "attn_prefill": "attn_prefill.wgsl",
    "attn_split": "attn_split.wgsl",
    "block": "shared/block.wgsl",
    "conv2d": "conv2d.wgsl",
    "dequant_bf16": "dequant_bf16.wgsl",
    "dequant_f16": "dequant_f16.wgsl",
    "dequant_f32": "dequant_f32.wgsl",
    "dequant_q4_0": "dequant_q4_0.wgsl",
    "dequant_q4_1": "dequant_q4_1.wgsl",
    "dequant_q4_k": "dequant_q4_k.wgsl",
    "dequant_q6_k": "dequant_q6_k.wgsl",
    "dequant_q8_0": "dequant_q8_0.wgsl",
    "gather": "gather.wgsl",
    "gather_rows": "gather_rows.wgsl",
    "half": "shared/half.wgsl",
    "halfwords": "shared/halfwords.wgsl",
    "key_range": "shared/key_range.wgsl",
    "key_slices": "shared/key_slices.wgsl",
    "math_casts": "shared/math_casts.wgsl",
    "math_erf": "shared/math_erf.wgsl",
    "math_integers": "shared/math_integers.wgsl",
    "math_pow": "shared/math_pow.wgsl",
    "math_rem": "shared/math_rem.wgsl",
    "math_sigmoid": "shared/math_sigmoid.wgsl",
    "math_tanh": "shared/math_tanh.wgsl",
    "math_trig": "shared/math_trig.wgsl",
    "matmul": "matmul.wgsl",
    "matmul_batched": "matmul_batched.wgsl",
    "matvec": "matvec.wgsl",
    "matvec_sum": "shared/matvec_sum.wgsl",
    "nibbles": "shared/nibbles.wgsl",
    "nums": "shared/nums.wgsl",
    "norm_layer": "norm_layer.wgsl",
    "norm_rms": "norm_rms.wgsl",
    "pool2d": "pool2d.wgsl",
    "pool2d_avg": "pool2d_avg.wgsl",
    "pool2d_max": "pool2d_max.wgsl",
    "reduce": "reduce.wgsl",
    "reduce_max": "reduce_max.wgsl",
    "reduce_mean": "reduce_mean.wgsl",
    "reduce_min": "reduce_min.wgsl",
    "reduce_prod": "reduce_prod.wgsl",
    "reduce_sum": "reduce_sum.wgsl",
    "rope": "rope.wgsl",
    "rope_half": "rope_half.wgsl",
    "rope_interleaved": "rope_interleaved.wgsl",
    "softmax": "softmax.wgsl",
}

/// Families whose kernels are one skeleton with an import of the kernel's own name.
const SKELETONS: [&str; 3] = ["reduce", "rope", "pool2d"];

fn asset(name: &str) -> Option<&'static str> {
    ASSETS.iter().find(|(n, ..)| *n == name).map(|(.., text)| *text)
}

/// The text of a shared file of functions, for generated kernels.
///
/// # Errors
/// Compile, for a file that does not exist or is itself wrong.
pub fn shared_wgsl(name: &str) -> Result<String> {
    assemble(name, "", &[], &BTreeMap::new(), &asset)
}

/// The WGSL text of an asset: imports resolved, defines applied, constants set.
///
/// # Errors
/// Unsupported, for a kernel that is not in the catalogue; invalid, for a define or a constant
/// that the kernel does not have; compile, for a fault in the asset. The last two name the asset,
/// and the line where there is one.
pub fn asset_wgsl(spec: &AssetSpec) -> Result<String> {
    let (entry, format) = catalogue::find(&spec.name).ok_or_else(|| {
        Error::unsupported(format!("kernel {:?} is not in the catalogue", spec.name))
    })?;
    if let Some(define) = spec.defines.iter().find(|d| !entry.defines.contains(&d.as_str())) {
        return Err(Error::invalid(format!(
            "kernel {}: there is no variant {define:?}, only {:?}",
            spec.name, entry.defines
        )));
    }
    let (file, star) = match format {
        Some(format) => (entry.name.trim_end_matches("_*"), format.name()),
        None => SKELETONS
            .iter()
            .find_map(|s| Some((*s, entry.name.strip_prefix(s)?.strip_prefix('_')?)))
            .unwrap_or((entry.name, "")),
    };
    assemble(file, star, &spec.defines, &spec.constants, &asset)
}

/// Every variant that ships, for tests: each kernel with each format, each set of defines, and
/// constants at their defaults and at other values that engines use.
pub fn variants() -> Vec<AssetSpec> {
    let mut all = Vec::new();
    for entry in catalogue::CATALOGUE {
        let names: Vec<String> = if entry.name.ends_with('*') {
            catalogue::family_formats().map(|f| catalogue::family_name(entry.name, f)).collect()
        } else {
            vec![entry.name.to_string()]
        };
        for name in names {
            for set in 0..1u32 << entry.defines.len() {
                let base = entry
                    .defines
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| set >> i & 1 == 1)
                    .fold(AssetSpec::new(&name), |spec, (_, define)| spec.define(*define));
                all.extend(constant_sets(entry, &base));
            }
        }
    }
    all
}

/// A spec with the constants that are worth a test.
fn constant_sets(entry: &Entry, base: &AssetSpec) -> Vec<AssetSpec> {
    let with = |pairs: &[(&str, u32)]| {
        pairs.iter().fold(base.clone(), |spec, (name, value)| spec.constant(*name, *value))
    };
    let mut sets = vec![base.clone()];
    match entry.name {
        "matvec_*" => {
            sets.push(with(&[("WG", 32), ("ROWS", 4), ("M", 8)]));
            sets.push(with(&[("WG", 256), ("ROWS", 1), ("M", 3)]));
        }
        "matmul_*" => {
            sets.push(with(&[("BM", 32), ("BN", 64)]));
            sets.push(with(&[("BM", 128), ("BN", 64)]));
        }
        "attn_decode" => {
            let dims = if base.defines.iter().any(|d| d == "vec4") {
                [32, 80, 128, 256]
            } else {
                [1, 33, 128, 256]
            };
            for (dim, threads) in dims.into_iter().zip([64, 256, 128, 256]) {
                sets.push(with(&[("HEAD_DIM", dim), ("WG", threads)]));
            }
        }
        "attn_split" => {
            // A larger head of this many heads, or more threads, would not fit workgroup memory.
            for (dim, heads, threads) in [(32, 8, 64), (80, 3, 128), (128, 8, 64), (256, 4, 64)] {
                sets.push(with(&[("HEAD_DIM", dim), ("HEADS", heads), ("WG", threads)]));
            }
            if !base.defines.iter().any(|d| d == "vec4") {
                sets.push(with(&[("HEAD_DIM", 33), ("HEADS", 1), ("WG", 256)]));
            }
        }
        "attn_combine" => {
            sets.extend(
                [(1, 64), (33, 256), (256, 64)]
                    .map(|(dim, threads)| with(&[("HEAD_DIM", dim), ("WG", threads)])),
            );
        }
        "attn_prefill" => {
            sets.extend([1, 33, 80, 128, 256].map(|dim| with(&[("HEAD_DIM", dim)])));
        }
        _ if entry.constants.iter().any(|(name, _)| *name == "WG") => {
            sets.extend([32, 256].map(|threads| with(&[("WG", threads)])));
        }
        _ => {}
    }
    sets
}

/// One run of the preprocessor.
struct Assembly<'a> {
    files: Files<'a>,
    /// What a `*` in an import stands for.
    star: &'a str,
    defines: &'a [String],
    constants: &'a BTreeMap<String, Constant>,
    /// Constants that a line declared.
    declared: Vec<String>,
    /// Values of the `u32` constants so far that are plain numbers.
    numbers: BTreeMap<String, u32>,
    /// Files that are already part of the text; each is imported once.
    seen: Vec<String>,
    /// `enable` and `requires` lines, which must come first.
    head: String,
    body: String,
}

fn assemble(
    file: &str,
    star: &str,
    defines: &[String],
    constants: &BTreeMap<String, Constant>,
    files: Files<'_>,
) -> Result<String> {
    let mut run = Assembly {
        files,
        star,
        defines,
        constants,
        declared: Vec::new(),
        numbers: BTreeMap::new(),
        seen: vec![file.to_string()],
        head: String::new(),
        body: String::new(),
    };
    let text = files(file)
        .ok_or_else(|| Error::compile(format!("shaders/{file}.wgsl: there is no such file")))?;
    run.file(file, text)?;
    if let Some(name) = constants.keys().find(|name| !run.declared.contains(name)) {
        return Err(Error::invalid(format!(
            "shaders/{file}.wgsl: constant {name} is not declared, only {:?}",
            run.declared
        )));
    }
    Ok(run.head + &run.body)
}

/// An open `#ifdef` or `#ifndef`.
struct Branch {
    line: usize,
    /// Whether the lines around it are kept.
    outer: bool,
    /// Whether its condition holds.
    holds: bool,
    in_else: bool,
}

impl Branch {
    fn kept(&self) -> bool {
        self.outer && self.holds != self.in_else
    }
}

impl Assembly<'_> {
    fn file(&mut self, name: &str, text: &str) -> Result<()> {
        let lines: Vec<_> = text.lines().map(str::to_string).enumerate().collect();
        self.lines(name, &lines)
    }

    /// Lines with their places in the file, from 0.
    fn lines(&mut self, name: &str, lines: &[(usize, String)]) -> Result<()> {
        let mut open: Vec<Branch> = Vec::new();
        let mut at = 0;
        while let Some((i, line)) = lines.get(at) {
            at += 1;
            let place = format!("shaders/{name}.wgsl:{}", i + 1);
            let fail = |what: String| Error::compile(format!("{place}: {what}"));
            let mut words = line.split_whitespace();
            let first = words.next().unwrap_or("");
            let kept = open.last().is_none_or(Branch::kept);
            match first {
                "#ifdef" | "#ifndef" => {
                    let define = only_word(words).ok_or_else(|| fail(format!("{first} NAME")))?;
                    let defined = self.defines.iter().any(|d| d == define);
                    let holds = defined == (first == "#ifdef");
                    open.push(Branch { line: i + 1, outer: kept, holds, in_else: false });
                }
                "#else" => match open.last_mut() {
                    Some(branch) if !branch.in_else => branch.in_else = true,
                    Some(_) => return Err(fail("second #else".into())),
                    None => return Err(fail("#else without #ifdef".into())),
                },
                "#endif" => {
                    open.pop().ok_or_else(|| fail("#endif without #ifdef".into()))?;
                }
                "#repeat" => {
                    let len = repeat_len(&lines[at..])
                        .ok_or_else(|| fail("#repeat without #end".into()))?;
                    if kept {
                        self.repeat(name, words, &lines[at..at + len])
                            .map_err(|e| e.context(format!("#repeat at {place}")))?;
                    }
                    at += len + 1;
                }
                _ if !kept => {}
                "#import" => {
                    let import = only_word(words).ok_or_else(|| fail("#import NAME".into()))?;
                    let import = import.replace('*', self.star);
                    if !self.seen.contains(&import) {
                        let text = (self.files)(&import)
                            .ok_or_else(|| fail(format!("#import {import}: no such file")))?;
                        self.seen.push(import.clone());
                        self.file(&import, text)
                            .map_err(|e| e.context(format!("#import at {place}")))?;
                    }
                }
                "enable" | "requires" => push_line(&mut self.head, line),
                "override" => {
                    let line = self.constant(line).map_err(fail)?;
                    self.note_number(&line);
                    push_line(&mut self.body, &line);
                }
                _ if first.starts_with('#') => {
                    return Err(fail(format!("unknown directive {first}")));
                }
                _ => {
                    self.note_number(line);
                    push_line(&mut self.body, line);
                }
            }
        }
        match open.last() {
            None => Ok(()),
            Some(branch) => Err(Error::compile(format!(
                "shaders/{name}.wgsl:{}: #ifdef without #endif",
                branch.line
            ))),
        }
    }

    /// The lines of a `#repeat LETTER COUNT` as often as it says, with `$LETTER` as the number of
    /// the round. COUNT is a number or a constant of an earlier line.
    fn repeat<'w>(
        &mut self,
        name: &str,
        mut words: impl Iterator<Item = &'w str>,
        lines: &[(usize, String)],
    ) -> Result<()> {
        let fail = || Error::compile("expected `#repeat LETTER COUNT`, COUNT from 0 to 64");
        let letter = words.next().filter(|w| w.len() == 1).ok_or_else(fail)?;
        let count = only_word(words).ok_or_else(fail)?;
        let count = self.numbers.get(count).copied().or_else(|| count.parse().ok());
        for round in 0..count.filter(|c| *c <= 64).ok_or_else(fail)? {
            let (from, to) = (format!("${letter}"), round.to_string());
            let lines: Vec<_> =
                lines.iter().map(|(i, line)| (*i, line.replace(&from, &to))).collect();
            self.lines(name, &lines)?;
        }
        Ok(())
    }

    /// Remembers `const NAME: u32 = NUMBER;` for `#repeat`.
    fn note_number(&mut self, line: &str) {
        let parsed = line
            .strip_prefix("const ")
            .and_then(|rest| rest.split_once(": u32 = "))
            .and_then(|(name, value)| Some((name, value.strip_suffix(';')?)))
            .and_then(|(name, value)| Some((name, value.trim_end_matches('u').parse().ok()?)));
        if let Some((name, value)) = parsed {
            self.numbers.insert(name.to_string(), value);
        }
    }

    /// `override NAME: u32 = default;` as `const NAME: u32 = value;`.
    fn constant(&mut self, line: &str) -> Result<String, String> {
        let parsed = line
            .trim()
            .strip_prefix("override")
            .and_then(|rest| rest.strip_suffix(';'))
            .and_then(|rest| rest.split_once('='))
            .and_then(|(left, value)| Some((left.split_once(':')?, value.trim())));
        let Some(((name, kind), default)) = parsed else {
            return Err(format!("expected `override NAME: type = value;`, found {line:?}"));
        };
        let (name, kind) = (name.trim(), kind.trim());
        if self.declared.iter().any(|d| d == name) {
            return Err(format!("constant {name} is declared twice"));
        }
        self.declared.push(name.to_string());
        let mut value = default.to_string();
        match (kind, self.constants.get(name)) {
            ("u32" | "f32", None) => {}
            ("u32", Some(Constant::U32(v))) => value = format!("{v}u"),
            ("f32", Some(Constant::F32(bits))) if f32::from_bits(*bits).is_finite() => {
                value = f32_literal(f32::from_bits(*bits));
            }
            (kind, given) => return Err(format!("constant {name}: {kind} cannot be {given:?}")),
        }
        Ok(format!("const {name}: {kind} = {value};"))
    }
}

/// A finite number as a WGSL literal of the same bits.
pub(crate) fn f32_literal(value: f32) -> String {
    if value.abs() < 1e38 {
        // The shortest digits that give the same bits.
        format!("{value:?}f")
    } else {
        // Rounded digits may lie above the largest f32, which compilers refuse.
        format!("{:?}f", f64::from(value))
    }
}

/// Lines before the `#end` that closes a `#repeat`.
fn repeat_len(lines: &[(usize, String)]) -> Option<usize> {
    let mut depth = 0;
    lines.iter().position(|(_, line)| {
        match line.split_whitespace().next() {
            Some("#repeat") => depth += 1,
            Some("#end") if depth == 0 => return true,
            Some("#end") => depth -= 1,
            _ => {}
        }
        false
    })
}

fn only_word<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word = words.next()?;
    words.next().is_none().then_some(word)
}

fn push_line(text: &mut String, line: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(name: &str) -> Option<&'static str> {
        Some(match name {
            "good" => {
                "// good\n#import part_*\n#import part_*\noverride N: u32 = 3;\n#ifdef a\nyes\n#else\nno\n#endif\n#ifndef a\nnot a\n#endif"
            }
            "part_x" => "enable f16;\npart",
            "no_import" => "// text\n#import nothing",
            "through" => "\n#import no_import",
            "open" => "\n\n#ifdef a\n#ifdef b\n#endif",
            "closed" => "#ifdef a\n#endif\n#endif",
            "else" => "x\n#else",
            "twice" => "#ifdef a\n#else\n#else\n#endif",
            "word" => "\n#define a",
            "over" => "override N = 3",
            "rounds" => {
                "override N: u32 = 2;\n#repeat i N\n#repeat j 2\na$i_$j = $ju;\n#end\n#ifdef a\na$i\n#endif\n#end"
            }
            "unended" => "\n#repeat i 2\n#repeat j 2\n#end",
            "unknown" => "x\n#repeat i K\n#end",
            "inside" => "#repeat i 2\n\n#else\n#end",
            _ => return None,
        })
    }

    fn run(file: &str, defines: &[&str], constants: &[(&str, Constant)]) -> Result<String> {
        let defines: Vec<String> = defines.iter().map(|d| d.to_string()).collect();
        let constants = constants.iter().map(|(n, c)| (n.to_string(), *c)).collect();
        assemble(file, "x", &defines, &constants, &files)
    }

    #[test]
    fn directives() {
        let text = run("good", &[], &[]).unwrap();
        assert_eq!(text, "enable f16;\n// good\npart\nconst N: u32 = 3;\nno\nnot a\n");
        let text = run("good", &["a"], &[("N", Constant::U32(7))]).unwrap();
        assert_eq!(text, "enable f16;\n// good\npart\nconst N: u32 = 7u;\nyes\n");
    }

    #[test]
    fn repetition() {
        let text = run("rounds", &["a"], &[]).unwrap();
        let rounds = "a0_0 = 0u;\na0_1 = 1u;\na0\na1_0 = 0u;\na1_1 = 1u;\na1\n";
        assert_eq!(text, format!("const N: u32 = 2;\n{rounds}"));
        let text = run("rounds", &[], &[("N", Constant::U32(0))]).unwrap();
        assert_eq!(text, "const N: u32 = 0u;\n");
    }

    #[test]
    fn faults_name_file_and_line() {
        let check = |file: &str, expect: &str| {
            let error = run(file, &[], &[]).unwrap_err();
            assert!(error.is_compile() && error.to_string().contains(expect), "{error}");
        };
        check("no_import", "shaders/no_import.wgsl:2: #import nothing");
        check("through", "shaders/through.wgsl:2: shaders/no_import.wgsl:2");
        check("open", "shaders/open.wgsl:3: #ifdef without #endif");
        check("closed", "shaders/closed.wgsl:3: #endif without #ifdef");
        check("else", "shaders/else.wgsl:2: #else without #ifdef");
        check("twice", "shaders/twice.wgsl:3: second #else");
        check("word", "shaders/word.wgsl:2: unknown directive #define");
        check("over", "shaders/over.wgsl:1: expected");
        check("unended", "shaders/unended.wgsl:2: #repeat without #end");
        check("unknown", "shaders/unknown.wgsl:2: expected `#repeat LETTER COUNT`");
        check("inside", "shaders/inside.wgsl:3: #else without #ifdef");
        check("nowhere", "shaders/nowhere.wgsl: there is no such file");
        let error = run("good", &[], &[("K", Constant::U32(1))]).unwrap_err();
        assert!(
            error.is_invalid() && error.to_string().contains("good.wgsl: constant K"),
            "{error}"
        );
        let error = run("good", &[], &[("N", Constant::F32(0))]).unwrap_err();
        assert!(error.to_string().contains("good.wgsl:4: constant N"), "{error}");
    }

    #[test]
    fn specs_outside_the_catalogue_are_refused() {
        assert!(asset_wgsl(&AssetSpec::new("matvec_q9_9")).unwrap_err().is_unsupported());
        assert!(asset_wgsl(&AssetSpec::new("gather").define("f16")).unwrap_err().is_invalid());
        let error = asset_wgsl(&AssetSpec::new("softmax").constant("ROWS", 1)).unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains("ROWS"), "{error}");
    }
}
