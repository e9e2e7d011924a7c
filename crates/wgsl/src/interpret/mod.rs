//! Runs WGSL compute shaders on the CPU from a validated `naga::Module`, and detects their faults.
//! The interpreter is slow, but exact.
//!
//! A [`Program`] is compiled from text once and run on buffers of words any number of times. Its
//! semantics are those of the other backends of this crate (`translate/README.md`): integers wrap,
//! indices out of bounds are clamped to the last element, and workgroup memory is zeroed. With
//! [`Checks`] a run ends at the first [`Fault`] instead: an index out of bounds, a race, an
//! uninitialised read, or a barrier that not all invocations reach. The checks use the ordering
//! that WGSL guarantees, not the observed one, so they find races that no device exhibits.
//!
//! Structure: `compile.rs` compiles functions to one list of instructions over registers
//! (`bytecode.rs`), `machine.rs` runs an invocation until it must wait, `workgroup.rs` synchronises
//! invocations, `shadow.rs` records memory accesses.
//!
//! Textures, ray queries, derivatives, immediates and 64-bit numbers are absent on purpose:
//! compilation refuses them by name.

mod body;
mod bytecode;
mod collectives;
mod compile;
mod cooperative;
mod expression;
mod fault;
mod layout;
mod lvalue;
mod machine;
mod math;
mod memory;
mod number;
mod packing;
mod run;
mod shadow;
mod subgroup;
mod vectors;
mod workgroup;

pub use fault::{Failure, Fault, FaultKind, Invocation, Location};
pub use run::{Argument, Checks, Options, Report, words};

use std::collections::BTreeMap;

use naga::ShaderStage;
use naga::back::PipelineConstants;
use naga::back::pipeline_constants::process_overrides;

use crate::source::{self, Words};
use bytecode::{Code, Place};
use fault::Source;
use warploom_core::error::{Error, Result};

/// Maximum number of invocations of a workgroup.
pub const MAX_INVOCATIONS: u64 = 1024;
/// Maximum size of workgroup memory, in bytes: more than any device has.
const MAX_WORKGROUP_BYTES: u64 = 1 << 20;
/// Maximum number of registers of all invocations of a workgroup: 256 MiB.
const MAX_WORKGROUP_REGISTERS: u64 = 1 << 26;

/// A compute shader, ready to be run.
///
/// ```
/// use warploom_wgsl::interpret::{Argument, Checks, Failure, FaultKind, Options, Program, words};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let wgsl = "@group(0) @binding(0) var<storage, read_write> y: array<f32>;
/// @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
///     y[id.x] *= 2.0;
/// }";
/// let program = Program::from_wgsl(wgsl, "double.wgsl", None, &[])?;
/// let mut y = [1.0f32, 2.0, 3.0];
/// let bound = [Argument::new(0, 0, words(bytemuck::cast_slice_mut(&mut y))?)];
/// let options = Options { checks: Checks::ALL, ..Options::default() };
/// match program.run([1, 1, 1], &bound, &options) {
///     Err(Failure::Fault(fault)) => {
///         assert_eq!(fault.kind, FaultKind::OutOfBounds);
///         assert_eq!((fault.location.line, fault.detail.as_str()), (3, "index 3 of 3 elements"));
///     }
///     other => panic!("{other:?}"),
/// }
/// assert_eq!(y, [2.0, 4.0, 6.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Program {
    code: Code,
    source: Source,
    name: String,
}

/// A buffer of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// `@group`.
    pub group: u32,
    /// `@binding`.
    pub binding: u32,
    /// Name of the variable.
    pub name: String,
    /// Whether it is a `var<uniform>`.
    pub uniform: bool,
    /// Whether it is a `var<storage, read_write>`.
    pub writable: bool,
    /// Minimum size of the bound range, in bytes.
    pub least_bytes: u32,
}

impl Program {
    /// Compiles WGSL; `file` is its name in messages. `entry` names the compute entry point; if
    /// `None`, it is the first one. `constants` are values of `override`s by name or `@id`.
    ///
    /// # Errors
    /// Compile, with file, line and column, if the text is not valid; invalid if the entry point or
    /// a constant is unknown; unsupported, with the name of the construct, if the interpreter does
    /// not run it.
    pub fn from_wgsl(
        source: &str,
        file: &str,
        entry: Option<&str>,
        constants: &[(String, f64)],
    ) -> Result<Program> {
        let given: BTreeMap<String, f64> = constants.iter().cloned().collect();
        let settled = source::settled(file, source, entry, &given)?;
        let words = Words::settled(file, source, &settled);
        let (module, info) = source::parse(&words)?;
        let stage = ShaderStage::Compute;
        let mut points = module.entry_points.iter().filter(|point| point.stage == stage);
        let name = match entry {
            Some(name) => points.find(|point| point.name == name).map(|_| name.to_owned()),
            None => points.next().map(|point| point.name.clone()),
        };
        let name = name.ok_or_else(|| {
            let asked = entry.map_or(String::new(), |entry| format!(" {entry:?}"));
            Error::invalid(format!("{file} has no compute entry point{asked}"))
        })?;
        let context = format!("{file}: entry point {name}");
        // Drops the other entry points and what only they use.
        let none = PipelineConstants::default();
        let (module, info) = process_overrides(&module, &info, Some((stage, &name)), &none)
            .map_err(|e| Error::compile(format!("{context}: {e}")))?;
        let found = module.entry_points.iter().position(|point| point.name == name);
        let index = found.ok_or_else(|| Error::invalid(format!("{context} is gone")))?;
        let code = compile::compile(&module, &info, index)
            .map_err(|(error, span)| words.refused(span, &error.to_string()))?;
        check_size(&code).map_err(|error| error.context(context))?;
        let source = Source { file: file.to_owned(), text: settled.text.to_string() };
        Ok(Program { code, source, name })
    }

    /// Returns the name of the entry point.
    pub fn entry(&self) -> &str {
        &self.name
    }

    /// Returns the number of invocations per workgroup in x, y and z.
    pub fn workgroup_size(&self) -> [u32; 3] {
        self.code.workgroup_size
    }

    /// Returns the buffers that a run requires, in declaration order.
    pub fn bindings(&self) -> Vec<Binding> {
        let regions = self.code.regions.iter();
        let bound = regions.filter_map(|region| match region.place {
            Place::Bound { group, binding, uniform, writable } => {
                let (name, least_bytes) = (region.name.clone(), region.bytes);
                Some(Binding { group, binding, name, uniform, writable, least_bytes })
            }
            Place::Workgroup => None,
        });
        bound.collect()
    }
}

fn check_size(code: &Code) -> Result<()> {
    let sizes = code.workgroup_size.map(u64::from);
    let product = sizes[0].saturating_mul(sizes[1]).saturating_mul(sizes[2]);
    if product > MAX_INVOCATIONS {
        return Err(Error::unsupported(format!(
            "workgroups of {product} invocations, more than {MAX_INVOCATIONS}"
        )));
    }
    let own = code.regions.iter().filter(|region| region.place == Place::Workgroup);
    let bytes: u64 = own.map(|region| u64::from(region.bytes)).sum();
    if bytes > MAX_WORKGROUP_BYTES {
        return Err(Error::unsupported(format!(
            "{bytes} bytes of workgroup memory, more than {MAX_WORKGROUP_BYTES}"
        )));
    }
    let registers = product * code.registers.len() as u64;
    if registers > MAX_WORKGROUP_REGISTERS {
        return Err(Error::unsupported(format!(
            "a workgroup of {registers} numbers, more than {MAX_WORKGROUP_REGISTERS}"
        )));
    }
    Ok(())
}
