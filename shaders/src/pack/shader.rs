//! What a shader says of itself: entry point, buffers, parameters, constants.

use std::collections::BTreeMap;

use naga::back::pipeline_constants::process_overrides;
use naga::valid::{Capabilities, FunctionInfo, GlobalUse, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Handle, Module, ScalarKind, ShaderStage, StorageAccess, Type, TypeInner};

use super::places::renumber;
use warploom_core::base::DType;
use warploom_core::error::{Error, Result};

/// Bytes of a shader.
pub(super) const MAX_BYTES: usize = 1 << 20;
/// Words of a block of parameters.
const MAX_WORDS: u32 = 1024;
/// Where variables go that the entry point does not use, out of the way of those it does.
const UNUSED: u32 = 900;

/// A shader, validated.
#[derive(Clone, Debug)]
pub(super) struct Shader {
    /// The file's name, for messages.
    pub(super) file: String,
    pub(super) text: String,
    pub(super) entry: String,
    /// Storage buffers that the entry point uses, by group and binding.
    pub(super) buffers: Vec<Buffer>,
    /// The uniform block, where there is one.
    pub(super) block: Option<Block>,
    /// `override` constants: what is called what by whoever sets it.
    pub(super) overrides: BTreeMap<String, String>,
}

/// A storage buffer.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    pub(super) name: String,
    pub(super) line: u32,
    /// Declared `read_write`.
    pub(super) writable: bool,
    /// The type of all its numbers.
    pub(super) dtype: DType,
    /// Words from one element of the array to the next.
    pub(super) words: u32,
    /// Bytes that it takes at least.
    pub(super) least_bytes: u32,
    /// Whether the length of the array is asked for.
    pub(super) exact: bool,
}

/// The uniform block.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) name: String,
    pub(super) line: u32,
    pub(super) words: u32,
    pub(super) fields: Vec<Field>,
}

/// A number or vector of the block.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) name: String,
    /// First word.
    pub(super) at: u32,
    /// Numbers of a vector.
    pub(super) lanes: u32,
    pub(super) dtype: DType,
}

impl Shader {
    /// Parses and validates a file, and finds what its entry point uses.
    ///
    /// # Errors
    /// Compile, with the file, its line and the compiler's words; bad file for what a kernel of a
    /// pack may not hold.
    pub(super) fn read(file: &str, text: &str, entry: Option<&str>) -> Result<Shader> {
        if text.len() > MAX_BYTES {
            let have = text.len();
            return Err(Error::bad_file(format!("{file}: {have} bytes, at most {MAX_BYTES}")));
        }
        let (module, info) = parse(file, text)?;
        let fail = |line, what: String| Error::bad_file(format!("{file}:{line}: {what}"));
        let points = module.entry_points.iter().enumerate();
        let compute: Vec<_> = points.filter(|(_, p)| p.stage == ShaderStage::Compute).collect();
        let names = || compute.iter().map(|(_, p)| p.name.as_str()).collect::<Vec<_>>().join(", ");
        let found = match entry {
            Some(entry) => compute.iter().find(|(_, point)| point.name == entry),
            None if compute.len() > 1 => {
                let what = format!("has the entry points {}: name one as `entry`", names());
                return Err(Error::bad_file(format!("{file}: {what}")));
            }
            None => compute.first(),
        };
        let Some((number, point)) = found else {
            let what = match entry {
                Some(entry) if !compute.is_empty() => {
                    format!("has no entry point {entry:?}; it has {}", names())
                }
                _ => "has no function with @compute @workgroup_size(..)".into(),
            };
            return Err(Error::bad_file(format!("{file}: {what}")));
        };
        let uses = info.get_entry_point(*number);
        let mut found = Shader {
            file: file.into(),
            text: text.into(),
            entry: point.name.clone(),
            buffers: Vec::new(),
            block: None,
            overrides: overrides(&module),
        };
        let mut order: Vec<_> = module.global_variables.iter().collect();
        order.sort_by_key(|(_, v)| v.binding.map(|place| (place.group, place.binding)));
        for (handle, variable) in order {
            if uses[handle].is_empty() || variable.binding.is_none() {
                continue;
            }
            let span = module.global_variables.get_span(handle);
            let line = span.location(text).line_number;
            let name = variable.name.clone().unwrap_or_default();
            let refuse = |what: String| fail(line, format!("var {name} {what}"));
            match variable.space {
                AddressSpace::Storage { access } => {
                    let writable = access.contains(StorageAccess::STORE);
                    let buffer = Buffer {
                        name: name.clone(),
                        line,
                        writable,
                        ..buffer(&module, variable.ty).map_err(refuse)?
                    };
                    found.buffers.push(Buffer { exact: asks_length(uses, handle), ..buffer });
                }
                AddressSpace::Uniform if found.block.is_some() => {
                    return Err(refuse(
                        "is a second uniform block: put all numbers in one struct".into(),
                    ));
                }
                AddressSpace::Uniform => {
                    found.block = Some(block(&module, &name, line, variable.ty).map_err(refuse)?);
                }
                _ => {
                    return Err(refuse(
                        "is neither storage nor uniform: packs bind buffers only".into(),
                    ));
                }
            }
        }
        Ok(found)
    }

    /// Threads of a workgroup with these constants, which must be constants of the shader.
    ///
    /// # Errors
    /// Compile, naming the file and the constant.
    pub(super) fn workgroup(&self, constants: &BTreeMap<String, f64>) -> Result<[u32; 3]> {
        let (module, info) = parse(&self.file, &self.text)?;
        let values = constants.iter().map(|(name, value)| (name.clone(), *value)).collect();
        let entry = Some((ShaderStage::Compute, self.entry.as_str()));
        let (module, _) = process_overrides(&module, &info, entry, &values)
            .map_err(|e| Error::compile(format!("{}: {e}", self.file)))?;
        let point = module.entry_points.iter().find(|point| point.name == self.entry);
        let size = point.map_or([0; 3], |point| point.workgroup_size);
        match size.contains(&0) {
            false => Ok(size),
            true => Err(Error::compile(format!("{}: @workgroup_size is {size:?}", self.file))),
        }
    }

    /// The text with the parameters at binding 0 and buffers from binding 1 on, in this order.
    ///
    /// # Errors
    /// Compile, where the compiler does not agree with what became of the text.
    pub(super) fn renumbered(&self, buffers: &[&str]) -> Result<String> {
        let mut places: BTreeMap<String, u32> =
            (1..).zip(buffers).map(|(place, name)| (name.to_string(), place)).collect();
        if let Some(block) = &self.block {
            places.insert(block.name.clone(), 0);
        }
        let (module, _) = parse(&self.file, &self.text)?;
        let unused = module.global_variables.iter().filter(|(_, v)| v.binding.is_some());
        let unused = unused.filter_map(|(_, v)| v.name.clone());
        for (place, name) in
            (UNUSED..).zip(unused.filter(|n| !places.contains_key(n)).collect::<Vec<_>>())
        {
            places.insert(name, place);
        }
        let text = renumber(&self.text, &places);
        let (module, _) = parse(&self.file, &text)?;
        for (_, variable) in module.global_variables.iter() {
            let (Some(name), Some(place)) = (&variable.name, variable.binding) else { continue };
            if place.group != 0 || places.get(name) != Some(&place.binding) {
                return Err(Error::compile(format!(
                    "{}: var {name} cannot be given another binding: write its attributes as \
                     @group(0) @binding(1), right before it",
                    self.file
                )));
            }
        }
        Ok(text)
    }
}

/// The module of a text; errors begin with file, line and column.
fn parse(file: &str, text: &str) -> Result<(Module, ModuleInfo)> {
    let fail = |at: Option<naga::SourceLocation>, message: String, shown: String| {
        let place =
            at.map_or(String::new(), |at| format!(":{}:{}", at.line_number, at.line_position));
        // Its first line is the message again.
        let shown = shown.trim_end().split_once('\n').map_or("", |(_, rest)| rest);
        Error::compile(format!("{file}{place}: {message}\n{shown}"))
    };
    let module = naga::front::wgsl::parse_str(text).map_err(|e| {
        fail(e.location(text), e.message().into(), e.emit_to_string_with_path(text, file))
    })?;
    // What every device has, and nothing else: a pack runs on all of them.
    let info = Validator::new(ValidationFlags::all(), Capabilities::empty())
        .validate(&module)
        .map_err(|e| {
            let (message, shown) = (causes(e.as_inner()), e.emit_to_string_with_path(text, file));
            // Of types it tells no place.
            let named = || text.find("f16").filter(|_| message.contains("f16"));
            let at = e.location(text).or_else(|| {
                let start = named()?;
                Some(naga::Span::new(start as u32, start as u32 + 3).location(text))
            });
            fail(at, message, shown)
        })?;
    Ok((module, info))
}

/// An error with what caused it, in one line.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}

fn overrides(module: &Module) -> BTreeMap<String, String> {
    let all = module.overrides.iter().filter_map(|(_, o)| Some((o.name.clone()?, o.id)));
    all.map(|(name, id)| (name.clone(), id.map_or(name, |id| id.to_string()))).collect()
}

fn asks_length(uses: &FunctionInfo, handle: Handle<naga::GlobalVariable>) -> bool {
    uses[handle].contains(GlobalUse::QUERY)
}

/// Element and size of a buffer's type; name and place are the caller's.
fn buffer(module: &Module, ty: Handle<Type>) -> Result<Buffer, String> {
    let inner = &module.types[ty].inner;
    let mut dtype = None;
    numbers(module, ty, &mut dtype, 0)?;
    let dtype = dtype.ok_or("holds no numbers")?;
    let least_bytes = inner.size(module.to_ctx());
    let words = match inner {
        TypeInner::Array { stride, .. } => stride / 4,
        _ => 1,
    };
    let least_bytes = least_bytes.max(words * 4);
    let (name, line) = (String::new(), 0);
    Ok(Buffer { name, line, writable: false, dtype, words, least_bytes, exact: false })
}

/// The one type of all numbers in a type.
fn numbers(
    module: &Module,
    ty: Handle<Type>,
    found: &mut Option<DType>,
    depth: u32,
) -> Result<(), String> {
    if depth > 16 {
        return Err("is nested too deep".into());
    }
    let scalar = match &module.types[ty].inner {
        TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => *scalar,
        TypeInner::Vector { scalar, .. } | TypeInner::Matrix { scalar, .. } => *scalar,
        TypeInner::Array { base, .. } => return numbers(module, *base, found, depth + 1),
        TypeInner::Struct { members, .. } => {
            return members.iter().try_for_each(|m| numbers(module, m.ty, found, depth + 1));
        }
        _ => return Err("holds something that is no number".into()),
    };
    let dtype = dtype_of(scalar)?;
    match found.replace(dtype) {
        Some(other) if other != dtype => Err(format!(
            "mixes {other} and {dtype}: a tensor has one type, so give each a buffer of its own"
        )),
        _ => Ok(()),
    }
}

fn dtype_of(scalar: naga::Scalar) -> Result<DType, String> {
    match (scalar.kind, scalar.width) {
        (ScalarKind::Float, 4) => Ok(DType::F32),
        (ScalarKind::Sint, 4) => Ok(DType::I32),
        (ScalarKind::Uint, 4) => Ok(DType::U32),
        (kind, width) => {
            Err(format!("holds {kind:?} of {width} bytes; packs bind f32, i32 and u32"))
        }
    }
}

fn block(module: &Module, name: &str, line: u32, ty: Handle<Type>) -> Result<Block, String> {
    let inner = &module.types[ty].inner;
    let words = inner.size(module.to_ctx()).div_ceil(4);
    if words > MAX_WORDS {
        return Err(format!("has {words} words, at most {MAX_WORDS}"));
    }
    let mut fields = Vec::new();
    match inner {
        TypeInner::Struct { members, .. } => {
            for member in members {
                let field = member.name.clone().unwrap_or_default();
                fields.push(number(module, field, member.offset / 4, member.ty)?);
            }
        }
        _ => fields.push(number(module, name.to_string(), 0, ty)?),
    }
    Ok(Block { name: name.into(), line, words, fields })
}

fn number(module: &Module, name: String, at: u32, ty: Handle<Type>) -> Result<Field, String> {
    let (scalar, lanes) = match &module.types[ty].inner {
        TypeInner::Scalar(scalar) => (*scalar, 1),
        TypeInner::Vector { size, scalar } => (*scalar, *size as u32),
        _ => {
            return Err(format!("has the field {name}, which is neither a number nor a vector"));
        }
    };
    let dtype = dtype_of(scalar).map_err(|e| format!("has the field {name}, which {e}"))?;
    Ok(Field { name, at, lanes, dtype })
}
