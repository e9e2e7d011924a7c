//! Second phase of a submit: encodes all work with one encoder. Encoding itself cannot fail.

use super::device::{Buffer, State, WebGpuDevice};
use super::faults::Scopes;
use super::prepare::{Group, Prepared};
use super::resolve::Submission;
use super::timing::{MAX_TIMESTAMPS, Queries, TIMESTAMP_BYTES};
use super::transfer::{Readback, Staging};
use super::wait::Pending;
use crate::base::platform::poll_once;
use crate::error::{Error, Result};
use crate::provider::checked::{Launch, ResolvedCommand};
use crate::provider::{Args, BufferRange, PreparedId, Table, Ticket};

impl WebGpuDevice {
    pub(super) fn submit_work(&self, work: &[(PreparedId, Args)]) -> Result<Ticket> {
        self.faults.check_lost()?;
        let mut state = self.state();
        let scopes = Scopes::open(&self.gpu);
        let resolved = self.resolve_all(&mut state, work)?;
        let (sizes, timestamps) = self.download_sizes(&state, work, &resolved)?;
        let State { prepared, buffers, staging, downloads, queries, counters, .. } = &mut *state;
        if timestamps > 0 && queries.is_none() {
            *queries = Some(Queries::new(&self.gpu));
        }
        let most = self.profile.max_buffer_bytes;
        let mut readback =
            (!sizes.is_empty()).then(|| Readback::new(downloads, &self.gpu, &sizes, most));
        let descriptor = wgpu::CommandEncoderDescriptor::default();
        let mut encoder = Encoder {
            device: self,
            pass: None,
            kernel: std::ptr::null(),
            group: std::ptr::null(),
            encoder: self.gpu.create_command_encoder(&descriptor),
            buffers,
            staging,
            readback: readback.as_ref(),
            queries: queries.as_ref(),
            fresh: true,
            downloads: 0,
            timestamps: 0,
            dispatches: 0,
            uploaded: 0,
        };
        for ((id, args), submission) in work.iter().zip(&resolved) {
            if let Some(prepared) = prepared.get(id.index, id.generation) {
                encoder.work(prepared, submission, args);
            }
        }
        counters.dispatches += encoder.dispatches;
        counters.uploaded_bytes += encoder.uploaded;
        counters.staged_bytes += encoder.uploaded;
        counters.downloaded_bytes += sizes.iter().sum::<u64>();
        counters.submits += 1;
        let commands = encoder.finish();
        state.staging.flush(&self.queue);
        let index = self.queue.submit([commands]);
        if let Some(readback) = &mut readback {
            readback.map();
        }
        let mut errors = scopes.close();
        // On native builds wgpu has reported errors by now. Later submits may read what this one
        // should have written, so they must not appear successful.
        let errors = match poll_once(&mut errors) {
            Some(None) => None,
            Some(Some(error)) => {
                let id = self.profile.id();
                return Err(self.error_of(error, &format!("a submit on {id}"), None));
            }
            None => Some(errors),
        };
        state.tickets += 1;
        let (ticket, timestamps) = (state.tickets, timestamps > 0);
        let forgotten = state.keep(Pending { ticket, index, errors, readback, timestamps });
        if let Some(Some(error)) = forgotten.and_then(|old| old.errors).and_then(poll_once) {
            self.faults.note(error);
        }
        Ok(Ticket(ticket))
    }

    fn resolve_all(
        &self,
        state: &mut State,
        work: &[(PreparedId, Args)],
    ) -> Result<Vec<Submission>> {
        // The table is moved out temporarily, so that the rest of the state can be borrowed with
        // it.
        let mut table = std::mem::take(&mut state.prepared);
        let resolved = work.iter().map(|(id, args)| {
            let prepared = table.get_mut(id.index, id.generation).ok_or_else(|| {
                Error::invalid(format!("{id:?} is not prepared on this device, or was freed"))
            })?;
            self.resolve(state, prepared, args)
        });
        let resolved = resolved.collect();
        state.prepared = table;
        resolved
    }

    /// Returns the size in bytes of every download, followed by that of the timestamps if there are
    /// any; and the number of timestamps.
    fn download_sizes(
        &self,
        state: &State,
        work: &[(PreparedId, Args)],
        resolved: &[Submission],
    ) -> Result<(Vec<u64>, u32)> {
        let mut sizes = Vec::new();
        let mut timestamps = 0u32;
        for ((id, args), submission) in work.iter().zip(resolved) {
            let Some(prepared) = state.prepared.get(id.index, id.generation) else { continue };
            let commands = prepared.work.commands(&submission.resolved, args);
            sizes.extend(commands.filter_map(|command| match command {
                ResolvedCommand::Download { from } => Some(from.bytes),
                _ => None,
            }));
            timestamps = timestamps.saturating_add(prepared.work.timestamps);
        }
        if timestamps > MAX_TIMESTAMPS {
            return Err(Error::unsupported(format!(
                "{timestamps} timestamps in one submit, {MAX_TIMESTAMPS} is the most"
            )));
        }
        if timestamps > 0 {
            sizes.push(u64::from(timestamps) * TIMESTAMP_BYTES);
        }
        Ok((sizes, timestamps))
    }
}

struct Encoder<'a> {
    device: &'a WebGpuDevice,
    /// The compute pass, kept open over consecutive dispatches: a pass per dispatch costs several
    /// times as much.
    pass: Option<wgpu::ComputePass<'static>>,
    // State set in the open pass; pointers are only compared, never dereferenced.
    kernel: *const wgpu::ComputePipeline,
    group: *const wgpu::BindGroup,
    encoder: wgpu::CommandEncoder,
    buffers: &'a Table<Buffer>,
    staging: &'a mut Staging,
    readback: Option<&'a Readback>,
    queries: Option<&'a Queries>,
    /// Whether nothing is encoded yet, so that a direct write is still in order.
    fresh: bool,
    downloads: usize,
    timestamps: u32,
    dispatches: u64,
    uploaded: u64,
}

impl<'a> Encoder<'a> {
    fn work(&mut self, prepared: &Prepared, submission: &Submission, args: &Args) {
        if let Some(buffer) = &prepared.changing {
            let (_, bytes) = submission.resolved.changed(&prepared.work);
            // Only this work uses the blocks. No earlier command of the submit reads them, unless
            // the same work was encoded before.
            if submission.first {
                self.device.queue.write_buffer(buffer, 0, bytes);
            } else {
                self.stage(bytes, buffer, 0);
            }
        }
        for command in prepared.work.commands(&submission.resolved, args) {
            match command {
                ResolvedCommand::Launch { launch, grid } => {
                    self.launch(prepared, submission, launch, grid);
                }
                ResolvedCommand::Upload { to, bytes } => {
                    if let Some(buffer) = self.buffer(to) {
                        self.upload(buffer, to.offset, bytes);
                    }
                }
                ResolvedCommand::Copy { from, to } => self.copy(from, to),
                ResolvedCommand::Clear { range } => {
                    if let Some(buffer) = self.buffer(range) {
                        self.end_pass();
                        self.encoder.clear_buffer(buffer, range.offset, Some(range.bytes));
                    }
                }
                ResolvedCommand::Download { from } => {
                    let to = self.readback.and_then(|r| r.place(self.downloads));
                    if let (Some(buffer), Some((to, to_offset))) = (self.buffer(from), to) {
                        self.end_pass();
                        let (encoder, bytes) = (&mut self.encoder, from.bytes);
                        encoder.copy_buffer_to_buffer(buffer, from.offset, to, to_offset, bytes);
                    }
                    self.downloads += 1;
                }
                ResolvedCommand::Timestamp => {
                    self.end_pass();
                    if let Some(queries) = self.queries {
                        queries.write(&mut self.encoder, self.timestamps);
                    }
                    self.timestamps += 1;
                }
            }
        }
    }

    /// Returns the buffer of a range, or `None` if the range is empty.
    fn buffer(&self, range: BufferRange) -> Option<&'a wgpu::Buffer> {
        let buffers = self.buffers;
        let buffer = buffers.get(range.buffer.index, range.buffer.generation)?;
        (range.bytes > 0).then_some(&buffer.gpu)
    }

    fn launch(
        &mut self,
        prepared: &Prepared,
        submission: &Submission,
        launch: &Launch,
        [x, y, z]: [u32; 3],
    ) {
        if x == 0 || y == 0 || z == 0 {
            return;
        }
        let group = prepared.group_of.get(launch.index as usize);
        let group = group.and_then(|group| prepared.groups.get(*group as usize));
        let (Some(kernel), Some(group)) = (prepared.kernels.get(launch.kernel as usize), group)
        else {
            return;
        };
        let group = match group {
            Group::Fixed(group) => group,
            Group::Open(place, _) => match submission.groups.get(*place as usize) {
                Some(group) => group,
                None => return,
            },
        };
        let pass = self.pass.get_or_insert_with(|| {
            let descriptor = wgpu::ComputePassDescriptor::default();
            self.encoder.begin_compute_pass(&descriptor).forget_lifetime()
        });
        if !std::ptr::eq(self.kernel, &kernel.pipeline) {
            pass.set_pipeline(&kernel.pipeline);
            self.kernel = &kernel.pipeline;
        }
        if !std::ptr::eq(self.group, group) {
            pass.set_bind_group(0, group, &[]);
            self.group = group;
        }
        pass.dispatch_workgroups(x, y, z);
        self.fresh = false;
        self.dispatches += 1;
    }

    fn upload(&mut self, to: &wgpu::Buffer, offset: u64, bytes: &[u8]) {
        self.uploaded += bytes.len() as u64;
        if self.fresh {
            self.device.write_piece(to, offset, bytes);
        } else {
            self.stage(bytes, to, offset);
        }
    }

    /// Writes bytes to a buffer in command order, through staging.
    fn stage(&mut self, bytes: &[u8], to: &wgpu::Buffer, offset: u64) {
        self.end_pass();
        let (from, from_offset) = self.staging.add(&self.device.gpu, &self.device.queue, bytes);
        let size = (bytes.len() as u64).next_multiple_of(4);
        self.encoder.copy_buffer_to_buffer(&from, from_offset, to, offset, size);
    }

    fn copy(&mut self, from: BufferRange, to: BufferRange) {
        let (Some(source), Some(target)) = (self.buffer(from), self.buffer(to)) else { return };
        self.end_pass();
        let (encoder, bytes) = (&mut self.encoder, from.bytes);
        if from.buffer == to.buffer {
            let bounce = self.staging.bounce(&self.device.gpu, bytes);
            encoder.copy_buffer_to_buffer(source, from.offset, &bounce, 0, bytes);
            encoder.copy_buffer_to_buffer(&bounce, 0, target, to.offset, bytes);
        } else {
            encoder.copy_buffer_to_buffer(source, from.offset, target, to.offset, bytes);
        }
    }

    /// Ends the open pass before a command that is not a dispatch.
    fn end_pass(&mut self) {
        self.fresh = false;
        self.pass = None;
        self.kernel = std::ptr::null();
        self.group = std::ptr::null();
    }

    fn finish(mut self) -> wgpu::CommandBuffer {
        self.end_pass();
        if let (Some(queries), Some(readback)) = (self.queries, self.readback)
            && self.timestamps > 0
            && let Some((to, offset)) = readback.place(self.downloads)
        {
            queries.read(&mut self.encoder, self.timestamps, to, offset);
        }
        self.encoder.finish()
    }
}
