//! The memory of one task on the device, and trials that run in it.
//!
//! Whatever a driver does, the search goes on or ends with a reason: what it is asked for is asked on
//! a thread of its own, and one that does not come back is left behind.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::fill::{differ, pattern};
use super::race::{Fault, Raced};
use crate::base::platform::block_on;
use crate::base::{ComputeMode, SymbolValues};
use crate::engine::TensorRole;
use crate::error::{Error, Result};
use crate::memory::PooledBuffer;
use crate::plan::{Content, Task, Trial};
use crate::provider::{
    Args, BufferRange, Completion, Device, DeviceKind, PreparedId, Recording, Resource, Usage,
};
use crate::runtime::Runtime;
use crate::runtime::tune::TuneOptions;

/// Seconds of one batch of runs, about.
const BATCH: f64 = 5e-4;
/// The same, at most: a device on which so many copies of a weight take longer than this is not one
/// whose caches hold them.
const LONGEST: f64 = 2e-2;
/// Runs whose least tells the size of a batch, and the seconds of one from which on two are enough.
const LOOKS: usize = 4;
const MOST_DISTURBED: f64 = 0.1;
/// Times the limit that a first run may take and be asked again.
const AGAIN: f64 = 4.0;
/// Launches of one batch, at most: a device has a few thousand in one submit.
const MOST_LAUNCHES: usize = 2000;
/// Copies of a weight, at most.
const MOST_COPIES: u64 = 64;
/// Bytes of one write.
const CHUNK: usize = 16 << 20;

/// What a trial wrote: at each point, by tensor.
pub(super) type Written = Vec<Vec<Vec<u8>>>;

/// Memory of a task.
pub(super) struct Bed<'a> {
    runtime: &'a Runtime,
    task: &'a Task,
    options: &'a TuneOptions,
    /// By tensor, then by copy.
    buffers: Vec<Vec<PooledBuffer>>,
    copies: usize,
    /// Whether something was out for lack of memory.
    short: Cell<bool>,
    /// Whether a thread that still compiles was left behind.
    left: Cell<bool>,
}

/// Prepared work, given back when dropped.
struct Prepared {
    device: Arc<dyn Device>,
    id: PreparedId,
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.device.free(Resource::Prepared(self.id));
    }
}

/// A trial with its own memory, ready to be timed.
pub(super) struct Runner {
    trial: Trial,
    temps: Vec<PooledBuffer>,
    batch: Option<Prepared>,
    runs: usize,
}

impl<'a> Bed<'a> {
    /// Allocates and fills the memory of a task.
    ///
    /// # Errors
    /// Out of memory, for more than one copy of each tensor; what the device says.
    pub(super) fn new(
        runtime: &'a Runtime,
        task: &'a Task,
        options: &'a TuneOptions,
        positive: bool,
    ) -> Result<Bed<'a>> {
        let resident: u64 =
            task.contents.iter().filter(|c| c.resident).map(|content| content.bytes).sum();
        let wanted = options.rotate_bytes.div_ceil(resident.max(1)).clamp(1, MOST_COPIES);
        let mut copies = if resident == 0 { 1 } else { wanted as usize };
        loop {
            let (buffers, [short, left]) = (Vec::new(), [const { Cell::new(false) }; 2]);
            let mut bed = Bed { runtime, task, options, buffers, copies, short, left };
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
            // Pieces of a pattern that is longer than one write.
            let at = (offset % pattern.len() as u64) as usize;
            let most = (bytes - offset).min(CHUNK as u64) as usize;
            let piece = &pattern[at..(at + most).min(pattern.len())];
            let to = BufferRange { offset, bytes: piece.len() as u64, ..buffer.range() };
            self.runtime.device().write(to, piece)?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// Makes the first copy of what runs write as it was.
    fn restore(&self, positive: bool) -> Result<()> {
        for (i, content) in self.task.contents.iter().enumerate() {
            if content.written.is_some() {
                let bytes = pattern(content, positive)?;
                self.fill(&self.buffers[i][0], &bytes, content.bytes)?;
            }
        }
        Ok(())
    }

    /// Compiles a trial and runs it at each point from memory as it was at first, within `limit` as
    /// [`Bed::within`] has it; what it wrote at each, by tensor.
    ///
    /// # Errors
    /// As [`Fault`] says, with the reason.
    pub(super) fn check(
        &self,
        trial: Trial,
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
            // Zero before each run and after it; of the rest a kernel reads only what it wrote.
            if tensor.role == TensorRole::Counters {
                self.fill(&buffer, &[0; 256], tensor.bytes)?;
            }
            Ok(buffer)
        });
        let temps: Vec<PooledBuffer> = temps.collect::<Result<_>>().map_err(|e| self.fault(e))?;
        let mut runner = Runner { trial, temps, batch: None, runs: 1 };
        let steps = recording.dispatches();
        let once = self.prepare(&runner, recording, &places)?;
        let (downloads, tensors) = Trial::downloads(&self.task.contents);
        let slots: Vec<_> = tensors.iter().map(|i| Some(self.buffers[*i][0].range())).collect();
        let device = self.runtime.device().clone();
        let id = device.prepare(&downloads, &slots).map_err(|e| self.fault(e))?;
        let downloads = Prepared { device, id };
        let mut results = Vec::new();
        for point in &self.task.points {
            self.within(&once, point, positive, limit)?;
            results.push(self.submit(&downloads, point)?.0.downloads);
        }
        // How long a run takes behind another, for the size of a batch.
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

    /// Runs it once at a point from memory as it was at first, for `limit` at most; where it takes longer it is asked
    /// again, since the first run may be when a driver compiles, or when something else had the machine.
    ///
    /// # Errors
    /// Out, for one that is too slow both times, or so slow that it cannot be for those reasons.
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

    /// Seconds of a run at a point, the least of a few: with one that was disturbed a batch would be too small.
    fn least(&self, once: &Prepared, point: &SymbolValues) -> Raced<f64> {
        let mut least = f64::INFINITY;
        for look in 0..LOOKS {
            // What takes so long twice is a batch of its own, whatever disturbs it.
            if look > 1 && least > MOST_DISTURBED {
                break;
            }
            least = least.min(self.submit(once, point)?.1);
        }
        Ok(least)
    }

    /// Whether anything was out for lack of memory.
    pub(super) fn was_short(&self) -> bool {
        self.short.get()
    }

    /// Whether a thread that still compiles was left behind since this was asked.
    pub(super) fn left_behind(&self) -> bool {
        self.left.take()
    }

    /// Whose fault an error is: a device that is lost is lost for all.
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

    /// Prepares a recording of a trial over this memory, for as long as it may compile.
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

    /// Seconds of one run of a batch at each point: by the device's clock where it has one.
    ///
    /// # Errors
    /// As [`Fault`] says, with the reason.
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

    /// Keeps the device busy for so long; a tenth of it where there is no clock that must rise.
    ///
    /// # Errors
    /// As [`Bed::time`].
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

    /// Submits and waits, for as long as the options allow. The seconds are of the device's clock between two
    /// timestamps, and of the host's where there are none.
    fn submit(&self, work: &Prepared, point: &SymbolValues) -> Raced<(Completion, f64)> {
        let (device, id) = (self.runtime.device().clone(), work.id);
        let args = Args { symbols: point.clone(), ..Args::default() };
        let limit = self.options.hang_limit;
        self.asked(limit, "it ran", move || {
            let begin = Instant::now();
            let ticket = device.submit(&[(id, args)])?;
            let completion = block_on(device.wait(ticket))?;
            let seconds = match completion.timestamps[..] {
                [begin, end] if end > begin => (end - begin) as f64 * 1e-9,
                // A clock that stands still, or none.
                _ => begin.elapsed().as_secs_f64(),
            };
            Ok((completion, seconds))
        })
    }

    /// What the device answers; one that does not in this time is lost.
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

/// Why work on a thread of its own yields nothing.
#[derive(Debug, PartialEq)]
enum Apart {
    /// It takes longer than the limit.
    Late,
    /// It panicked, or there was no thread; in words.
    Never(String),
}

/// What work on a thread of its own yields.
fn apart<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> std::result::Result<T, Apart> {
    let (give, take) = mpsc::sync_channel(1);
    let spawned = std::thread::Builder::new().name("warploom-tune".into()).spawn(move || {
        // What a panic leaves half done is in the device, which everybody else shares as well.
        let done = catch_unwind(AssertUnwindSafe(work));
        // Nobody listens any more where it came too late.
        let _ = give.send(done.map_err(|panic| Apart::Never(told(&*panic))));
    });
    if let Err(error) = spawned {
        return Err(Apart::Never(format!("no thread was to be had: {error}")));
    }
    take.recv_timeout(limit).unwrap_or(Err(Apart::Late))
}

/// A panic in words.
fn told(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("there was a panic: {}", text.unwrap_or("of no text"))
}

/// Whether a trial wrote the numbers of another one.
///
/// # Errors
/// The first that differs, in words.
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

/// What tensors a task's results are in, with their types.
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
