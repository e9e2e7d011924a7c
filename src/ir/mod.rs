//! The graph of tensor operations: what is computed, never how or where.

mod graph;
mod infer;
pub mod op;
pub mod scalar;

pub use graph::{Graph, Node, NodeId};
pub use infer::infer;
pub use op::{Conv2d, Op, OpClass, Pool2d, PoolKind, ReduceOp, RopePairs};
pub use scalar::{BinaryOp, UnaryOp};
