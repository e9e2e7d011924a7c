//! The preprocessor of assets: imports, defines, constants and repetition.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::f32_literal;
use crate::spec::Constant;
use warploom_core::error::{Error, Result};

/// Looks up a file's text by its name without folder and extension.
pub(super) type Files<'a> = &'a dyn Fn(&str) -> Option<&'a str>;

/// What directives refer to: files, defines and constants.
pub(super) struct Source<'a> {
    /// The replacement of `*` in an import.
    pub(super) star: &'a str,
    pub(super) defines: &'a [String],
    pub(super) constants: &'a BTreeMap<String, Constant>,
    pub(super) files: Files<'a>,
}

/// One run of the preprocessor.
struct Assembly<'a> {
    source: &'a Source<'a>,
    /// Constants declared so far.
    declared: Vec<String>,
    /// Values of the `u32` constants declared so far, if they could be evaluated.
    numbers: BTreeMap<String, u32>,
    /// Files that are already included; each is imported once.
    seen: Vec<String>,
    /// `enable` and `requires` lines, which must come first.
    head: String,
    body: String,
}

/// Preprocesses a file followed by `tail`, and returns the text.
pub(super) fn assemble<'a>(file: &str, tail: &str, source: &'a Source<'a>) -> Result<String> {
    let mut run = Assembly {
        source,
        declared: Vec::new(),
        numbers: BTreeMap::new(),
        seen: vec![file.to_string()],
        head: String::new(),
        body: String::new(),
    };
    let text = (source.files)(file)
        .ok_or_else(|| Error::compile(format!("shaders/{file}.wgsl: there is no such file")))?;
    run.file(file, text)?;
    run.file("tail", tail)?;
    if let Some(name) = source.constants.keys().find(|name| !run.declared.contains(name)) {
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
    /// Whether the enclosing lines are kept.
    outer: bool,
    /// Whether the condition of the current branch holds.
    holds: bool,
    /// Whether a previous branch's condition held.
    taken: bool,
    in_else: bool,
}

impl Branch {
    fn kept(&self) -> bool {
        self.outer && self.holds
    }

    /// Starts the next branch, with this condition.
    fn next(&mut self, condition: bool) {
        self.taken |= self.holds;
        self.holds = condition && !self.taken;
    }
}

impl Assembly<'_> {
    fn file(&mut self, name: &str, text: &str) -> Result<()> {
        let lines: Vec<_> = text.lines().map(str::to_string).enumerate().collect();
        self.lines(name, &lines)
    }

    /// Processes lines, given with their 0-based line numbers in the file.
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
                    let defined = self.source.defines.iter().any(|d| d == define);
                    let holds = defined == (first == "#ifdef");
                    let branch =
                        Branch { line: i + 1, outer: kept, holds, taken: false, in_else: false };
                    open.push(branch);
                }
                "#elifdef" | "#else" => {
                    let branch = open.last_mut();
                    let branch = branch.ok_or_else(|| fail(format!("{first} without #ifdef")))?;
                    if branch.in_else {
                        return Err(fail(format!("{first} behind #else")));
                    }
                    if first == "#else" {
                        branch.in_else = true;
                        branch.next(true);
                    } else {
                        let define =
                            only_word(words).ok_or_else(|| fail(format!("{first} NAME")))?;
                        branch.next(self.source.defines.iter().any(|d| d == define));
                    }
                }
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
                    let import = import.replace('*', self.source.star);
                    if !self.seen.contains(&import) {
                        let text = (self.source.files)(&import)
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

    /// Expands `#repeat LETTER COUNT`: repeats the lines COUNT times, with `$LETTER` replaced by 0,
    /// 1 and so on. COUNT is a literal or an earlier constant.
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

    /// Records the value of `const NAME: u32 = EXPRESSION;` for `#repeat`, if the expression
    /// consists of literals and recorded constants.
    fn note_number(&mut self, line: &str) {
        let parsed = line
            .strip_prefix("const ")
            .and_then(|rest| rest.split_once(": u32 = "))
            .and_then(|(name, value)| Some((name, value.strip_suffix(';')?)));
        let Some((name, value)) = parsed else { return };
        let mut sum = Arithmetic { left: value, numbers: &self.numbers };
        if let Some(value) = sum.sum().filter(|_| sum.left.is_empty()) {
            self.numbers.insert(name.to_string(), value);
        }
    }

    /// Turns `override NAME: u32 = default;` into `const NAME: u32 = value;`.
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
        match (kind, self.source.constants.get(name)) {
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

/// Evaluator of integer arithmetic over literals and named constants: `(A * 8u + B - 1u) / B`.
struct Arithmetic<'a> {
    left: &'a str,
    numbers: &'a BTreeMap<String, u32>,
}

impl Arithmetic<'_> {
    fn sum(&mut self) -> Option<u32> {
        let mut value = self.product()?;
        loop {
            match self.one_of("+-") {
                Some('+') => value = value.checked_add(self.product()?)?,
                Some(_) => value = value.checked_sub(self.product()?)?,
                None => return Some(value),
            }
        }
    }

    fn product(&mut self) -> Option<u32> {
        let mut value = self.number()?;
        loop {
            match self.one_of("*/") {
                Some('*') => value = value.checked_mul(self.number()?)?,
                Some(_) => value = value.checked_div(self.number()?)?,
                None => return Some(value),
            }
        }
    }

    fn number(&mut self) -> Option<u32> {
        if self.one_of("(").is_some() {
            let value = self.sum()?;
            return self.one_of(")").map(|_| value);
        }
        let end = self.left.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (word, left) = self.left.split_at(end.unwrap_or(self.left.len()));
        self.left = left.trim_start();
        let known = self.numbers.get(word).copied();
        known.or_else(|| word.strip_suffix('u').unwrap_or(word).parse().ok())
    }

    /// Consumes and returns the next character, if it is one of these.
    fn one_of(&mut self, signs: &str) -> Option<char> {
        let sign = self.left.chars().next().filter(|c| signs.contains(*c))?;
        self.left = self.left[1..].trim_start();
        Some(sign)
    }
}

/// Returns the number of lines before the `#end` that closes a `#repeat`.
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
            "ways" => {
                "#ifdef a\nwith a\n#elifdef b\nwith b\n#ifdef a\nboth\n#endif\n#elifdef c\nwith c\n#else\nnone\n#endif"
            }
            "late" => "#ifdef a\n#else\n#elifdef b\n#endif",
            "alone" => "#elifdef b",
            "nameless" => "#ifdef a\n#elifdef\n#endif",
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
        let source =
            Source { star: "x", defines: &defines, constants: &constants, files: &|n| files(n) };
        assemble(file, "", &source)
    }

    #[test]
    fn directives() {
        let text = run("good", &[], &[]).unwrap();
        assert_eq!(text, "enable f16;\n// good\npart\nconst N: u32 = 3;\nno\nnot a\n");
        let text = run("good", &["a"], &[("N", Constant::U32(7))]).unwrap();
        assert_eq!(text, "enable f16;\n// good\npart\nconst N: u32 = 7u;\nyes\n");
    }

    #[test]
    fn the_first_way_that_is_defined_is_taken() {
        let ways: [(&[&str], &str); 6] = [
            (&["a"], "with a\n"),
            (&["b"], "with b\n"),
            (&["c"], "with c\n"),
            (&["b", "c"], "with b\n"),
            (&["a", "b", "c"], "with a\n"),
            (&[], "none\n"),
        ];
        for (defines, expect) in ways {
            assert_eq!(run("ways", defines, &[]).unwrap(), expect, "{defines:?}");
        }
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
        check("twice", "shaders/twice.wgsl:3: #else behind #else");
        check("late", "shaders/late.wgsl:3: #elifdef behind #else");
        check("alone", "shaders/alone.wgsl:1: #elifdef without #ifdef");
        check("nameless", "shaders/nameless.wgsl:2: #elifdef NAME");
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
}
