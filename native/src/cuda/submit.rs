//! A submit: all checks first, then everything is enqueued.

use super::compile::Kernel;
use super::device::{CudaDevice, State};
use super::graph::Graph;
use super::memory::{Event, Memory};
use super::prepare::{Place, Prepared};
use super::product::Ready;
use super::transfer::{Readback, Staging};
use super::wait::Pending;
use crate::{Argument, Buffers};
use cudarc::driver::{result, sys};
use std::sync::Arc;
use warploom_core::error::{Error, Result};
use warploom_hal::checked::{Resolved, ResolvedCommand};
use warploom_hal::{Args, BufferRange, Counters, PreparedId, Ticket};

use super::gpu::Gpu;

/// Minimum number of launches for a graph: creating one costs as much as several launches.
const LEAST_OF_A_GRAPH: usize = 4;

impl CudaDevice {
    pub(super) fn submit_work(&self, work: &[(PreparedId, Args)]) -> Result<Ticket> {
        self.gpu.check_lost()?;
        let _current = self.gpu.enter()?;
        let mut guard = self.state();
        let state = &mut *guard;
        let mut runs = Vec::with_capacity(work.len());
        let mut sizes = Vec::new();
        let mut stamps = 0;
        for (id, args) in work {
            let prepared = state.prepared.get_mut(id.index, id.generation).ok_or_else(|| {
                Error::invalid(format!("{id:?} is not prepared on this device, or was freed"))
            })?;
            let run = prepared.work.evaluate(&state.buffers, args)?;
            sizes.extend(prepared.work.commands(&run, args).filter_map(|todo| match todo {
                ResolvedCommand::Download { from } => Some(from.bytes),
                _ => None,
            }));
            stamps += prepared.work.timestamps;
            let products = prepared.products(&run, &state.buffers)?;
            runs.push((run, products));
        }
        let readback = match sizes.is_empty() {
            true => None,
            false => Some(Readback::new(&mut state.downloads, &self.gpu, &sizes)?),
        };
        if stamps > 0 && state.epoch.is_none() {
            let epoch = Event::new(&self.gpu, true)?;
            epoch.record()?;
            state.epoch = Some(epoch);
        }
        let done = match state.events.pop() {
            Some(event) => event,
            None => Event::new(&self.gpu, false)?,
        };
        let State { buffers, prepared, staging, counters, .. } = state;
        let mut queue = Queue {
            gpu: &self.gpu,
            buffers,
            staging,
            counters,
            readback: readback.as_ref(),
            downloads: 0,
            stamps: Vec::with_capacity(stamps as usize),
        };
        let mut enqueued = Ok(());
        for ((id, args), (run, products)) in work.iter().zip(&runs) {
            if let Some(prepared) = prepared.get_mut(id.index, id.generation) {
                enqueued = enqueued.and_then(|()| queue.work(prepared, (run, products), args));
            }
        }
        let stamps = queue.stamps;
        if let Err(error) = enqueued.and_then(|()| done.record()) {
            // Enqueued work may still write to the pinned memory that is released here.
            let _ = self.gpu.synchronize();
            // If the device is lost, that error is more informative than the library's.
            self.gpu.check_lost()?;
            return Err(error);
        }
        state.counters.submits += 1;
        state.counters.downloaded_bytes += sizes.iter().sum::<u64>();
        state.tickets += 1;
        let ticket = state.tickets;
        state.keep(Pending { ticket, done, readback, stamps })?;
        Ok(Ticket(ticket))
    }
}

struct Queue<'a> {
    gpu: &'a Arc<Gpu>,
    buffers: &'a Buffers<Memory>,
    staging: &'a mut Staging,
    counters: &'a mut Counters,
    readback: Option<&'a Readback>,
    downloads: usize,
    stamps: Vec<Event>,
}

impl Queue<'_> {
    fn work(
        &mut self,
        prepared: &mut Prepared,
        (run, products): (&Resolved, &[Option<Ready>]),
        args: &Args,
    ) -> Result<()> {
        let (at, changed) = run.changed(&prepared.work);
        if let (Some(params), false) = (&prepared.params, changed.is_empty()) {
            self.staging.upload(self.gpu, params.address + at, changed)?;
        }
        self.point(prepared, run)?;
        let again = prepared.submits > 0;
        prepared.submits += 1;
        let Prepared { work, calls, places, graphs, .. } = prepared;
        // Kernel launches are collected until another command comes.
        let mut grids: Vec<[u32; 3]> = Vec::new();
        let (mut first, mut stretch) = (0, 0);
        for todo in work.commands(run, args) {
            let place = match &todo {
                ResolvedCommand::Launch { launch, grid } => {
                    Some((places[launch.index as usize], *launch, *grid))
                }
                _ => None,
            };
            if let Some((Place::Call(at), _, grid)) = place {
                if grids.is_empty() {
                    first = at;
                }
                grids.push(grid);
                continue;
            }
            self.flush(&calls[first..first + grids.len()], &grids, again, graphs, &mut stretch)?;
            grids.clear();
            match place {
                Some((Place::Product(at), launch, grid)) if !grid.contains(&0) => {
                    if let Some(Some(product)) = products.get(at) {
                        product.call(launch)?;
                        self.counters.dispatches += 1;
                    }
                }
                Some(_) => {}
                None => self.command(todo)?,
            }
        }
        self.flush(&calls[first..first + grids.len()], &grids, again, graphs, &mut stretch)
    }

    /// Sets the addresses of open slots.
    fn point(&mut self, prepared: &mut Prepared, run: &Resolved) -> Result<()> {
        let Prepared { work, calls, places, kernels, .. } = prepared;
        for launch in work.launches().filter(|launch| launch.is_open()) {
            let Place::Call(at) = places[launch.index as usize] else { continue };
            let Kernel::Compiled(kernel) = &*kernels[launch.kernel as usize] else { continue };
            let (call, arguments) = (&mut calls[at], &kernel.program.arguments);
            for (pointer, argument) in call.pointers.iter_mut().zip(arguments) {
                if let Argument::Storage(i) = argument {
                    *pointer = self.address(run.range_of(&launch.bindings[*i]))?;
                }
            }
        }
        Ok(())
    }

    fn address(&self, range: BufferRange) -> Result<sys::CUdeviceptr> {
        self.buffers.memory(range.buffer).map(|memory| memory.address + range.offset)
    }

    fn flush(
        &mut self,
        calls: &[super::graph::Call],
        grids: &[[u32; 3]],
        again: bool,
        graphs: &mut Vec<Option<Graph>>,
        stretch: &mut usize,
    ) -> Result<()> {
        if grids.is_empty() {
            return Ok(());
        }
        self.counters.dispatches += grids.iter().filter(|grid| !grid.contains(&0)).count() as u64;
        let place = *stretch;
        *stretch += 1;
        if !again || grids.len() < LEAST_OF_A_GRAPH {
            let mut launches = calls.iter().zip(grids).filter(|(_, grid)| !grid.contains(&0));
            return launches.try_for_each(|(call, grid)| call.launch(self.gpu, *grid));
        }
        if graphs.len() <= place {
            graphs.resize_with(place + 1, || None);
        }
        let graph = match &mut graphs[place] {
            Some(graph) => graph,
            empty => empty.insert(Graph::new(self.gpu, calls, grids)?),
        };
        graph.launch(calls, grids)
    }

    fn command(&mut self, todo: ResolvedCommand<'_>) -> Result<()> {
        match todo {
            ResolvedCommand::Launch { .. } => {}
            ResolvedCommand::Upload { to, bytes } => {
                let address = self.address(to)?;
                self.staging.upload(self.gpu, address, bytes)?;
                self.counters.uploaded_bytes += bytes.len() as u64;
                self.counters.staged_bytes += bytes.len() as u64;
            }
            ResolvedCommand::Copy { from, to } => {
                let (source, target) = (self.address(from)?, self.address(to)?);
                if from.bytes > 0 {
                    let (bytes, stream) = (from.bytes as usize, self.gpu.stream);
                    // SAFETY: ranges of live buffers that do not overlap.
                    let copied =
                        unsafe { result::memcpy_dtod_async(target, source, bytes, stream) };
                    self.gpu.check("a copy", copied)?;
                }
            }
            ResolvedCommand::Clear { range } => {
                let address = self.address(range)?;
                if range.bytes > 0 {
                    let (bytes, stream) = (range.bytes as usize, self.gpu.stream);
                    // SAFETY: a range of a live buffer.
                    let cleared = unsafe { result::memset_d8_async(address, 0, bytes, stream) };
                    self.gpu.check("a clear", cleared)?;
                }
            }
            ResolvedCommand::Download { from } => {
                let address = self.address(from)?;
                if let Some(readback) = self.readback {
                    readback.copy(self.gpu, self.downloads, address)?;
                }
                self.downloads += 1;
            }
            ResolvedCommand::Timestamp => {
                let stamp = Event::new(self.gpu, true)?;
                stamp.record()?;
                self.stamps.push(stamp);
            }
        }
        Ok(())
    }
}
