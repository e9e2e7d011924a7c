//! The graph of tensor operations: what is computed, never how or where.
//!
//! A [`Graph`] is a list of [`Node`]s, each after its operands, so one walk from the front sees
//! every value before its use and a [`NodeId`] is a place in the list. A node is an [`Op`], its
//! operands, and the shape and element type of its result. Nodes are never changed in place by
//! passes: a pass takes a graph and gives another one ([`rewrite`]), and so can be tested,
//! printed and switched off alone.
//!
//! **Sizes** are expressions over symbols ([`crate::base::Dim`]) that a run binds, such as `seq`
//! and `past`; one graph serves every sequence length. [`infer()`] has the rule of each operation.
//! It refuses what it can prove wrong, and where sizes must be equal also what it cannot prove
//! equal: two symbols are equal only if they are the same expression.
//!
//! **Types.** Arithmetic is on floats; `i32` and `u32` are counts and indices, `bool` is a
//! condition. An operation on `f16` or `bf16` is the same one on `f32` whose result is rounded to
//! the type, to nearest, halves to even: sums inside it are not rounded. How precisely a device
//! may multiply is a choice of the plan, not of the graph.
//!
//! **Leaves.** An input is given at each run; a weight is bound once and has a storage format; a
//! constant is written in the graph; a state is memory that lives from run to run. Their names
//! are one namespace, by which a runtime binds them. A weight in a packed format may be the second
//! operand of `linear` or be gathered by rows, and nothing else: everyone else would need it
//! unpacked, which is the one thing that must never happen by accident. Weights that products of
//! one operand read may be merged into one leaf; each keeps its name.
//!
//! **States** are the only thing that is written. `update` takes a state and gives the same memory
//! with rows replaced: after it, only its result may be read, views included. So a cache is a
//! chain `state -> update -> update`, each link read only before the next, and a graph stays a
//! graph of values: [`verify()`] refuses what would depend on who comes first, and whoever orders
//! nodes anew keeps readers before the update ([`topological`] does).
//!
//! **Aliases** (reshape, transpose, slice, expand) are the same elements seen in another way. They
//! cost nothing where strides can say what they do, and the plan decides where that is.
//!
//! **Composite operations** (norms, softmax, RoPE, attention) stand beside the primitives that
//! could spell them, because a model built by hand knows what it means. [`OpClass`] is all that
//! fusion needs to know of an operation.
//!
//! What is not here: devices, kernels, buffers, layouts, numbers. The numbers are in `reference`,
//! which gives each operation its meaning in plain loops.
//!
//! To add an operation: `op.rs`, its rule in `infer`, its words in `print`, its loops in
//! `reference`, its rows in `testkit`; the compiler and the test of the table name what is missing.

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
