//! Shape and type of a result from those of the operands.

use super::graph::Node;
use super::op::Op;
use crate::base::{DType, Shape};
use crate::error::{Error, Result};

/// Shape and element type of `op` on these operands.
///
/// # Errors
/// Invalid, naming the operation and the shapes, when they do not fit it.
pub fn infer(op: &Op, operands: &[&Node]) -> Result<(Shape, DType)> {
    let _ = operands;
    Err(Error::invalid(format!("{} has no shape rule", op.name())))
}
