//! Prepared work: checked steps, parameters on the device, and fully resolved calls.

use std::sync::Arc;

use super::compile::{Compiled, Kernel};
use super::device::{CudaDevice, State};
use super::graph::{Call, Graph};
use super::memory::Memory;
use super::product::{Product, Ready};
use crate::{Argument, Buffers};
use warploom_core::error::{Error, Result};
use warploom_hal::checked::{CheckedRecording, Launch, Resolved};
use warploom_hal::{BufferRange, PreparedId, Recording};

/// A recording with everything resolved and uploaded in advance.
pub(super) struct Prepared {
    // Dropped before the kernels, whose functions it refers to.
    pub(super) graphs: Vec<Option<Graph>>,
    pub(super) work: CheckedRecording,
    pub(super) kernels: Vec<Arc<Kernel>>,
    /// The parameter blocks in device memory; `None` if there are none.
    pub(super) params: Option<Memory>,
    /// The location of each launch's data, by the launch's index.
    pub(super) places: Vec<Place>,
    /// Kernel launches, in order.
    pub(super) calls: Vec<Call>,
    /// Library calls, in order.
    pub(super) products: Vec<Product>,
    /// Number of submits so far.
    pub(super) submits: u64,
}

/// Location of a launch's data.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// A kernel launch: index in [`Prepared::calls`].
    Call(usize),
    /// A library routine: index in [`Prepared::products`].
    Product(usize),
}

impl Prepared {
    /// Resolves the library calls of a submit; `None` for a call with an empty result.
    ///
    /// # Errors
    /// Same as [`Product::ready`].
    pub(super) fn products(
        &mut self,
        run: &Resolved,
        buffers: &Buffers<Memory>,
    ) -> Result<Vec<Option<Ready>>> {
        let Prepared { work, kernels, places, products, .. } = self;
        let mut ready = Vec::with_capacity(products.len());
        if products.is_empty() {
            return Ok(ready);
        }
        for launch in work.launches() {
            let kernel = &*kernels[launch.kernel as usize];
            if let (Place::Product(at), Kernel::Routine(routine)) =
                (places[launch.index as usize], kernel)
            {
                ready.push(products[at].ready(routine, launch, (work, run), buffers)?);
            }
        }
        Ok(ready)
    }
}

impl CudaDevice {
    pub(super) fn prepare_recording(
        &self,
        recording: &Recording,
        slots: &[Option<BufferRange>],
    ) -> Result<PreparedId> {
        self.gpu.check_lost()?;
        let _current = self.gpu.enter()?;
        let mut guard = self.state();
        let State { buffers, kernels, staging, prepared, .. } = &mut *guard;
        let kernels = recording.kernels.iter().map(|spec| {
            let kernel = kernels.get(spec).cloned();
            kernel.ok_or_else(|| {
                let label = &recording.label;
                Error::invalid(format!("recording {label:?}: kernel {spec} is not compiled"))
            })
        });
        let kernels = kernels.collect::<Result<Vec<Arc<Kernel>>>>()?;
        let callees: Vec<&Kernel> = kernels.iter().map(|kernel| &**kernel).collect();
        let work = CheckedRecording::check(recording, &callees, &self.profile, buffers, slots)?;
        let bytes = work.params();
        let params = if bytes.is_empty() {
            None
        } else {
            let what = format!("the parameters of recording {:?}", work.label);
            let memory = Memory::zeroed(&self.gpu, bytes.len() as u64, &what)?;
            staging.upload(&self.gpu, memory.address, bytes)?;
            Some(memory)
        };
        let params_at = params.as_ref().map_or(0, |memory| memory.address);
        let call = |launch: &Launch, kernel: &Compiled| {
            let mut call = Call {
                function: kernel.function,
                block: kernel.program.translated.workgroup_size,
                pointers: Default::default(),
                lengths: kernel.program.lengths(launch),
                turn: kernel.turn,
            };
            let bound = |i: usize| {
                let binding = &launch.bindings[i];
                let range = slots[binding.slot as usize]?;
                let memory = buffers.memory(range.buffer).ok()?;
                Some(memory.address + range.offset + binding.offset)
            };
            // Addresses of open slots are set at each submit.
            let pointers = kernel.program.arguments.iter().map(|argument| match argument {
                Argument::Params => params_at + launch.params.unwrap_or(0),
                Argument::Storage(i) => bound(*i).unwrap_or(0),
            });
            call.pointers = pointers.collect();
            call
        };
        let (mut places, mut calls, mut products) = (Vec::new(), Vec::new(), Vec::new());
        for launch in work.launches() {
            places.push(match &*kernels[launch.kernel as usize] {
                Kernel::Compiled(kernel) => {
                    calls.push(call(launch, kernel));
                    Place::Call(calls.len() - 1)
                }
                Kernel::Routine(_) => {
                    products.push(Product::default());
                    Place::Product(products.len() - 1)
                }
            });
        }
        let graphs = Vec::new();
        let (index, generation) = prepared.insert(Prepared {
            graphs,
            work,
            kernels,
            params,
            places,
            calls,
            products,
            submits: 0,
        });
        Ok(PreparedId { index, generation })
    }
}
