//! Prepares a recording: everything that can be done before the first submit.

use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::bind::bind_group;
use super::compile::Kernel;
use super::device::{State, WebGpuDevice};
use super::faults::Scopes;
use super::timing::MAX_TIMESTAMPS;
use crate::base::platform::{BROWSER, poll_once};
use crate::error::{Error, Result};
use crate::kernel::Interface;
use crate::provider::checked::{Callee, CheckedRecording, Launch};
use crate::provider::{BufferRange, PreparedId, Recording};

/// A checked recording with pipelines looked up, bind groups built and constant parameters written.
pub(super) struct Prepared {
    pub(super) work: CheckedRecording,
    pub(super) kernels: Vec<Arc<Kernel>>,
    pub(super) groups: Vec<Group>,
    /// Index in `groups` for each launch.
    pub(super) group_of: Vec<u32>,
    /// The parameter blocks that vary, in a buffer that is rewritten at each submit.
    pub(super) changing: Option<wgpu::Buffer>,
    /// Ticket of the last submit it was resolved for.
    pub(super) resolved_for: u64,
}

/// Bind group of a launch.
pub(super) enum Group {
    Fixed(wgpu::BindGroup),
    /// Built per submit; the number is its index among the open groups of the work.
    Open(u32, Box<OpenGroup>),
}

/// A bind group with a slot that is bound per submit, and the variants built recently.
pub(super) struct OpenGroup {
    pub(super) kernel: Arc<Kernel>,
    pub(super) params: Option<ParamPlace>,
    /// The bindings, as those of the first launch that has the group.
    pub(super) bindings: SmallVec<[crate::provider::Binding; 8]>,
    pub(super) label: String,
    pub(super) built: Vec<(SmallVec<[BufferRange; 8]>, wgpu::BindGroup)>,
}

/// A parameter block on the device.
#[derive(Clone)]
pub(super) struct ParamPlace {
    pub(super) buffer: wgpu::Buffer,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl Callee for Kernel {
    fn name(&self) -> &str {
        &self.name
    }

    fn interface(&self) -> &Interface {
        &self.layout.interface
    }

    fn least_bytes(&self, _binding: usize) -> u64 {
        // wgpu checks what the shader reads.
        4
    }
}

impl WebGpuDevice {
    pub(super) fn prepare_recording(
        &self,
        work: &Recording,
        slots: &[Option<BufferRange>],
    ) -> Result<PreparedId> {
        self.faults.check_lost()?;
        let mut state = self.state();
        let scopes = (!BROWSER).then(|| Scopes::open(&self.gpu));
        let prepared = self.build(&state, work, slots);
        let failed = scopes.and_then(|scopes| poll_once(scopes.close())).flatten();
        let prepared = prepared?;
        if let Some(error) = failed {
            return Err(self.error_of(error, &format!("recording {:?}", work.label), None));
        }
        self.faults.check_lost()?;
        let (index, generation) = state.prepared.insert(prepared);
        Ok(PreparedId { index, generation })
    }

    fn build(
        &self,
        state: &State,
        recording: &Recording,
        slots: &[Option<BufferRange>],
    ) -> Result<Prepared> {
        let named = |error: Error| error.context(format!("recording {:?}", recording.label));
        let kernels = recording.kernels.iter().map(|spec| {
            let kernel = state.kernels.get(spec).cloned();
            kernel.ok_or_else(|| named(Error::invalid(format!("kernel {spec} is not compiled"))))
        });
        let kernels: Vec<Arc<Kernel>> = kernels.collect::<Result<_>>()?;
        let callees: Vec<&Kernel> = kernels.iter().map(Arc::as_ref).collect();
        let work = CheckedRecording::check(recording, &callees, &self.profile, state, slots)?;
        if work.timestamps > MAX_TIMESTAMPS {
            return Err(named(Error::unsupported(format!(
                "more than {MAX_TIMESTAMPS} timestamps in one submit"
            ))));
        }
        let (constant, changing) = work.params().split_at(work.constant_bytes());
        let constant_buffer = self.param_buffer(constant);
        if let Some(buffer) = &constant_buffer {
            self.queue.write_buffer(buffer, 0, constant);
        }
        let changing = self.param_buffer(changing);
        let mut groups = Groups {
            device: self,
            state,
            work: &work,
            buffers: [constant_buffer, changing.clone()],
            known: HashMap::new(),
            groups: Vec::new(),
            open: 0,
        };
        let group_of = work.launches().map(|launch| {
            let kernel = &kernels[launch.kernel as usize];
            groups.of(launch, kernel).map_err(named)
        });
        let group_of = group_of.collect::<Result<_>>()?;
        let groups = groups.groups;
        Ok(Prepared { work, kernels, groups, group_of, changing, resolved_for: 0 })
    }

    fn param_buffer(&self, bytes: &[u8]) -> Option<wgpu::Buffer> {
        (!bytes.is_empty()).then(|| {
            self.gpu.create_buffer(&wgpu::BufferDescriptor {
                label: Some("parameters"),
                size: bytes.len() as u64,
                usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        })
    }
}

/// Key of a bind group: layout, offset of the parameter block, and slot, offset and size of each
/// binding.
type GroupKey = (usize, Option<u64>, SmallVec<[(u32, u64, u64); 8]>);

/// The bind groups of a recording; equal ones are shared.
struct Groups<'a> {
    device: &'a WebGpuDevice,
    state: &'a State,
    work: &'a CheckedRecording,
    /// Buffers of the constant and of the varying parameter blocks.
    buffers: [Option<wgpu::Buffer>; 2],
    known: HashMap<GroupKey, u32>,
    groups: Vec<Group>,
    open: u32,
}

impl Groups<'_> {
    /// Returns the index of a launch's group.
    fn of(&mut self, launch: &Launch, kernel: &Arc<Kernel>) -> Result<u32> {
        let bound = launch.bindings.iter().map(|b| (b.slot, b.offset, b.bytes)).collect();
        let key: GroupKey = (kernel.layout.id, launch.params, bound);
        if let Some(group) = self.known.get(&key) {
            return Ok(*group);
        }
        let params = launch.params.and_then(|at| self.param_place(at, kernel));
        let group = if launch.is_open() {
            let open = OpenGroup {
                kernel: Arc::clone(kernel),
                params,
                bindings: launch.bindings.clone(),
                label: launch.label.clone(),
                built: Vec::new(),
            };
            self.open += 1;
            Group::Open(self.open - 1, Box::new(open))
        } else {
            let ranges = launch.bindings.iter().filter_map(|b| self.work.fixed_range(b));
            let ranges: SmallVec<[BufferRange; 8]> = ranges.collect();
            let params = params.as_ref();
            Group::Fixed(bind_group(self.device, self.state, kernel, params, &ranges)?)
        };
        self.groups.push(group);
        let place = (self.groups.len() - 1) as u32;
        self.known.insert(key, place);
        Ok(place)
    }

    fn param_place(&self, at: u64, kernel: &Kernel) -> Option<ParamPlace> {
        let constant = self.work.constant_bytes() as u64;
        let (buffer, offset) = match at.checked_sub(constant) {
            Some(offset) => (&self.buffers[1], offset),
            None => (&self.buffers[0], at),
        };
        let bytes = u64::from(kernel.layout.interface.param_words) * 4;
        Some(ParamPlace { buffer: buffer.clone()?, offset, bytes })
    }
}
