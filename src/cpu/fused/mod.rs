//! Elementwise kernels: a [`FusedExpr`] translated once, then evaluated tile by tile.
//!
//! Each value of the expression is a register of [`TILE`] words for the tile at hand, so every
//! step is one simple loop that the compiler turns into vector code, and intermediates stay in
//! the first-level cache. Registers hold bits; the step knows their type.

mod run;
mod steps;

use smallvec::SmallVec;

pub(super) use run::run;
use steps::StepOp;
pub(super) use steps::{Registers, Step, step};

use crate::base::DType;
use crate::error::{Error, Result};
use crate::ir::scalar::{BinaryOp, UnaryOp};
use crate::kernel::{Addressing, FusedExpr, Operand, Output, Value};

/// Elements that are evaluated together.
const TILE: usize = 512;

/// A translated expression.
pub(super) struct Program {
    rank: usize,
    inputs: SmallVec<[Operand; 4]>,
    output: Operand,
    instructions: Vec<Instruction>,
    /// Registers in use at once.
    registers: usize,
    /// Register of the result.
    result: usize,
}

enum Instruction {
    /// Elements of an input into a register.
    Load { input: usize, to: usize },
    /// One number throughout.
    Fill { bits: u32, to: usize },
    /// Flat indices.
    Index { to: usize },
    /// Arithmetic.
    Step(Step),
}

impl Program {
    /// Checks and translates an expression.
    ///
    /// # Errors
    /// Invalid where it is malformed; unsupported where an operation has no meaning for the
    /// type of its operands.
    pub(super) fn new(expr: &FusedExpr) -> Result<Program> {
        let types = check(expr)?;
        let [Output { operand: output, value: result }] = expr.outputs[..] else {
            return Err(Error::unsupported(format!("{} outputs", expr.outputs.len())));
        };
        let mut last_use = vec![0; expr.values.len()];
        for (i, value) in expr.values.iter().enumerate() {
            for operand in value.operands() {
                last_use[operand as usize] = i;
            }
        }
        last_use[result as usize] = usize::MAX;
        let mut places = vec![usize::MAX; expr.values.len()];
        let (mut free, mut registers) = (Vec::new(), 0);
        let mut instructions = Vec::with_capacity(expr.values.len());
        for (i, value) in expr.values.iter().enumerate() {
            let to = free.pop().unwrap_or_else(|| {
                registers += 1;
                registers - 1
            });
            places[i] = to;
            instructions.push(translate(*value, to, &places, &types)?);
            for operand in value.operands() {
                // The same operand twice must not be freed twice.
                if last_use[operand as usize] == i {
                    free.push(places[operand as usize]);
                    last_use[operand as usize] = usize::MAX - 1;
                }
            }
            if last_use[i] == 0 {
                free.push(to);
            }
        }
        Ok(Program {
            rank: expr.rank as usize,
            inputs: SmallVec::from_slice(&expr.inputs),
            output,
            instructions,
            registers,
            result: places[result as usize],
        })
    }
}

/// The type of every value of a well-formed expression.
fn check(expr: &FusedExpr) -> Result<Vec<DType>> {
    if expr.rank > 6 {
        return Err(Error::invalid(format!("a fused kernel of rank {}, above 6", expr.rank)));
    }
    let narrow = |operand: &Operand| operand.dtype.bytes() != 4;
    if expr.operands().any(narrow) {
        return Err(Error::unsupported("a fused kernel touches elements of two bytes"));
    }
    let mut types = Vec::with_capacity(expr.values.len());
    for (i, value) in expr.values.iter().enumerate() {
        if let Some(later) = value.operands().find(|a| *a as usize >= i) {
            return Err(Error::invalid(format!(
                "fused value {i} reads value {later}, not earlier"
            )));
        }
        let of = |a: u32| types[a as usize];
        types.push(match *value {
            Value::Input(input) => match expr.inputs.get(input as usize) {
                Some(operand) => operand.dtype,
                None => {
                    let have = expr.inputs.len();
                    return Err(Error::invalid(format!(
                        "fused value {i} reads input {input} of {have}"
                    )));
                }
            },
            Value::Constant(dtype, _) | Value::Cast(dtype, _) => dtype,
            Value::Index => DType::U32,
            Value::Unary(_, a) => of(a),
            Value::Binary(op, a, b) => {
                same(i, of(a), of(b))?;
                if op.is_comparison() { DType::Bool } else { of(a) }
            }
            Value::Select(c, a, b) => {
                same(i, of(c), DType::Bool)?;
                same(i, of(a), of(b))?;
                of(a)
            }
            Value::Reduce(..) | Value::Anchor(_) => {
                return Err(Error::unsupported(format!("fused value {i} on the CPU")));
            }
        });
        if types[i].bytes() != 4 {
            return Err(Error::unsupported(format!("fused value {i} is {}", types[i])));
        }
    }
    for (i, output) in expr.outputs.iter().enumerate() {
        match types.get(output.value as usize) {
            Some(dtype) if *dtype == output.operand.dtype => {}
            Some(dtype) => {
                return Err(Error::invalid(format!(
                    "a fused kernel makes {dtype} and writes {}",
                    output.operand.dtype
                )));
            }
            None => {
                let have = types.len();
                return Err(Error::invalid(format!(
                    "output {i} of a fused kernel is value {} of {have}",
                    output.value
                )));
            }
        }
    }
    Ok(types)
}

fn same(value: usize, a: DType, b: DType) -> Result<()> {
    if a == b {
        return Ok(());
    }
    Err(Error::invalid(format!("fused value {value} has operands of types {a} and {b}")))
}

fn translate(value: Value, to: usize, places: &[usize], types: &[DType]) -> Result<Instruction> {
    let place = |a: u32| places[a as usize];
    let of = |a: u32| types[a as usize];
    let step = |op, a, b, c| Instruction::Step(Step { op, to, a, b, c });
    Ok(match value {
        Value::Input(input) => Instruction::Load { input: input as usize, to },
        Value::Constant(DType::Bool, bits) => Instruction::Fill { bits: u32::from(bits != 0), to },
        Value::Constant(_, bits) => Instruction::Fill { bits, to },
        Value::Index => Instruction::Index { to },
        Value::Unary(op, a) => step(unary(op, of(a))?, place(a), 0, 0),
        Value::Binary(op, a, b) => step(binary(op, of(a))?, place(a), place(b), 0),
        Value::Select(c, a, b) => step(StepOp::Select, place(c), place(a), place(b)),
        Value::Cast(dtype, a) => step(cast(of(a), dtype), place(a), 0, 0),
        Value::Reduce(..) | Value::Anchor(_) => {
            return Err(Error::unsupported(format!("{value:?} on the CPU")));
        }
    })
}

fn unary(op: UnaryOp, dtype: DType) -> Result<StepOp> {
    match (dtype, op) {
        (DType::Bool, UnaryOp::Not) => Ok(StepOp::Not),
        (DType::F32, op) if op != UnaryOp::Not => Ok(StepOp::UnaryF32(op)),
        (DType::I32, UnaryOp::Neg) => Ok(StepOp::NegI32),
        (DType::I32, UnaryOp::Abs) => Ok(StepOp::AbsI32),
        _ => Err(Error::unsupported(format!("{} of {dtype} has no meaning", op.name()))),
    }
}

fn binary(op: BinaryOp, dtype: DType) -> Result<StepOp> {
    let none = || Error::unsupported(format!("{} of {dtype} has no meaning", op.name()));
    match dtype {
        DType::F32 if !op.is_logical() => Ok(StepOp::BinaryF32(op)),
        DType::I32 if !op.is_logical() && op != BinaryOp::Pow => Ok(StepOp::BinaryI32(op)),
        DType::U32 if !op.is_logical() && op != BinaryOp::Pow => Ok(StepOp::BinaryU32(op)),
        // Of 0 and 1, the smaller is both, the larger is either.
        DType::Bool => match op {
            BinaryOp::And => Ok(StepOp::BinaryU32(BinaryOp::Min)),
            BinaryOp::Or => Ok(StepOp::BinaryU32(BinaryOp::Max)),
            BinaryOp::Eq | BinaryOp::Ne => Ok(StepOp::BinaryU32(op)),
            _ => Err(none()),
        },
        _ => Err(none()),
    }
}

fn cast(from: DType, to: DType) -> StepOp {
    match (from, to) {
        (DType::F32, DType::I32) => StepOp::F32ToI32,
        (DType::F32, DType::U32) => StepOp::F32ToU32,
        (DType::F32, DType::Bool) => StepOp::F32ToBool,
        (DType::I32, DType::F32) => StepOp::I32ToF32,
        (DType::U32 | DType::Bool, DType::F32) => StepOp::U32ToF32,
        (DType::I32 | DType::U32, DType::Bool) => StepOp::IntToBool,
        // Integers among each other keep their bits.
        _ => StepOp::Copy,
    }
}

#[cfg(test)]
mod tests;
