//! Generated kernels: a [`FusedExpr`] translated once, then evaluated tile by tile.
//!
//! Each value of the expression is a register of [`TILE`] words for the current tile, so every step
//! is one simple loop that the compiler vectorises, and intermediates stay in the L1 cache.
//! Registers hold bits; the step determines their type. A register may alias the memory of an input
//! that is contiguous.
//!
//! Reductions split the work into *passes* over the current rows. A pass evaluates, tile by tile,
//! the operands of the reductions of its stage and accumulates them; between two passes, row values
//! are evaluated, one for each row. All element outputs are written in the last pass, so an output
//! may alias an input. `plan` builds the passes, `run` evaluates tiles, `rows` chooses the tiles.
//!
//! The same programs evaluate the bodies fused into catalogue kernels; their [`Value::Anchor`]s are
//! values that the kernel left in memory.

mod ops;
mod place;
mod plan;
mod rows;
mod run;
mod steps;

use smallvec::SmallVec;

pub(super) use place::{Placed, Words};
use plan::{Keep, Plan};
pub(super) use run::{Launch, run};
pub(super) use steps::{Fold, Operands, StepOp, fold, step};

use warploom_core::base::DType;
use warploom_core::error::{Error, Result};
use warploom_kernels::{Addressing, FusedExpr, Operand, Output, Value};

/// Maximum number of elements that are evaluated together.
const TILE: usize = 512;

/// What an expression is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A separate kernel.
    Kernel,
    /// A body that changes the input of a catalogue kernel. It has one anchor, and its last value
    /// is the result.
    Prologue,
    /// A body that stores the output of a catalogue kernel, with this number of anchors.
    Segment(u32),
}

impl Role {
    fn anchors(self) -> u32 {
        match self {
            Role::Kernel => 0,
            Role::Prologue => 1,
            Role::Segment(anchors) => anchors,
        }
    }
}

/// A translated expression.
pub(super) struct Program {
    rank: usize,
    inputs: SmallVec<[Operand; 4]>,
    outputs: SmallVec<[Sink; 2]>,
    /// Whether the last value is the result of a prologue, which has no parameter words.
    returns: bool,
    reduces: bool,
    /// The plan for [`Keep::All`], and with several passes also those for [`Keep::Costly`] and
    /// [`Keep::Nothing`], in this order.
    plans: Vec<Plan>,
}

/// An output.
struct Sink {
    operand: Operand,
    /// Whether it is written once per row.
    of_row: bool,
}

impl Program {
    /// Checks and translates an expression.
    ///
    /// # Errors
    /// Invalid if it is malformed; unsupported if an operation is undefined for the type of its
    /// operands.
    pub(super) fn new(expr: &FusedExpr, role: Role) -> Result<Program> {
        let types = check(expr, role)?;
        let mut outputs = expr.outputs.clone();
        if role == Role::Prologue {
            outputs.push(result(expr, &types)?);
        }
        let graph = plan::Values::new(expr, &types, &outputs)?;
        let mut plans = vec![graph.plan(Keep::All)];
        if plans[0].passes.len() > 1 {
            plans.extend([graph.plan(Keep::Costly), graph.plan(Keep::Nothing)]);
        }
        let sink = |(i, output): (usize, &Output)| Sink {
            operand: output.operand,
            of_row: expr.writes_rows(i),
        };
        Ok(Program {
            rank: expr.rank as usize,
            inputs: SmallVec::from_slice(&expr.inputs),
            outputs: outputs.iter().enumerate().map(sink).collect(),
            returns: role == Role::Prologue,
            reduces: expr.has_reductions(),
            plans,
        })
    }
}

impl Program {
    /// Returns the number of bindings that the program writes.
    fn writes(&self) -> usize {
        let bindings = self.outputs.iter().map(|sink| sink.operand.binding as usize + 1);
        bindings.max().unwrap_or(0)
    }
}

/// Returns the result of a prologue as an output.
fn result(expr: &FusedExpr, types: &[DType]) -> Result<Output> {
    match (types.last(), expr.outputs.is_empty()) {
        (Some(DType::F32), true) => {
            let operand =
                Operand { dtype: DType::F32, addressing: Addressing::Flat, binding: u32::MAX };
            Ok(Output { operand, value: types.len() as u32 - 1 })
        }
        (last, _) => Err(Error::invalid(format!(
            "a prologue computes {last:?} and writes {} outputs",
            expr.outputs.len()
        ))),
    }
}

/// Checks that an expression is well-formed, and returns the type of each value.
fn check(expr: &FusedExpr, role: Role) -> Result<Vec<DType>> {
    if expr.rank > 6 {
        return Err(Error::invalid(format!("a fused kernel of rank {}, above 6", expr.rank)));
    }
    if expr.operands().any(|o| o.addressing == Addressing::Row) && !expr.has_reductions() {
        return Err(Error::invalid("an operand of rows in a fused kernel without reductions"));
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
            Value::Constant(dtype, _) => dtype,
            Value::Cast(to, a) => {
                let from: DType = of(a);
                let half = from.is_half() || to.is_half();
                if half && from != to && from != DType::F32 && to != DType::F32 {
                    return Err(Error::invalid(format!("fused value {i}: cast of {from} to {to}")));
                }
                to
            }
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
            Value::Reduce(op, a) => {
                if expr.rank == 0 || role != Role::Kernel {
                    let name = op.name();
                    return Err(Error::invalid(format!("fused value {i}: {name} without rows")));
                }
                if of(a) != DType::F32 {
                    let (op, of) = (op.name(), of(a));
                    return Err(Error::unsupported(format!("fused value {i}: {op} of {of}")));
                }
                DType::F32
            }
            Value::Anchor(anchor) => {
                let have = role.anchors();
                if anchor >= have {
                    return Err(Error::invalid(format!(
                        "fused value {i} is anchor {anchor} of {have}"
                    )));
                }
                DType::F32
            }
        });
    }
    for (i, output) in expr.outputs.iter().enumerate() {
        match types.get(output.value as usize) {
            Some(dtype) if *dtype == output.operand.dtype => {}
            Some(dtype) => {
                return Err(Error::invalid(format!(
                    "a fused kernel computes {dtype} and writes {}",
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

#[cfg(test)]
mod rows_tests;
#[cfg(test)]
mod tests;
