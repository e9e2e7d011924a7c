//! Maps a value to its step, by operation and operand types.

use super::steps::StepOp;
use warploom_core::base::DType;
use warploom_core::error::{Error, Result};
use warploom_core::ir::scalar::{BinaryOp, UnaryOp};

pub(super) fn unary(op: UnaryOp, dtype: DType) -> Result<StepOp> {
    match (dtype, op) {
        (DType::Bool, UnaryOp::Not) => Ok(StepOp::Not),
        (DType::F32, op) if op != UnaryOp::Not => Ok(StepOp::UnaryF32(op)),
        (DType::I32, UnaryOp::Neg) => Ok(StepOp::NegI32),
        (DType::I32, UnaryOp::Abs) => Ok(StepOp::AbsI32),
        _ => Err(Error::unsupported(format!("{} of {dtype} has no meaning", op.name()))),
    }
}

pub(super) fn binary(op: BinaryOp, dtype: DType) -> Result<StepOp> {
    let none = || Error::unsupported(format!("{} of {dtype} has no meaning", op.name()));
    match dtype {
        DType::F32 if !op.is_logical() => Ok(StepOp::BinaryF32(op)),
        DType::I32 if !op.is_logical() && op != BinaryOp::Pow => Ok(StepOp::BinaryI32(op)),
        DType::U32 if !op.is_logical() && op != BinaryOp::Pow => Ok(StepOp::BinaryU32(op)),
        // On 0 and 1, the minimum is `and`, the maximum is `or`.
        DType::Bool => match op {
            BinaryOp::And => Ok(StepOp::BinaryU32(BinaryOp::Min)),
            BinaryOp::Or => Ok(StepOp::BinaryU32(BinaryOp::Max)),
            BinaryOp::Eq | BinaryOp::Ne => Ok(StepOp::BinaryU32(op)),
            _ => Err(none()),
        },
        _ => Err(none()),
    }
}

pub(super) fn cast(from: DType, to: DType) -> StepOp {
    match (from, to) {
        (DType::F32, DType::I32) => StepOp::F32ToI32,
        (DType::F32, DType::U32) => StepOp::F32ToU32,
        (DType::F32, DType::Bool) => StepOp::F32ToBool,
        (DType::I32, DType::F32) => StepOp::I32ToF32,
        (DType::U32 | DType::Bool, DType::F32) => StepOp::U32ToF32,
        (DType::I32 | DType::U32, DType::Bool) => StepOp::IntToBool,
        (DType::F16, DType::F32) => StepOp::F16ToF32,
        (DType::BF16, DType::F32) => StepOp::BF16ToF32,
        (DType::F32, DType::F16) => StepOp::F32ToF16,
        (DType::F32, DType::BF16) => StepOp::F32ToBF16,
        // Conversions between integers keep the bits.
        _ => StepOp::Copy,
    }
}

/// Returns the cost of a step, relative to the simplest steps.
pub(super) fn cost(op: StepOp) -> u32 {
    use {BinaryOp as B, UnaryOp as U};
    match op {
        StepOp::UnaryF32(U::Neg | U::Abs | U::Floor | U::Ceil | U::Round | U::Relu) => 1,
        StepOp::UnaryF32(U::Sqrt | U::Rsqrt | U::Reciprocal) => 3,
        StepOp::UnaryF32(_) => 8,
        StepOp::BinaryF32(B::Pow | B::Rem) => 8,
        StepOp::BinaryI32(B::Div | B::Rem) | StepOp::BinaryU32(B::Div | B::Rem) => 8,
        StepOp::BinaryF32(B::Div) | StepOp::F16ToF32 | StepOp::F32ToF16 => 3,
        _ => 1,
    }
}
