//! The typed body of a generated kernel: elementwise work and reductions along rows.
//!
//! A `FusedExpr` is evaluated over an index space. `codegen` prints it as WGSL, the CPU provider
//! runs it in tiled loops; both address tensors by the same rules, so a fusion has the same meaning
//! on every device.
//!
//! A value is per *element*, one for each index, or per *row*, one for each index without the last
//! dimension. Constants and single elements are either; inputs read by `Row` are per row; a
//! reduction turns an element value into a row value; any other value is per row if all its
//! operands are.
//!
//! Parameters of a dispatch, 32-bit words in this order, padded to a multiple of 4 words: number of
//! elements `n`; the `rank` sizes of the index space, outermost first; then for each input and each
//! output, by its [`Addressing`]: `Flat` or `Single`: the offset; `Strided` or `Row`: the offset
//! and `rank` strides. All in elements. A body with reductions writes a row value at index 0 of the
//! last dimension; with `Flat`, and in bodies without reductions, it is written for each element.
//!
//! Bindings: the buffers that are read, then those that are written. Several operands may share
//! one, which keeps kernels within WebGPU's eight.
//!
//! A value of `f16` or `bf16` is its bits: it can be read, written, selected and converted from and
//! to `f32` (round to nearest, ties to even), nothing else. In memory two share a word, the first
//! in its low half; a write changes only its own half, for any offset and strides.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::spec::{Access, Interface};
use warploom_core::base::DType;
use warploom_core::ir::ReduceOp;
use warploom_core::ir::scalar::{BinaryOp, UnaryOp};

/// The body of a generated kernel: a list of values, each computed from earlier ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FusedExpr {
    /// Dimensions of the index space, 0 to 6.
    pub rank: u32,
    /// Input tensors.
    pub inputs: Vec<Operand>,
    /// Values in order; an operand of a value is the index of an earlier one.
    pub values: Vec<Value>,
    /// Outputs; no two write the same element.
    pub outputs: Vec<Output>,
    /// How the work is split.
    pub schedule: Schedule,
}

/// The work split of a generated kernel on GPUs; the CPU uses its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Schedule {
    /// Each thread computes `width` (1 or 4) neighbours of the last dimension. Without reductions.
    /// Width 4 promises that every `Flat` operand starts at a multiple of 4 elements, that `n` is
    /// one, and that there are no `Strided` ones, unless their last stride is 0 and the last size a
    /// multiple of 4.
    Elements {
        /// Neighbours per thread.
        width: u32,
    },
    /// `threads` (a power of two up to 256) share a row, `width` elements each in turn.
    Rows {
        /// Threads per row.
        threads: u32,
        /// Elements that each thread keeps in registers: the row is at most `threads * held` long
        /// and is read once. 0: it is read again after each reduction.
        held: u32,
        /// Neighbours that a thread reads at once, 1 or 4; `held` is a multiple of it. Width 4
        /// promises that every `Flat` operand starts at a multiple of 4 elements and that the last
        /// size is one.
        width: u32,
        /// Whether row reductions use subgroup operations.
        subgroup: bool,
    },
}

/// A tensor that a generated kernel reads or writes. 16-bit and 32-bit elements never share a
/// buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Operand {
    /// Element type.
    pub dtype: DType,
    /// How an index maps to an address.
    pub addressing: Addressing,
    /// Index among the input (for an output, output) buffers.
    pub binding: u32,
}

/// An output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Output {
    /// Its destination.
    pub operand: Operand,
    /// Index of the value.
    pub value: u32,
}

/// How an element's index maps to an address; the common cases are cheap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Addressing {
    /// `offset + i`, for contiguous tensors.
    Flat,
    /// `offset`: one element for all.
    Single,
    /// `offset + sum of index * stride`.
    Strided,
    /// As `Strided` with last stride 0: one element per row. For bodies with reductions.
    Row,
}

/// One value of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Value {
    /// The element of an input.
    Input(u32),
    /// A constant, by its bits.
    Constant(DType, u32),
    /// The flat index of the element, as `u32`.
    Index,
    /// One operand.
    Unary(UnaryOp, u32),
    /// Two operands.
    Binary(BinaryOp, u32, u32),
    /// `if condition { a } else { b }`.
    Select(u32, u32, u32),
    /// Conversion; floats to integers truncate and saturate. `F16` and `BF16` convert only from and
    /// to `F32`.
    Cast(DType, u32),
    /// Reduction over the last dimension of the index space, of `f32`.
    Reduce(ReduceOp, u32),
    /// A result (`f32`) of the kernel that this body is fused into; see [`super::KernelFusion`].
    Anchor(u32),
}

impl Value {
    /// Indices of its operands.
    pub fn operands(&self) -> impl Iterator<Item = u32> + use<> {
        let (list, count) = match *self {
            Value::Input(_) | Value::Constant(..) | Value::Index | Value::Anchor(_) => ([0; 3], 0),
            Value::Unary(_, a) | Value::Cast(_, a) | Value::Reduce(_, a) => ([a, 0, 0], 1),
            Value::Binary(_, a, b) => ([a, b, 0], 2),
            Value::Select(c, a, b) => ([c, a, b], 3),
        };
        list.into_iter().take(count)
    }
}

impl FusedExpr {
    /// Words of the parameter block, before padding.
    pub fn raw_param_words(&self) -> u32 {
        1 + self.rank + self.operand_words()
    }

    /// Words for the operands only.
    pub fn operand_words(&self) -> u32 {
        let one = |operand: &Operand| match operand.addressing {
            Addressing::Flat | Addressing::Single => 1,
            Addressing::Strided | Addressing::Row => 1 + self.rank,
        };
        self.operands().map(one).sum()
    }

    /// Inputs, then outputs: the order of their words.
    pub fn operands(&self) -> impl Iterator<Item = &Operand> {
        self.inputs.iter().chain(self.outputs.iter().map(|output| &output.operand))
    }

    /// Number of input buffers.
    pub fn reads(&self) -> u32 {
        self.inputs.iter().map(|operand| operand.binding + 1).max().unwrap_or(0)
    }

    /// Number of output buffers.
    pub fn writes(&self) -> u32 {
        self.outputs.iter().map(|output| output.operand.binding + 1).max().unwrap_or(0)
    }

    /// Its binding interface.
    pub fn interface(&self) -> Interface {
        let mut bindings = vec![Access::Read; self.reads() as usize];
        bindings.resize((self.reads() + self.writes()) as usize, Access::ReadWrite);
        Interface { param_words: self.raw_param_words().next_multiple_of(4), bindings }
    }

    /// Whether any value is a reduction.
    pub fn has_reductions(&self) -> bool {
        self.values.iter().any(|value| matches!(value, Value::Reduce(..)))
    }

    /// Whether an output has one value per row instead of per element.
    pub fn writes_rows(&self, output: usize) -> bool {
        self.has_reductions()
            && self.outputs.get(output).is_some_and(|output| {
                let element = self.stages().get(output.value as usize).is_none_or(|s| s.element);
                output.operand.addressing != Addressing::Flat && !element
            })
    }

    /// For each value: the length of the longest chain of reductions before it, and whether it is
    /// per element.
    pub fn stages(&self) -> Vec<Stage> {
        let mut stages: Vec<Stage> = Vec::with_capacity(self.values.len());
        for value in &self.values {
            let own = match value {
                Value::Input(i) => self.inputs.get(*i as usize).map(|o| o.addressing),
                Value::Index | Value::Anchor(_) => Some(Addressing::Flat),
                _ => None,
            };
            let mut stage = Stage {
                after: 0,
                element: own.is_some_and(|addressing| {
                    !matches!(addressing, Addressing::Single | Addressing::Row)
                }),
            };
            for operand in value.operands() {
                if let Some(of) = stages.get(operand as usize) {
                    stage.after = stage.after.max(of.after);
                    stage.element |= of.element;
                }
            }
            if matches!(value, Value::Reduce(..)) {
                stage = Stage { after: stage.after + 1, element: false };
            }
            stages.push(stage);
        }
        stages
    }

    /// The type of a value.
    pub fn dtype_of(&self, value: u32) -> DType {
        match self.values[value as usize] {
            Value::Input(i) => self.inputs[i as usize].dtype,
            Value::Constant(dtype, _) | Value::Cast(dtype, _) => dtype,
            Value::Index => DType::U32,
            Value::Anchor(_) => DType::F32,
            Value::Unary(_, a) | Value::Reduce(_, a) => self.dtype_of(a),
            Value::Binary(op, ..) if op.is_comparison() => DType::Bool,
            Value::Binary(_, a, _) | Value::Select(_, a, _) => self.dtype_of(a),
        }
    }
}

/// The stage at which a value of a body is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Reductions in sequence before it.
    pub after: u32,
    /// Whether it is per element, not per row.
    pub element: bool,
}

impl fmt::Display for FusedExpr {
    /// Each output as nested calls over `x0`, `x1`..: `add(x0,silu(x1))`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, output) in self.outputs.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { "; " })?;
            self.walk(output.value, f)?;
        }
        match (self.outputs.is_empty(), self.values.len().checked_sub(1)) {
            (true, Some(last)) => self.walk(last as u32, f),
            _ => Ok(()),
        }
    }
}

impl FusedExpr {
    fn walk(&self, v: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(value) = self.values.get(v as usize) else { return write!(f, "?{v}") };
        let name: &str = match value {
            Value::Input(i) => return write!(f, "x{i}"),
            Value::Constant(DType::F32, bits) => return write!(f, "{}", f32::from_bits(*bits)),
            Value::Constant(_, bits) => return write!(f, "{bits}"),
            Value::Index => return f.write_str("i"),
            Value::Anchor(i) => return write!(f, "p{i}"),
            Value::Unary(op, _) => op.name(),
            Value::Binary(op, ..) => op.name(),
            Value::Select(..) => "select",
            Value::Cast(dtype, _) => return self.call(&dtype.to_string(), v, value, f),
            Value::Reduce(op, _) => op.name(),
        };
        self.call(name, v, value, f)
    }

    /// A malformed body, in which a value reads a later one, is printed as well, up to that point.
    fn call(&self, name: &str, v: u32, value: &Value, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name)?;
        for (i, operand) in value.operands().enumerate() {
            f.write_str(if i == 0 { "(" } else { "," })?;
            match operand < v {
                true => self.walk(operand, f)?,
                false => write!(f, "?{operand}")?,
            }
        }
        f.write_str(")")
    }
}
