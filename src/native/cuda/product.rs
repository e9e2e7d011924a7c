//! Products of prepared work: from a launch of a routine to a call of the library.

use std::sync::Arc;

use super::blas::{Addresses, Blas, Key, Plan};
use super::device::CudaDevice;
use super::gemm::Numbers;
use super::memory::Memory;
use crate::error::{Error, Result};
use crate::kernel::{GEMM_PARAMS, Gemm, Interface, KernelSpec};
use crate::native::{Buffers, Callee, Launch, Run, Work};
use crate::provider::{Support, Usage, support};

/// A routine that work may call.
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

/// A call of prepared work, with the plan that it took last: most submits take it again.
#[derive(Default)]
pub(super) struct Product {
    last: Option<(Key, Arc<Plan>)>,
}

/// A call with everything found that it needs.
pub(super) struct Ready {
    blas: Arc<Blas>,
    key: Key,
    plan: Arc<Plan>,
    addresses: Addresses,
    numbers: Numbers,
}

impl Product {
    /// Finds what a submit needs; `None` where there is nothing to do.
    ///
    /// # Errors
    /// Invalid, for sizes that do not fit the buffers; what the library says. All name the node and
    /// the sizes.
    pub(super) fn ready(
        &mut self,
        routine: &Routine,
        launch: &Launch,
        (work, run): (&Work, &Run),
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
                _ => blas.plan(&key, &addresses).map_err(|error| told(error, gemm, &numbers))?,
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
    /// Enqueues it.
    ///
    /// # Errors
    /// What the library says, naming node and sizes.
    pub(super) fn call(&self, launch: &Launch) -> Result<()> {
        let called = self.blas.call(&self.key, &self.plan, &self.addresses);
        called.map_err(|error| told(error, &self.key.gemm, &self.numbers).context(dispatch(launch)))
    }
}

/// What the library says, with the product that it is about.
fn told(error: Error, gemm: &Gemm, numbers: &Numbers) -> Error {
    error.context(format!("{gemm} of {numbers}"))
}

/// The node of a launch.
fn dispatch(launch: &Launch) -> String {
    format!("dispatch {:?}", launch.label)
}

impl CudaDevice {
    /// Makes a routine callable; the first one takes the library's workspace.
    pub(super) fn routine(&self, spec: &KernelSpec, gemm: Gemm) -> Result<Routine> {
        if let Support::No(reason) = support(&self.profile, spec) {
            return Err(Error::unsupported(reason));
        }
        let _current = self.gpu.enter()?;
        let mut state = self.state();
        let blas = match &state.blas {
            Some(blas) => Arc::clone(blas),
            None => {
                let room = state.buffers.admit(super::blas::WORKSPACE, Usage::Working);
                let blas = Blas::new(&self.gpu, room).map_err(|e| e.context(format!("{spec}")))?;
                state.buffers.reserve(blas.room());
                Arc::clone(state.blas.insert(Arc::new(blas)))
            }
        };
        Ok(Routine { blas, gemm, interface: gemm.interface(), name: spec.name().to_owned() })
    }
}
