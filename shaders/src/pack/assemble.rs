//! Builds a pack from its manifest and shader, and checks each against the other.

use std::collections::BTreeMap;

use toml::Spanned;

use super::case::Case;
use super::expr::Expr;
use super::implements::Implements;
use super::manifest::{Declared, File, Manifest, Sizes};
use super::shader::{Block, Buffer, Constants, Shader};
use super::{Launch, Pack, Value};
use warploom_core::base::DType;
use warploom_core::error::Result;
use warploom_core::ir::{CustomBinding, CustomTensor, Twin, TwinLanguage, Wgsl};
use warploom_wgsl::source::Override;

/// Reads a file of the pack by its name; returns the name for messages, and the file's text.
type Source<'a> = &'a dyn Fn(&str) -> Result<(String, String)>;

impl Pack {
    /// Builds a pack from a manifest and the files that it names. `folder` is the name of the
    /// pack's folder, which names the pack by default; `only_shader` returns the name of the only
    /// shader other than the given reference.
    ///
    /// # Errors
    /// Bad file or compile, with file and line, if the manifest or the shader is wrong.
    pub(super) fn assemble(
        file: &File<'_>,
        folder: Option<&str>,
        only_shader: &dyn Fn(Option<&str>) -> Result<String>,
        source: Source<'_>,
    ) -> Result<Pack> {
        let manifest = file.manifest()?;
        let mut pack = Pack::of_shader(file, &manifest, folder, only_shader, source)?;
        if let Some(name) = &manifest.reference {
            let (path, text) = source(name.get_ref()).map_err(|e| file.fail(name.span(), e))?;
            // Constants apply to the kernel, not to its reference.
            let shader = Shader::read(&path, &text, None, &|_| Ok(Constants::new()))?;
            let mut reference = Pack::new(file, &manifest, pack.name.clone(), shader)?;
            reference.launch = Launch::Groups(vec![Expr::Number(1)]);
            pack.reference = Some(Box::new(reference));
        }
        if let Some(twins) = &manifest.twins {
            let (cuda, opencl) = (twins.cuda.as_ref(), twins.opencl.as_ref());
            for (language, name) in [(TwinLanguage::Cuda, cuda), (TwinLanguage::OpenCl, opencl)] {
                let Some(name) = name else { continue };
                let (_, text) = source(name.get_ref()).map_err(|e| file.fail(name.span(), e))?;
                pack.twins.push(Twin { language, file: name.get_ref().clone(), text: text.into() });
            }
        }
        pack.implements = Implements::read(file, &manifest, &pack)?;
        for case in &manifest.case {
            let case = Case::read(&pack, case.get_ref(), pack.cases.len())
                .map_err(|e| file.fail(case.span(), e))?;
            pack.cases.push(case);
        }
        Ok(pack)
    }

    fn of_shader(
        file: &File<'_>,
        manifest: &Manifest,
        folder: Option<&str>,
        only_shader: &dyn Fn(Option<&str>) -> Result<String>,
        source: Source<'_>,
    ) -> Result<Pack> {
        let (path, text) = match &manifest.shader {
            Some(name) => source(name.get_ref()).map_err(|e| file.fail(name.span(), e))?,
            None => {
                let reference = manifest.reference.as_ref().map(|name| name.get_ref().as_str());
                source(&only_shader(reference)?)?
            }
        };
        let name = match (&manifest.name, folder) {
            (Some(name), _) => name.get_ref().clone(),
            (None, Some(folder)) => folder.to_string(),
            (None, None) => return Err(file.fail_whole("`name` is missing")),
        };
        let fine = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(fine) {
            let at = manifest.name.as_ref().map_or(0..0, Spanned::span);
            return Err(file.fail(at, format!("name {name:?} is not 1 to 64 of A-Z a-z 0-9 _ - .")));
        }
        let entry = manifest.entry.as_ref().map(|entry| entry.get_ref().as_str());
        let choose = |shader: &Shader| Ok(chosen(file, manifest, shader)?.0);
        let shader = Shader::read(&path, &text, entry, &choose)?;
        let mut pack = Pack::new(file, manifest, name, shader)?;
        pack.tune = chosen(file, manifest, &pack.shader)?.1;
        let names = pack.values().iter().map(|n| n.to_string()).collect::<Vec<_>>();
        if let Some((name, value)) =
            manifest.defaults.iter().find(|(name, _)| !names.contains(name))
        {
            let what = format!("defaults: there is no size or number {name}, but {names:?}");
            return Err(file.fail(value.span(), what));
        }
        Ok(pack)
    }

    /// Builds the pack of one shader: that of the kernel, or of its reference.
    fn new(
        file: &File<'_>,
        manifest: &Manifest,
        name: String,
        (shader, constants): (Shader, Constants),
    ) -> Result<Pack> {
        let declare = |key: &str, list: &[Spanned<String>]| -> Result<Vec<Declared>> {
            let mut found: Vec<Declared> = Vec::new();
            for text in list {
                let tensor = file.declared(key, text)?;
                if found.iter().any(|other| other.name == tensor.name) {
                    let name = &tensor.name;
                    return Err(file.fail(text.span(), format!("{key}: {name} occurs twice")));
                }
                found.push(tensor);
            }
            Ok(found)
        };
        let (inputs, outputs) =
            (declare("inputs", &manifest.inputs)?, declare("outputs", &manifest.outputs)?);
        if outputs.is_empty() {
            return Err(file.fail_whole("`outputs` is empty, so no result can be read"));
        }
        let mut elements = BTreeMap::new();
        for (key, list, tensors) in
            [("inputs", &manifest.inputs, &inputs), ("outputs", &manifest.outputs, &outputs)]
        {
            for (text, tensor) in list.iter().zip(tensors) {
                let buffer = buffer(&shader, tensor, key)
                    .map_err(|what| file.fail(text.span(), format!("{key}: {what}")))?;
                elements.insert(tensor.name.clone(), (buffer.dtype, buffer.words));
            }
        }
        let bindings = bind(file, &shader, &inputs, &outputs)?;
        let names: Vec<&str> = bindings.iter().map(|binding| binding.name.as_str()).collect();
        let wgsl = Wgsl(shader.renumbered(&names)?.into());
        let defaults = manifest.defaults.iter().map(|(k, v)| (k.clone(), *v.get_ref())).collect();
        let mut pack = Pack {
            name,
            file: file.name.into(),
            manifest: blake3::hash(file.text.as_bytes()),
            folder: None,
            files: Vec::new(),
            wgsl,
            workgroup: shader.workgroup(&constants)?,
            inputs,
            outputs,
            elements,
            bindings,
            words: shader.block.as_ref().map_or(0, |block| block.words),
            fields: Vec::new(),
            launch: launch(file, manifest)?,
            writes_all: manifest.writes_all,
            deterministic: manifest.deterministic,
            defaults,
            constants,
            tune: BTreeMap::new(),
            tuned: BTreeMap::new(),
            tolerance: (manifest.tolerance.atol, manifest.tolerance.rtol),
            cases: Vec::new(),
            reference: None,
            twins: Vec::new(),
            implements: None,
            shader,
        };
        pack.fields = pack.values_of_block(file, &manifest.params)?;
        Ok(pack)
    }

    /// Returns the meaning of each word of the uniform block.
    fn values_of_block(
        &self,
        file: &File<'_>,
        params: &BTreeMap<String, Spanned<Sizes>>,
    ) -> Result<Vec<Value>> {
        let fields = self.shader.block.as_ref().map_or(&[][..], |block: &Block| &block.fields);
        if let Some((name, value)) =
            params.iter().find(|(name, _)| !fields.iter().any(|field| field.name == **name))
        {
            let shader = &self.shader.file;
            let what = format!("params: {shader} has no field {name} in its uniform block");
            return Err(file.fail(value.span(), what));
        }
        let symbols: Vec<String> = self.symbols().iter().map(|n| n.to_string()).collect();
        let mut values = Vec::new();
        for field in fields {
            let sizes = match params.get(&field.name) {
                Some(sizes) => {
                    let found = file.sizes("params", sizes)?;
                    if found.len() != field.lanes as usize {
                        let (have, want, name) = (found.len(), field.lanes, &field.name);
                        let what = format!("params: {name} has {want} numbers, not {have}");
                        return Err(file.fail(sizes.span(), what));
                    }
                    Some(found)
                }
                None if field.lanes == 1 && symbols.contains(&field.name) => {
                    Some(vec![Expr::Name(field.name.clone())])
                }
                None => None,
            };
            for lane in 0..field.lanes {
                let name = match field.lanes {
                    1 => field.name.clone(),
                    _ => format!("{}.{}", field.name, ["x", "y", "z", "w"][lane as usize % 4]),
                };
                let size = sizes.as_ref().map(|sizes| sizes[lane as usize].clone());
                values.push(Value { at: field.at + lane, dtype: field.dtype, name, size });
            }
        }
        Ok(values)
    }
}

/// Returns the constants of a manifest and its tuning values, by the shader's names. A tuned
/// override without a value starts with its first tuning value.
fn chosen(
    file: &File<'_>,
    manifest: &Manifest,
    shader: &Shader,
) -> Result<(Constants, BTreeMap<String, Vec<f64>>)> {
    let known = |key: &str, name: &String, at: std::ops::Range<usize>| {
        shader.overrides.iter().find(|known| known.is_called(name)).ok_or_else(|| {
            let have: Vec<&str> = shader.overrides.iter().map(|o| o.name.as_str()).collect();
            let shader = &shader.file;
            file.fail(at, format!("{key}: {shader} has no override {name}; it has {have:?}"))
        })
    };
    let twice = |key: &str, name: &str, at| {
        file.fail(at, format!("{key}: override {name} is given twice, by its name and by its @id"))
    };
    let checked = |key: &str, found: &Override, value: f64, at| {
        let line = found.line;
        match found.literal(value) {
            Ok(_) => Ok(()),
            Err(why) => Err(file.fail(at, format!("{key}: {why} ({}:{line})", shader.file))),
        }
    };
    let mut constants = Constants::new();
    for (name, value) in &manifest.constants {
        let (found, number) = (known("constants", name, value.span())?, value.get_ref().0);
        checked("constants", found, number, value.span())?;
        if constants.insert(found.name.clone(), number).is_some() {
            return Err(twice("constants", &found.name, value.span()));
        }
    }
    let mut tune = BTreeMap::new();
    for (name, values) in &manifest.tune {
        let list: Vec<f64> = values.get_ref().iter().map(|value| value.0).collect();
        let first = match list.first() {
            Some(first) if list.len() <= 16 => *first,
            _ => {
                let what = format!("tune: {name} has {} values, not 1 to 16", list.len());
                return Err(file.fail(values.span(), what));
            }
        };
        let found = known("tune", name, values.span())?;
        for value in &list {
            checked("tune", found, *value, values.span())?;
        }
        if !found.has_default {
            constants.entry(found.name.clone()).or_insert(first);
        }
        if tune.insert(found.name.clone(), list).is_some() {
            return Err(twice("tune", &found.name, values.span()));
        }
    }
    Ok((constants, tune))
}

/// Returns the shader's buffer for a declared tensor.
fn buffer<'a>(shader: &'a Shader, tensor: &Declared, key: &str) -> Result<&'a Buffer, String> {
    let (file, name) = (&shader.file, &tensor.name);
    let Some(buffer) = shader.buffers.iter().find(|buffer| buffer.name == *name) else {
        let have: Vec<&str> = shader.buffers.iter().map(|buffer| buffer.name.as_str()).collect();
        return Err(format!(
            "{file} has no storage buffer {name} that {} uses; it has {have:?}",
            shader.entry
        ));
    };
    let line = buffer.line;
    if let Some(dtype) = tensor.dtype
        && dtype != buffer.dtype
    {
        return Err(format!("{name} is {dtype} here and {} in {file}:{line}", buffer.dtype));
    }
    if key == "outputs" && !buffer.writable {
        return Err(format!(
            "{name} is read only in {file}:{line}; an output is var<storage, read_write>"
        ));
    }
    // The trailing constant sizes are contiguous elements.
    let mut run = 1_i64;
    let known = tensor.shape.iter().rev().map_while(|size| match size {
        Expr::Number(number) => Some(*number),
        _ => None,
    });
    let mut sizes = 0;
    for size in known {
        run = run.saturating_mul(size);
        sizes += 1;
    }
    let words = i64::from(buffer.words);
    if sizes > 0 && sizes < tensor.shape.len() && run % words != 0 {
        let hint = if words == 4 && run == 3 { " (a vec3 takes the room of a vec4)" } else { "" };
        return Err(format!(
            "{name} has rows of {run} numbers, and {file}:{line} elements of {words}{hint}"
        ));
    }
    Ok(buffer)
}

/// Assigns a tensor to each buffer of the shader.
fn bind(
    file: &File<'_>,
    shader: &Shader,
    inputs: &[Declared],
    outputs: &[Declared],
) -> Result<Vec<CustomBinding>> {
    let place = |list: &[Declared], name: &str| {
        list.iter().position(|tensor| tensor.name == name).map(|place| place as u32)
    };
    let mut bindings = Vec::new();
    for buffer in &shader.buffers {
        let (name, line) = (&buffer.name, buffer.line);
        let fail = |what: &str| {
            warploom_core::error::Error::bad_file(format!(
                "{}:{line}: var {name} {what}",
                shader.file
            ))
        };
        let tensor = match (place(inputs, name), place(outputs, name)) {
            (Some(_), None) if buffer.writable => {
                return Err(fail(&format!(
                    "is read_write, and in {} an input only: declare it var<storage, read>, or \
                     name it among the outputs as well, if the kernel changes it",
                    file.name
                )));
            }
            (Some(input), None) => CustomTensor::Input(input),
            (None, Some(output)) => CustomTensor::Output(output),
            (Some(input), Some(output)) => CustomTensor::InPlace { input, output },
            (None, None) => {
                let what = format!("is neither an input nor an output in {}", file.name);
                return Err(fail(&what));
            }
        };
        bindings.push(CustomBinding {
            name: name.clone(),
            tensor,
            least_bytes: buffer.least_bytes,
            exact: buffer.exact,
        });
    }
    Ok(bindings)
}

fn launch(file: &File<'_>, manifest: &Manifest) -> Result<Launch> {
    let three = |key: &str, sizes: &Spanned<Sizes>| -> Result<Vec<Expr>> {
        let found = file.sizes(key, sizes)?;
        match (1..=3).contains(&found.len()) {
            true => Ok(found),
            false => {
                let what = format!("{key}: {} sizes, not 1 to 3 for x, y and z", found.len());
                Err(file.fail(sizes.span(), what))
            }
        }
    };
    match (&manifest.threads, &manifest.groups) {
        (None, None) => Ok(Launch::Elements),
        (Some(threads), None) => three("threads", threads).map(Launch::Threads),
        (None, Some(groups)) => three("groups", groups).map(Launch::Groups),
        (Some(threads), Some(_)) => {
            Err(file.fail(threads.span(), "either `threads` or `groups`, not both"))
        }
    }
}

/// Converts a number to the bits of a type; `None` if an integer type cannot hold it.
pub(super) fn bits(value: f64, dtype: DType) -> Option<u32> {
    let whole = value.fract() == 0.0;
    match dtype {
        DType::U32 => {
            (whole && (0.0..=f64::from(u32::MAX)).contains(&value)).then_some(value as u32)
        }
        DType::I32 => (whole && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&value))
            .then(|| (value as i32).cast_unsigned()),
        _ => Some((value as f32).to_bits()),
    }
}
