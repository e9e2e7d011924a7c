//! Lazy tensors: operations record, and only a read runs.
//!
//! ```
//! use warploom::{Runtime, Tensor};
//!
//! # fn main() -> warploom::Result<()> {
//! let runtime = Runtime::auto()?;
//! let x = Tensor::from_vec(&runtime, vec![1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
//! let row = Tensor::from_vec(&runtime, vec![10.0_f32, 20.0, 30.0], [3]);
//! let y = (&x * 2.0 + &row).relu().sum(-1);
//! assert_eq!(y.to_vec::<f32>()?, [72.0, 90.0]);
//! # Ok(())
//! # }
//! ```
//!
//! **Errors are deferred.** No operation returns a `Result`, so expressions read as they are
//! written on paper. What is wrong (shapes, types, an axis) is kept in the result together with
//! the place in the source that asked for it, goes on to everything that is computed from it, and
//! is told by the next read or by [`Tensor::check`]: `add at src/main.rs:12:17: shapes [2, 3] and
//! [4] do not broadcast: axis 1 is 3 and 4`. Shape and type are checked when an operation is
//! recorded, never later.
//!
//! **What runs, and when.** A read ([`Tensor::to_vec`], [`Tensor::item`], [`Tensor::text`]) or
//! [`Tensor::eval`] takes what was recorded and has not run, makes one graph of it, plans it and
//! runs it in one submit. The plan is kept in the [`Runtime`] under the structure of the graph
//! (operations, shapes, types, which results are wanted), so a loop plans and compiles once.
//! Scalars in expressions are part of what is compiled the first two times a structure is met;
//! from a third set of values on they are passed in, so a changing step size costs nothing.
//!
//! **What is kept.** The results that a read asks for stay on the device with the tensor. Results
//! in between that someone still holds a handle to are kept where they are expensive (products,
//! convolutions, attention, reductions) and computed anew where they are cheap, so that holding a
//! handle does not cost a fusion. [`Tensor::eval`] of several tensors runs them together.
//!
//! **Long chains.** When 512 operations wait in a row, they are run (in a browser at the next
//! read, in pieces), so a loop without reads neither grows without end nor plans anew each time.
//!
//! **Types.** Arithmetic is on `f32`, `f16` and `bf16`; `i32` and `u32` count and index, `bool` is
//! a condition. What is done in `f16` or `bf16` is computed in `f32`, sums throughout, and each
//! operation rounds its result. `i64` is narrowed to `i32` with a check at the edge. Nothing is
//! converted without being asked for, but scalars: `x * 2` means the `2` of the tensor's type.
//!
//! **Threads.** Tensors are `Send` and `Sync` on native builds; threads record apart and share
//! plans. In a browser use the `async` twins of the reads.
//!
//! **Futures.** Only in a browser do they yield. On native builds the thread that polls one blocks
//! until kernels are compiled and the device is done, and on the CPU it computes. An asynchronous
//! program calls them where blocking is allowed, such as in a `spawn_blocking`.

mod arguments;
mod cache;
mod create;
#[cfg(feature = "packs")]
mod custom;
mod element;
mod elementwise;
mod eval;
mod graph;
mod movement;
mod node;
mod operators;
mod products;
mod read;
mod reduce;
mod text;

use std::panic::Location;
use std::sync::Arc;

pub use arguments::{Axes, Sizes};
pub(super) use cache::Cache;
pub use cache::CacheStats;
#[cfg(feature = "packs")]
pub use custom::tuned_name;
pub use element::{Element, Operand, Scalar};
pub use products::AttentionOptions;

use super::Runtime;
use crate::base::{DType, Shape};
use crate::error::{Error, Result};
use node::Node;

/// A tensor that is computed when it is read; see the [module](self).
///
/// A clone is another handle to the same tensor.
#[derive(Clone)]
pub struct Tensor {
    node: Arc<Node>,
}

/// Where an operation stands in the user's source.
type Place = &'static Location<'static>;

impl Tensor {
    /// Sizes, outermost first; of a tensor with an error none.
    pub fn shape(&self) -> &[usize] {
        &self.node.sizes
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.node.sizes.len()
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.node.sizes.iter().product()
    }

    /// Type of the elements.
    pub fn dtype(&self) -> DType {
        self.node.dtype
    }

    /// The runtime that it belongs to.
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.node.runtime
    }

    /// Whether its numbers are on the device already, or on their way there.
    pub fn is_evaluated(&self) -> bool {
        self.node.stored().is_ok_and(|stored| stored.is_some())
    }

    /// The error that it carries, from the first operation that went wrong. Runs nothing.
    ///
    /// # Errors
    /// The error, naming the operation and its place in the source.
    pub fn check(&self) -> Result<()> {
        self.node.stored().map(|_| ())
    }

    fn dims(&self) -> &Shape {
        &self.node.shape
    }

    /// What `make` makes; its error, or that of this tensor, as a tensor.
    fn attempt(
        &self,
        name: &'static str,
        at: Place,
        make: impl FnOnce() -> Result<Tensor>,
    ) -> Tensor {
        if self.node.is_failed() {
            return self.clone();
        }
        make().unwrap_or_else(|error| Tensor::failed(self.runtime(), name, at, error))
    }

    /// Place of an axis; negative ones count from the last.
    fn axis(&self, axis: isize) -> Result<usize> {
        arguments::axis(axis, self.rank())
            .ok_or_else(|| Error::invalid(format!("no axis {axis} in the shape {}", self.dims())))
    }
}

impl std::fmt::Debug for Tensor {
    /// Type and shape; runs nothing.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.node.stored() {
            Err(error) => write!(f, "Tensor(error: {error})"),
            Ok(stored) => {
                let state = if stored.is_some() { "on the device" } else { "not yet run" };
                write!(f, "Tensor({}{}, {} {state})", self.dtype(), self.dims(), self.node.name)
            }
        }
    }
}
