//! The typed body of an elementwise kernel.
//!
//! A `FusedExpr` is evaluated once for each element of the output. WGSL is one printing of it
//! (`codegen`), the CPU provider's tiled loops another; both read tensors by the same rule, so a
//! fusion means the same on every device.
//!
//! Parameters of a dispatch, 32-bit words in this order, padded to a multiple of 4 words:
//! number of elements `n`; the `rank` sizes of the index space, outermost first; then for each
//! input, and last for the output, as its [`Addressing`] asks:
//! `Flat` or `Single`: the offset; `Strided`: the offset and `rank` strides. All in elements.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::spec::{Access, Interface};
use crate::base::DType;
use crate::ir::scalar::{BinaryOp, UnaryOp};

/// The body of an elementwise kernel: a list of values, each from earlier ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FusedExpr {
    /// Dimensions of the index space, 0 to 6.
    pub rank: u32,
    /// Tensors that are read; binding `1 + i`.
    pub inputs: Vec<Operand>,
    /// The tensor that is written; the last binding.
    pub output: Operand,
    /// Values in order; an operand of a value is the index of an earlier one.
    pub values: Vec<Value>,
    /// Which value is written.
    pub result: u32,
}

/// A tensor that a fused kernel reads or writes. Types of two bytes are not addressable here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Operand {
    /// Element type: `F32`, `I32`, `U32` or `Bool`.
    pub dtype: DType,
    /// How an index becomes an address.
    pub addressing: Addressing,
}

/// How the index of an element becomes an address, so that the common cases cost nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Addressing {
    /// `offset + i`, for tensors without gaps.
    Flat,
    /// `offset`: one element for all.
    Single,
    /// `offset + sum of index * stride`.
    Strided,
}

/// One value of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Value {
    /// The element of an input.
    Input(u32),
    /// A number, by its bits.
    Constant(DType, u32),
    /// The flat index of the element, as `u32`.
    Index,
    /// One operand.
    Unary(UnaryOp, u32),
    /// Two operands.
    Binary(BinaryOp, u32, u32),
    /// `if condition { a } else { b }`.
    Select(u32, u32, u32),
    /// Conversion; floats to integers truncate and saturate.
    Cast(DType, u32),
}

impl FusedExpr {
    /// Words of the parameter block, before padding.
    pub fn raw_param_words(&self) -> u32 {
        let one = |operand: &Operand| match operand.addressing {
            Addressing::Flat | Addressing::Single => 1,
            Addressing::Strided => 1 + self.rank,
        };
        1 + self.rank + self.inputs.iter().map(one).sum::<u32>() + one(&self.output)
    }

    /// How it meets its bindings.
    pub fn interface(&self) -> Interface {
        let mut bindings = vec![Access::Read; self.inputs.len()];
        bindings.push(Access::ReadWrite);
        Interface { param_words: self.raw_param_words().next_multiple_of(4), bindings }
    }

    /// The type of a value.
    pub fn dtype_of(&self, value: u32) -> DType {
        match self.values[value as usize] {
            Value::Input(i) => self.inputs[i as usize].dtype,
            Value::Constant(dtype, _) | Value::Cast(dtype, _) => dtype,
            Value::Index => DType::U32,
            Value::Unary(_, a) => self.dtype_of(a),
            Value::Binary(op, ..) if op.is_comparison() => DType::Bool,
            Value::Binary(_, a, _) | Value::Select(_, a, _) => self.dtype_of(a),
        }
    }
}

impl fmt::Display for FusedExpr {
    /// The result as nested calls over `x0`, `x1`..: `add(x0,silu(x1))`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn walk(e: &FusedExpr, v: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match e.values[v as usize] {
                Value::Input(i) => write!(f, "x{i}"),
                Value::Constant(DType::F32, bits) => write!(f, "{}", f32::from_bits(bits)),
                Value::Constant(_, bits) => write!(f, "{bits}"),
                Value::Index => f.write_str("i"),
                Value::Unary(op, a) => {
                    write!(f, "{}(", op.name())?;
                    walk(e, a, f)?;
                    f.write_str(")")
                }
                Value::Binary(op, a, b) => {
                    write!(f, "{}(", op.name())?;
                    walk(e, a, f)?;
                    f.write_str(",")?;
                    walk(e, b, f)?;
                    f.write_str(")")
                }
                Value::Select(c, a, b) => {
                    f.write_str("select(")?;
                    walk(e, c, f)?;
                    f.write_str(",")?;
                    walk(e, a, f)?;
                    f.write_str(",")?;
                    walk(e, b, f)?;
                    f.write_str(")")
                }
                Value::Cast(dtype, a) => {
                    write!(f, "{dtype}(")?;
                    walk(e, a, f)?;
                    f.write_str(")")
                }
            }
        }
        walk(self, self.result, f)
    }
}
