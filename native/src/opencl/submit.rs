//! Uploads, and enqueuing the commands of a submit.

use std::sync::Arc;

use super::cl::{Cl, Code, Event, Memory};
use super::device::{OpenClDevice, State};
use super::memory::{Buffer, Staged};
use super::prepare::{Prepared, Setting};
use super::wait::Pending;
use crate::Buffers;
use warploom_core::error::{Error, Result};
use warploom_hal::checked::{Resolved, ResolvedCommand};
use warploom_hal::{Args, BufferRange, Counters, PreparedId, Ticket};

/// Size in bytes below which an upload is cheaper to copy than to wait for.
const SMALL: usize = 64 << 10;

impl State {
    /// Returns whether all submits are complete.
    fn is_idle(&self) -> bool {
        self.last.as_ref().is_none_or(|last| last.is_done())
    }
}

impl OpenClDevice {
    /// Implements `Device::write`: ordered after earlier submits. An incomplete last word is padded
    /// with zeros.
    pub(super) fn write_bytes(&self, to: BufferRange, bytes: &[u8]) -> Result<()> {
        self.faults.check_lost()?;
        let mut guard = self.state();
        let idle = guard.is_idle();
        let State { buffers, staged, counters, .. } = &mut *guard;
        let memory = buffers.find_for_write(to, bytes.len())?.whole();
        let mut upload = Upload { device: self, staged, counters };
        let done = upload.put(memory, to.offset, bytes, idle);
        done.map_err(|code| self.fault(code, &format!("a write of {} bytes", bytes.len())))
    }

    pub(super) fn submit_work(&self, work: &[(PreparedId, Args)]) -> Result<Ticket> {
        self.faults.check_lost()?;
        let mut guard = self.state();
        let idle = guard.is_idle();
        let state = &mut *guard;
        let mut runs = Vec::with_capacity(work.len());
        for (id, args) in work {
            let prepared = state.prepared.get_mut(id.index, id.generation).ok_or_else(|| {
                Error::invalid(format!("{id:?} is not prepared on this device, or was freed"))
            })?;
            runs.push(prepared.work.evaluate(&state.buffers, args)?);
        }
        let mut submit = Submit {
            upload: Upload {
                device: self,
                staged: &mut state.staged,
                counters: &mut state.counters,
            },
            buffers: &state.buffers,
            idle,
            downloads: Vec::new(),
            timestamps: Vec::new(),
        };
        let mut done = Ok(());
        for ((id, args), run) in work.iter().zip(&runs) {
            if let Some(prepared) = state.prepared.get_mut(id.index, id.generation) {
                done = submit.work(prepared, run, args);
            }
            if done.is_err() {
                break;
            }
        }
        let Submit { downloads, timestamps, .. } = submit;
        let last = || {
            let marker = self.queue.marker()?;
            self.queue.flush()?;
            Ok(Arc::new(marker))
        };
        let last = done.and_then(|()| last().map_err(|code| self.fault(code, "a submit")));
        let last = last.inspect_err(|_| {
            // The device may still write to the downloads, which are dropped now.
            let _ = self.queue.finish();
        })?;
        state.counters.submits += 1;
        state.tickets += 1;
        let ticket = state.tickets;
        state.last = Some(Arc::clone(&last));
        state.keep(Pending { ticket, done: last, downloads, timestamps });
        Ok(Ticket(ticket))
    }

    /// Converts an OpenCL error of a call with the purpose `what`.
    pub(super) fn fault(&self, code: Code, what: &str) -> Error {
        self.faults.convert(code, &self.queue, what)
    }
}

/// The parts of a device that uploads use.
struct Upload<'a> {
    device: &'a OpenClDevice,
    staged: &'a mut Staged,
    counters: &'a mut Counters,
}

impl Upload<'_> {
    /// Writes bytes to the memory, in queue order; an incomplete last word is padded with zeros. If
    /// the queue is `idle`, large uploads are written directly from the source.
    fn put(&mut self, to: &Memory, offset: u64, bytes: &[u8], idle: bool) -> Cl<()> {
        self.counters.uploaded_bytes += bytes.len() as u64;
        let queue = &self.device.queue;
        let whole = if idle && bytes.len() >= SMALL { bytes.len() - bytes.len() % 4 } else { 0 };
        let (direct, rest) = bytes.split_at(whole);
        if !direct.is_empty() {
            // SAFETY: the caller's range lies in the memory; both wait until the bytes are read.
            unsafe {
                match self.device.profile.shared_memory {
                    true => queue.write_mapped(to, offset, direct),
                    false => queue.write(to, offset, direct, true),
                }
            }?;
        }
        if !rest.is_empty() {
            self.counters.staged_bytes += rest.len() as u64;
            self.staged.write(queue, to, offset + whole as u64, rest)?;
        }
        Ok(())
    }
}

struct Submit<'a> {
    upload: Upload<'a>,
    buffers: &'a Buffers<Buffer>,
    /// Whether the queue holds only uploads.
    idle: bool,
    downloads: Vec<Vec<u8>>,
    timestamps: Vec<Event>,
}

impl Submit<'_> {
    fn work(&mut self, prepared: &mut Prepared, run: &Resolved, args: &Args) -> Result<()> {
        let device = self.upload.device;
        let Prepared { work, kernels, launches, params } = prepared;
        let label = &work.label;
        let (at, changed) = run.changed(work);
        if let (Some(params), false) = (&params, changed.is_empty()) {
            let written = self.upload.staged.write(&device.queue, params.whole(), at, changed);
            written.map_err(|code| device.fault(code, &format!("parameters of {label:?}")))?;
        }
        for todo in work.commands(run, args) {
            if let ResolvedCommand::Download { from } = &todo {
                self.upload.counters.downloaded_bytes += from.bytes;
            }
            let ResolvedCommand::Launch { launch, grid } = todo else {
                self.transfer(&todo).map_err(|e| e.context(format!("recording {label:?}")))?;
                continue;
            };
            if grid.contains(&0) {
                continue;
            }
            let (kernel, place) = (&kernels[launch.kernel as usize], launch.index as usize);
            if launch.is_open() {
                let buffers = self.buffers;
                let setting = Setting { kernel, launch, params: params.as_ref(), buffers };
                let range = |binding: &_| Some(run.range_of(binding));
                device.set_arguments(&mut launches[place], &setting, range)?;
            }
            let threads = kernel.program.translated.workgroup_size;
            // SAFETY: its arguments were set, here or when the work was prepared. The buffers are
            // live, which was checked, and the driver keeps them until the launch is done.
            let launched = unsafe { device.queue.launch(&launches[place], grid, threads) };
            let what = || format!("{label:?}, launch {:?}", launch.label);
            launched.map_err(|code| device.fault(code, &what()))?;
            self.idle = false;
            self.upload.counters.dispatches += 1;
        }
        Ok(())
    }

    /// Enqueues a command other than a launch.
    fn transfer(&mut self, todo: &ResolvedCommand<'_>) -> Result<()> {
        let (device, buffers) = (self.upload.device, self.buffers);
        let queue = &device.queue;
        let fault = |code| device.fault(code, "a transfer");
        let memory = |range: BufferRange| buffers.memory(range.buffer).map(Buffer::whole);
        match *todo {
            ResolvedCommand::Upload { to, bytes } => {
                let done = self.upload.put(memory(to)?, to.offset, bytes, self.idle);
                return done.map_err(fault);
            }
            ResolvedCommand::Copy { from, to } if from.bytes > 0 => {
                let (a, b) = ((memory(from)?, from.offset), (memory(to)?, to.offset));
                // SAFETY: both ranges were checked.
                unsafe { queue.copy(a, b, from.bytes) }.map_err(fault)?;
            }
            ResolvedCommand::Clear { range } if range.bytes > 0 => {
                // SAFETY: the range was checked.
                unsafe { queue.clear(memory(range)?, range.offset, range.bytes) }.map_err(fault)?;
            }
            ResolvedCommand::Download { from } => {
                let mut bytes = vec![0; from.bytes as usize];
                if from.bytes > 0 {
                    // SAFETY: the range was checked; the bytes are kept until the submit is done.
                    unsafe { queue.read(memory(from)?, from.offset, &mut bytes) }.map_err(fault)?;
                }
                self.downloads.push(bytes);
            }
            ResolvedCommand::Timestamp => self.timestamps.push(queue.marker().map_err(fault)?),
            ResolvedCommand::Copy { .. }
            | ResolvedCommand::Clear { .. }
            | ResolvedCommand::Launch { .. } => return Ok(()),
        }
        self.idle = false;
        Ok(())
    }
}
