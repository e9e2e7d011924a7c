//! Evaluation: runs recorded operations as graphs, each with a cached plan.

use std::sync::Arc;

use smallvec::SmallVec;

use super::cache::{self, Compiled};
use super::graph::{Structure, Waiting, asked_by, collect, cut};
use super::node::Stored;
use super::{CacheStats, Tensor};
use crate::base::platform::MaybeSend;
use crate::base::{Format, SymbolValues};
use crate::error::{Error, Result};
use crate::memory::PooledBuffer;
use crate::provider::{Args, Usage};
use crate::runtime::Runtime;
#[cfg(not(target_arch = "wasm32"))]
use crate::runtime::SyncMode;
use crate::runtime::batcher::Keep;

/// Maximum operations per plan.
pub(super) const CHUNK: usize = 512;

impl Tensor {
    /// Starts to compute this tensor, whose values then stay on the device. Does not wait for them;
    /// see [`Tensor::eval`].
    ///
    /// # Errors
    /// The tensor's deferred error; any planning or device error.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn realize(&self) -> Result<&Tensor> {
        Tensor::eval(&[self]).map(|()| self)
    }

    /// Async version of [`Tensor::realize`]; see [`crate::tensor`].
    ///
    /// # Errors
    /// Same as [`Tensor::realize`].
    pub async fn realize_async(&self) -> Result<&Tensor> {
        start(&[self]).await.map(|()| self)
    }

    /// Starts to compute several tensors together, as one graph if they share operands. Their values
    /// then stay on the device.
    ///
    /// Plans and compiles kernels in this call if the graph is new, and does not wait for the
    /// device, be it a GPU or the CPU: threads of the runtime submit the work as soon as the device
    /// has nothing else to do, and what is started while it is busy is submitted together.
    /// [`Runtime::synchronize`] waits. With [`SyncMode::Lazy`](crate::runtime::SyncMode), and in a
    /// browser, the next read submits instead.
    ///
    /// ```
    /// # use warploom::{Runtime, Tensor};
    /// # fn main() -> warploom::Result<()> {
    /// let x = Tensor::arange(&Runtime::auto()?, 0.0, 4.0, 1.0);
    /// let (even, odd) = (&x * 2.0, &x * 2.0 + 1.0);
    /// Tensor::eval(&[&even, &odd])?;
    /// assert!(even.is_evaluated() && odd.is_evaluated());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The first error among the tensors; any planning or device error.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn eval(tensors: &[&Tensor]) -> Result<()> {
        crate::base::platform::block_on(start(tensors))
    }

    /// Async version of [`Tensor::eval`]; see [`crate::tensor`].
    ///
    /// # Errors
    /// Same as [`Tensor::eval`].
    pub async fn eval_async(tensors: &[&Tensor]) -> Result<()> {
        start(tensors).await
    }
}

impl Tensor {
    /// Returns how a read of this tensor would run now: each step with its engine and why that was
    /// chosen, and the memory, as text. Plans in this call, and runs nothing.
    ///
    /// ```
    /// # use warploom::{Runtime, Tensor};
    /// # fn main() -> warploom::Result<()> {
    /// let x = Tensor::rand(&Runtime::auto()?, [64, 64], 1);
    /// let y = (x.matmul(&x) + 1.0).relu();
    /// println!("{}", y.explain()?); // one step: the product, with what follows it
    /// assert!(!y.is_evaluated());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The tensor's deferred error; errors of planning.
    pub fn explain(&self) -> Result<String> {
        let mut waiting = collect(&[self])?;
        let all = waiting.len();
        if all == 0 {
            return Ok("its values are on the device: nothing is left to run\n".into());
        }
        let chunk = cut(&mut waiting, CHUNK);
        let planned = chunk.len();
        let graph = Structure::new(chunk)?.graph(false)?;
        let mut text = cache::plan(self.runtime(), &graph)?.explain();
        if planned < all {
            let more =
                format!("the first {planned} of {all} operations; the others run after them\n");
            text.push_str(&more);
        }
        Ok(text)
    }
}

impl Runtime {
    /// Returns statistics of the plan cache of this runtime's tensors.
    pub fn tensor_stats(&self) -> CacheStats {
        self.tensors().stats()
    }
}

/// Runs all pending operations that these tensors need, and hands them over to the device.
pub(super) async fn start(tensors: &[&Tensor]) -> Result<()> {
    evaluate(tensors).await?;
    #[cfg(not(target_arch = "wasm32"))]
    for tensor in tensors {
        let runtime = tensor.runtime();
        if runtime.sync() == SyncMode::Adaptive {
            runtime.batcher().start()?;
        }
    }
    Ok(())
}

/// Runs all pending operations that these tensors need.
pub(super) async fn evaluate(tensors: &[&Tensor]) -> Result<()> {
    let mut left: SmallVec<[&Tensor; 4]> = SmallVec::from_slice(tensors);
    // Tensors of one runtime are run together.
    while let Some(runtime) = left.first().map(|first| first.runtime().clone()) {
        let (these, others) = left.into_iter().partition(|t| t.runtime().is(&runtime));
        left = others;
        let these: SmallVec<[&Tensor; 4]> = these;
        let mut waiting = collect(&these)?;
        let mut rest = waiting.as_mut_slice();
        while !rest.is_empty() {
            let (length, last) = {
                let chunk = cut(rest, CHUNK);
                let run = run(&runtime, chunk).await;
                let last = chunk.last().map(|step| step.node.clone());
                (chunk.len(), run.err().zip(last))
            };
            if let Some((error, node)) = last {
                return Err(asked_by(error, &node));
            }
            rest = &mut rest[length..];
        }
    }
    Ok(())
}

/// Runs operations whose operands are on the device or among the operations themselves.
async fn run(runtime: &Runtime, waiting: &[Waiting]) -> Result<()> {
    let structure = Structure::new(waiting)?;
    match run_once(runtime, &structure).await {
        Err(error) if error.is_out_of_memory() => {
            // Frees memory held by unsubmitted work and by unused plans. A failure of that work is
            // reported to the readers of its results.
            let _ = runtime.batcher().flush_all();
            runtime.tensors().clear();
            runtime.pool().trim();
            run_once(runtime, &structure).await
        }
        result => result,
    }
}

async fn run_once(runtime: &Runtime, structure: &Structure<'_>) -> Result<()> {
    let compiled = runtime.tensors().get(runtime, structure).await?;
    let outputs = (compiled.outputs.iter())
        .map(|(_, bytes)| runtime.pool().take((*bytes).max(1), Usage::Working))
        .collect::<Result<Vec<PooledBuffer>>>()?;
    let args = arguments(structure, &compiled, &outputs);
    let mut keep = Keep::default();
    keep.things
        .extend(structure.leaves.iter().map(|leaf| leaf.stored.clone() as Arc<dyn MaybeSend>));
    keep.things.push(compiled.clone());
    // Keeps the outputs alive until they are stored in their tensors, which may be dropped before
    // the submit.
    let outputs: Vec<Arc<PooledBuffer>> = outputs.into_iter().map(Arc::new).collect();
    keep.things.extend(outputs.iter().map(|buffer| buffer.clone() as Arc<dyn MaybeSend>));
    keep.bytes = compiled.outputs.iter().map(|(_, bytes)| bytes).sum();
    let receipt = compiled.instance.run_args(args, keep).await?;
    for (step, buffer) in structure.wanted().zip(outputs) {
        let format = Format::Plain(step.node.dtype);
        step.node.store(Arc::new(Stored { buffer, format, receipt: receipt.clone() }));
    }
    Ok(())
}

fn arguments(structure: &Structure<'_>, compiled: &Compiled, outputs: &[PooledBuffer]) -> Args {
    let leaves = structure.leaves.iter().zip(&compiled.leaves);
    let leaves = leaves.filter_map(|(leaf, slot)| Some(((*slot)?, leaf.stored.buffer.range())));
    let outputs = compiled.outputs.iter().zip(outputs);
    let outputs = outputs.map(|((slot, _), buffer)| (*slot, buffer.range()));
    let uploads =
        compiled.uploads.iter().map(|i| structure.scalars[*i].to_le_bytes().to_vec()).collect();
    Args { symbols: SymbolValues::new(), uploads, buffers: leaves.chain(outputs).collect() }
}

/// Uploads host bytes to the device.
pub(super) fn upload(
    runtime: &Runtime,
    bytes: &[u8],
    format: Format,
    usage: Usage,
) -> Result<Arc<Stored>> {
    let size = (bytes.len() as u64).max(1).next_multiple_of(crate::provider::GRANULE);
    let buffer = match runtime.pool().take(size, usage) {
        Err(error) if error.is_out_of_memory() => {
            let _ = runtime.batcher().flush_all();
            runtime.tensors().clear();
            runtime.pool().take(size, usage)
        }
        result => result,
    }?;
    if !bytes.is_empty() {
        let range = buffer.range();
        let to = crate::provider::BufferRange { bytes: bytes.len() as u64, ..range };
        runtime.device().write(to, bytes)?;
    }
    Ok(Arc::new(Stored { buffer: Arc::new(buffer), format, receipt: None }))
}

/// Adds the origin of the tensor to the error of a read.
pub(super) fn reading(error: Error, tensor: &Tensor) -> Error {
    match error.is_invalid() && tensor.node.is_failed() {
        true => error,
        false => error.context(format_args!("reading {}", tensor.node.origin())),
    }
}
