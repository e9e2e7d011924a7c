//! The computation of a group of nodes in one pass over an index space, on views of memory.
//!
//! The passes of `plan` build a [`Body`]. An engine turns it into a generated kernel
//! ([`Body::launch`]), or fuses it into one of its own kernels ([`super::fusion`]).

use smallvec::SmallVec;

use super::lowering::{Lowering, StepBinding, TensorId, View};
use crate::base::{Dim, Layout, Shape};
use crate::codegen::{self, MAX_RANK};
use crate::error::{Error, Result};
use crate::kernel::{Access, Addressing, FusedExpr, KernelSpec, Operand, Output, Schedule, Value};
use crate::provider::Word;

/// Elementwise work and row reductions on views over one index space.
#[derive(Clone, Debug, PartialEq)]
pub struct Body {
    /// The index space; reductions run along its last dimension.
    pub space: Shape,
    /// Views that are read, each with the shape of `space`.
    pub inputs: Vec<View>,
    /// Values in evaluation order, as in a [`FusedExpr`].
    pub values: Vec<Value>,
    /// Views that are written, each with the index of its value in `values`. A view has the shape
    /// of `space`; for a value per row, its stride in the last dimension is 0.
    pub outputs: Vec<(View, u32)>,
}

/// The dimensions of a body after merging, with the strides of each operand over them.
#[derive(Debug)]
pub struct Merged {
    /// Sizes of the dimensions, outermost first.
    pub sizes: Vec<Dim>,
    /// Strides of each input, then each output, then each layout in `extra` ([`Body::merged`]); one
    /// stride per entry of `sizes`.
    pub strides: Vec<Vec<Dim>>,
}

impl Merged {
    /// Returns the addressing of each operand and extra layout. With `flat`, row-major operands are
    /// addressed without strides. With `rows`, operands that are constant along the last dimension
    /// are addressed by row.
    pub fn addressing(&self, flat: bool, rows: bool) -> SmallVec<[Addressing; 8]> {
        let contiguous = Layout::contiguous(&self.sizes.iter().cloned().collect());
        let one = |strides: &Vec<Dim>| match &strides[..] {
            s if s.iter().all(|s| s.is(0)) => Addressing::Single,
            s if flat && s == contiguous.strides.as_slice() => Addressing::Flat,
            s if rows && s.last().is_some_and(|last| last.is(0)) => Addressing::Row,
            _ => Addressing::Strided,
        };
        self.strides.iter().map(one).collect()
    }
}

impl Body {
    /// Creates a body over the index space of `output`, without values yet. It writes its first
    /// value to `output`, unless the caller sets a different index in `outputs`.
    pub fn over(operands: &[View], output: &View) -> Body {
        let space = output.shape.clone();
        let inputs = operands
            .iter()
            .map(|view| View {
                layout: view.layout.broadcast(&view.shape, &space),
                shape: space.clone(),
                ..view.clone()
            })
            .collect();
        Body { space, inputs, values: Vec::new(), outputs: vec![(output.clone(), 0)] }
    }

    /// Adds a value and returns its index.
    pub fn push(&mut self, value: Value) -> u32 {
        self.values.push(value);
        (self.values.len() - 1) as u32
    }

    /// Returns whether any value is a reduction.
    pub fn has_reductions(&self) -> bool {
        self.values.iter().any(|value| matches!(value, Value::Reduce(..)))
    }

    /// Returns the number of rows: the product of all dimensions but the last.
    pub fn rows(&self) -> Dim {
        let lead = self.space.rank().saturating_sub(1);
        self.space.dims()[..lead].iter().cloned().fold(Dim::new(1), |a, b| a * b)
    }

    /// Returns the length of a row: the last dimension, or 1 if the space has none.
    pub fn row_len(&self) -> Dim {
        self.space.dims().last().cloned().unwrap_or_else(|| Dim::new(1))
    }

    /// Returns the tensors that are read, in order and without duplicates.
    pub fn reads(&self) -> SmallVec<[TensorId; 8]> {
        distinct(self.inputs.iter().map(|view| view.tensor))
    }

    /// Returns the tensors that are written, in order and without duplicates.
    pub fn writes(&self) -> SmallVec<[TensorId; 8]> {
        distinct(self.outputs.iter().map(|(view, _)| view.tensor))
    }

    /// Iterates over the views in the order of a kernel's operands: inputs, then outputs.
    pub fn views(&self) -> impl Iterator<Item = &View> {
        self.inputs.iter().chain(self.outputs.iter().map(|(view, _)| view))
    }

    /// Drops dimensions of size 1 and merges neighbouring dimensions that every operand and every
    /// layout of `extra` traverses with a single stride. With reductions, the last dimension stays
    /// separate.
    pub fn merged(&self, extra: &[Layout]) -> Merged {
        let layouts: Vec<&Layout> = self.views().map(|v| &v.layout).chain(extra).collect();
        merge_dims(&self.space, &layouts, self.has_reductions())
    }

    /// Converts the body to a kernel expression over the dimensions of `merged`. Also returns the
    /// parameter words: offsets and strides of the operands. `flat` is as in
    /// [`Merged::addressing`]; `bindings` lists the tensors that the kernel binds for reading and
    /// for writing.
    ///
    /// # Errors
    /// Invalid for an offset or a stride that does not fit in 32 bits.
    pub fn expr(
        &self,
        merged: &Merged,
        flat: bool,
        bindings: (&[TensorId], &[TensorId]),
    ) -> Result<(FusedExpr, Vec<Word>)> {
        let mut words = Vec::new();
        let mut operands = Vec::new();
        let written = self.inputs.len();
        let kinds = merged.addressing(flat, self.has_reductions());
        for (i, (view, strides)) in self.views().zip(&merged.strides).enumerate() {
            let addressing = kinds[i];
            words.push(Word::dim(&view.layout.offset)?);
            if matches!(addressing, Addressing::Strided | Addressing::Row) {
                for stride in strides {
                    words.push(Word::dim(stride)?);
                }
            }
            let among = if i < written { bindings.0 } else { bindings.1 };
            let binding = among.iter().position(|t| *t == view.tensor).unwrap_or(0) as u32;
            operands.push(Operand { dtype: view.dtype, addressing, binding });
        }
        let outputs = operands
            .split_off(written)
            .into_iter()
            .zip(&self.outputs)
            .map(|(operand, (_, value))| Output { operand, value: *value })
            .collect();
        let expr = FusedExpr {
            rank: merged.sizes.len() as u32,
            inputs: operands,
            values: self.values.clone(),
            outputs,
            schedule: Schedule::Elements { width: 1 },
        };
        Ok((expr, words))
    }

    /// Adds a launch of the body as a generated kernel with this schedule.
    ///
    /// # Errors
    /// Unsupported if more than six dimensions remain after merging. Otherwise same as
    /// [`Body::expr`] and [`Lowering::step`].
    pub fn launch(&self, out: &mut Lowering, schedule: Schedule) -> Result<()> {
        let merged = self.merged(&[]);
        if merged.sizes.len() > MAX_RANK as usize {
            return Err(Error::unsupported(format!(
                "{}: {} dimensions that do not merge, a generated kernel has {MAX_RANK}",
                out.label,
                merged.sizes.len()
            )));
        }
        let (reads, writes) = (self.reads(), self.writes());
        let (mut expr, operand_words) = self.expr(&merged, true, (&reads, &writes))?;
        // With at most one element, writing through `Single` or `Flat` is the same.
        if !self.has_reductions() {
            for output in &mut expr.outputs {
                if output.operand.addressing == Addressing::Single {
                    output.operand.addressing = Addressing::Flat;
                }
            }
        }
        let count = self.space.elements();
        let mut params = vec![Word::dim(&count)?];
        for size in &merged.sizes {
            params.push(Word::dim(size)?);
        }
        params.extend(operand_words);
        params.resize(expr.interface().param_words as usize, Word::Bits(0));
        expr.schedule = schedule;
        let items = if self.has_reductions() { self.rows() } else { count };
        let groups = items.ceil_div(&Dim::from(codegen::group_work(&schedule)));
        let bind = |tensor: &TensorId, access| StepBinding {
            tensor: *tensor,
            offset: 0,
            bytes: None,
            access,
        };
        let mut bindings: SmallVec<[StepBinding; 4]> =
            reads.iter().map(|t| bind(t, Access::Read)).collect();
        bindings.extend(writes.iter().map(|t| bind(t, Access::ReadWrite)));
        let grid = out.fold(groups);
        out.step(KernelSpec::Fused(expr), params, bindings, grid)
    }
}

fn distinct(tensors: impl Iterator<Item = TensorId>) -> SmallVec<[TensorId; 8]> {
    let mut list = SmallVec::new();
    for tensor in tensors {
        if !list.contains(&tensor) {
            list.push(tensor);
        }
    }
    list
}

/// Drops dimensions of size 1 and merges neighbouring dimensions that every layout traverses with a
/// single stride. Returns the remaining sizes and the strides of each layout over them. With `row`,
/// the last dimension stays separate.
fn merge_dims(space: &Shape, layouts: &[&Layout], row: bool) -> Merged {
    let mut sizes: Vec<Dim> = Vec::new();
    let mut strides: Vec<Vec<Dim>> = vec![Vec::new(); layouts.len()];
    let last_axis = space.rank().wrapping_sub(1);
    for (axis, size) in space.dims().iter().enumerate() {
        let alone = row && axis == last_axis;
        if size.is(1) && !alone {
            continue;
        }
        let steps = layouts.iter().map(|l| &l.strides[axis]);
        let merges = !sizes.is_empty()
            && !alone
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
    Merged { sizes, strides }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_what_every_layout_walks_in_one_step() {
        let space = Shape::new([2, 3, 4]);
        let plain = Layout::contiguous(&space);
        let merged = merge_dims(&space, &[&plain, &plain], false);
        assert_eq!((merged.sizes, &merged.strides[0]), (vec![Dim::new(24)], &vec![Dim::new(1)]));
        let row = Layout::contiguous(&Shape::new([4])).broadcast(&Shape::new([4]), &space);
        let merged = merge_dims(&space, &[&plain, &row], false);
        assert_eq!(merged.sizes, [Dim::new(6), Dim::new(4)]);
        assert_eq!(merged.strides[1], [Dim::new(0), Dim::new(1)]);
        let merged = merge_dims(&space, &[&plain], true);
        assert_eq!(merged.sizes, [Dim::new(6), Dim::new(4)]);
    }
}
