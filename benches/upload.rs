//! Upload bandwidth in GB/s: from ordinary memory, from pinned memory if the provider has it
//! (CUDA), and from a mapped file, as the weights of a model are uploaded. All bytes are read back
//! and compared afterwards.
//!
//! `cargo bench --bench upload` uploads 1 GiB 15 times from each on the best device; `-- -d cuda`
//! selects a device, `--mib 256` the size, `--rounds 5` the number of uploads.
//! `benches/upload_torch.py` makes the same copies with PyTorch. Without `--bench` it uploads 4
//! MiB, as a test.

use std::io::Write;
use std::time::Instant;

use warploom::provider::{
    Args, BufferRange, Command, Device, Recording, Resource, SlotRange, Usage,
};
use warploom::runtime::{DeviceTensors, Runtime, TuneMode, WeightSource};
use warploom::{Error, Result};
use warploom_core::base::Dim;
use warploom_core::base::platform::block_on;
use warploom_native::cuda;

/// Bytes read back at a time.
const PIECE: u64 = 64 << 20;

/// The value of a command-line option.
fn option(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

fn number(name: &str, otherwise: usize) -> Result<usize> {
    let Some(text) = option(name) else { return Ok(otherwise) };
    let wrong = |_| Error::invalid(format!("{name} {text:?} is not a number"));
    Ok(text.parse::<usize>().map_err(wrong)?.max(1))
}

fn main() -> Result<()> {
    let timed = std::env::args().any(|argument| argument == "--bench");
    let (mib, rounds) = if timed { (1024, 15) } else { (4, 2) };
    let (bytes, rounds) = (number("--mib", mib)? << 20, number("--rounds", rounds)?);
    let device = option("-d").unwrap_or_else(|| "auto".into());
    let runtime = Runtime::builder().device(device).tune(TuneMode::Off).build()?;
    let profile = runtime.device().profile();
    println!("{} {} {}", profile.id(), profile.name, profile.driver);
    println!("GB/s of {} MiB, {rounds} runs after one: median (least to most)", bytes >> 20);
    let data: Vec<u8> = (0..bytes as u32 / 4).flat_map(scrambled).collect();

    measure(&runtime, "ordinary memory", &data, rounds, &mut write(&runtime, &data)?)?;
    if profile.provider == "cuda" {
        let mut pinned = cuda::Provider::new().pinned(profile.index, bytes)?;
        pinned.copy_from_slice(&data);
        measure(&runtime, "pinned memory", &data, rounds, &mut write(&runtime, &pinned)?)?;
    }
    let path = std::env::temp_dir().join(format!("warploom-bench-upload-{}", std::process::id()));
    let done = from_file(&runtime, &path, &data, rounds);
    // Also after a failure.
    let _ = std::fs::remove_file(&path);
    done
}

/// Four bytes derived from their position, so that misplaced data shows.
fn scrambled(i: u32) -> [u8; 4] {
    (i.wrapping_mul(0x9E37_79B9) ^ (i >> 7)).to_le_bytes()
}

/// Makes one upload and returns its destination.
type Upload<'a> = dyn FnMut() -> Result<BufferRange> + 'a;

/// An upload by one call of `Device::write` into an existing buffer.
fn write<'a>(
    runtime: &'a Runtime,
    from: &'a [u8],
) -> Result<impl FnMut() -> Result<BufferRange> + 'a> {
    let bytes = from.len() as u64;
    let device = runtime.device();
    let to = BufferRange { buffer: device.alloc(bytes, Usage::Weights)?, offset: 0, bytes };
    Ok(move || device.write(to, from).map(|()| to))
}

/// Measures uploads from a mapped file, as a session uploads weights, including the allocation of
/// device memory. The file is in the system's page cache.
fn from_file(runtime: &Runtime, path: &std::path::Path, data: &[u8], rounds: usize) -> Result<()> {
    let failed = |error: std::io::Error| Error::invalid(format!("{}: {error}", path.display()));
    let mut file = std::fs::File::create_new(path).map_err(failed)?;
    file.write_all(data).map_err(failed)?;
    let file = std::fs::File::open(path).map_err(failed)?;
    // SAFETY: this process created the file and does not write to it again.
    let mapped = unsafe { memmap2::Mmap::map(&file) }.map_err(failed)?;
    let mut last = None;
    let mut upload = || {
        // Frees the memory of the previous upload, which the pool then reuses.
        last = None;
        let mut resident = DeviceTensors::new();
        let weights = [WeightSource { name: "w", bytes: &mapped }];
        resident.upload(runtime.pool(), &**runtime.device(), &weights, &mut |_| {})?;
        let range = resident.get("w");
        last = Some(resident);
        range.ok_or_else(|| Error::invalid("the weight is not where it was put"))
    };
    measure(runtime, "a mapped file", data, rounds, &mut upload)
}

/// Times uploads, each until all bytes are on the device; compares the bytes; prints the result.
fn measure(
    runtime: &Runtime,
    what: &str,
    data: &[u8],
    rounds: usize,
    upload: &mut Upload<'_>,
) -> Result<()> {
    let device = &**runtime.device();
    let mut speeds = Vec::with_capacity(rounds);
    let mut staged = 0;
    let mut to = upload()?;
    arrived(device)?;
    for _ in 0..rounds {
        let before = device.counters().staged_bytes;
        let begin = Instant::now();
        to = upload()?;
        arrived(device)?;
        speeds.push(data.len() as f64 / begin.elapsed().as_secs_f64() / 1e9);
        staged = device.counters().staged_bytes - before;
    }
    let to = BufferRange { bytes: data.len() as u64, ..to };
    let mut offset = 0;
    while offset < to.bytes {
        let bytes = PIECE.min(to.bytes - offset);
        let found = read(device, to, offset, bytes)?;
        let expected = &data[offset as usize..(offset + bytes) as usize];
        if let Some(at) = found.iter().zip(expected).position(|(a, b)| a != b) {
            let at = offset + at as u64;
            return Err(Error::invalid(format!("{what}: byte {at} is not what was written")));
        }
        offset += bytes;
    }
    speeds.sort_by(f64::total_cmp);
    let (least, median, most) = (speeds[0], speeds[rounds / 2], speeds[rounds - 1]);
    let copied = 100.0 * staged as f64 / data.len() as f64;
    println!("{what:16} {median:7.2} ({least:.2} to {most:.2}), {copied:.0} % copied on the host");
    Ok(())
}

/// Waits until written data is on the device, with an empty submit after the write.
fn arrived(device: &dyn Device) -> Result<()> {
    let nothing = Recording { label: "arrived".into(), ..Default::default() };
    let id = device.prepare(&nothing, &[])?;
    let done = device.submit(&[(id, Args::default())]).and_then(|t| block_on(device.wait(t)));
    device.free(Resource::Prepared(id));
    done.map(|_| ())
}

fn read(device: &dyn Device, from: BufferRange, offset: u64, bytes: u64) -> Result<Vec<u8>> {
    let mut work = Recording { label: "read".into(), ..Default::default() };
    let slot = work.slot("x", from.bytes);
    let (at, count) = (Dim::from(offset as usize), Dim::from(bytes as usize));
    work.commands.push(Command::Download { from: SlotRange { slot, offset: at, bytes: count } });
    let id = device.prepare(&work, &[Some(from)])?;
    let done = device.submit(&[(id, Args::default())]).and_then(|t| block_on(device.wait(t)));
    device.free(Resource::Prepared(id));
    Ok(done?.downloads.remove(0))
}
