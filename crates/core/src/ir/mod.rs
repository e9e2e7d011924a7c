//! The graph of tensor operations: what is computed, independent of how and where.
//!
//! A [`Graph`] is a list of [`Node`]s in which every node follows its operands, so a forward walk
//! sees every value before its use. A [`NodeId`] is an index into the list. A node has an [`Op`],
//! its operands, and the shape and element type of its result. Passes never change nodes in place:
//! a pass takes a graph and returns a new one ([`rewrite`]), so each can be tested, printed and
//! disabled separately.
//!
//! **Sizes** are expressions over symbols ([`crate::base::Dim`]) that a run binds, such as `seq`
//! and `past`; one graph serves every sequence length. [`infer()`] implements the rule of each
//! operation. It rejects sizes that provably do not match. Sizes that must be equal must also be
//! provably equal: two symbolic sizes are equal only if they are the same expression.
//!
//! **Types.** Most arithmetic is on floats; `i32` and `u32` are for counts and indices, `bool` is
//! for conditions. An operation on `f16` or `bf16` is computed like the `f32` operation, and only
//! its result is rounded to the type, to nearest, ties to even. `linear` and `attention` also have
//! a [`ComputeMode`](crate::base::ComputeMode), which may round their operands first.
//!
//! **Leaves.** An input is provided by each run; a weight is bound once and has a storage format; a
//! constant is stored in the graph; a state is memory that persists from run to run. A runtime
//! binds inputs, weights and states by name, and their names share one namespace. A packed weight
//! may only be the second operand of `linear` or be gathered by rows: any other use would decode
//! it, which must not happen implicitly. Weights that are multiplied by the same operand may be
//! merged into one leaf; each keeps its name.
//!
//! **States** are the only mutable values. `update` takes a state and returns the same memory with
//! some rows replaced; afterwards only its result may be read, not the old state or a view of it.
//! So a cache is a chain `state -> update -> update` in which each value is read only before the
//! next update, and the graph remains purely functional. [`verify()`] rejects graphs whose result
//! depends on the execution order. A pass that reorders nodes must keep readers before the update,
//! as [`topological`] does.
//!
//! **Aliases** (reshape, transpose, slice, expand) are views of the same elements. They cost
//! nothing if strides can express them, which planning determines.
//!
//! **Composite operations** (norms, softmax, RoPE, attention) exist in addition to the primitives
//! that could express them, because a hand-built model knows its structure. [`OpClass`] classifies
//! operations for fusion.
//!
//! Devices, built-in kernels, buffers, layouts and values are not part of this module. `reference`
//! defines the value of each operation in plain loops.
//!
//! To add an operation, extend `op.rs`, its rule in `infer`, its text form in `print`, its loops in
//! `reference` and its cases in `warploom-cases`; the compiler and the tests of the cases report
//! what is missing.

mod custom;
mod dot;
mod graph;
mod infer;
pub mod op;
mod op_products;
mod print;
mod rewrite;
pub mod scalar;
mod serial;
mod verify;

pub use custom::{Custom, CustomBinding, CustomTensor, CustomWord, Twin, TwinLanguage, Wgsl};
pub use dot::dot;
pub use graph::{Graph, Node, NodeId};
pub use infer::infer;
pub use op::{Conv2d, MergedPart, Op, OpClass, Pool2d, PoolKind, ReduceOp, RopePairs};
pub use rewrite::{CommonKey, common_key, computing_in, live, rewrite, topological};
pub use scalar::{BinaryOp, UnaryOp};
pub use serial::bounded_dims;
pub use serial::{load, save};
pub use verify::verify;
