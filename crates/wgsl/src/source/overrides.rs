//! Lists the `override`s of a shader, and replaces them with constants in its text.
//!
//! The text is changed rather than the parsed module: a `const` is allowed wherever an `override`
//! is, and a compiler's constant evaluation then applies to it everywhere.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use naga::compact::{KeepUnused, compact};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use naga::{
    AddressSpace, ArraySize, Function, Handle, Module, Scalar, ScalarKind, ShaderStage, Type,
    TypeInner,
};

use super::errors::{Place, Words, parse_only};
use super::scan::{Declaration, declarations, without_comments};
use warploom_core::error::{Error, Result};

/// An `override` declaration of a shader.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// Name in the shader.
    pub name: String,
    /// The `@id`, if it has one.
    pub id: Option<u16>,
    /// Line of its declaration, from 1.
    pub line: u32,
    /// Whether the shader declares a default value.
    pub has_default: bool,
    scalar: Scalar,
}

impl Override {
    /// Returns whether `name` is the override's name, or its `@id` as text.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.id.is_some_and(|id| name.parse() == Ok(id))
    }

    /// Formats a value as a WGSL literal of the override's type.
    ///
    /// # Errors
    /// The reason, as text, if the type cannot hold the value.
    pub fn literal(&self, value: f64) -> Result<String, String> {
        let (name, ty) = (&self.name, self.type_name()?);
        let no = |why: &str| Err(format!("override `{name}` is {ty}, and {value} is {why}"));
        let whole = value.fract() == 0.0;
        match (self.scalar.kind, ty) {
            _ if !value.is_finite() => no("no number that a constant can have"),
            (ScalarKind::Bool, _) => match value {
                0.0 => Ok("false".into()),
                1.0 => Ok("true".into()),
                _ => no("neither 1 (true) nor 0 (false)"),
            },
            (ScalarKind::Uint | ScalarKind::Sint, _) if !whole => no("no whole number"),
            (ScalarKind::Uint, _) if (0.0..=f64::from(u32::MAX)).contains(&value) => {
                Ok(format!("{}u", value as u32))
            }
            (ScalarKind::Sint, _) if f64::from(value as i32) == value => {
                Ok(format!("i32({})", value as i32))
            }
            (ScalarKind::Float, "f32") if (value as f32).is_finite() => {
                Ok(format!("f32({:?})", value as f32))
            }
            (ScalarKind::Float, "f16") if value.abs() <= 65504.0 => Ok(format!("f16({value:?})")),
            _ => no("outside of its range"),
        }
    }

    fn type_name(&self) -> Result<&'static str, String> {
        Ok(match (self.scalar.kind, self.scalar.width) {
            (ScalarKind::Bool, _) => "bool",
            (ScalarKind::Uint, 4) => "u32",
            (ScalarKind::Sint, 4) => "i32",
            (ScalarKind::Float, 4) => "f32",
            (ScalarKind::Float, 2) => "f16",
            _ => {
                return Err(format!("override `{}` is not bool, i32, u32, f32 or f16", self.name));
            }
        })
    }
}

/// Returns the overrides of a module, in text order.
pub fn overrides(module: &Module, text: &str) -> Vec<Override> {
    let code = without_comments(text);
    let found = declarations(&code);
    overrides_at(module, text, &found).into_iter().map(|(found, _)| found).collect()
}

fn overrides_at<'d>(
    module: &Module,
    text: &str,
    found: &'d [Declaration],
) -> Vec<(Override, &'d Declaration)> {
    let with = found.iter().filter_map(|declaration| {
        let name = &text[declaration.name.clone()];
        let known = module.overrides.iter().map(|(_, known)| known);
        let known = known.into_iter().find(|known| known.name.as_deref() == Some(name))?;
        let found = Override {
            name: name.into(),
            id: known.id,
            line: Place::at(text, declaration.name.start).line,
            has_default: known.init.is_some(),
            scalar: module.types[known.ty].inner.scalar()?,
        };
        Some((found, declaration))
    });
    with.collect()
}

/// Shader source in which constants have replaced the overrides.
#[derive(Clone, Debug)]
pub struct Settled<'a> {
    pub text: Cow<'a, str>,
    /// The edits: range in the original text, and length of the replacement in bytes.
    edits: Vec<(Range<usize>, usize)>,
    /// The value of each override that has one, by name, for messages.
    pub values: Vec<(String, String)>,
}

impl Settled<'_> {
    /// Maps a byte offset in the new text to one in the original text.
    pub fn original(&self, at: usize) -> usize {
        // The end of the previous edit in both texts.
        let (mut before, mut now) = (0, 0);
        for (range, bytes) in &self.edits {
            let start = now + range.start - before;
            if at < start {
                break;
            }
            if at < start + bytes {
                return range.start + (at - start).min(range.len());
            }
            (before, now) = (range.end, start + bytes);
        }
        before + at - now
    }
}

/// Replaces each `override` with a `const` of its value in `constants` (by name or `@id`) or else
/// of its default. An override without a value is an error if `entry` uses it or, for `None`, if
/// any compute entry point does.
///
/// # Errors
/// Compile, with file, line and column, if the text is not WGSL. Invalid, with file and line, if
/// the shader lacks a constant, a constant is given twice, its type cannot hold the value, an
/// override that the entry point uses has no value, or two overrides have the same `@id`. Compile
/// also for an override in the size of an array where WGSL allows none.
pub fn settled<'a>(
    file: &str,
    text: &'a str,
    entry: Option<&str>,
    constants: &BTreeMap<String, f64>,
) -> Result<Settled<'a>> {
    let code = without_comments(text);
    let found = declarations(&code);
    if found.is_empty() && constants.is_empty() {
        return Ok(Settled { text: Cow::Borrowed(text), edits: Vec::new(), values: Vec::new() });
    }
    let words = Words::new(file, text);
    let module = parse_only(&words)?;
    check_sizes(&words, &module)?;
    let all = overrides_at(&module, text, &found);
    check_ids(file, &all)?;
    let mut given = vec![None; all.len()];
    for (name, value) in constants {
        let Some(at) = all.iter().position(|(known, _)| known.is_called(name)) else {
            let have: Vec<&str> = all.iter().map(|(known, _)| known.name.as_str()).collect();
            return Err(Error::invalid(format!("{file} has no override {name}; it has {have:?}")));
        };
        let (known, line) = (&all[at].0, all[at].0.line);
        if given[at].is_some() {
            let name = &known.name;
            return Err(Error::invalid(format!(
                "{file}:{line}: override `{name}` is given twice, by its name and by its @id"
            )));
        }
        let literal = known.literal(*value);
        given[at] = Some(literal.map_err(|why| Error::invalid(format!("{file}:{line}: {why}")))?);
    }
    let missing = |(known, given): (&(Override, _), &Option<String>)| {
        (!known.0.has_default && given.is_none()).then(|| known.0.clone())
    };
    let missing: Vec<Override> = all.iter().zip(&given).filter_map(missing).collect();
    let used = if missing.is_empty() { Some(Vec::new()) } else { used(&module, entry) };
    for Override { name, line, id, .. } in &missing {
        if used.as_ref().is_none_or(|used| used.contains(name)) {
            let by = id.map_or(String::new(), |id| format!(" (@id({id}))"));
            return Err(Error::invalid(format!(
                "{file}:{line}: override `{name}`{by} has no value: the shader gives none, and no constant of that name is set"
            )));
        }
    }
    Ok(rewritten(text, &all, given))
}

/// Refuses two overrides with the same `@id`.
fn check_ids(file: &str, all: &[(Override, &Declaration)]) -> Result<()> {
    for (index, (own, _)) in all.iter().enumerate() {
        let same = |(other, _): &&(Override, _)| own.id.is_some() && other.id == own.id;
        if let (Some((first, _)), Some(id)) = (all[..index].iter().find(same), own.id) {
            let (line, name) = (own.line, &own.name);
            return Err(Error::invalid(format!(
                "{file}:{line}: override `{name}` has @id({id}), which `{}` in line {} has",
                first.name, first.line
            )));
        }
    }
    Ok(())
}

/// Refuses arrays whose size is an override outside of workgroup variables. WGSL allows it only for
/// the outermost array there; a constant in its place would hide the error on this machine only.
fn check_sizes(words: &Words, module: &Module) -> Result<()> {
    let all = sized_by_overrides(module);
    let sized = |ty: Handle<Type>| all[ty.index()];
    let refuse = |span, name: &Option<String>| {
        let name = name.as_deref().unwrap_or_default();
        let what = format!(
            "var `{name}` contains an array whose size is an override: WGSL allows this only for \
             a var<workgroup> that is itself the array"
        );
        Err(words.fail(Some(span), &what))
    };
    for (handle, variable) in module.global_variables.iter() {
        let inner = match module.types[variable.ty].inner {
            TypeInner::Array { base, .. } if variable.space == AddressSpace::WorkGroup => base,
            _ => variable.ty,
        };
        if sized(inner) {
            return refuse(module.global_variables.get_span(handle), &variable.name);
        }
    }
    for (handle, ty) in module.types.iter() {
        if matches!(ty.inner, TypeInner::Struct { .. }) && sized(handle) {
            let name = ty.name.as_deref().unwrap_or_default();
            let what = format!(
                "struct `{name}` contains an array whose size is an override: WGSL allows this only \
                 for a var<workgroup> that is itself the array"
            );
            return Err(words.fail(Some(module.types.get_span(handle)), &what));
        }
    }
    for (handle, function) in module.functions.iter() {
        let of = |ty: Handle<Type>| match module.types[ty].inner {
            TypeInner::Pointer { space: AddressSpace::WorkGroup, .. } => None,
            TypeInner::Pointer { base, .. } => Some(base),
            _ => Some(ty),
        };
        let wrong = function.arguments.iter().find(|a| of(a.ty).is_some_and(&sized));
        if let Some(argument) = wrong {
            let name = argument.name.as_deref().unwrap_or_default();
            let what = format!(
                "parameter `{name}` contains an array whose size is an override: WGSL allows this \
                 only for a var<workgroup>"
            );
            return Err(words.fail(Some(module.functions.get_span(handle)), &what));
        }
    }
    let functions = module.functions.iter().map(|(_, function)| function);
    let entries = module.entry_points.iter().map(|point| &point.function);
    let mut locals = functions.chain(entries).flat_map(|function: &Function| {
        let with = |(handle, variable)| (function.local_variables.get_span(handle), variable);
        function.local_variables.iter().map(with)
    });
    match locals.find(|(_, variable)| sized(variable.ty)) {
        None => Ok(()),
        Some((span, variable)) => refuse(span, &variable.name),
    }
}

/// Returns for each type whether it is or contains an array whose size is an override.
fn sized_by_overrides(module: &Module) -> Vec<bool> {
    let mut sized = Vec::with_capacity(module.types.len());
    for (_, ty) in module.types.iter() {
        // A type stands behind the types that it contains.
        let contains = |ty: &Handle<Type>| sized.get(ty.index()).is_some_and(|is| *is);
        sized.push(match &ty.inner {
            TypeInner::Array { size: ArraySize::Pending(_), .. } => true,
            TypeInner::Array { base, .. } => contains(base),
            TypeInner::Struct { members, .. } => members.iter().any(|member| contains(&member.ty)),
            _ => false,
        });
    }
    sized
}

/// Returns the names of the overrides that the entry point (for `None`, any compute entry point)
/// uses. The result is `None` if the module is not valid.
fn used(module: &Module, entry: Option<&str>) -> Option<Vec<String>> {
    Validator::new(ValidationFlags::all(), Capabilities::all()).validate(module).ok()?;
    let mut module = module.clone();
    module.entry_points.retain(|point| {
        point.stage == ShaderStage::Compute && entry.is_none_or(|entry| point.name == entry)
    });
    // Named expressions count as used, so numbers identify the overrides.
    let mut names = Vec::new();
    for (_, found) in module.overrides.iter_mut() {
        found.id = Some(names.len() as u16);
        names.push(found.name.take());
    }
    compact(&mut module, KeepUnused::No);
    let left = module.overrides.iter().filter_map(|(_, found)| found.id);
    Some(left.filter_map(|id| names[usize::from(id)].clone()).collect())
}

/// Strips the type from a literal, for messages.
fn plain(value: &str) -> String {
    let inner =
        ["i32(", "f32(", "f16("].iter().find_map(|ty| value.strip_prefix(ty)?.strip_suffix(')'));
    let value = inner.unwrap_or(value);
    let number = value.trim_end_matches(['u', 'i']);
    if number.parse::<i64>().is_ok() { number.into() } else { value.into() }
}

fn rewritten<'a>(
    text: &'a str,
    all: &[(Override, &Declaration)],
    given: Vec<Option<String>>,
) -> Settled<'a> {
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    let mut values = Vec::new();
    for ((known, at), given) in all.iter().zip(given) {
        // Other types were refused if a value is given; else the parser reports them.
        let Ok(ty) = known.type_name() else { continue };
        let lines = |range: &Range<usize>| "\n".repeat(text[range.clone()].matches('\n').count());
        for id in &at.ids {
            // Blanks preserve the columns.
            let blank = text[id.clone()].chars().map(|c| if c == '\n' { '\n' } else { ' ' });
            edits.push((id.clone(), blank.collect()));
        }
        edits.push((at.keyword.clone(), "const   ".into()));
        let rest = at.name.end..at.end;
        match (&given, known.has_default) {
            (Some(literal), _) => {
                values.push((known.name.clone(), plain(literal)));
                edits.push((rest.clone(), format!(": {ty} = {literal}{}", lines(&rest))));
            }
            (None, true) => {
                let init = text[rest.clone()].split_once('=').map_or("", |(_, init)| init.trim());
                values.push((known.name.clone(), plain(init)));
                if !at.typed {
                    edits.push((rest.start..rest.start, format!(": {ty}")));
                }
            }
            (None, false) => edits.push((rest.clone(), format!(": {ty} = {ty}(){}", lines(&rest)))),
        }
    }
    let mut out = String::with_capacity(text.len() + 16 * edits.len());
    let mut done = 0;
    for (range, by) in &edits {
        out.push_str(&text[done..range.start]);
        out.push_str(by);
        done = range.end;
    }
    out.push_str(&text[done..]);
    let edits = edits.into_iter().map(|(range, by)| (range, by.len())).collect();
    Settled { text: Cow::Owned(out), edits, values }
}
