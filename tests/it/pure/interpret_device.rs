//! A device that runs the WGSL of every kernel in the interpreter with all checks, and library
//! routines by the definition in `kernel::Routine`.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use warploom::kernel::{Epilogue, Gemm, KernelSpec, Routine};
use warploom::provider::{
    Args, BufferId, BufferRange, Command, Completion, Counters, Device, DeviceProfile, Dispatch,
    PreparedId, Recording, Resource, SlotRange, Support, Ticket, UploadSource, Usage, support,
};
use warploom::{Error, Result};
use warploom_core::base::platform::{BoxFuture, ready};
use warploom_core::base::{DType, SymbolValues};
use warploom_kernels::codegen::spec_wgsl;
use warploom_wgsl::interpret::{Argument, Checks, Options, Program};

/// The device.
pub(crate) struct Checked {
    profile: DeviceProfile,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    programs: HashMap<KernelSpec, Arc<Program>>,
    ran: HashSet<KernelSpec>,
    buffers: Vec<Option<Vec<AtomicU32>>>,
    prepared: Vec<(Recording, Vec<Option<BufferRange>>)>,
    done: HashMap<Ticket, Completion>,
    counters: Counters,
}

impl Checked {
    /// A device like a browser's: with or without subgroups.
    pub(crate) fn open(subgroups: bool) -> Arc<Checked> {
        let floor = DeviceProfile::webgpu_floor("interpreter");
        let width = if subgroups { 32 } else { 0 };
        let profile = floor.with(|p| {
            p.has_subgroups = subgroups;
            p.subgroup_min = width;
            p.subgroup_max = width;
        });
        Arc::new(Checked { profile, state: Mutex::default() })
    }

    /// A device with subgroups and cooperative matrices, and the other features of such devices.
    pub(crate) fn with_matrices() -> Arc<Checked> {
        let profile = Checked::open(true).profile.clone().with(|p| {
            p.has_matrix_hw = true;
            p.has_f16 = true;
            p.workgroup_memory_bytes = 32 << 10;
        });
        Arc::new(Checked { profile, state: Mutex::default() })
    }

    /// The same with f16 sums of matrices, and room for their largest tiles.
    pub(crate) fn with_f16_accumulate() -> Arc<Checked> {
        let profile = Checked::with_matrices().profile.clone().with(|p| {
            p.has_f16_accumulate = true;
            p.workgroup_memory_bytes = 48 << 10;
        });
        Arc::new(Checked { profile, state: Mutex::default() })
    }

    /// A device that claims to be CUDA's with the GEMM library.
    pub(crate) fn with_library() -> Arc<Checked> {
        let profile = Checked::open(false)
            .profile
            .clone()
            .with(|p| {
                p.provider = "cuda".into();
                p.has_gemm_library = true;
                p.max_storage_buffers = 16;
            })
            .with_cuda_features();
        Arc::new(Checked { profile, state: Mutex::default() })
    }

    /// The same with cooperative matrices.
    pub(crate) fn with_library_and_matrices() -> Arc<Checked> {
        let profile = Checked::with_matrices()
            .profile
            .clone()
            .with(|p| {
                p.provider = "cuda".into();
                p.has_gemm_library = true;
                p.max_storage_buffers = 16;
            })
            .with_cuda_features();
        Arc::new(Checked { profile, state: Mutex::default() })
    }

    /// The same with this subgroup size.
    pub(crate) fn with_library_and_subgroups_of(threads: u32) -> Arc<Checked> {
        let profile = Checked::with_library_and_matrices().profile.clone().with(|p| {
            p.subgroup_min = threads;
            p.subgroup_max = threads;
        });
        Arc::new(Checked { profile, state: Mutex::default() })
    }

    /// A device of another provider, at this place in its list.
    pub(crate) fn of(provider: &str, index: usize) -> Arc<Checked> {
        let floor = Checked::open(false).profile.clone();
        let profile = floor.with(|p| {
            p.provider = provider.into();
            p.index = index;
        });
        Arc::new(Checked { profile, state: Mutex::default() })
    }

    /// Kernels that ran so far.
    pub(crate) fn ran(&self) -> HashSet<KernelSpec> {
        self.state.lock().unwrap().ran.clone()
    }
}

impl State {
    fn words(&self, range: BufferRange) -> &[AtomicU32] {
        let buffer = self.buffers[range.buffer.index as usize].as_ref().expect("a live buffer");
        let (first, end) = (range.offset / 4, (range.offset + range.bytes).div_ceil(4));
        &buffer[first as usize..end as usize]
    }

    fn read(&self, range: BufferRange) -> Vec<u8> {
        let words = self.words(range).iter();
        let mut bytes: Vec<u8> = words.flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
        bytes.truncate(range.bytes as usize);
        bytes
    }

    fn write(&self, range: BufferRange, bytes: &[u8]) {
        for (word, bytes) in self.words(range).iter().zip(bytes.chunks(4)) {
            let mut all = word.load(Relaxed).to_le_bytes();
            all[..bytes.len()].copy_from_slice(bytes);
            word.store(u32::from_le_bytes(all), Relaxed);
        }
    }

    fn run(&mut self, id: PreparedId, args: &Args, out: &mut Completion) -> Result<()> {
        let (recording, mut slots) = self.prepared[id.index as usize].clone();
        for (slot, range) in &args.buffers {
            slots[*slot as usize] = Some(*range);
        }
        let place = |range: &SlotRange| -> Result<BufferRange> {
            let slot = slots[range.slot as usize].expect("a bound slot");
            let offset = slot.offset + range.offset.eval_size(&args.symbols)?;
            Ok(BufferRange { offset, bytes: range.bytes.eval_size(&args.symbols)?, ..slot })
        };
        for command in &recording.commands {
            match command {
                Command::Dispatch(dispatch) => {
                    self.dispatch(&recording, dispatch, &slots, &args.symbols)?;
                }
                Command::Upload { to, source: UploadSource::Data(bytes) } => {
                    self.write(place(to)?, bytes);
                }
                Command::Upload { to, source: UploadSource::Arg(index) } => {
                    self.write(place(to)?, &args.uploads[*index as usize]);
                }
                Command::Copy { from, to } => self.write(place(to)?, &self.read(place(from)?)),
                Command::Clear { range } => {
                    let range = place(range)?;
                    self.write(range, &vec![0; range.bytes as usize]);
                }
                Command::Download { from } => out.downloads.push(self.read(place(from)?)),
                Command::Timestamp => out.timestamps.push(0),
            }
        }
        Ok(())
    }

    fn dispatch(
        &mut self,
        recording: &Recording,
        dispatch: &Dispatch,
        slots: &[Option<BufferRange>],
        symbols: &SymbolValues,
    ) -> Result<()> {
        let spec = &recording.kernels[dispatch.kernel as usize];
        if let KernelSpec::Routine(Routine::Gemm(gemm)) = spec {
            let mut words = Vec::new();
            for word in &recording.params[dispatch.params as usize].0 {
                words.push(u64::from(word.eval(symbols)?));
            }
            let ranges = dispatch.bindings.iter().map(|binding| {
                let slot = slots[binding.slot as usize].expect("a bound slot");
                let offset = slot.offset + binding.offset;
                BufferRange { offset, bytes: binding.bytes, ..slot }
            });
            self.product(gemm, &words, &ranges.collect::<Vec<_>>());
            self.counters.dispatches += 1;
            self.ran.insert(spec.clone());
            return Ok(());
        }
        let program = Arc::clone(&self.programs[spec]);
        let mut grid = [0; 3];
        for (size, dim) in grid.iter_mut().zip(&dispatch.grid) {
            *size = dim.eval_size(symbols)? as u32;
        }
        let mut params = Vec::new();
        for word in &recording.params[dispatch.params as usize].0 {
            params.push(AtomicU32::new(word.eval(symbols)?));
        }
        params.resize_with(params.len().next_multiple_of(4), || AtomicU32::new(0));
        let mut arguments = vec![Argument::new(0, 0, &params)];
        for (i, binding) in dispatch.bindings.iter().enumerate() {
            let slot = slots[binding.slot as usize].expect("a bound slot");
            let offset = slot.offset + binding.offset;
            let words = self.words(BufferRange { offset, bytes: binding.bytes, ..slot });
            arguments.push(Argument::new(0, i as u32 + 1, words));
        }
        let options = Options { checks: Checks::ALL, max_steps: 1 << 24, ..Options::default() };
        let done = program.run(grid, &arguments, &options);
        done.map_err(|e| e.into_error().context(format!("dispatch {:?}", dispatch.label)))?;
        self.counters.dispatches += 1;
        self.ran.insert(spec.clone());
        Ok(())
    }
}

/// The element of a type at this place, as a number.
fn number(dtype: DType, bytes: &[u8], at: u64) -> f64 {
    let (size, at) = (dtype.bytes() as usize, at as usize);
    let own = &bytes[size * at..size * (at + 1)];
    match dtype {
        DType::F16 => half::f16::from_le_bytes([own[0], own[1]]).to_f64(),
        DType::BF16 => half::bf16::from_le_bytes([own[0], own[1]]).to_f64(),
        _ => f32::from_le_bytes([own[0], own[1], own[2], own[3]]).into(),
    }
}

impl State {
    /// The meaning of a product, by its words in the order of `GEMM_PARAMS`.
    fn product(&self, gemm: &Gemm, words: &[u64], ranges: &[BufferRange]) {
        let buffers: Vec<Vec<u8>> = ranges.iter().map(|range| self.read(*range)).collect();
        let (Some(result), [batch, m, n, k, ..]) = (buffers.last(), words) else {
            panic!("{gemm}: {words:?}")
        };
        let element =
            |buffer: usize, first: usize, transposed: bool, [t, row, column]: [u64; 3]| {
                let [row, column] = if transposed { [column, row] } else { [row, column] };
                let at = words[first] + t * words[first + 2] + row * words[first + 1] + column;
                number(gemm.operands, &buffers[buffer], at)
            };
        let mut out = result.clone();
        for (t, i, j) in (0..batch * m * n).map(|at| (at / (m * n), at / n % m, at % n)) {
            let products = (0..*k).map(|l| {
                element(0, 4, gemm.a_transposed, [t, i, l])
                    * element(1, 7, gemm.b_transposed, [t, l, j])
            });
            let mut sum: f64 = products.sum();
            if gemm.epilogue.has_bias() {
                sum += number(gemm.result, &buffers[2], words[13] + j);
            }
            if matches!(gemm.epilogue, Epilogue::Relu | Epilogue::BiasRelu) {
                sum = sum.max(0.0);
            }
            let at = (words[10] + t * words[12] + i * words[11] + j) as usize;
            let size = gemm.result.bytes() as usize;
            out[size * at..size * (at + 1)].copy_from_slice(&match gemm.result {
                DType::F16 => half::f16::from_f64(sum).to_le_bytes().to_vec(),
                DType::BF16 => half::bf16::from_f64(sum).to_le_bytes().to_vec(),
                _ => (sum as f32).to_le_bytes().to_vec(),
            });
        }
        self.write(ranges[ranges.len() - 1], &out);
    }
}

impl Device for Checked {
    fn profile(&self) -> &DeviceProfile {
        &self.profile
    }

    fn compile<'a>(&'a self, spec: &'a KernelSpec) -> BoxFuture<'a, Result<()>> {
        let mut state = self.state.lock().unwrap();
        if state.programs.contains_key(spec) {
            return ready(Ok(()));
        }
        if let Support::No(reason) = support(&self.profile, spec) {
            return ready(Err(Error::unsupported(reason)));
        }
        if matches!(spec, KernelSpec::Routine(_)) {
            state.counters.compiles += 1;
            return ready(Ok(()));
        }
        let program = spec_wgsl(spec)
            .and_then(|text| Program::from_wgsl(&text, &spec.to_string(), Some("main"), &[]));
        ready(program.map(|program| {
            state.counters.compiles += 1;
            state.programs.insert(spec.clone(), Arc::new(program));
        }))
    }

    fn alloc(&self, bytes: u64, _: Usage) -> Result<BufferId> {
        let mut state = self.state.lock().unwrap();
        // A device does not guarantee the initial contents of memory.
        let words = (0..bytes.div_ceil(4)).map(|_| AtomicU32::new(0x7fc0_dead)).collect();
        state.buffers.push(Some(words));
        state.counters.allocations += 1;
        Ok(BufferId { index: state.buffers.len() as u32 - 1, generation: 0 })
    }

    fn write(&self, to: BufferRange, bytes: &[u8]) -> Result<()> {
        self.state.lock().unwrap().write(to, bytes);
        Ok(())
    }

    fn prepare(&self, work: &Recording, slots: &[Option<BufferRange>]) -> Result<PreparedId> {
        let mut state = self.state.lock().unwrap();
        state.prepared.push((work.clone(), slots.to_vec()));
        Ok(PreparedId { index: state.prepared.len() as u32 - 1, generation: 0 })
    }

    fn submit(&self, work: &[(PreparedId, Args)]) -> Result<Ticket> {
        let mut state = self.state.lock().unwrap();
        let mut out = Completion::default();
        for (id, args) in work {
            state.run(*id, args, &mut out)?;
        }
        state.counters.submits += 1;
        let ticket = Ticket(state.counters.submits);
        state.done.insert(ticket, out);
        Ok(ticket)
    }

    fn wait(&self, ticket: Ticket) -> BoxFuture<'_, Result<Completion>> {
        let mut state = self.state.lock().unwrap();
        state.counters.waits += 1;
        let done = state.done.remove(&ticket);
        ready(done.ok_or_else(|| Error::invalid(format!("{ticket:?} was awaited before"))))
    }

    fn free(&self, what: Resource) {
        if let Resource::Buffer(id) = what {
            self.state.lock().unwrap().buffers[id.index as usize] = None;
        }
    }

    fn counters(&self) -> Counters {
        self.state.lock().unwrap().counters
    }
}
