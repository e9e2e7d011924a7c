//! Operations with a compute mode: products with weights, and attention.

use super::op::Op;
use crate::base::{ComputeMode, Dim};

impl Op {
    /// Creates a product with a weight, computed in [`ComputeMode::F32`].
    pub const fn linear() -> Op {
        Op::Linear { mode: ComputeMode::F32 }
    }

    /// Creates attention, computed in [`ComputeMode::F32`]; the parameters are those of
    /// [`Op::Attention`].
    pub const fn attention(scale: f32, causal: bool, window: Option<u32>, past: Dim) -> Op {
        let mode = ComputeMode::F32;
        Op::Attention { scale, causal, window, past, mode, sinks: false, soft_cap: None }
    }

    /// Returns the index of the operand of [`Op::Attention`] that holds spans, and of the one that
    /// holds sinks, for this number of operands; `None` for those that are not there, and for other
    /// operations.
    pub fn attention_operands(&self, operands: usize) -> [Option<usize>; 2] {
        let Op::Attention { sinks, .. } = self else { return [None; 2] };
        let keys = operands.saturating_sub(usize::from(*sinks));
        [(keys > 3).then_some(3), sinks.then_some(keys)]
    }

    /// Returns the compute mode of an operation that has one.
    pub const fn mode(&self) -> Option<ComputeMode> {
        match self {
            Op::Linear { mode } | Op::ExpertLinear { mode } | Op::Attention { mode, .. } => {
                Some(*mode)
            }
            _ => None,
        }
    }
}
