//! Reflection of a user's shader: entry point, buffers, parameters and constants.

use std::collections::BTreeMap;

use naga::valid::{FunctionInfo, GlobalUse, ModuleInfo};
use naga::{
    AddressSpace, Handle, MemoryDecorations, Module, ScalarKind, ShaderStage, StorageAccess,
};
use naga::{ArraySize, Type, TypeInner};

use super::places::renumber;
use warploom_core::base::DType;
use warploom_core::error::{Error, Result};
use warploom_wgsl::interpret::MAX_INVOCATIONS;
use warploom_wgsl::source::{self, Override, Words};

/// Maximum size of a shader in bytes.
pub(super) const MAX_BYTES: usize = 1 << 20;
/// Maximum number of words in a parameter block.
const MAX_WORDS: u32 = 1024;
/// First binding number for variables that the entry point does not use, above the numbers of those
/// that it uses.
const UNUSED: u32 = 900;

/// A validated shader.
#[derive(Clone, Debug)]
pub(super) struct Shader {
    /// The file's name, for messages.
    pub(super) file: String,
    pub(super) text: String,
    pub(super) entry: String,
    /// Storage buffers that the entry point uses, by group and binding.
    pub(super) buffers: Vec<Buffer>,
    /// The uniform block, if there is one.
    pub(super) block: Option<Block>,
    /// `override` constants.
    pub(super) overrides: Vec<Override>,
}

/// A storage buffer.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    pub(super) name: String,
    pub(super) line: u32,
    /// Whether it is declared `read_write`.
    pub(super) writable: bool,
    /// The scalar type of all its elements.
    pub(super) dtype: DType,
    /// Array stride in words, or 1 if it is not an array.
    pub(super) words: u32,
    /// Minimum size in bytes.
    pub(super) least_bytes: u32,
    /// Whether the shader reads the array's length, so that the bound range must match the tensor.
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

/// A scalar or vector of the block.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) name: String,
    /// Index of the first word.
    pub(super) at: u32,
    /// Number of components; 1 for a scalar.
    pub(super) lanes: u32,
    pub(super) dtype: DType,
}

/// Values of overrides, by the shader's names.
pub(super) type Constants = BTreeMap<String, f64>;

impl Shader {
    /// Parses and validates a file, and finds the resources of its entry point. `choose` returns
    /// the values of its overrides.
    ///
    /// # Errors
    /// Compile, with file, line and column, if the text is not valid; bad file if it is too large
    /// or uses a feature that a pack may not use; any error that `choose` returns.
    pub(super) fn read(
        file: &str,
        text: &str,
        entry: Option<&str>,
        choose: &dyn Fn(&Shader) -> Result<Constants>,
    ) -> Result<(Shader, Constants)> {
        if text.len() > MAX_BYTES {
            let have = text.len();
            return Err(Error::bad_file(format!("{file}: {have} bytes, at most {MAX_BYTES}")));
        }
        let words = Words::new(file, text);
        if let Some((at, what)) = source::needs_extension(&source::without_comments(text)) {
            return Err(Error::compile(words.located(Some(at), &what)));
        }
        let module = source::parse_only(&words)?;
        let mut found = Shader {
            file: file.into(),
            text: text.into(),
            entry: entry_of(file, &module, entry).or_else(|error| {
                // Validation errors are reported first.
                source::parse(&words).and(Err(error))
            })?,
            buffers: Vec::new(),
            block: None,
            overrides: source::overrides(&module, text),
        };
        let constants = choose(&found)?;
        let settled = source::settled(file, text, Some(&found.entry), &constants)?;
        let words = Words::settled(file, text, &settled);
        let (module, info) = source::parse(&words)?;
        found.variables(&words, &module, &info)?;
        found.checked_size(&words, &module)?;
        Ok((found, constants))
    }

    /// Returns the threads per workgroup.
    ///
    /// # Errors
    /// Unsupported, with file and line, for more threads than a device has.
    fn checked_size(&self, words: &Words, module: &Module) -> Result<[u32; 3]> {
        let size = module.entry_points[self.number(module)].workgroup_size;
        let threads = size.iter().fold(1_u64, |all, n| all.saturating_mul(u64::from(*n)));
        if threads <= MAX_INVOCATIONS {
            return Ok(size);
        }
        let what = format!(
            "@workgroup_size of `{}` is {size:?}, {threads} threads: at most {MAX_INVOCATIONS}",
            self.entry
        );
        Err(words.refused(words.size_of_workgroup(&self.entry).unwrap_or_default(), &what))
    }

    /// Finds and checks the variables that the entry point uses.
    fn variables(&mut self, words: &Words, module: &Module, info: &ModuleInfo) -> Result<()> {
        let number = self.number(module);
        let uses = info.get_entry_point(number);
        let mut order: Vec<_> = module.global_variables.iter().collect();
        order.sort_by_key(|(_, v)| v.binding.map(|place| (place.group, place.binding)));
        for (handle, variable) in order {
            let outside = variable.binding.is_some() || variable.space == AddressSpace::Immediate;
            if uses[handle].is_empty() || !outside {
                continue;
            }
            let span = module.global_variables.get_span(handle);
            let name = variable.name.clone().unwrap_or_default();
            let at = span.to_range().map(|range| range.start);
            let line = at.map_or(0, |at| words.line(at));
            let refuse =
                |what: String| Error::bad_file(words.located(at, &format!("var {name} {what}")));
            match variable.space {
                _ if variable.memory_decorations != MemoryDecorations::empty() => {
                    return Err(refuse("is @coherent or @volatile, which is not WGSL".into()));
                }
                AddressSpace::Storage { access } => {
                    let writable = access.contains(StorageAccess::STORE);
                    let buffer = Buffer {
                        name: name.clone(),
                        line,
                        writable,
                        ..buffer(module, variable.ty).map_err(refuse)?
                    };
                    self.buffers.push(Buffer { exact: asks_length(uses, handle), ..buffer });
                }
                AddressSpace::Immediate => {
                    return Err(refuse(
                        "is var<immediate>, which not every device supports: move its numbers to \
                         the uniform struct"
                            .into(),
                    ));
                }
                AddressSpace::Uniform if self.block.is_some() => {
                    return Err(refuse(
                        "is a second uniform block: put all numbers in one struct".into(),
                    ));
                }
                AddressSpace::Uniform => {
                    self.block = Some(block(module, &name, line, variable.ty).map_err(refuse)?);
                }
                _ => {
                    return Err(refuse(
                        "is neither storage nor uniform: packs bind buffers only, no textures and samplers".into(),
                    ));
                }
            }
        }
        match source::not_portable(module, info, number) {
            None => Ok(()),
            Some((span, what)) => Err(words.fail(span, &what)),
        }
    }

    /// Returns the threads per workgroup with these constants.
    ///
    /// # Errors
    /// Compile or invalid, with file and line, if the shader lacks a constant, an override has no
    /// value, or the values make the shader invalid.
    pub(super) fn workgroup(&self, constants: &Constants) -> Result<[u32; 3]> {
        let settled = source::settled(&self.file, &self.text, Some(&self.entry), constants)?;
        let words = Words::settled(&self.file, &self.text, &settled);
        let (module, _) = source::parse(&words)?;
        self.checked_size(&words, &module)
    }

    /// Returns the index of the entry point in a module of this text.
    fn number(&self, module: &Module) -> usize {
        let is = |point: &naga::EntryPoint| {
            point.stage == ShaderStage::Compute && point.name == self.entry
        };
        module.entry_points.iter().position(is).unwrap_or_default()
    }

    /// Returns the text with the parameters at binding 0 and these buffers from binding 1, in
    /// order.
    ///
    /// # Errors
    /// Compile if the renumbered text does not parse or keeps one of the old bindings.
    pub(super) fn renumbered(&self, buffers: &[&str]) -> Result<String> {
        let mut places: BTreeMap<String, u32> =
            (1..).zip(buffers).map(|(place, name)| (name.to_string(), place)).collect();
        if let Some(block) = &self.block {
            places.insert(block.name.clone(), 0);
        }
        let module = source::parse_only(&Words::new(&self.file, &self.text))?;
        let unused = module.global_variables.iter().filter(|(_, v)| v.binding.is_some());
        let unused = unused.filter_map(|(_, v)| v.name.clone());
        for (place, name) in
            (UNUSED..).zip(unused.filter(|n| !places.contains_key(n)).collect::<Vec<_>>())
        {
            places.insert(name, place);
        }
        let text = renumber(&self.text, &places);
        let module = source::parse_only(&Words::new(&self.file, &text))?;
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

/// Returns the name of the selected compute entry point.
fn entry_of(file: &str, module: &Module, entry: Option<&str>) -> Result<String> {
    let points = module.entry_points.iter();
    let compute: Vec<&str> =
        points.filter(|p| p.stage == ShaderStage::Compute).map(|p| p.name.as_str()).collect();
    let what = match (entry, compute.as_slice()) {
        (Some(entry), names) if names.contains(&entry) => return Ok(entry.to_string()),
        (None, [only]) => return Ok(only.to_string()),
        (_, []) => "has no function with @compute @workgroup_size(..)".into(),
        (Some(entry), names) => {
            format!("has no entry point {entry:?}; it has {}", names.join(", "))
        }
        (None, names) => {
            format!("has the entry points {}: name one as `entry`", names.join(", "))
        }
    };
    Err(Error::bad_file(format!("{file}: {what}")))
}

fn asks_length(uses: &FunctionInfo, handle: Handle<naga::GlobalVariable>) -> bool {
    uses[handle].contains(GlobalUse::QUERY)
}

/// Returns a buffer with the element and size of a type; the caller fills in the other fields.
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

/// Finds the only scalar type within a type.
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
        _ => return Err("contains something that is not a number".into()),
    };
    let dtype = dtype_of(scalar)?;
    match found.replace(dtype) {
        Some(other) if other != dtype => Err(format!(
            "mixes {other} and {dtype}: a tensor has one type, so use one buffer for each"
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
    let words = inner.try_size(module.to_ctx()).unwrap_or(u32::MAX).div_ceil(4);
    if words > MAX_WORDS {
        return Err(format!("has {words} words, at most {MAX_WORDS}"));
    }
    let mut fields = Vec::new();
    match inner {
        TypeInner::Struct { members, .. } => {
            for member in members {
                let field = member.name.clone().unwrap_or_default();
                flatten(module, field, member.offset, member.ty, &mut fields)?;
            }
        }
        _ => flatten(module, name.to_string(), 0, ty, &mut fields)?,
    }
    Ok(Block { name: name.into(), line, words, fields })
}

/// Appends the scalars and vectors of a part of the block, at byte offset `at`, to `fields`.
/// Elements of arrays and columns of matrices are named `part[0]`, fields of structs `part.name`.
fn flatten(
    module: &Module,
    name: String,
    at: u32,
    ty: Handle<Type>,
    fields: &mut Vec<Field>,
) -> Result<(), String> {
    let known = |scalar| dtype_of(scalar).map_err(|e| format!("has the field {name}, which {e}"));
    match &module.types[ty].inner {
        TypeInner::Scalar(scalar) => {
            let dtype = known(*scalar)?;
            fields.push(Field { name, at: at / 4, lanes: 1, dtype });
        }
        TypeInner::Vector { size, scalar } => {
            let dtype = known(*scalar)?;
            fields.push(Field { name, at: at / 4, lanes: *size as u32, dtype });
        }
        TypeInner::Matrix { columns, rows, scalar } => {
            let (dtype, lanes) = (known(*scalar)?, *rows as u32);
            let stride = if lanes == 2 { 2 } else { 4 };
            for i in 0..*columns as u32 {
                let at = at / 4 + i * stride;
                fields.push(Field { name: format!("{name}[{i}]"), at, lanes, dtype });
            }
        }
        TypeInner::Array { base, size: ArraySize::Constant(n), stride } => {
            for i in 0..n.get() {
                flatten(module, format!("{name}[{i}]"), at + i * stride, *base, fields)?;
            }
        }
        TypeInner::Struct { members, .. } => {
            for member in members {
                let part = member.name.as_deref().unwrap_or_default();
                flatten(module, format!("{name}.{part}"), at + member.offset, member.ty, fields)?;
            }
        }
        _ => return Err(format!("has the field {name}, which holds no numbers")),
    }
    Ok(())
}
