//! What a tensor handle refers to: a recorded operation, or memory on the device.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use super::arguments::addressable;
use super::grad::Trace;
use super::{Place, Tensor};
use crate::base::{DType, Format, Shape};
use crate::error::{Error, Result, broken_invariant};
use crate::ir::{self, Op, infer};
use crate::memory::PooledBuffer;
use crate::runtime::{Receipt, Runtime};

/// Depth of pending operations at which a chain is run.
#[cfg(not(target_arch = "wasm32"))]
const DEPTH: u32 = super::eval::CHUNK as u32;

/// A tensor, shared by its handles and by the operations that read it.
pub(super) struct Node {
    pub(super) runtime: Runtime,
    pub(super) shape: Shape,
    pub(super) sizes: SmallVec<[usize; 4]>,
    pub(super) dtype: DType,
    /// Name of its operation, for messages.
    pub(super) name: &'static str,
    pub(super) at: Place,
    /// Depth of pending operations when recorded, including itself.
    depth: u32,
    /// Handles in traces that have been differentiated: they need no values any more.
    pub(super) spent: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Clone)]
enum State {
    Recorded(Arc<Recorded>),
    Stored(Arc<Stored>),
    Failed(Arc<Error>),
}

/// An operation that has not run.
pub(super) struct Recorded {
    pub(super) op: Op,
    pub(super) inputs: SmallVec<[Arc<Node>; 3]>,
}

/// Device memory with contiguous elements in row-major order.
pub(super) struct Stored {
    pub(super) buffer: Arc<PooledBuffer>,
    /// Storage format of the elements.
    pub(super) format: Format,
    /// Status of the run that computes the elements; `None` for data from the host.
    pub(super) receipt: Option<Receipt>,
}

impl Stored {
    /// Returns the failure of the run that computes it, if known.
    pub(super) fn failure(&self) -> Option<Error> {
        let error = self.receipt.as_ref().and_then(Receipt::failure);
        error.map(|e| e.context("the run that computes it failed"))
    }
}

impl Node {
    fn state(&self) -> MutexGuard<'_, State> {
        // Only complete values are stored, so a poisoned lock is safe.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the operation that has yet to run; `None` if the values are on the device.
    ///
    /// # Errors
    /// The tensor's deferred error.
    pub(super) fn recorded(&self) -> Result<Option<Arc<Recorded>>> {
        match &*self.state() {
            State::Recorded(recorded) => Ok(Some(recorded.clone())),
            State::Stored(_) => Ok(None),
            State::Failed(error) => Err(error.duplicate()),
        }
    }

    /// Returns the memory that holds the values; `None` if the operation has not run.
    ///
    /// # Errors
    /// The tensor's deferred error.
    pub(super) fn stored(&self) -> Result<Option<Arc<Stored>>> {
        match &*self.state() {
            State::Recorded(_) => Ok(None),
            State::Stored(stored) => Ok(Some(stored.clone())),
            State::Failed(error) => Err(error.duplicate()),
        }
    }

    pub(super) fn is_failed(&self) -> bool {
        matches!(&*self.state(), State::Failed(_))
    }

    /// Returns the operation and its source location, such as `add at src/main.rs:12:17`.
    pub(super) fn origin(&self) -> String {
        format!("{} at {}", self.name, self.at)
    }

    fn depth(&self) -> u32 {
        match &*self.state() {
            State::Recorded(_) => self.depth,
            _ => 0,
        }
    }

    /// Replaces the operation with its result in memory and drops its operands.
    pub(super) fn store(&self, stored: Arc<Stored>) {
        let before = std::mem::replace(&mut *self.state(), State::Stored(stored));
        // Dropped after the lock is released: it may own a long chain.
        drop(before);
    }

    /// Returns the node as operand `place` of `op`, for shape inference. Memory in a storage format
    /// is a weight to operations that read it as stored.
    fn operand(&self, op: &Op, place: usize) -> ir::Node {
        let format = match &*self.state() {
            State::Stored(stored) => Some(stored.format),
            _ => None,
        };
        let (op, dtype) = match format {
            Some(format) if format.is_quantised() || reads_as_stored(op, place, format) => {
                (Op::Weight { name: self.name.into(), format }, DType::F32)
            }
            _ => (Op::Input { name: String::new() }, self.dtype),
        };
        ir::Node {
            op,
            inputs: SmallVec::new(),
            shape: self.shape.clone(),
            dtype,
            label: String::new(),
        }
    }
}

/// Returns whether the operation reads its operand `place` in the storage format, like a weight of
/// a graph.
pub(super) fn reads_as_stored(op: &Op, place: usize, format: Format) -> bool {
    match (op, place) {
        (Op::Linear { .. } | Op::ExpertLinear { .. }, 1) => true,
        (Op::Gather { axis: 0 }, 0) => format.is_quantised(),
        _ => false,
    }
}

impl Drop for Recorded {
    /// Drops exclusively owned operands iteratively, so a chain of any length needs no stack.
    fn drop(&mut self) {
        let mut left: Vec<Arc<Node>> = self.inputs.drain(..).collect();
        while let Some(node) = left.pop() {
            let Some(node) = Arc::into_inner(node) else { continue };
            let state = node.state.into_inner().unwrap_or_else(PoisonError::into_inner);
            if let State::Recorded(recorded) = state
                && let Some(mut recorded) = Arc::into_inner(recorded)
            {
                left.extend(recorded.inputs.drain(..));
            }
        }
    }
}

impl Tensor {
    pub(super) fn failed(runtime: &Runtime, name: &'static str, at: Place, error: Error) -> Tensor {
        let error = error.context(format_args!("{name} at {at}"));
        let state = State::Failed(Arc::new(error));
        Tensor::node(runtime, Shape::default(), DType::F32, name, at, 0, state)
    }

    /// Creates a tensor of device memory.
    pub(super) fn from_stored(
        runtime: &Runtime,
        shape: Shape,
        dtype: DType,
        name: &'static str,
        at: Place,
        stored: Arc<Stored>,
    ) -> Tensor {
        Tensor::node(runtime, shape, dtype, name, at, 0, State::Stored(stored))
    }

    /// Creates a constant: the same word for every element.
    pub(super) fn constant(
        runtime: &Runtime,
        shape: Shape,
        dtype: DType,
        name: &'static str,
        at: Place,
        word: u32,
    ) -> Tensor {
        let op = Op::Constant { words: vec![word] };
        let recorded = Recorded { op, inputs: SmallVec::new() };
        Tensor::node(runtime, shape, dtype, name, at, 1, State::Recorded(Arc::new(recorded)))
    }

    fn node(
        runtime: &Runtime,
        shape: Shape,
        dtype: DType,
        name: &'static str,
        at: Place,
        depth: u32,
        state: State,
    ) -> Tensor {
        // Every size was a `usize` or inferred from one.
        let sizes = shape.dims().iter().map(|d| d.as_const().unwrap_or(0) as usize).collect();
        let runtime = runtime.clone();
        let (spent, state) = (AtomicUsize::new(0), Mutex::new(state));
        let node = Node { runtime, shape, sizes, dtype, name, at, depth, spent, state };
        Tensor { node: Arc::new(node), trace: None }
    }

    /// Records an operation. The first error among the operands, or that of shape inference,
    /// becomes the result's.
    pub(super) fn record(name: &'static str, at: Place, op: Op, inputs: &[&Tensor]) -> Tensor {
        if let Some(failed) = inputs.iter().find(|input| input.node.is_failed()) {
            return Tensor::clone(failed);
        }
        let Some(first) = inputs.first() else {
            broken_invariant(format_args!("{name} is recorded without operands"))
        };
        match Tensor::record_inner(name, at, op, inputs) {
            Ok(tensor) => tensor.flushed(),
            Err(error) => Tensor::failed(first.runtime(), name, at, error),
        }
    }

    fn record_inner(name: &'static str, at: Place, op: Op, inputs: &[&Tensor]) -> Result<Tensor> {
        let runtime = inputs[0].runtime();
        if let Some(other) = inputs.iter().find(|other| !other.runtime().is(runtime)) {
            let id = |runtime: &Runtime| runtime.device().profile().id();
            return Err(Error::invalid(format!(
                "operands of two runtimes, on {} and {}",
                id(runtime),
                id(other.runtime())
            )));
        }
        let operands: SmallVec<[ir::Node; 3]> =
            inputs.iter().enumerate().map(|(i, tensor)| tensor.node.operand(&op, i)).collect();
        let operands: SmallVec<[&ir::Node; 3]> = operands.iter().collect();
        let (shape, dtype) = infer(&op, &operands)?;
        addressable(&shape)?;
        let trace = Trace::of(&op, name, at, dtype, inputs);
        let depth = 1 + inputs.iter().map(|input| input.node.depth()).max().unwrap_or(0);
        let inputs = inputs.iter().map(|input| input.node.clone()).collect();
        let state = State::Recorded(Arc::new(Recorded { op, inputs }));
        Ok(Tensor { trace, ..Tensor::node(runtime, shape, dtype, name, at, depth, state) })
    }

    /// Returns the tensor, which is run first if its chain of pending operations is too long.
    fn flushed(self) -> Tensor {
        #[cfg(not(target_arch = "wasm32"))]
        if self.node.depth >= DEPTH
            && let Err(error) = crate::base::platform::block_on(super::eval::start(&[&self]))
        {
            return Tensor::failed(self.runtime(), self.node.name, self.node.at, error);
        }
        self
    }
}
