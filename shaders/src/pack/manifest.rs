//! The schema of `pack.toml`, with the line of each part for messages.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::expr::Expr;
use warploom_core::base::DType;
use warploom_core::error::{Error, Result};

/// Maximum size of a manifest in bytes.
const MAX_BYTES: usize = 1 << 20;
/// Maximum number of entries of each kind: tensors, fields, constants, cases.
const MAX_ITEMS: usize = 64;
/// Maximum number of defaults, which are for words of a uniform block and for sizes.
const MAX_DEFAULTS: usize = 1024 + MAX_ITEMS;
/// Maximum number of dimensions of a tensor.
const MAX_RANK: usize = 8;

/// A manifest as written. `docs/kernels.md` documents each key.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) name: Option<Spanned<String>>,
    pub(super) shader: Option<Spanned<String>>,
    pub(super) entry: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) inputs: Vec<Spanned<String>>,
    pub(super) outputs: Vec<Spanned<String>>,
    pub(super) threads: Option<Spanned<Sizes>>,
    pub(super) groups: Option<Spanned<Sizes>>,
    #[serde(default)]
    pub(super) writes_all: bool,
    #[serde(default)]
    pub(super) deterministic: bool,
    #[serde(default)]
    pub(super) defaults: BTreeMap<String, Spanned<f64>>,
    #[serde(default)]
    pub(super) params: BTreeMap<String, Spanned<Sizes>>,
    #[serde(default)]
    pub(super) constants: BTreeMap<String, Spanned<Value>>,
    #[serde(default)]
    pub(super) tune: BTreeMap<String, Spanned<Vec<Value>>>,
    #[serde(default)]
    pub(super) tolerance: ToleranceText,
    pub(super) reference: Option<Spanned<String>>,
    pub(super) twins: Option<TwinsText>,
    pub(super) implements: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) when: BTreeMap<String, Spanned<FixedText>>,
    #[serde(default, rename = "where")]
    pub(super) conditions: Vec<Spanned<String>>,
    pub(super) cost: Option<Spanned<CostText>>,
    #[serde(default)]
    pub(super) case: Vec<Spanned<CaseText>>,
}

/// The value of an override: a number, or a bool as 1 or 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value(pub(super) f64);

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Value, D::Error> {
        struct Read;
        impl serde::de::Visitor<'_> for Read {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, true or false")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
                Ok(Value(f64::from(u8::from(value))))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
                Ok(Value(value as f64))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
                Ok(Value(value as f64))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
                Ok(Value(value))
            }
        }
        from.deserialize_any(Read)
    }
}

/// Allowed deviation of results from the expected values.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ToleranceText {
    pub(super) atol: f64,
    pub(super) rtol: f64,
}

impl Default for ToleranceText {
    /// Allows for a few roundings of an `f32`.
    fn default() -> ToleranceText {
        ToleranceText { atol: 1e-6, rtol: 1e-5 }
    }
}

/// Files of native kernels: the same kernel in the providers' languages.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TwinsText {
    pub(super) cuda: Option<Spanned<String>>,
    pub(super) opencl: Option<Spanned<String>>,
}

/// The required value of an operation's attribute.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum FixedText {
    Number(f64),
    Text(String),
}

/// The stated cost of the kernel.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CostText {
    pub(super) flops: Option<Sizes>,
    pub(super) bytes: Option<Sizes>,
    pub(super) efficiency: Option<f64>,
}

/// Values of a test run, and its expected outputs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseText {
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) values: BTreeMap<String, f64>,
    #[serde(default)]
    pub(super) inputs: BTreeMap<String, Spanned<Numbers>>,
    #[serde(default)]
    pub(super) outputs: BTreeMap<String, Spanned<Numbers>>,
}

/// The contents of a tensor: given values, or the name of a file or generator.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum Numbers {
    Given(Vec<f64>),
    Named(String),
}

/// One size, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Sizes {
    Number(i64),
    Text(String),
    Many(Vec<Size>),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Size {
    Number(i64),
    Text(String),
}

/// A declared tensor: `data: u32[rows, 2*n]`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Declared {
    pub(super) name: String,
    /// The declared type; if `None`, the tensor has the type of the shader's variable.
    pub(super) dtype: Option<DType>,
    pub(super) shape: Vec<Expr>,
}

/// The text and file name of a manifest, for messages with line numbers.
pub(super) struct File<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
}

impl File<'_> {
    /// Returns an error at a position of the file.
    pub(super) fn fail(&self, at: Range<usize>, what: impl fmt::Display) -> Error {
        let before = self.text.get(..at.start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        Error::bad_file(format!("{}:{line}: {what}", self.name))
    }

    /// Returns an error about the file as a whole.
    pub(super) fn fail_whole(&self, what: impl fmt::Display) -> Error {
        Error::bad_file(format!("{}: {what}", self.name))
    }

    /// Parses the manifest.
    ///
    /// # Errors
    /// Bad file, with the line, if the TOML is invalid, a key is unknown or a value has the wrong
    /// type; bad file if the manifest exceeds a limit.
    pub(super) fn manifest(&self) -> Result<Manifest> {
        if self.text.len() > MAX_BYTES {
            let have = self.text.len();
            return Err(self.fail_whole(format!("{have} bytes, at most {MAX_BYTES}")));
        }
        let manifest: Manifest = toml::from_str(self.text).map_err(|e| {
            let message = e.message().trim().replace('\n', "; ");
            match e.span() {
                Some(span) => self.fail(span, message),
                None => self.fail_whole(message),
            }
        })?;
        let counts = [
            ("inputs", manifest.inputs.len()),
            ("outputs", manifest.outputs.len()),
            ("params", manifest.params.len()),
            ("constants", manifest.constants.len()),
            ("tune", manifest.tune.len()),
            ("case", manifest.case.len()),
            ("when", manifest.when.len()),
            ("where", manifest.conditions.len()),
        ];
        if let Some((key, have)) = counts.into_iter().find(|(_, have)| *have > MAX_ITEMS) {
            return Err(self.fail_whole(format!("{key} has {have} entries, at most {MAX_ITEMS}")));
        }
        let defaults = manifest.defaults.len();
        if defaults > MAX_DEFAULTS {
            return Err(
                self.fail_whole(format!("defaults has {defaults} entries, at most {MAX_DEFAULTS}"))
            );
        }
        let limits = [manifest.tolerance.atol, manifest.tolerance.rtol];
        if limits.iter().any(|limit| !(0.0..f64::INFINITY).contains(limit)) {
            return Err(self.fail_whole(format!("tolerance: {limits:?} are not limits")));
        }
        Ok(manifest)
    }

    /// Parses a declared tensor.
    ///
    /// # Errors
    /// Bad file, with the line, if a part of the declaration is missing or wrong.
    pub(super) fn declared(&self, key: &str, text: &Spanned<String>) -> Result<Declared> {
        let fail =
            |what: &str| self.fail(text.span(), format!("{key}: {:?} {what}", text.get_ref()));
        let wrong = |e: Error| self.fail(text.span(), format!("{key}: {e}"));
        let Some((name, rest)) = text.get_ref().split_once(':') else {
            return Err(fail("is not `name: [sizes]` or `name: type[sizes]`"));
        };
        let name = name.trim();
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(fail("has no name of a variable before the colon"));
        }
        let Some((dtype, sizes)) = rest.trim().strip_suffix(']').and_then(|r| r.split_once('['))
        else {
            return Err(fail("has no sizes in brackets"));
        };
        let dtype = match dtype.trim() {
            "" => None,
            "f32" => Some(DType::F32),
            "i32" => Some(DType::I32),
            "u32" => Some(DType::U32),
            _ => return Err(fail("has a type other than f32, i32 and u32")),
        };
        let mut shape = Vec::new();
        for size in split(sizes) {
            shape.push(Expr::parse(size).map_err(wrong)?);
        }
        if shape.len() > MAX_RANK {
            return Err(fail("has more than 8 sizes"));
        }
        Ok(Declared { name: name.into(), dtype, shape })
    }

    /// Parses the size expressions of a key.
    ///
    /// # Errors
    /// Bad file, with the line, if an expression is invalid.
    pub(super) fn sizes(&self, key: &str, sizes: &Spanned<Sizes>) -> Result<Vec<Expr>> {
        let wrong = |e: Error| self.fail(sizes.span(), format!("{key}: {e}"));
        let one = |text: &str| Expr::parse(text).map_err(wrong);
        match sizes.get_ref() {
            Sizes::Number(number) => Ok(vec![Expr::Number(*number)]),
            Sizes::Text(text) => Ok(vec![one(text)?]),
            Sizes::Many(many) => (many.iter())
                .map(|size| match size {
                    Size::Number(number) => Ok(Expr::Number(*number)),
                    Size::Text(text) => one(text),
                })
                .collect(),
        }
    }
}

/// Splits a text at commas outside brackets; an empty text has no parts.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_i32);
    if text.trim().is_empty() {
        return parts;
    }
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}
