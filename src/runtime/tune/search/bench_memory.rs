//! Bench memory: the device memory of one task, and the candidates that run in it.
//!
//! The search survives driver failures or stops with a reason: each driver call runs on its own
//! thread, and a thread that does not return is abandoned.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::successive_halving::{Fault, Raced};
use super::synthetic_data::{differ, pattern};
use crate::base::platform::block_on;
use crate::base::{ComputeMode, SymbolValues};
use crate::engine::TensorRole;
use crate::error::{Error, Result};
use crate::memory::PooledBuffer;
use crate::plan::{Content, Measurement, Task};
use crate::provider::{
    Args, BufferRange, Completion, Device, DeviceKind, PreparedId, Recording, Resource, Usage,
};
use crate::runtime::Runtime;
use crate::runtime::tune::TuneOptions;

/// Target seconds of one batch of runs.
const BATCH: f64 = 5e-4;
/// Upper limit of a batch in seconds. If a run on each copy of a weight takes longer in all, the
/// device's caches do not hold the copies.
const LONGEST: f64 = 2e-2;
/// Number of runs whose minimum time sets the batch size; two are enough above [`MOST_DISTURBED`].
const LOOKS: usize = 4;
/// Seconds above which a run is its own batch, whether disturbed or not.
const MOST_DISTURBED: f64 = 0.1;
/// A run that exceeds the time limit gets a second try if it takes less than this multiple of it.
const AGAIN: f64 = 4.0;
/// Maximum launches per batch: devices accept a few thousand per submit.
const MOST_LAUNCHES: usize = 2000;
/// Maximum copies of a weight.
const MOST_COPIES: u64 = 64;
/// Bytes per write.
const CHUNK: usize = 16 << 20;

/// Result of a candidate: for each point and written tensor, the bytes.
pub(super) type Written = Vec<Vec<Vec<u8>>>;

/// Device memory of a task.
pub(super) struct BenchMemory<'a> {
    runtime: &'a Runtime,
    task: &'a Task,
    options: &'a TuneOptions,
    /// Buffers by tensor, then by copy.
    buffers: Vec<Vec<PooledBuffer>>,
    copies: usize,
    /// Whether a candidate was eliminated for lack of memory.
    short: Cell<bool>,
    /// Whether a thread was abandoned while it was still compiling.
    left: Cell<bool>,
}

/// Prepared work, freed on drop.
struct Prepared {
    device: Arc<dyn Device>,
    id: PreparedId,
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.device.free(Resource::Prepared(self.id));
    }
}

/// A candidate with its own memory, ready for timing.
pub(super) struct Runner {
    trial: Measurement,
    temps: Vec<PooledBuffer>,
    batch: Option<Prepared>,
    runs: usize,
}

impl<'a> BenchMemory<'a> {
    /// Allocates and fills the memory of a task. With `positive`, no value is negative.
    ///
    /// # Errors
    /// Out of memory if even one copy of each tensor does not fit; any device error.
    pub(super) fn new(
        runtime: &'a Runtime,
        task: &'a Task,
        options: &'a TuneOptions,
        positive: bool,
    ) -> Result<BenchMemory<'a>> {
        let resident: u64 =
            task.contents.iter().filter(|c| c.resident).map(|content| content.bytes).sum();
        let wanted = options.rotate_bytes.div_ceil(resident.max(1)).clamp(1, MOST_COPIES);
        let mut copies = if resident == 0 { 1 } else { wanted as usize };
        loop {
            let (buffers, [short, left]) = (Vec::new(), [const { Cell::new(false) }; 2]);
            let mut bed = BenchMemory { runtime, task, options, buffers, copies, short, left };
            match bed.allocate(positive) {
                Ok(()) => return Ok(bed),
                Err(error) if error.is_out_of_memory() && copies > 1 => copies = 1,
                Err(error) => return Err(error),
            }
        }
    }

    fn allocate(&mut self, positive: bool) -> Result<()> {
        for content in &self.task.contents {
            let count = if content.resident { self.copies } else { 1 };
            let bytes = pattern(content, positive)?;
            let mut copies = Vec::new();
            for _ in 0..count {
                let buffer = self.runtime.pool().take(content.bytes, Usage::Working)?;
                self.fill(&buffer, &bytes, content.bytes)?;
                copies.push(buffer);
            }
            self.buffers.push(copies);
        }
        Ok(())
    }

    fn fill(&self, buffer: &PooledBuffer, pattern: &[u8], bytes: u64) -> Result<()> {
        let mut offset = 0u64;
        while offset < bytes && !pattern.is_empty() {
            // Splits a pattern that is longer than one write.
            let at = (offset % pattern.len() as u64) as usize;
            let most = (bytes - offset).min(CHUNK as u64) as usize;
            let piece = &pattern[at..(at + most).min(pattern.len())];
            let to = BufferRange { offset, bytes: piece.len() as u64, ..buffer.range() };
            self.runtime.device().write(to, piece)?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// Restores the initial contents of the tensors that runs write, in their first copy.
    fn restore(&self, positive: bool) -> Result<()> {
        for (i, content) in self.task.contents.iter().enumerate() {
            if content.written.is_some() {
                let bytes = pattern(content, positive)?;
                self.fill(&self.buffers[i][0], &bytes, content.bytes)?;
            }
        }
        Ok(())
    }

    /// Compiles a candidate and runs it at each point from the initial memory, within `limit` as in
    /// [`BenchMemory::within`]. Returns the candidate, ready for timing, with its result at each
    /// point, by tensor.
    ///
    /// # Errors
    /// A [`Fault`] with the reason.
    pub(super) fn check(
        &self,
        trial: Measurement,
        positive: bool,
        limit: Duration,
    ) -> Raced<(Runner, Written)> {
        let (recording, places) = trial.recording(&self.task.contents, (1, 1), self.stamps());
        for spec in recording.kernels.clone() {
            let device = self.runtime.device().clone();
            let limit = self.options.compile_limit;
            let compiled = apart(limit, move || block_on(device.compile(&spec)));
            match compiled {
                Ok(result) => result.map_err(|e| self.fault(e))?,
                Err(Apart::Late) => {
                    self.left.set(true);
                    return Err(Fault::Out(format!("still compiles after {limit:?}")));
                }
                Err(Apart::Never(why)) => {
                    return Err(Fault::Out(format!("while it was compiled, {why}")));
                }
            }
        }
        let pool = self.runtime.pool();
        let temps = trial.tensors[trial.own()..].iter().map(|tensor| {
            let buffer = pool.take(tensor.bytes, Usage::Working)?;
            // Counters are zero before and after each run. Of the other scratch memory a kernel
            // reads only what it wrote.
            if tensor.role == TensorRole::Counters {
                self.fill(&buffer, &[0; 256], tensor.bytes)?;
            }
            Ok(buffer)
        });
        let temps: Vec<PooledBuffer> = temps.collect::<Result<_>>().map_err(|e| self.fault(e))?;
        let mut runner = Runner { trial, temps, batch: None, runs: 1 };
        let steps = recording.dispatches();
        let once = self.prepare(&runner, recording, &places)?;
        let (downloads, tensors) = Measurement::downloads(&self.task.contents);
        let slots: Vec<_> = tensors.iter().map(|i| Some(self.buffers[*i][0].range())).collect();
        let device = self.runtime.device().clone();
        let id = device.prepare(&downloads, &slots).map_err(|e| self.fault(e))?;
        let downloads = Prepared { device, id };
        let mut results = Vec::new();
        for point in &self.task.points {
            self.within(&once, point, positive, limit)?;
            results.push(self.submit(&downloads, point)?.0.downloads);
        }
        // Seconds of a run that follows another, to choose the batch size.
        let seconds = self.least(&once, &self.task.points[0])?;
        let steps = steps.max(1);
        let most = (MOST_LAUNCHES / steps).max(1);
        let runs = |time: f64| (time / seconds.max(1e-7)) as usize;
        let wanted = runs(BATCH).max(self.copies).min(runs(LONGEST));
        runner.runs = wanted.clamp(1, most);
        let (recording, places) = {
            let rotation = (self.copies, runner.runs);
            runner.trial.recording(&self.task.contents, rotation, self.stamps())
        };
        runner.batch = Some(self.prepare(&runner, recording, &places)?);
        Ok((runner, results))
    }

    /// Runs a candidate once at a point from the initial memory, for at most `limit`. A slower run
    /// is tried again, since the driver may compile in the first run or another process may use the
    /// machine.
    ///
    /// # Errors
    /// [`Fault::Out`] if the candidate is too slow both times, or slower than these reasons can
    /// explain.
    fn within(
        &self,
        once: &Prepared,
        point: &SymbolValues,
        positive: bool,
        limit: Duration,
    ) -> Raced<()> {
        let (mut seconds, most) = (0.0, limit.as_secs_f64());
        for _ in 0..2 {
            self.restore(positive).map_err(|e| self.fault(e))?;
            seconds = self.submit(once, point)?.1;
            if seconds <= most {
                return Ok(());
            }
            if seconds > AGAIN * most {
                break;
            }
        }
        Err(Fault::Out(format!("one run takes {seconds:.2} s, more than {limit:?}")))
    }

    /// Returns the minimum time in seconds of a few runs at a point: a disturbed run would make the
    /// batch too small.
    fn least(&self, once: &Prepared, point: &SymbolValues) -> Raced<f64> {
        let mut least = f64::INFINITY;
        for look in 0..LOOKS {
            // A run this long is its own batch, whether disturbed or not.
            if look > 1 && least > MOST_DISTURBED {
                break;
            }
            least = least.min(self.submit(once, point)?.1);
        }
        Ok(least)
    }

    /// Returns whether a candidate was eliminated for lack of memory.
    pub(super) fn was_short(&self) -> bool {
        self.short.get()
    }

    /// Returns whether a thread was abandoned, since the last call, while it was still compiling.
    pub(super) fn left_behind(&self) -> bool {
        self.left.take()
    }

    /// Classifies an error: a lost device stops the race, any other eliminates the candidate.
    fn fault(&self, error: Error) -> Fault {
        self.short.set(self.short.get() || error.is_out_of_memory());
        match error.is_device_lost() {
            true => Fault::Stop(error),
            false => Fault::Out(error.to_string()),
        }
    }

    fn stamps(&self) -> bool {
        self.runtime.device().profile().has_timestamps
    }

    /// Prepares a recording of a candidate on this memory, within the compile limit. `places` holds
    /// the tensor and the copy that each slot stands for.
    fn prepare(
        &self,
        runner: &Runner,
        recording: Recording,
        places: &[(usize, usize)],
    ) -> Raced<Prepared> {
        let own = runner.trial.own();
        let range = |(tensor, copy): &(usize, usize)| match tensor.checked_sub(own) {
            Some(temp) => runner.temps[temp].range(),
            None => self.buffers[*tensor][*copy].range(),
        };
        let slots: Vec<_> = places.iter().map(|place| Some(range(place))).collect();
        let device = self.runtime.device().clone();
        self.asked(self.options.compile_limit, "it was prepared", move || {
            let id = device.prepare(&recording, &slots)?;
            Ok(Prepared { device, id })
        })
    }

    /// Runs a batch at each point and returns the seconds per run, by the device's clock if it has
    /// one.
    ///
    /// # Errors
    /// A [`Fault`] with the reason.
    pub(super) fn time(&self, runner: &Runner) -> Raced<Vec<f64>> {
        let Some(batch) = &runner.batch else {
            return Err(Fault::Out("it was not checked".into()));
        };
        let one = |point: &SymbolValues| {
            let (_, seconds) = self.submit(batch, point)?;
            Ok(seconds.max(1e-9) / runner.runs as f64)
        };
        self.task.points.iter().map(one).collect()
    }

    /// Keeps the device busy for `time`, or a tenth of it if there is no clock to raise.
    ///
    /// # Errors
    /// Same as [`BenchMemory::time`].
    pub(super) fn warm(&self, runner: &Runner, time: Duration) -> Raced<()> {
        let time = match self.runtime.device().profile().kind {
            DeviceKind::Discrete | DeviceKind::Integrated => time,
            DeviceKind::Software | DeviceKind::Cpu | DeviceKind::Null => time / 10,
        };
        let begin = Instant::now();
        while begin.elapsed() < time {
            self.time(runner)?;
        }
        Ok(())
    }

    /// Submits work once and waits, within the options' limit. Returns the seconds between two
    /// device timestamps or, without timestamps, by the host's clock.
    fn submit(&self, work: &Prepared, point: &SymbolValues) -> Raced<(Completion, f64)> {
        let (device, id) = (self.runtime.device().clone(), work.id);
        let args = Args { symbols: point.clone(), ..Args::default() };
        let limit = self.options.hang_limit;
        self.asked(limit, "it ran", move || {
            let begin = Instant::now();
            // Inside one `block_on`, so that the CPU provider computes on this thread.
            let completion = block_on(async {
                let ticket = device.submit(&[(id, args)])?;
                device.wait(ticket).await
            })?;
            let seconds = match completion.timestamps[..] {
                [begin, end] if end > begin => (end - begin) as f64 * 1e-9,
                // The device clock does not advance or is absent.
                _ => begin.elapsed().as_secs_f64(),
            };
            Ok((completion, seconds))
        })
    }

    /// Runs a device call with a time limit; on a timeout the device counts as lost.
    fn asked<T: Send + 'static>(
        &self,
        limit: Duration,
        while_what: &str,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Raced<T> {
        match apart(limit, work) {
            Ok(result) => result.map_err(|e| self.fault(e)),
            Err(Apart::Never(why)) => Err(Fault::Out(format!("while {while_what}, {why}"))),
            Err(Apart::Late) => {
                let id = self.runtime.device().profile().id();
                let text = format!("{id} has not answered for {limit:?}");
                Err(Fault::Stop(Error::device_lost(text)))
            }
        }
    }
}

/// Why work on a separate thread has no result.
#[derive(Debug, PartialEq)]
enum Apart {
    /// The work exceeded the time limit.
    Late,
    /// The work panicked, or the thread did not start; the reason as text.
    Never(String),
}

/// Runs work on a separate thread and returns its result, or why there is none.
fn apart<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> std::result::Result<T, Apart> {
    let (give, take) = mpsc::sync_channel(1);
    let spawned = std::thread::Builder::new().name("warploom-tune".into()).spawn(move || {
        // State left by a panic is in the device, which is shared anyway.
        let done = catch_unwind(AssertUnwindSafe(work));
        // After a timeout the receiver is gone.
        let _ = give.send(done.map_err(|panic| Apart::Never(panic_message(&*panic))));
    });
    if let Err(error) = spawned {
        return Err(Apart::Never(format!("no thread could be started: {error}")));
    }
    take.recv_timeout(limit).unwrap_or(Err(Apart::Late))
}

/// Formats the message of a panic as text.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("there was a panic: {}", text.unwrap_or("of no text"))
}

/// Checks that a candidate's result agrees with the expected one.
///
/// # Errors
/// The first difference, as text.
pub(super) fn agree(
    task: &Task,
    expected: &Written,
    got: &Written,
) -> std::result::Result<(), String> {
    let rounds = task.mode().is_some_and(|mode| mode != ComputeMode::F32);
    let (loose, types) = (rounds, written(&task.contents));
    for (expected, got) in expected.iter().zip(got) {
        for ((name, dtype), (expected, got)) in types.iter().zip(expected.iter().zip(got)) {
            if let Some(what) = differ(*dtype, expected, got, loose) {
                return Err(format!("{name}: {what}"));
            }
        }
    }
    Ok(())
}

/// Returns the names and types of the tensors that hold a task's results.
pub(super) fn written(contents: &[Content]) -> Vec<(String, crate::base::DType)> {
    let named = |content: &Content| content.written.map(|dtype| (content.name.clone(), dtype));
    contents.iter().filter_map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_not_taken_for_a_timeout() {
        let limit = Duration::from_secs(60);
        assert_eq!(apart(limit, || 7), Ok(7));
        let panics = |work: fn() -> u32| match apart(limit, work) {
            Err(Apart::Never(why)) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(panics(|| panic!("no room in {}", 3)), "there was a panic: no room in 3");
        assert_eq!(panics(|| panic!("no room")), "there was a panic: no room");
        let (hold, wait) = mpsc::channel::<()>();
        let late = apart(Duration::from_millis(10), move || wait.recv());
        assert!(matches!(late, Err(Apart::Late)), "{late:?}");
        drop(hold);
    }
}
