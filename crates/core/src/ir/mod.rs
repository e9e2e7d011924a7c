//! The graph of tensor operations: what is computed, independent of how and where.
//!
//! A [`Graph`] is a list of [`Node`]s, each after its operands, so one forward walk sees every
//! value before its use, and a [`NodeId`] is an index in the list. A node is an [`Op`], its
//! operands, and the shape and element type of its result. Passes never change nodes in place: a
//! pass takes a graph and returns another one ([`rewrite`]), so each can be tested, printed and
//! disabled separately.
//!
//! **Sizes** are expressions over symbols ([`crate::base::Dim`]) that a run binds, such as `seq`
//! and `past`; one graph serves every sequence length. [`infer()`] has the rule of each operation.
//! It rejects provable mismatches, and if sizes must be equal also unprovable equality: two
//! symbolic sizes are equal only if they are the same expression.
//!
//! **Types.** Arithmetic is on floats; `i32` and `u32` are counts and indices, `bool` is a
//! condition. An operation on `f16` or `bf16` is the `f32` operation with its result rounded to the
//! type, to nearest, ties to even; sums inside it are not rounded. The precision of a device's
//! products is a choice of the plan, not of the graph.
//!
//! **Leaves.** Each run provides the inputs; a weight is bound once and has a storage format; a
//! constant is stored in the graph; a state is memory that persists from run to run. Their names
//! share one namespace, by which a runtime binds them. A packed weight may only be the second
//! operand of `linear` or be gathered by rows: any other use would unpack it, which must not happen
//! implicitly. Weights of products with a common operand may be merged into one leaf; each keeps
//! its name.
//!
//! **States** are the only mutable values. `update` takes a state and returns the same memory with
//! some rows replaced; after it, only its result may be read, including through views. So a cache
//! is a chain `state -> update -> update`, each link read only before the next, and the graph
//! remains purely functional. [`verify()`] rejects graphs whose result depends on the execution
//! order, and a pass that reorders nodes must keep readers before the update ([`topological`]
//! does).
//!
//! **Aliases** (reshape, transpose, slice, expand) are views of the same elements. They are free if
//! strides can express them, which the plan decides.
//!
//! **Composite operations** (norms, softmax, RoPE, attention) exist in addition to the primitives
//! that could express them, because a hand-built model knows its structure. [`OpClass`] is all that
//! fusion needs to know about an operation.
//!
//! Devices, kernels, buffers, layouts and values are not part of this module. `reference` defines
//! the value of each operation in plain loops.
//!
//! To add an operation, extend `op.rs`, its rule in `infer`, its text form in `print`, its loops in
//! `reference` and its cases in `testkit`; the compiler and the table's test name missing parts.

mod custom;
mod dot;
mod graph;
mod infer;
pub mod op;
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
