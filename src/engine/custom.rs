//! User kernels: WGSL of a kernel pack, launched on contiguous tensors.
//!
//! The shader has no parameters for offsets and strides, so an operand with gaps or an offset is
//! copied first. `arrayLength` must be exact, so a tensor of fixed size is bound with exactly its
//! number of bytes.

use smallvec::SmallVec;

use super::elementwise;
use super::lowering::{Lowering, StepBinding, TensorId, View};
use super::{Cost, Engine, EngineId, Notes, OTHER_OPERATION, Query, ReductionOrder};
use crate::base::{DType, Format, Shape};
use crate::error::{Error, Result};
use crate::ir::{self, CustomTensor, CustomWord, Op};
use crate::kernel::{Access, Constant, KernelSpec, SourceSpec};
use crate::provider::Word;

/// Engine for the kernels of packs.
pub(super) struct Custom {
    id: EngineId,
}

impl Custom {
    pub(super) fn new() -> Custom {
        Custom { id: EngineId::new("custom.wgsl") }
    }
}

impl Engine for Custom {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn notes(&self, query: &Query) -> Notes {
        Notes {
            // Only the author knows the kernel's reduction order.
            deterministic: matches!(query.op, Op::Custom(custom) if custom.deterministic),
            sums: super::Sums::F32,
            needs_compiling: query.is_wgsl(),
            capturable: true,
        }
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        let Op::Custom(custom) = query.op else { return Err(OTHER_OPERATION.into()) };
        let bindings = custom.bindings.len() as u32;
        if bindings > query.profile.max_storage_buffers {
            return Err(format!(
                "kernel {:?} binds {bindings} storage buffers, the device has {}",
                custom.name, query.profile.max_storage_buffers
            ));
        }
        for binding in custom.bindings.iter().filter(|binding| binding.exact) {
            let shape = shape_of(custom, binding.tensor);
            if query.class.bounds(&shape.elements()).is_ok_and(|(low, high)| low == high) {
                continue;
            }
            return Err(format!(
                "kernel {:?} reads the length of {}, which varies between runs here ({shape}); \
                 pass the size as a parameter",
                custom.name, binding.name
            ));
        }
        Ok(())
    }

    fn order(&self, query: &Query) -> Result<ReductionOrder, String> {
        match query.op {
            Op::Custom(custom) if custom.deterministic => Ok(ReductionOrder::new(0, "its maker's")),
            Op::Custom(custom) => Err(format!(
                "the manifest of kernel {:?} has no `deterministic = true`, which promises that \
                 the bits of an element depend only on its inputs",
                custom.name
            )),
            _ => Err(OTHER_OPERATION.into()),
        }
    }

    fn cost(&self, query: &Query) -> Cost {
        Cost { bytes: query.total_bytes(), flops: 0.0, dispatches: 1.0, efficiency: 0.5 }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let Op::Custom(custom) = query.op else {
            return Err(Error::invalid(format!("{} is not a user's kernel", query.op.name())));
        };
        for (axis, groups) in ["x", "y", "z"].iter().zip(&custom.grid) {
            let (most, have) = (out.class.upper(groups)?, out.profile.max_workgroups_per_dim);
            if most > u64::from(have) {
                return Err(Error::unsupported(format!(
                    "kernel {:?} takes {most} workgroups in {axis}, {} has {have}",
                    custom.name, out.profile.name
                )));
            }
        }
        let result = result(query.output, out)?;
        let mut bindings: SmallVec<[StepBinding; 4]> = SmallVec::new();
        for binding in &custom.bindings {
            let tensor = match binding.tensor {
                CustomTensor::Input(input) => operand(&query.operands[input as usize], out)?,
                CustomTensor::Output(output) => {
                    let to = output_view(query, custom, output, &result, out)?;
                    if !custom.writes_all {
                        elementwise::fill(0, &to, out)?;
                    }
                    to
                }
                CustomTensor::InPlace { input, output } => {
                    let to = output_view(query, custom, output, &result, out)?;
                    let from = &query.operands[input as usize];
                    match from.format == Format::Plain(from.dtype) {
                        true => elementwise::copy(from, &to, out)?,
                        false => elementwise::convert(from, &to, out)?,
                    }
                    to
                }
            };
            let access = match binding.tensor {
                CustomTensor::Input(_) => Access::Read,
                _ => Access::ReadWrite,
            };
            let (tensor, bytes) = bound(&tensor, binding, out)?;
            bindings.push(StepBinding { tensor, offset: 0, bytes, access });
        }
        let kernel = KernelSpec::Source(SourceSpec {
            name: custom.name.clone(),
            wgsl: custom.wgsl.0.to_string(),
            entry: custom.entry.clone(),
            bindings: bindings.iter().map(|binding| binding.access).collect(),
            param_words: custom.params.len() as u32,
            constants: (custom.constants.iter())
                .map(|(name, value)| (name.clone(), Constant::F64(value.to_bits())))
                .collect(),
            twins: custom.twins.clone(),
        });
        out.step(kernel, words(custom)?, bindings, custom.grid.clone())?;
        match result == *query.output {
            true => Ok(()),
            false => elementwise::copy(&result, query.output, out),
        }
    }
}

/// Returns the parameter words of the kernel, padded to a multiple of four.
fn words(custom: &ir::Custom) -> Result<Vec<Word>> {
    let mut words = Vec::with_capacity(custom.params.len());
    for word in &custom.params {
        words.push(match word {
            CustomWord::Bits(bits) => Word::Bits(*bits),
            CustomWord::Dim(dim) => Word::dim(dim)?,
        });
    }
    words.resize(words.len().next_multiple_of(4), Word::Bits(0));
    Ok(words)
}

fn shape_of(custom: &ir::Custom, tensor: CustomTensor) -> &Shape {
    match tensor {
        CustomTensor::Input(input) => &custom.inputs[input as usize].0,
        CustomTensor::Output(output) | CustomTensor::InPlace { output, .. } => {
            &custom.outputs[output as usize].0
        }
    }
}

/// Returns the view that the kernel writes its result to: the output itself, or a temporary if the
/// output has gaps or an offset.
fn result(output: &View, out: &mut Lowering) -> Result<View> {
    match output.layout.offset.is(0) && output.is_contiguous() {
        true => Ok(output.clone()),
        false => out.temp(format!("{}.result", out.label), &output.shape, output.dtype),
    }
}

/// Returns the view that the kernel's output number `output` is written to: this node's result,
/// another node's, or a temporary if no node reads it.
fn output_view(
    query: &Query,
    custom: &ir::Custom,
    output: u32,
    result: &View,
    out: &mut Lowering,
) -> Result<View> {
    if output == custom.output {
        return Ok(result.clone());
    }
    if let Some((_, view)) = query.siblings.iter().find(|(number, _)| *number == output) {
        return Ok(view.clone());
    }
    let (shape, dtype) = &custom.outputs[output as usize];
    out.temp(format!("{}.{output}", out.label), shape, *dtype)
}

/// Returns an operand as contiguous plain elements from the start of its tensor, converted or
/// copied if necessary.
fn operand(view: &View, out: &mut Lowering) -> Result<View> {
    if view.format != Format::Plain(view.dtype) {
        let plain = out.temp(format!("{}.plain", out.label), &view.shape, view.dtype)?;
        elementwise::convert(view, &plain, out)?;
        return Ok(plain);
    }
    match view.layout.offset.is(0) && view.is_contiguous() {
        true => Ok(view.clone()),
        false => out.copied(view),
    }
}

/// Returns the tensor to bind for a view and, if the view's size is fixed, the number of bytes. A
/// dummy replaces an empty tensor, since a binding is never empty.
fn bound(
    view: &View,
    binding: &ir::CustomBinding,
    out: &mut Lowering,
) -> Result<(TensorId, Option<u64>)> {
    let (low, elements) = out.class.bounds(&view.shape.elements())?;
    let fixed = low == elements;
    let elements = u64::try_from(elements).unwrap_or(0);
    let least = u64::from(binding.least_bytes);
    if elements == 0 && least > out.tensors[view.tensor.index()].bytes {
        let name = format!("{}.empty", out.label);
        let empty = out.temp(name, &Shape::new([least.div_ceil(4)]), DType::U32)?;
        return Ok((empty.tensor, None));
    }
    // Bounds checks rely on the bound size, so the binding is not larger than the tensor.
    let exact = elements.saturating_mul(view.dtype.bytes()).max(least).max(4);
    Ok((view.tensor, fixed.then_some(exact)))
}
