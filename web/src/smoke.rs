//! Checks a dispatch on the page's GPU, and the failures that a page must survive.
//!
//! In a browser every result is a promise, so this covers what native tests cannot: errors that
//! arrive later, and waits that must not block.

use serde_json::{Value, json};
use warploom::kernel::{Access, KernelSpec, SourceSpec};
use warploom::provider::{
    Args, Binding, BufferRange, Command, Device, Dispatch, OpenOptions, ParamBlock, Provider,
    Recording, Resource, SlotRange, Ticket, UploadSource, Usage, Word,
};
use warploom::webgpu::{self, wgpu};
use warploom::{Dim, Symbol, SymbolValues};
use warploom::{Error, Result};

const ELEMENTS: u64 = 1000;
const N: Symbol = Symbol::new("n");

/// Computes `y[i] = x[i] * scale + add` for `i < n`, with 64 threads per workgroup.
const AFFINE: &str = "
    struct P { n: u32, scale: f32, add: f32, pad: u32 }
    @group(0) @binding(0) var<uniform> p: P;
    @group(0) @binding(1) var<storage, read> x: array<f32>;
    @group(0) @binding(2) var<storage, read_write> y: array<f32>;
    @compute @workgroup_size(64)
    fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if (id.x < p.n) { y[id.x] = x[id.x] * p.scale + p.add; }
    }";

/// Opens the first device, runs the checks and returns the report as JSON.
pub(crate) async fn run() -> Result<String> {
    let provider = webgpu::Provider::new();
    let listed = provider.list().await?.len();
    if listed == 0 {
        return Err(Error::unsupported("the page got no GPU adapter"));
    }
    let device = provider.open(0, OpenOptions::default()).await?;
    let floor = provider.open(0, OpenOptions { floor: true, ..Default::default() }).await?;
    let checks = [
        ("dispatch", dispatch(&*device).await),
        ("dispatch at the floor", dispatch(&*floor).await),
        ("a kernel that does not compile", broken_kernel(&*device).await),
        ("a submit that the browser refuses", refused_submit(&*device).await),
        ("a lost device", lost_device().await),
        ("dispatch after the failures", dispatch(&*device).await),
    ];
    let ok = checks.iter().all(|(_, outcome)| outcome.is_ok());
    let checks = checks.map(|(name, outcome)| match outcome {
        Ok(detail) => json!({ "name": name, "ok": true, "detail": detail }),
        Err(error) => json!({ "name": name, "ok": false, "detail": error.to_string() }),
    });
    Ok(json!({ "device": device.profile(), "checks": checks, "ok": ok }).to_string())
}

/// Submits the same prepared work twice at once, with different inputs and sizes, and checks both
/// results.
async fn dispatch(device: &dyn Device) -> Result<Value> {
    let bytes = 4 * ELEMENTS;
    let mut work = Recording { label: "smoke".into(), ..Default::default() };
    let (x, y) = (work.slot("x", bytes), work.slot("y", bytes));
    let kernel = source("affine", AFFINE, &[Access::Read, Access::ReadWrite], 4);
    let all = |slot| SlotRange { slot, offset: Dim::new(0), bytes: Dim::new(bytes as i64) };
    work.commands.push(Command::Upload { to: all(x), source: UploadSource::Arg(0) });
    let n = Dim::symbol(N);
    let block = ParamBlock(vec![Word::dim(&n)?, Word::f32(3.0), Word::f32(1.0)]);
    let launch = Dispatch {
        kernel: work.kernel(kernel.clone()),
        params: work.param_block(block),
        bindings: [(x, Access::Read), (y, Access::ReadWrite)]
            .map(|(slot, access)| Binding { slot, offset: 0, bytes, access })
            .into_iter()
            .collect(),
        grid: [n.ceil_div(&Dim::new(64)), Dim::new(1), Dim::new(1)],
        label: "affine".into(),
    };
    work.commands.push(Command::Dispatch(launch));
    work.commands.push(Command::Download { from: all(y) });
    device.compile(&kernel).await?;
    let x = buffer(device, bytes)?;
    let y = buffer(device, bytes)?;
    let prepared = device.prepare(&work, &[Some(x), Some(y)])?;
    let input = |start: f32| (0..ELEMENTS).map(move |i| start + i as f32);
    let args = |n: u64, start: f32| Args {
        symbols: SymbolValues::new().with(N, n),
        uploads: vec![input(start).flat_map(f32::to_le_bytes).collect()],
        ..Args::default()
    };
    let ticket = device.submit(&[(prepared, args(ELEMENTS, 0.0)), (prepared, args(10, 0.5))])?;
    let done = device.wait(ticket).await?;
    let first: Vec<f32> = input(0.0).map(|v| v * 3.0 + 1.0).collect();
    // The second run overwrites only the first ten elements.
    let mut second = first.clone();
    for (y, x) in second.iter_mut().zip(input(0.5)).take(10) {
        *y = x * 3.0 + 1.0;
    }
    for (got, want) in done.downloads.iter().zip([&first, &second]) {
        let got = floats(got);
        if let Some(i) = (0..want.len()).find(|i| got.get(*i) != want.get(*i)) {
            let (got, want) = (got.get(i), want[i]);
            return Err(Error::device(format!("y[{i}] is {got:?}, not {want}")));
        }
    }
    for resource in
        [Resource::Prepared(prepared), Resource::Buffer(x.buffer), Resource::Buffer(y.buffer)]
    {
        device.free(resource);
    }
    let sums: Vec<f64> = (done.downloads.iter())
        .map(|bytes| floats(bytes).iter().map(|v| f64::from(*v)).sum())
        .collect();
    Ok(json!({ "elements": ELEMENTS, "sums": sums }))
}

async fn broken_kernel(device: &dyn Device) -> Result<Value> {
    let wgsl = "@compute @workgroup_size(1)\nfn main() { let a: u32 = 1.5; }";
    let spec = source("broken", wgsl, &[], 0);
    match device.compile(&spec).await {
        Err(error) if error.is_compile() => Ok(json!(error.to_string())),
        Err(error) => Err(error.context("not a compile error")),
        Ok(()) => Err(Error::compile("a broken kernel compiled")),
    }
}

/// Submits work whose binding is smaller than one element of the kernel's array, which only the
/// browser detects; checks that each wait reports it.
async fn refused_submit(device: &dyn Device) -> Result<Value> {
    let wgsl = "@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
        @compute @workgroup_size(1) fn main() { y[0] = vec4<f32>(1.0); }";
    let kernel = source("wide", wgsl, &[Access::ReadWrite], 0);
    device.compile(&kernel).await?;
    let mut work = Recording { label: "refused".into(), ..Default::default() };
    let slot = work.slot("y", 4);
    let launch = Dispatch {
        kernel: work.kernel(kernel),
        params: work.param_block(ParamBlock::default()),
        bindings: [Binding { slot, offset: 0, bytes: 4, access: Access::ReadWrite }]
            .into_iter()
            .collect(),
        grid: [Dim::new(1), Dim::new(1), Dim::new(1)],
        label: "wide".into(),
    };
    work.commands.push(Command::Dispatch(launch));
    let from = SlotRange { slot, offset: Dim::new(0), bytes: Dim::new(4) };
    work.commands.push(Command::Download { from });
    let prepared = device.prepare(&work, &[Some(buffer(device, 4)?)])?;
    // Awaited separately; the wait for a later submit, which also reports failures, comes next.
    let ticket = device.submit(&[(prepared, Args::default())])?;
    let own = refusal(device, ticket).await?;
    let refused = device.submit(&[(prepared, Args::default())])?;
    let later = device.submit(&[])?;
    let reported = refusal(device, later).await?;
    device.wait(later).await?;
    match device.wait(refused).await {
        Err(_) => Ok(json!([own, reported])),
        Ok(_) => Err(Error::device("a refused submit returned a result after its error")),
    }
}

/// Waits for a refused submit and returns its error message.
async fn refusal(device: &dyn Device, ticket: Ticket) -> Result<String> {
    match device.wait(ticket).await {
        Err(error) if !error.is_device_lost() => Ok(error.to_string()),
        Err(error) => Err(error),
        Ok(_) => Err(Error::device("a refused submit returned a result")),
    }
}

/// Destroys a device and checks that every later run reports the loss.
async fn lost_device() -> Result<Value> {
    let failed = |what: &str| Error::device(format!("no second device: {what}"));
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapter = instance.request_adapter(&wgpu::RequestAdapterOptions::default()).await;
    let adapter = adapter.map_err(|error| failed(&error.to_string()))?;
    let opened = adapter.request_device(&wgpu::DeviceDescriptor::default()).await;
    let (gpu, queue) = opened.map_err(|error| failed(&error.to_string()))?;
    let device = webgpu::Provider::from_device(gpu.clone(), queue, &OpenOptions::default());
    dispatch(&*device).await?;
    gpu.destroy();
    for _ in 0..2 {
        match dispatch(&*device).await {
            Err(error) if error.is_device_lost() => {}
            Err(error) => return Err(error.context("not reported as a device loss")),
            Ok(_) => return Err(Error::device("a destroyed device returned a result")),
        }
    }
    Ok(json!("reported each time"))
}

fn source(name: &str, wgsl: &str, bindings: &[Access], param_words: u32) -> KernelSpec {
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

fn buffer(device: &dyn Device, bytes: u64) -> Result<BufferRange> {
    Ok(BufferRange { buffer: device.alloc(bytes, Usage::Working)?, offset: 0, bytes })
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let words = bytes.chunks_exact(4).filter_map(|chunk| chunk.try_into().ok());
    words.map(f32::from_le_bytes).collect()
}
