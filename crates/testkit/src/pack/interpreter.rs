//! Runs a pack's kernel in the interpreter.

use super::elements;
use warploom::graph::{Custom, CustomTensor, CustomWord};
use warploom::kernel::pack::Pack;
use warploom::{Error, Result};
use warploom_core::base::{Dim, SymbolValues};
use warploom_wgsl::interpret::{Argument, Checks, Options, Program, words};

/// Step limit of one invocation, above which a loop counts as endless.
const MAX_STEPS: u64 = 1 << 26;
/// Maximum number of workgroups in a run.
const MAX_GROUPS: u64 = 1 << 20;

/// Runs a kernel with all checks except for uninitialised reads; returns the words of every output.
/// If the manifest sets `writes_all`, these must not depend on the initial contents of outputs.
///
/// # Errors
/// Invalid, with file and line, for the first fault or an element that varies.
pub(super) fn checked(pack: &Pack, custom: &Custom, inputs: &[Vec<u32>]) -> Result<Vec<Vec<u32>>> {
    // Workgroup memory and outputs are guaranteed to start as zeros, so reading them first is
    // valid.
    let checks = Checks { uninitialised: false, ..Checks::ALL };
    let options = Options { checks, max_steps: MAX_STEPS, ..Options::default() };
    let first = run(pack, custom, inputs, &options, 0)?;
    if !custom.writes_all {
        return Ok(first);
    }
    let second = run(pack, custom, inputs, &options, u32::MAX)?;
    for ((spec, a), b) in pack.outputs().zip(&first).zip(&second) {
        if let Some(at) = a.iter().zip(b).position(|(a, b)| a != b) {
            return Err(Error::invalid(format!(
                "{}: {} is not written at element {at}, and the manifest says `writes_all`",
                pack.shader().0,
                spec.name
            )));
        }
    }
    Ok(first)
}

/// Runs a kernel without checks; returns the words of every output.
///
/// # Errors
/// Invalid, with file and line, if a loop is endless or barriers diverge.
pub(super) fn plain(pack: &Pack, custom: &Custom, inputs: &[Vec<u32>]) -> Result<Vec<Vec<u32>>> {
    let options = Options { max_steps: 1 << 32, ..Options::default() };
    run(pack, custom, inputs, &options, 0)
}

fn run(
    pack: &Pack,
    custom: &Custom,
    inputs: &[Vec<u32>],
    options: &Options,
    fill: u32,
) -> Result<Vec<Vec<u32>>> {
    let none = SymbolValues::new();
    let size = |dim: &Dim| dim.eval_size(&none);
    let mut grid = [0; 3];
    let mut groups = 1_u64;
    for (groups_in, dim) in grid.iter_mut().zip(&custom.grid) {
        let count = size(dim)?;
        groups = groups.saturating_mul(count);
        *groups_in = u32::try_from(count).unwrap_or(u32::MAX);
    }
    if groups > MAX_GROUPS {
        return Err(Error::invalid(format!(
            "{groups} workgroups, and the interpreter takes at most {MAX_GROUPS}: give smaller \
             sizes in a [[case]]"
        )));
    }
    let constants: Vec<(String, f64)> =
        custom.constants.iter().map(|(name, value)| (name.clone(), *value)).collect();
    let file = pack.shader().0;
    let program = Program::from_wgsl(&custom.wgsl.0, file, Some(&custom.entry), &constants)?;
    let mut memory: Vec<Vec<u32>> = Vec::with_capacity(custom.bindings.len() + 1);
    let mut block = Vec::new();
    for word in &custom.params {
        block.push(match word {
            CustomWord::Bits(bits) => *bits,
            CustomWord::Dim(dim) => size(dim)? as u32,
        });
    }
    memory.push(block);
    for binding in &custom.bindings {
        let mut words = match binding.tensor {
            CustomTensor::Input(input) | CustomTensor::InPlace { input, .. } => {
                inputs[input as usize].clone()
            }
            CustomTensor::Output(output) => {
                vec![fill; elements(&custom.outputs[output as usize].0)? as usize]
            }
        };
        // An empty tensor is bound as one element.
        words.resize(words.len().max(binding.least_bytes.div_ceil(4) as usize), 0);
        memory.push(words);
    }
    let mut arguments = Vec::new();
    for (place, memory) in memory.iter_mut().enumerate() {
        if place > 0 || !custom.params.is_empty() {
            let shared = words(bytemuck::cast_slice_mut(memory))?;
            arguments.push(Argument::new(0, place as u32, shared));
        }
    }
    program.run(grid, &arguments, options).map_err(|failure| failure.into_error())?;
    drop(arguments);
    let mut results = vec![Vec::new(); custom.outputs.len()];
    for (binding, memory) in custom.bindings.iter().zip(&memory[1..]) {
        let Some(output) = binding.tensor.output() else { continue };
        let elements = elements(&custom.outputs[output as usize].0)?;
        results[output as usize] = memory.iter().take(elements as usize).copied().collect();
    }
    Ok(results)
}
