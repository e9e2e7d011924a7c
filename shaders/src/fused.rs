//! The typed body of a generated kernel: elementwise work and reductions along rows.
//!
//! A `FusedExpr` is evaluated over an index space. `codegen` prints it as WGSL, and the CPU
//! provider runs it in tiled loops; both address tensors by the same rules, so a fusion has the
//! same meaning on every device.
//!
//! A value is per *element*, one for each index, or per *row*, one for each index without the last
//! dimension. Constants and single elements are either; inputs with `Row` addressing are per row; a
//! reduction turns an element value into a row value; any other value is per row if all its
//! operands are.
//!
//! Parameters of a dispatch are 32-bit words in this order, padded to a multiple of 4 words: the
//! number of elements `n`; the `rank` sizes of the index space, outermost first; then, for each
//! input and each output, the offset and, if its [`Addressing`] is `Strided` or `Row`, `rank`
//! strides. Offsets and strides are in elements. In a body with reductions, a row value is written
//! once per row, at index 0 of the last dimension. If the output's addressing is `Flat`, or if the
//! body has no reductions, it is written for each element.
//!
//! Bindings are the buffers that are read, then those that are written. Several operands may share
//! a buffer, which keeps kernels within WebGPU's limit of eight storage buffers.
//!
//! A value of type `f16` or `bf16` is represented by its bits: it can only be read, written,
//! selected, and converted to and from `f32` (rounding to nearest, ties to even). In memory two
//! share a word, the first in its low half; a write changes only its own half, for any offset and
//! strides.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::spec::{Access, Interface};
use warploom_core::base::DType;
use warploom_core::ir::ReduceOp;
use warploom_core::ir::scalar::{BinaryOp, UnaryOp};

/// The body of a generated kernel: a list of values, each computed from earlier ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FusedExpr {
    /// Number of dimensions of the index space, 0 to 6.
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
    /// Each thread computes `width` (1 or 4) neighbours along the last dimension. Only for bodies
    /// without reductions. Width 4 promises that every `Flat` operand starts at a multiple of 4
    /// elements and that `n` is a multiple of 4; if there are `Strided` operands, also that their
    /// last stride is 0 and that the last size is a multiple of 4.
    Elements {
        /// Neighbours per thread.
        width: u32,
    },
    /// `threads` threads (a power of two up to 256) share a row; each takes `width` elements in
    /// turn.
    Rows {
        /// Threads per row.
        threads: u32,
        /// Elements that each thread keeps in registers: the row is at most `threads * held` long
        /// and is read once. If 0, the row is read again after each reduction.
        held: u32,
        /// Neighbours that a thread reads at once, 1 or 4; `held` is a multiple of it. Width 4
        /// promises that every `Flat` operand starts at a multiple of 4 elements and that the last
        /// size is a multiple of 4.
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
    /// Index among the input buffers or, for an output, the output buffers.
    pub binding: u32,
}

/// An output of a generated kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Output {
    /// The tensor that is written.
    pub operand: Operand,
    /// Index of the value that is written.
    pub value: u32,
}

/// How an element's index maps to an address, in elements; the common cases are cheap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Addressing {
    /// `offset + i`, for contiguous tensors.
    Flat,
    /// `offset`: the same element for all indices.
    Single,
    /// `offset + sum of index * stride` over the dimensions.
    Strided,
    /// Same as `Strided` with last stride 0: one element per row. Only for bodies with reductions.
    Row,
}

/// One value of the body. Operands are indices of earlier values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Value {
    /// The element of the input with this index in [`FusedExpr::inputs`].
    Input(u32),
    /// A constant of this type, as bits.
    Constant(DType, u32),
    /// The flat index of the element, as `u32`.
    Index,
    /// An operation on one value.
    Unary(UnaryOp, u32),
    /// An operation on two values.
    Binary(BinaryOp, u32, u32),
    /// `if c { a } else { b }`, for the operands c, a and b in this order.
    Select(u32, u32, u32),
    /// Conversion to this type; from floats to integers it truncates and saturates.
    Cast(DType, u32),
    /// Reduction of an `f32` value over the last dimension of the index space.
    Reduce(ReduceOp, u32),
    /// A result (`f32`) of the kernel that this body is fused into, by index; see
    /// [`super::KernelFusion`].
    Anchor(u32),
}

impl Value {
    /// Returns the indices of the value's operands.
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
    /// Returns the number of words in the parameter block, before padding.
    pub fn raw_param_words(&self) -> u32 {
        1 + self.rank + self.operand_words()
    }

    /// Returns the number of parameter words of the operands.
    pub fn operand_words(&self) -> u32 {
        let one = |operand: &Operand| match operand.addressing {
            Addressing::Flat | Addressing::Single => 1,
            Addressing::Strided | Addressing::Row => 1 + self.rank,
        };
        self.operands().map(one).sum()
    }

    /// Iterates over the inputs, then the outputs: the order of their parameter words.
    pub fn operands(&self) -> impl Iterator<Item = &Operand> {
        self.inputs.iter().chain(self.outputs.iter().map(|output| &output.operand))
    }

    /// Returns the number of input buffers.
    pub fn reads(&self) -> u32 {
        self.inputs.iter().map(|operand| operand.binding + 1).max().unwrap_or(0)
    }

    /// Returns the number of output buffers.
    pub fn writes(&self) -> u32 {
        self.outputs.iter().map(|output| output.operand.binding + 1).max().unwrap_or(0)
    }

    /// Returns the binding interface of the kernel.
    pub fn interface(&self) -> Interface {
        let mut bindings = vec![Access::Read; self.reads() as usize];
        bindings.resize((self.reads() + self.writes()) as usize, Access::ReadWrite);
        Interface { param_words: self.raw_param_words().next_multiple_of(4), bindings }
    }

    /// Returns whether any value is a reduction.
    pub fn has_reductions(&self) -> bool {
        self.values.iter().any(|value| matches!(value, Value::Reduce(..)))
    }

    /// Returns whether an output has one value per row instead of one per element.
    pub fn writes_rows(&self, output: usize) -> bool {
        self.has_reductions()
            && self.outputs.get(output).is_some_and(|output| {
                let element = self.stages().get(output.value as usize).is_none_or(|s| s.element);
                output.operand.addressing != Addressing::Flat && !element
            })
    }

    /// Returns, for each value, the length of the longest chain of reductions before it, and
    /// whether it is per element.
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

    /// Returns the type of the value with this index. The body must be well-formed.
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
    /// Length of the longest chain of reductions before it.
    pub after: u32,
    /// Whether it is per element, not per row.
    pub element: bool,
}

impl fmt::Display for FusedExpr {
    /// Writes each output as nested calls over the inputs `x0`, `x1`..: `add(x0,silu(x1))`.
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

    /// Writes a call with its operands. In a malformed body, an operand that is not an earlier
    /// value is written as `?` and its index.
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
