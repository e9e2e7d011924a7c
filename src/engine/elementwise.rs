//! Elementwise operations and copies as generated kernels, one for each.
//!
//! The index space is the shape of the result. Dimensions that every tensor walks in one step are
//! merged, so that most kernels have one dimension and read without a division.

use smallvec::SmallVec;

use super::lowering::{Lowering, StepBinding, View};
use super::{Cost, Engine, EngineId, OTHER_OPERATION, Query};
use crate::base::{DType, Dim, Layout, Shape};
use crate::codegen::{FUSED_WORKGROUP, MAX_RANK};
use crate::error::{Error, Result};
use crate::ir::Op;
use crate::kernel::{Access, Addressing, FusedExpr, KernelSpec, Operand, Output, Schedule, Value};
use crate::provider::Word;

/// One generated kernel for one elementwise operation.
pub(super) struct Elementwise {
    id: EngineId,
}

impl Elementwise {
    pub(super) fn new() -> Elementwise {
        Elementwise { id: EngineId::new("fused.elementwise") }
    }
}

impl Engine for Elementwise {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        match query.op {
            Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Cast(_) => {}
            _ => return Err(OTHER_OPERATION.into()),
        }
        let mut views = query.operands.iter().chain(std::iter::once(query.output));
        match views.find(|view| !addressable(view.dtype)) {
            Some(view) => Err(format!("{} elements have two bytes", view.dtype)),
            None => Ok(()),
        }
    }

    fn cost(&self, query: &Query) -> Cost {
        let flops = query.output_elements();
        Cost { bytes: query.total_bytes(), flops, dispatches: 1.0, efficiency: 0.8 }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let mut body = Body::new(query.operands, query.output);
        let inputs: Vec<u32> = (0..query.operands.len()).map(|i| body.input(i)).collect();
        let value = match (query.op, &inputs[..]) {
            (Op::Unary(op), [a]) => Value::Unary(*op, *a),
            (Op::Binary(op), [a, b]) => Value::Binary(*op, *a, *b),
            (Op::Select, [c, a, b]) => Value::Select(*c, *a, *b),
            (Op::Cast(dtype), [a]) => Value::Cast(*dtype, *a),
            (op, _) => {
                let count = inputs.len();
                return Err(Error::invalid(format!("{} with {count} operands", op.name())));
            }
        };
        body.push(value);
        body.emit(out)
    }
}

/// Adds a copy of a view to another one of the same shape and type.
///
/// # Errors
/// Unsupported, where more than six dimensions do not merge.
pub fn copy(from: &View, to: &View, out: &mut Lowering) -> Result<()> {
    let mut body = Body::new(std::slice::from_ref(from), to);
    body.input(0);
    body.emit(out)
}

/// Fills a view with one number.
pub(super) fn fill(word: u32, to: &View, out: &mut Lowering) -> Result<()> {
    let mut body = Body::new(&[], to);
    body.push(Value::Constant(to.dtype, word));
    body.emit(out)
}

/// A kernel body under construction, over the index space of its output.
struct Body<'a> {
    operands: &'a [View],
    output: &'a View,
    values: Vec<Value>,
}

impl<'a> Body<'a> {
    fn new(operands: &'a [View], output: &'a View) -> Body<'a> {
        Body { operands, output, values: Vec::new() }
    }

    fn push(&mut self, value: Value) -> u32 {
        self.values.push(value);
        (self.values.len() - 1) as u32
    }

    /// The element of an operand, with the operations that its view asks for.
    fn input(&mut self, index: usize) -> u32 {
        let mut value = self.push(Value::Input(index as u32));
        for op in &self.operands[index].unary {
            value = self.push(Value::Unary(*op, value));
        }
        value
    }

    /// Adds the step; the last value is the result.
    fn emit(self, out: &mut Lowering) -> Result<()> {
        let space = &self.output.shape;
        let mut layouts: Vec<Layout> =
            self.operands.iter().map(|v| v.layout.broadcast(&v.shape, space)).collect();
        layouts.push(self.output.layout.clone());
        let (sizes, strides) = merge_dims(space, &layouts);
        if sizes.len() > MAX_RANK as usize {
            return Err(Error::unsupported(format!(
                "{}: {} dimensions that do not merge, a generated kernel has {MAX_RANK}",
                out.label,
                sizes.len()
            )));
        }
        let count = space.elements();
        let rank = sizes.len();
        let mut params = vec![Word::dim(&count)?];
        for size in &sizes {
            params.push(Word::dim(size)?);
        }
        let mut operands = Vec::new();
        let views = self.operands.iter().chain(std::iter::once(self.output));
        for (i, ((view, layout), strides)) in views.zip(&layouts).zip(&strides).enumerate() {
            let addressing = match &strides[..] {
                s if s.iter().all(|s| s.is(0)) => Addressing::Single,
                [s] if s.is(1) => Addressing::Flat,
                _ => Addressing::Strided,
            };
            params.push(Word::dim(&layout.offset)?);
            if addressing == Addressing::Strided {
                for stride in strides {
                    params.push(Word::dim(stride)?);
                }
            }
            let binding = if i < self.operands.len() { i as u32 } else { 0 };
            operands.push(Operand { dtype: view.dtype, addressing, binding });
        }
        // One element at most: writing through `Single` or `Flat` is the same.
        let mut output = operands.remove(operands.len() - 1);
        if output.addressing == Addressing::Single {
            output.addressing = Addressing::Flat;
        }
        let result = (self.values.len() - 1) as u32;
        let expr = FusedExpr {
            rank: rank as u32,
            inputs: operands,
            outputs: vec![Output { operand: output, value: result }],
            values: self.values,
            schedule: Schedule::Elements { width: 1 },
        };
        params.resize(expr.interface().param_words as usize, Word::Bits(0));
        let bind = |view: &View, access| StepBinding {
            tensor: view.tensor,
            offset: 0,
            bytes: None,
            access,
        };
        let mut bindings: SmallVec<[StepBinding; 4]> =
            self.operands.iter().map(|v| bind(v, Access::Read)).collect();
        bindings.push(bind(self.output, Access::ReadWrite));
        let grid = out.fold(count.ceil_div(&Dim::from(FUSED_WORKGROUP)));
        out.step(KernelSpec::Fused(expr), params, bindings, grid)
    }
}

/// Drops dimensions of size 1 and merges neighbours that every layout walks in one step: the
/// remaining sizes, and each layout's strides over them.
fn merge_dims(space: &Shape, layouts: &[Layout]) -> (Vec<Dim>, Vec<Vec<Dim>>) {
    let mut sizes: Vec<Dim> = Vec::new();
    let mut strides: Vec<Vec<Dim>> = vec![Vec::new(); layouts.len()];
    for (axis, size) in space.dims().iter().enumerate() {
        if size.is(1) {
            continue;
        }
        let steps = layouts.iter().map(|l| &l.strides[axis]);
        let merges = !sizes.is_empty()
            && strides.iter().zip(steps.clone()).all(|(outer, inner)| {
                outer.last().is_some_and(|o| *o == inner.clone() * size.clone())
            });
        if merges {
            let last = sizes.len() - 1;
            sizes[last] = sizes[last].clone() * size.clone();
            for (outer, inner) in strides.iter_mut().zip(steps) {
                outer[last] = inner.clone();
            }
        } else {
            sizes.push(size.clone());
            for (outer, inner) in strides.iter_mut().zip(steps) {
                outer.push(inner.clone());
            }
        }
    }
    (sizes, strides)
}

/// The part of a view along one axis.
pub(super) fn part(view: &View, axis: usize, start: &Dim, len: &Dim) -> View {
    let mut part = view.clone();
    part.shape = view
        .shape
        .dims()
        .iter()
        .enumerate()
        .map(|(i, d)| if i == axis { len.clone() } else { d.clone() })
        .collect();
    part.layout.offset =
        view.layout.offset.clone() + view.layout.strides[axis].clone() * start.clone();
    part
}

/// Whether generated kernels can touch this type.
pub(super) fn addressable(dtype: DType) -> bool {
    dtype.bytes() == 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_what_every_layout_walks_in_one_step() {
        let space = Shape::new([2, 3, 4]);
        let plain = Layout::contiguous(&space);
        let (sizes, strides) = merge_dims(&space, &[plain.clone(), plain.clone()]);
        assert_eq!((sizes, strides[0].clone()), (vec![Dim::new(24)], vec![Dim::new(1)]));
        let row = Layout::contiguous(&Shape::new([4])).broadcast(&Shape::new([4]), &space);
        let (sizes, strides) = merge_dims(&space, &[plain, row]);
        assert_eq!(sizes, [Dim::new(6), Dim::new(4)]);
        assert_eq!(strides[1], [Dim::new(0), Dim::new(1)]);
    }
}
