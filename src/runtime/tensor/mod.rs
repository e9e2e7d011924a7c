//! Lazy tensors: operations are recorded and run at a read.
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
//! **Errors are deferred.** No operation returns a `Result`, so expressions read naturally. An
//! error (shape, type, axis) is stored in the result with the source location of the operation. It
//! propagates to dependent tensors and is returned by the next read or by [`Tensor::check`]: `add
//! at src/main.rs:12:17: shapes [2, 3] and [4] do not broadcast: axis 1 is 3 and 4`. Shapes and
//! types are checked when an operation is recorded, never later.
//!
//! **What runs, and when.** A read ([`Tensor::to_vec`], [`Tensor::item`], [`Tensor::text`]) turns
//! the pending operations into one graph, plans it, runs it in one submit and waits.
//! [`Tensor::realize`] and [`Tensor::eval`] start the same and return at once: the device computes
//! meanwhile, also if it is the CPU. [`Tensor::is_ready`] asks if it has finished, and
//! [`Runtime::synchronize`] waits until it has. The [`Runtime`] caches the plan by the structure of the graph (operations, shapes,
//! types, wanted results), so a loop plans and compiles once. Scalars in expressions are compiled
//! in for the first two sets of values of a structure. From the third set on they are inputs, so a
//! changing step size costs nothing.
//!
//! **What is kept.** Results that a read requests stay on the device with the tensor. An
//! intermediate with a live handle is kept if it is expensive (matrix products, convolutions,
//! attention, reductions). If it is cheap it is recomputed, so a handle does not prevent fusion.
//! [`Tensor::eval`] of several tensors runs them together.
//!
//! **Long chains.** A chain of 512 pending operations is run immediately (in a browser at the next
//! read, in parts). So a loop without reads neither grows without bound nor replans each time.
//!
//! **Types.** `f32`, `f16` and `bf16` are the floating-point types; `i32` and `u32` are for counts
//! and indices; `bool` is for conditions. `f16` and `bf16` operations compute and accumulate in
//! `f32`, and each rounds its result. `i64` is narrowed to `i32` with a check on upload. Only
//! scalars convert implicitly: `x * 2` uses the tensor's type for `2`.
//!
//! **Gradients.** [`grad`] differentiates what was computed from a [`Var`].
//!
//! **Threads.** Tensors are `Send` and `Sync` on native builds. Threads record independently and
//! share plans. In a browser use the `_async` versions of the reads.
//!
//! **Futures.** Methods with plain names block and exist on native builds only. Their `_async`
//! versions exist everywhere and do not depend on a particular executor. A future never blocks the
//! thread that polls it: threads of the runtime wait, plan, compile and compute. So a program on
//! one thread, such as one on tokio's current-thread runtime, continues with other tasks:
//!
//! ```
//! # use warploom::{Runtime, Tensor};
//! # async fn example() -> warploom::Result<()> {
//! let runtime = Runtime::auto_async().await?;
//! let sum = Tensor::rand(&runtime, [1024, 1024], 1).sum(..);
//! println!("{}", sum.item_async::<f32>().await?);
//! # Ok(())
//! # }
//! # warploom_core::base::platform::block_on(example()).unwrap();
//! ```
//!
//! Recording an operation is cheap, but [`Tensor::from_slice`] copies its values immediately.
//! Dropping a future does not stop work that has begun; the result is discarded.

mod arguments;
mod arrange;
mod cache;
mod convolve;
mod create;
#[cfg(feature = "packs")]
mod custom;
mod einsum;
mod element;
mod elementwise;
mod eval;
#[cfg(feature = "webgpu")]
mod foreign;
mod functions;
pub mod grad;
mod graph;
#[cfg(any(feature = "image", feature = "ndarray"))]
mod interop;
mod losses;
mod movement;
mod node;
mod npy;
#[cfg(feature = "npz")]
mod npz;
mod operators;
mod order;
mod place;
mod products;
mod random;
mod read;
mod reduce;
mod scatter;
mod statistics;
mod text;

use std::sync::Arc;

pub use arguments::{Axes, Sizes};
pub(super) use cache::Cache;
pub use cache::CacheStats;
pub use convolve::Conv1d;
#[cfg(feature = "packs")]
#[doc(hidden)]
pub use custom::tuned_name;
pub use element::{Element, Number, Operand, Scalar};
pub use grad::{Gradients, Var, no_grad};
pub use products::AttentionOptions;

use super::{Receipt, Runtime};
use crate::base::{DType, Shape};
use crate::error::{Error, Result};
use crate::provider::BufferRange;
use grad::Trace;
use node::Node;
use place::{Place, as_part_of};

/// A tensor that is computed when it is read; see the [module](self).
///
/// A clone is another handle to the same tensor.
#[derive(Clone)]
pub struct Tensor {
    node: Arc<Node>,
    /// How it was computed from variables, if it was: what [`grad`] differentiates.
    trace: Option<Arc<Trace>>,
}

impl Tensor {
    /// Returns the sizes, outermost first.
    ///
    /// # Panics
    /// With the text of the tensor's deferred error, if it has one; [`Tensor::try_shape`] returns it.
    #[track_caller]
    pub fn shape(&self) -> &[usize] {
        self.must_be_sound();
        self.sizes()
    }

    /// Returns the sizes, outermost first.
    ///
    /// # Errors
    /// The tensor's deferred error.
    pub fn try_shape(&self) -> Result<&[usize]> {
        self.check()?;
        Ok(self.sizes())
    }

    /// Returns the number of dimensions.
    ///
    /// # Panics
    /// As [`Tensor::shape`].
    #[track_caller]
    pub fn rank(&self) -> usize {
        self.must_be_sound();
        self.sizes().len()
    }

    /// Returns the number of elements.
    ///
    /// # Panics
    /// As [`Tensor::shape`].
    #[track_caller]
    pub fn elements(&self) -> usize {
        self.must_be_sound();
        self.count()
    }

    /// Panics with the tensor's deferred error, if it has one: no number would be right.
    #[track_caller]
    fn must_be_sound(&self) {
        if let Err(error) = self.check() {
            panic!("{error}");
        }
    }

    /// Returns the sizes; empty for a tensor with an error, which the operations here propagate.
    pub(crate) fn sizes(&self) -> &[usize] {
        &self.node.sizes
    }

    /// Returns the number of elements; 1 for a tensor with an error.
    pub(crate) fn count(&self) -> usize {
        self.sizes().iter().product()
    }

    /// Returns the type of the elements.
    pub fn dtype(&self) -> DType {
        self.node.dtype
    }

    /// Returns the runtime of the tensor.
    pub fn runtime(&self) -> &Runtime {
        &self.node.runtime
    }

    /// Returns whether the tensor has been run, so that its values are or will be on the device.
    pub fn is_evaluated(&self) -> bool {
        self.node.stored().is_ok_and(|stored| stored.is_some())
    }

    /// Returns whether the values are computed, so that a read waits for nothing but their
    /// transfer. A tensor of host data always is; a tensor that was realized becomes so by itself
    /// with adaptive sync, else after the next wait for the device.
    ///
    /// ```
    /// # use warploom::{Runtime, Tensor};
    /// # fn main() -> warploom::Result<()> {
    /// let x = Tensor::rand(&Runtime::auto()?, [64, 64], 1);
    /// let y = x.matmul(&x);
    /// assert!(!y.is_ready()); // only recorded
    /// y.realize()?.runtime().synchronize()?;
    /// assert!(y.is_ready());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_ready(&self) -> bool {
        let stored = self.node.stored().ok().flatten();
        stored.is_some_and(|stored| stored.receipt.as_ref().is_none_or(Receipt::is_complete))
    }

    /// Returns the device memory of the values, in row-major order, if the tensor has been run
    /// ([`Tensor::realize_async`]). Pending work of this thread must be submitted ([`Runtime::flush`])
    /// before other code reads the memory, and a clone of the tensor must be kept until then, because
    /// memory of a dropped tensor is used again.
    ///
    /// # Errors
    /// The tensor's deferred error.
    pub fn buffer(&self) -> Result<Option<BufferRange>> {
        Ok(self.node.stored()?.map(|stored| stored.buffer.range()))
    }

    /// Returns the tensor's deferred error, if it has one: that of the first operation that failed.
    /// Runs nothing.
    ///
    /// # Errors
    /// The tensor's deferred error, which names the operation and its source location.
    pub fn check(&self) -> Result<()> {
        self.node.stored().map(|_| ())
    }

    fn dims(&self) -> &Shape {
        &self.node.shape
    }

    /// Returns the tensor that `make` returns; an error of this tensor or of `make` becomes the
    /// result's.
    fn attempt(
        &self,
        name: &'static str,
        at: Place,
        make: impl FnOnce() -> Result<Tensor>,
    ) -> Tensor {
        if self.node.is_failed() {
            return self.clone();
        }
        as_part_of(at, make).unwrap_or_else(|error| Tensor::failed(self.runtime(), name, at, error))
    }

    /// Returns the index of an axis; negative axes count from the last.
    fn axis(&self, axis: isize) -> Result<usize> {
        arguments::axis(axis, self.sizes().len())
            .ok_or_else(|| Error::invalid(format!("no axis {axis} in the shape {}", self.dims())))
    }
}

// Locks are taken over after a panic, and what they guard is always complete.
impl std::panic::UnwindSafe for Tensor {}
impl std::panic::RefUnwindSafe for Tensor {}

impl std::fmt::Debug for Tensor {
    /// Formats the type, shape, operation and state, or the error; runs nothing.
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
