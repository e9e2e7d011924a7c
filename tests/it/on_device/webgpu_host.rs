//! Shared parts of device tests: opening devices, small kernels, short recordings.

use std::sync::{Arc, Once, OnceLock};

use smallvec::SmallVec;
use warploom::kernel::{Access, KernelSpec, SourceSpec};
use warploom::provider::{
    Args, Binding, BufferId, BufferRange, Command, Device, Dispatch, OpenOptions, ParamBlock,
    Provider, Recording, Resource, SlotRange, Usage, Word,
};
use warploom::webgpu;
use warploom_core::base::Dim;
use warploom_core::base::platform::block_on;
use warploom_native as native;

use crate::{Need, skip, tell};

/// The first wgpu device, opened with these options. `None` with a message if there is none, which
/// fails the test if `WARPLOOM_REQUIRE` lists `webgpu`.
pub(crate) fn open(options: OpenOptions) -> Option<Arc<dyn Device>> {
    static SAID: Once = Once::new();
    // One for all tests: some drivers print a line for each.
    static PROVIDER: OnceLock<webgpu::Provider> = OnceLock::new();
    let provider = PROVIDER.get_or_init(webgpu::Provider::new);
    let list = block_on(provider.list()).unwrap();
    let Some(profile) = list.first() else {
        skip(Need::WebGpu, "wgpu found no adapter");
        return None;
    };
    SAID.call_once(|| {
        let (id, name, driver) = (profile.id(), &profile.name, &profile.driver);
        tell(&format!("webgpu tests run on {id} {name:?} ({driver})"));
    });
    Some(block_on(provider.open(0, options)).unwrap())
}

/// The first OpenCL device, opened with these options. `None` if there is none, which fails the
/// test if `WARPLOOM_REQUIRE` lists `opencl`.
pub(crate) fn open_opencl(options: OpenOptions) -> Option<Arc<dyn Device>> {
    let provider = native::opencl::Provider;
    if block_on(provider.list()).unwrap().is_empty() {
        let why = provider.absence().unwrap_or_default();
        skip(Need::OpenCl, &why);
        return None;
    }
    Some(block_on(provider.open(0, options)).unwrap())
}

/// Runs a test on the first device of each available GPU provider. New providers are added here.
pub(crate) fn on_each(options: OpenOptions, test: impl Fn(Arc<dyn Device>)) {
    // Reports that there is none.
    if let Some(device) = open(options.clone()) {
        test(device);
    }
    for provider in natives() {
        let list = block_on(provider.list()).unwrap_or_default();
        if let Some(profile) = list.first() {
            tell(&format!("devices: also on {} {:?}", profile.id(), profile.name));
            test(block_on(provider.open(0, options.clone())).unwrap());
        }
    }
}

/// Providers over vendors' APIs.
pub(crate) fn natives() -> Vec<Box<dyn Provider>> {
    vec![Box::new(native::cuda::Provider::new()), Box::new(native::opencl::Provider)]
}

/// The same device once more, at the limits that WebGPU guarantees.
pub(crate) fn at_floor(device: &Arc<dyn Device>) -> Arc<dyn Device> {
    let options = OpenOptions { floor: true, ..Default::default() };
    let profile = device.profile();
    let native = natives().into_iter().find(|provider| provider.name() == profile.provider);
    match native {
        Some(provider) => block_on(provider.open(profile.index, options)).unwrap(),
        None => open(options).unwrap(),
    }
}

/// Doubles 64 floats and fails if the device does anything else.
pub(crate) fn assert_works(device: &dyn Device) {
    let mut work = Recording { label: "probe".into(), ..Default::default() };
    let y = work.slot("y", 256);
    let block = params(Word::Bits(64), 2.0, 0.0);
    dispatch(&mut work, affine_in_place(), block, &[(y, Access::ReadWrite)], Dim::new(1));
    download(&mut work, part(y, 0, 256));
    let range = floats(device, &[3.0; 64]);
    assert_eq!(run(device, &work, &[Some(range)], Args::default()), [[6.0; 64]]);
    device.free(Resource::Buffer(range.buffer));
}

/// `y[i] = x[i] * scale + add`, for `i < n`; 64 threads a workgroup.
pub(crate) fn affine() -> KernelSpec {
    source(
        "affine",
        "struct P { n: u32, scale: f32, add: f32, pad: u32 }
         @group(0) @binding(0) var<uniform> p: P;
         @group(0) @binding(1) var<storage, read> x: array<f32>;
         @group(0) @binding(2) var<storage, read_write> y: array<f32>;
         @compute @workgroup_size(64)
         fn main(@builtin(global_invocation_id) id: vec3<u32>) {
             if (id.x < p.n) { y[id.x] = x[id.x] * p.scale + p.add; }
         }",
        &[Access::Read, Access::ReadWrite],
        4,
    )
}

/// `y[i] = y[i] * scale + add` in place, for `i < n`; 64 threads a workgroup.
pub(crate) fn affine_in_place() -> KernelSpec {
    source(
        "affine_in_place",
        "struct P { n: u32, scale: f32, add: f32, pad: u32 }
         @group(0) @binding(0) var<uniform> p: P;
         @group(0) @binding(1) var<storage, read_write> y: array<f32>;
         @compute @workgroup_size(64)
         fn main(@builtin(global_invocation_id) id: vec3<u32>) {
             if (id.x < p.n) { y[id.x] = y[id.x] * p.scale + p.add; }
         }",
        &[Access::ReadWrite],
        4,
    )
}

/// A kernel from WGSL text with entry point `main`.
pub(crate) fn source(name: &str, wgsl: &str, bindings: &[Access], param_words: u32) -> KernelSpec {
    KernelSpec::Source(SourceSpec {
        name: name.into(),
        wgsl: wgsl.into(),
        entry: "main".into(),
        bindings: bindings.to_vec(),
        param_words,
        constants: Default::default(),
        twins: Vec::new(),
    })
}

/// The parameters of [`affine`].
pub(crate) fn params(n: Word, scale: f32, add: f32) -> ParamBlock {
    ParamBlock(vec![n, Word::f32(scale), Word::f32(add)])
}

/// A whole slot with its access.
pub(crate) fn bindings(work: &Recording, slots: &[(u32, Access)]) -> SmallVec<[Binding; 8]> {
    let binding = |&(slot, access): &(u32, Access)| {
        let bytes = work.slots[slot as usize].bytes;
        Binding { slot, offset: 0, bytes, access }
    };
    slots.iter().map(binding).collect()
}

/// Adds a launch over a grid in x.
pub(crate) fn dispatch(
    work: &mut Recording,
    kernel: KernelSpec,
    params: ParamBlock,
    slots: &[(u32, Access)],
    groups: Dim,
) {
    let bindings = bindings(work, slots);
    let (label, kernel) = (kernel.name().to_owned(), work.kernel(kernel));
    let params = work.param_block(params);
    let grid = [groups, Dim::new(1), Dim::new(1)];
    work.commands.push(Command::Dispatch(Dispatch { kernel, params, bindings, grid, label }));
}

/// A fixed part of a slot.
pub(crate) fn part(slot: u32, offset: i64, bytes: i64) -> SlotRange {
    SlotRange { slot, offset: Dim::new(offset), bytes: Dim::new(bytes) }
}

/// Adds a download.
pub(crate) fn download(work: &mut Recording, from: SlotRange) {
    work.commands.push(Command::Download { from });
}

/// A whole buffer.
pub(crate) fn whole(buffer: BufferId, bytes: u64) -> BufferRange {
    BufferRange { buffer, offset: 0, bytes }
}

/// Allocates a buffer and fills it with floats.
pub(crate) fn floats(device: &dyn Device, values: &[f32]) -> BufferRange {
    let bytes = 4 * values.len() as u64;
    let range = whole(device.alloc(bytes, Usage::Working).unwrap(), bytes);
    device.write(range, &to_bytes(values)).unwrap();
    range
}

/// Compiles every kernel of a recording.
pub(crate) fn compile(device: &dyn Device, work: &Recording) {
    for kernel in &work.kernels {
        block_on(device.compile(kernel)).unwrap();
    }
}

/// Compiles, prepares, submits and waits; returns the downloads as floats.
pub(crate) fn run(
    device: &dyn Device,
    work: &Recording,
    slots: &[Option<BufferRange>],
    args: Args,
) -> Vec<Vec<f32>> {
    compile(device, work);
    let prepared = device.prepare(work, slots).unwrap();
    let ticket = device.submit(&[(prepared, args)]).unwrap();
    let done = block_on(device.wait(ticket)).unwrap();
    done.downloads.iter().map(|bytes| to_floats(bytes)).collect()
}

pub(crate) fn to_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub(crate) fn to_floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
}
