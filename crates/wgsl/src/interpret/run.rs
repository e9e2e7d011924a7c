//! Runs a dispatch: binds buffers and runs workgroups, on one thread or several.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::bytecode::{Code, Place, Region};
use super::fault::{Failure, Fault, Invocation, Party, Trap};
use super::machine::Machine;
use super::memory::Words;
use super::shadow::{Now, Shadow};
use super::workgroup::{Rules, Workgroup, unfold};
use super::{FaultKind, Program};
use warploom_core::error::{Error, Result};

/// The memory bound to a binding.
#[derive(Clone, Copy, Debug)]
pub struct Argument<'a> {
    /// `@group`.
    pub group: u32,
    /// `@binding`.
    pub binding: u32,
    /// The words of the memory; [`words`] converts bytes. Races are detected within each binding:
    /// as in WebGPU, written bindings must not overlap others.
    pub words: &'a [AtomicU32],
    /// Whether the memory is uninitialised, so that a read before a write is a fault.
    pub uninitialised: bool,
}

impl<'a> Argument<'a> {
    /// Binds initialised memory.
    pub fn new(group: u32, binding: u32, words: &'a [AtomicU32]) -> Argument<'a> {
        Argument { group, binding, words, uninitialised: false }
    }
}

/// Views bytes as words that several invocations may share.
///
/// # Errors
/// Invalid if the address or the number of the bytes is not a multiple of 4.
pub fn words(bytes: &mut [u8]) -> Result<&[AtomicU32]> {
    let n = bytes.len();
    let words: &mut [u32] = bytemuck::try_cast_slice_mut(bytes)
        .map_err(|e| Error::invalid(format!("{n} bytes as words of 4: {e}")))?;
    let (start, n) = (words.as_mut_ptr().cast::<AtomicU32>(), words.len());
    // SAFETY: an AtomicU32 has the size, alignment and bits of a u32, and the exclusive borrow of
    // the words lasts as long as the slice, so all access to them in that time is atomic.
    Ok(unsafe { std::slice::from_raw_parts(start, n) })
}

/// The faults that a run detects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Indices outside their array, vector or matrix; if unset, they are clamped.
    pub bounds: bool,
    /// Accesses of several invocations to the same bytes without a barrier in between, if one
    /// writes and not both are atomic.
    pub races: bool,
    /// Reads of workgroup memory before a write, and of storage that is
    /// [`Argument::uninitialised`]. WGSL zeroes workgroup memory, but zeroing makes a kernel that
    /// relies on it slower.
    pub uninitialised: bool,
    /// Barriers that some invocations skip because they have ended, and subgroup operations that
    /// some invocations skip. Invocations that wait at different barriers are always a fault.
    pub barriers: bool,
}

impl Checks {
    /// All checks.
    pub const ALL: Checks =
        Checks { bounds: true, races: true, uninitialised: true, barriers: true };
}

/// Options for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The checks to run; none by default.
    pub checks: Checks,
    /// Step limit of one invocation: about one step for each instruction in a loop.
    pub max_steps: u64,
    /// Subgroup size: a power of two from 4 to 128.
    pub subgroup_size: u32,
    /// Number of threads that run workgroups; a run that checks races or uninitialised reads uses
    /// one.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { checks: Checks::default(), max_steps: 1 << 32, subgroup_size: 32, threads: 1 }
    }
}

/// Statistics of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of workgroups.
    pub workgroups: u64,
    /// Steps of all invocations, counted as for [`Options::max_steps`].
    pub steps: u64,
}

/// A dispatch with its memory.
struct Job<'a> {
    code: &'a Code,
    /// Memory of every region; `None` for workgroup memory.
    bound: Vec<Option<Words<'a>>>,
    lengths: Vec<u32>,
    fresh: Vec<bool>,
    rules: Rules,
    checks: Checks,
    groups: u64,
}

impl Program {
    /// Runs a grid of workgroups. An empty grid does nothing.
    ///
    /// # Errors
    /// [`Failure::Fault`] for a fault of a kind in [`Options::checks`], and always for exceeding
    /// the step limit and for invocations that wait at different barriers; memory keeps the earlier
    /// writes. [`Failure::Error`], of the kind invalid, for a binding that is missing or too small
    /// and for options out of range.
    pub fn run(
        &self,
        workgroups: [u32; 3],
        arguments: &[Argument],
        options: &Options,
    ) -> Result<Report, Failure> {
        let width = options.subgroup_size;
        if !width.is_power_of_two() || !(4..=128).contains(&width) {
            return Err(Error::invalid(format!("subgroups of {width} invocations")).into());
        }
        let [x, y, z] = workgroups.map(u64::from);
        let groups = x.checked_mul(y).and_then(|xy| xy.checked_mul(z));
        let groups = groups
            .ok_or_else(|| Error::invalid(format!("{workgroups:?} workgroups are too many")))?;
        let alone = options.checks.races || options.checks.uninitialised;
        if alone && groups >= u64::from(u32::MAX) {
            return Err(Error::invalid(format!("{groups} workgroups are too many to check")).into());
        }
        let code = &self.code;
        let bound = bind(code, arguments)?;
        let (max_steps, uniform) = (options.max_steps, options.checks.barriers);
        let job = Job {
            code,
            lengths: lengths(&code.regions, &bound),
            fresh: fresh(&code.regions, arguments, options.checks),
            bound,
            rules: Rules { workgroups, subgroup_size: width, max_steps, uniform },
            checks: options.checks,
            groups,
        };
        let threads = if alone { 1 } else { options.threads.max(1) as u64 };
        let done = match threads.min(groups) {
            0 => Ok(0),
            1 => job.run(&AtomicU64::new(0), &AtomicBool::new(false)),
            threads => job.spread(threads),
        };
        match done {
            Ok(steps) => Ok(Report { workgroups: groups, steps }),
            Err((trap, group)) => {
                Err(Failure::Fault(Box::new(self.fault(*trap, group, workgroups, max_steps))))
            }
        }
    }

    fn fault(&self, trap: Trap, group: u64, workgroups: [u32; 3], max_steps: u64) -> Fault {
        let locate = |op: u32| {
            let span = self.code.spans.get(op as usize).copied().unwrap_or_default();
            self.source.locate(span)
        };
        let who = |group: u64, local: u32| {
            let sizes = self.code.workgroup_size;
            let workgroup = unfold(group, workgroups);
            let local = unfold(u64::from(local), sizes);
            let global = |i: usize| workgroup[i].wrapping_mul(sizes[i]).wrapping_add(local[i]);
            Invocation { workgroup, local, global: std::array::from_fn(global) }
        };
        let region = trap.region.and_then(|region| self.code.regions.get(region as usize));
        let party = |party: Party| (who(u64::from(party.group), party.local), locate(party.op));
        let detail = match trap.kind {
            FaultKind::StepLimit => format!("more than {max_steps} steps"),
            _ => trap.detail,
        };
        Fault {
            kind: trap.kind,
            location: locate(trap.op),
            invocation: who(group, trap.local),
            other: trap.other.map(party),
            variable: region.map(|region| region.name.clone()),
            detail,
        }
    }
}

impl Job<'_> {
    /// Runs workgroups on several threads; returns the number of steps or, of the faults found,
    /// that of the first workgroup.
    fn spread(&self, threads: u64) -> Result<u64, (Box<Trap>, u64)> {
        let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let found = Mutex::new(Ok(0));
        let work = || {
            let done = self.run(&next, &stop);
            let mut found = found.lock().unwrap_or_else(|e| e.into_inner());
            *found = match (std::mem::replace(&mut *found, Ok(0)), done) {
                (Ok(a), Ok(b)) => Ok(a + b),
                (Err(a), Err(b)) => Err(if a.1 < b.1 { a } else { b }),
                (Err(e), Ok(_)) | (Ok(_), Err(e)) => Err(e),
            };
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // If the system refuses more threads, the existing ones do the work.
                let _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        found.into_inner().unwrap_or_else(|e| e.into_inner())
    }

    /// Runs workgroups until none are left or a thread finds a fault; returns the number of steps,
    /// or the fault and the index of its workgroup.
    fn run(&self, next: &AtomicU64, stop: &AtomicBool) -> Result<u64, (Box<Trap>, u64)> {
        let own: Vec<Vec<AtomicU32>> = self.code.regions.iter().map(own_words).collect();
        let pairs = self.bound.iter().zip(&own);
        let regions: Vec<Words> = pairs.map(|(bound, own)| bound.unwrap_or(own)).collect();
        let checked = self.checks.races || self.checks.uninitialised;
        let shadow = checked.then(|| {
            let bytes: Vec<u64> = regions.iter().map(|words| 4 * words.len() as u64).collect();
            Shadow::new(&self.code.regions, &bytes, &self.fresh, self.checks.races)
        });
        let machine = Machine {
            code: self.code,
            regions,
            lengths: &self.lengths,
            bounds: self.checks.bounds,
            shadow,
            now: Now::default(),
            width: self.rules.subgroup_size,
        };
        let mut workgroup = Workgroup::new(machine, self.rules);
        let mut steps = 0u64;
        loop {
            let group = next.fetch_add(1, Relaxed);
            if group >= self.groups || stop.load(Relaxed) {
                return Ok(steps);
            }
            let id = unfold(group, self.rules.workgroups);
            match workgroup.run(id, group as u32) {
                Ok(taken) => steps = steps.saturating_add(taken),
                Err(trap) => {
                    stop.store(true, Relaxed);
                    return Err((trap, group));
                }
            }
        }
    }
}

/// Allocates the workgroup memory of a region; empty for a buffer.
fn own_words(region: &Region) -> Vec<AtomicU32> {
    let words = match region.place {
        Place::Workgroup => region.bytes.div_ceil(4),
        Place::Bound { .. } => 0,
    };
    (0..words).map(|_| AtomicU32::new(0)).collect()
}

impl Machine<'_> {
    /// Zeroes workgroup memory.
    pub(super) fn clear_workgroup(&self) {
        for (region, words) in self.code.regions.iter().zip(&self.regions) {
            if region.place == Place::Workgroup {
                words.iter().for_each(|word| word.store(0, Relaxed));
            }
        }
    }
}

fn find<'a, 'b>(region: &Region, arguments: &'b [Argument<'a>]) -> Option<&'b Argument<'a>> {
    let Place::Bound { group, binding, .. } = region.place else { return None };
    arguments.iter().find(|argument| (argument.group, argument.binding) == (group, binding))
}

fn bind<'a>(code: &Code, arguments: &[Argument<'a>]) -> Result<Vec<Option<Words<'a>>>> {
    let bind = |region: &Region| {
        let Place::Bound { group, binding, .. } = region.place else { return Ok(None) };
        let name = &region.name;
        let argument = find(region, arguments).ok_or_else(|| {
            Error::invalid(format!("nothing is bound to {name} at group {group} binding {binding}"))
        })?;
        let (have, need) = (4 * argument.words.len() as u64, u64::from(region.bytes));
        if have < need || have > u64::from(u32::MAX) {
            return Err(Error::invalid(format!(
                "{name} at group {group} binding {binding} needs {need} bytes and takes less than \
                 4 GiB, given {have}"
            )));
        }
        Ok(Some(argument.words))
    };
    code.regions.iter().map(bind).collect()
}

/// Returns the number of elements of each region's runtime-sized array; 0 without one.
fn lengths(regions: &[Region], bound: &[Option<Words>]) -> Vec<u32> {
    let lengths = regions.iter().zip(bound).map(|(region, words)| match (region.runtime, words) {
        (Some((offset, stride)), Some(words)) => {
            ((4 * words.len() as u64 - u64::from(offset)) / u64::from(stride)) as u32
        }
        _ => 0,
    });
    lengths.collect()
}

/// Returns, for each region, whether reads before writes are faults.
fn fresh(regions: &[Region], arguments: &[Argument], checks: Checks) -> Vec<bool> {
    let fresh = |region: &Region| match region.place {
        Place::Workgroup => true,
        Place::Bound { .. } => find(region, arguments).is_some_and(|a| a.uninitialised),
    };
    regions.iter().map(|region| checks.uninitialised && fresh(region)).collect()
}
