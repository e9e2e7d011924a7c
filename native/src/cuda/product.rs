//! GEMM calls of prepared work: from a routine launch to a call of the library.
//!
//! Whether the library has an algorithm depends on a call's sizes, strides and addresses, which a
//! recording leaves open until the submit. It may have one for the largest sizes of a shape bucket
//! and none for smaller ones. So it is queried at the submit, once for each call, before anything
//! is enqueued: a submit that fails here has no effect, and the error says how to plan without
//! library calls.

use std::sync::{Arc, PoisonError};

use super::blas::{Addresses, Blas, Key, Plan, WORKSPACE};
use super::device::CudaDevice;
use super::gemm::Numbers;
use super::memory::Memory;
use crate::Buffers;
use warploom_core::config::ENGINE;
use warploom_core::error::{Error, Result};
use warploom_hal::checked::{Callee, CheckedRecording, Launch, Resolved};
use warploom_hal::{Support, Usage, support};
use warploom_kernels::{GEMM_PARAMS, Gemm, Interface, KernelSpec};

/// Exclusion pattern of the engines that plan library calls.
const WITHOUT: &str = "-cuda.cublaslt.*";

/// A callable library routine.
pub(super) struct Routine {
    blas: Arc<Blas>,
    gemm: Gemm,
    interface: Interface,
    name: String,
}

impl Callee for Routine {
    fn name(&self) -> &str {
        &self.name
    }

    fn interface(&self) -> &Interface {
        &self.interface
    }

    fn least_bytes(&self, _binding: usize) -> u64 {
        0
    }
}

/// A library call of prepared work, with its last plan, which most submits reuse.
#[derive(Default)]
pub(super) struct Product {
    last: Option<(Key, Arc<Plan>)>,
}

/// A fully resolved call.
pub(super) struct Ready {
    blas: Arc<Blas>,
    key: Key,
    plan: Arc<Plan>,
    addresses: Addresses,
    numbers: Numbers,
}

impl Product {
    /// Resolves the call for a submit; `None` if the result is empty.
    ///
    /// # Errors
    /// Invalid for sizes that do not fit the buffers; errors of the library. All name the dispatch
    /// and the sizes.
    pub(super) fn ready(
        &mut self,
        routine: &Routine,
        launch: &Launch,
        (work, run): (&CheckedRecording, &Resolved),
        buffers: &Buffers<Memory>,
    ) -> Result<Option<Ready>> {
        let Routine { blas, gemm, .. } = routine;
        let numbers = Numbers::read(&run.words(work, launch, GEMM_PARAMS.len()))?;
        if numbers.is_empty() {
            return Ok(None);
        }
        let ranges: Vec<_> = launch.bindings.iter().map(|b| run.range_of(b)).collect();
        let bytes: Vec<u64> = ranges.iter().map(|range| range.bytes).collect();
        let found = || {
            let columns = numbers.columns(gemm, &bytes)?;
            let address = |i: usize, elements: u64, size: u64| {
                let range = ranges.get(i).ok_or_else(|| Error::invalid("a buffer is missing"))?;
                let memory = buffers.memory(range.buffer)?;
                Ok(memory.address + range.offset + elements * size)
            };
            let (narrow, wide) = (gemm.operands.bytes(), gemm.result.bytes());
            let bias = gemm.epilogue.has_bias();
            let addresses = Addresses {
                first: address(1, numbers.b.offset, narrow)?,
                second: address(0, numbers.a.offset, narrow)?,
                out: address(2 + usize::from(bias), numbers.d.offset, wide)?,
                bias: if bias { address(2, numbers.bias, wide)? } else { 0 },
            };
            let key = Key { gemm: *gemm, columns, alignments: addresses.alignments() };
            let plan = match &self.last {
                Some((last, plan)) if *last == key => Arc::clone(plan),
                _ => blas
                    .plan(&key, &addresses)
                    .map_err(|error| library_error(error, gemm, &numbers))?,
            };
            Ok((key, plan, addresses))
        };
        let (key, plan, addresses) =
            found().map_err(|error: Error| error.context(dispatch(launch)))?;
        self.last = Some((key, Arc::clone(&plan)));
        Ok(Some(Ready { blas: Arc::clone(blas), key, plan, addresses, numbers }))
    }
}

impl Ready {
    /// Enqueues the call.
    ///
    /// # Errors
    /// Errors of the library, naming the dispatch and the sizes.
    pub(super) fn call(&self, launch: &Launch) -> Result<()> {
        let called = self.blas.call(&self.key, &self.plan, &self.addresses);
        called.map_err(|error| {
            library_error(error, &self.key.gemm, &self.numbers).context(dispatch(launch))
        })
    }
}

/// Adds the product to an error of the library. If the library has no algorithm, also adds the
/// setting that avoids the call.
fn library_error(error: Error, gemm: &Gemm, numbers: &Numbers) -> Error {
    let product = format!("{gemm} of {numbers}");
    match error.is_unsupported() {
        true => Error::unsupported(format!(
            "{product}: {error}; {}={WITHOUT} disables such calls",
            ENGINE.name
        )),
        false => error.context(product),
    }
}

/// Names the dispatch of a launch in an error.
fn dispatch(launch: &Launch) -> String {
    format!("dispatch {:?}", launch.label)
}

impl CudaDevice {
    /// Makes a routine callable; the first call creates the library's handle and workspace.
    pub(super) fn routine(&self, spec: &KernelSpec, gemm: Gemm) -> Result<Routine> {
        if let Support::No(reason) = support(&self.profile, spec) {
            return Err(Error::unsupported(reason));
        }
        let blas = self.blas(&gemm).map_err(|error| error.context(format!("{spec}")))?;
        Ok(Routine { blas, gemm, interface: gemm.interface(), name: spec.name().to_owned() })
    }

    /// Returns the library, created once. Creation takes a good part of a second and blocks only
    /// other users of the library: the device's own lock is held only to reserve the budget.
    fn blas(&self, gemm: &Gemm) -> Result<Arc<Blas>> {
        let mut made = self.blas.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(blas) = &*made {
            return Ok(Arc::clone(blas));
        }
        let _current = self.gpu.enter()?;
        // Reserved before the allocation, so that no other allocation takes the memory.
        let room = self.state().buffers.reserve(WORKSPACE, Usage::Working);
        let reserved = if room.is_ok() { WORKSPACE } else { 0 };
        let blas = Blas::new(&self.gpu, room).inspect(|blas| blas.warm(gemm));
        let used = blas.as_ref().map_or(0, Blas::room);
        self.state().buffers.unreserve(reserved - used);
        Ok(Arc::clone(made.insert(Arc::new(blas?))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warploom_core::base::DType;
    use warploom_kernels::{Epilogue, GemmCompute};

    #[test]
    fn a_product_without_an_algorithm_is_an_error_with_sizes_and_advice() {
        let gemm = Gemm {
            operands: DType::F16,
            result: DType::F16,
            a_transposed: false,
            b_transposed: true,
            compute: GemmCompute::F32,
            epilogue: Epilogue::None,
        };
        let words = [1, 3, 5, 7, 0, 7, 0, 0, 7, 0, 0, 5, 0, 0];
        let numbers = Numbers::read(&words).unwrap();
        let none = Error::unsupported("cuBLASLt, choosing an algorithm: NOT_SUPPORTED");
        let error = library_error(none, &gemm, &numbers);
        assert!(error.is_unsupported());
        let text = error.to_string();
        for part in ["of 1 x [3, 7] x [7, 5]", "WARPLOOM_ENGINE=-cuda.cublaslt.*"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // An error that another engine would not avoid suggests none.
        let short = library_error(Error::out_of_memory("cuBLASLt, a call", 0, 0), &gemm, &numbers);
        assert!(short.is_out_of_memory() && !short.to_string().contains("WARPLOOM_ENGINE"));
    }
}
