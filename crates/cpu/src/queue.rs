//! Order of execution: work of async callers is queued, all other work runs at once.
//!
//! A caller that may block ([`runs_in_place`](warploom_core::base::platform::runs_in_place))
//! executes the queued work and then its own, on its own thread. The work of any other caller is
//! queued, and the device's background thread executes it. Both hold the same lock while they
//! execute, so work runs in the order in which it was submitted.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll, Waker};

use super::call::{Context, Span};
use super::clock::Clock;
use super::memory::{Block, Memory};
use super::prepare::{Kernel, Prepared};
use super::submit::{Machine, Scratch};
use warploom_core::error::{Error, Result};
use warploom_hal::{Args, Completion, Counters, PreparedId, Ticket};
use warploom_kernels::KernelSpec;

/// Maximum number of results and failures kept for `wait`; older ones are dropped.
const KEPT: usize = 1 << 16;

/// The state that a device shares with its background thread.
pub(super) struct Inner {
    pub(super) context: Context,
    pub(super) clock: Clock,
    tables: Mutex<Tables>,
    /// Held while work executes and while buffers are accessed.
    turn: Mutex<Turn>,
}

/// The objects of a device. Their lock is held only briefly, never while work executes.
pub(super) struct Tables {
    pub(super) memory: Memory,
    pub(super) kernels: HashMap<KernelSpec, Arc<Kernel>>,
    pub(super) prepared: Vec<(u32, Option<Arc<Prepared>>)>,
    pub(super) free: Vec<u32>,
    pub(super) counters: Counters,
    /// Number of the last job that was queued or started.
    last: u64,
    /// Number of the last job that was executed.
    done: u64,
    queue: VecDeque<(u64, Job)>,
    /// Freed memory that a job may still access, with the number of the last such job.
    retired: Vec<(u64, Block)>,
    /// Results and failures that have not been waited for.
    finished: VecDeque<(Ticket, Result<Completion>)>,
    wakers: Vec<Waker>,
}

/// The work of the current submit; reused, so that a submit that runs in place allocates nothing.
#[derive(Default)]
pub(super) struct Turn {
    scratch: Scratch,
    work: Vec<Arc<Prepared>>,
}

/// A queued job.
enum Job {
    Submit { ticket: Ticket, turn: Turn, args: Vec<Args> },
    Write { to: Span, bytes: Box<[u8]> },
}

impl Inner {
    pub(super) fn new(context: Context, clock: Clock, memory: Memory) -> Inner {
        let tables = Tables {
            memory,
            kernels: HashMap::new(),
            prepared: Vec::new(),
            free: Vec::new(),
            counters: Counters::default(),
            last: 0,
            done: 0,
            queue: VecDeque::new(),
            retired: Vec::new(),
            finished: VecDeque::new(),
            wakers: Vec::new(),
        };
        Inner { context, clock, tables: Mutex::new(tables), turn: Mutex::default() }
    }

    pub(super) fn tables(&self) -> MutexGuard<'_, Tables> {
        // A poisoned lock is safe: each table is changed in one step.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no work executes, and returns the turn.
    pub(super) fn turn(&self) -> MutexGuard<'_, Turn> {
        // The contents are cleared before each use, so a poisoned lock is safe.
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the turn if no work executes and none is queued.
    pub(super) fn idle_turn(&self) -> Option<MutexGuard<'_, Turn>> {
        let turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(std::sync::TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        };
        self.tables().queue.is_empty().then_some(turn)
    }

    /// Executes the jobs that were queued before this call. The caller holds the turn.
    pub(super) fn drain(&self, _: &mut Turn) {
        let last = {
            let tables = self.tables();
            if tables.queue.is_empty() {
                return;
            }
            tables.last
        };
        loop {
            let job = {
                let mut tables = self.tables();
                match tables.queue.front() {
                    Some((number, _)) if *number <= last => tables.queue.pop_front(),
                    _ => None,
                }
            };
            match job {
                None => return,
                Some((number, Job::Submit { ticket, turn, args })) => {
                    let work = turn.work.iter().zip(&args);
                    let (result, counters) = self.execute(&turn.scratch, work);
                    self.finish(number, Some((ticket, result)), &counters);
                }
                Some((number, Job::Write { to, bytes })) => {
                    // SAFETY: the range was checked, its memory is kept for queued work, and the
                    // turn keeps everything else off it.
                    unsafe { bytes.as_ptr().copy_to_nonoverlapping(to.ptr, bytes.len()) };
                    self.finish(number, None, &Counters::default());
                }
            }
        }
    }

    /// Executes a submit on the calling thread, after all queued jobs.
    pub(super) fn submit_now(&self, work: &[(PreparedId, Args)]) -> Result<Ticket> {
        let mut turn = self.turn();
        let (number, ticket) = loop {
            self.drain(&mut turn);
            let mut tables = self.tables();
            // Jobs are numbered in the order of execution.
            if tables.queue.is_empty() {
                tables.gather(work, &mut turn)?;
                break tables.begin(&turn);
            }
        };
        let steps = turn.work.iter().zip(work.iter().map(|(_, args)| args));
        let (result, counters) = self.execute(&turn.scratch, steps);
        self.finish(number, Some((ticket, result)), &counters);
        turn.work.clear();
        Ok(ticket)
    }

    /// Queues a submit.
    pub(super) fn submit_later(&self, work: &[(PreparedId, Args)]) -> Result<Ticket> {
        let mut turn = Turn::default();
        let mut tables = self.tables();
        tables.gather(work, &mut turn)?;
        let (number, ticket) = tables.begin(&turn);
        let args = work.iter().map(|(_, args)| args.clone()).collect();
        tables.queue.push_back((number, Job::Submit { ticket, turn, args }));
        Ok(ticket)
    }

    /// Executes resolved work. The caller holds the turn.
    fn execute<'a>(
        &self,
        scratch: &Scratch,
        work: impl Iterator<Item = (&'a Arc<Prepared>, &'a Args)>,
    ) -> (Result<Completion>, Counters) {
        let machine = Machine { context: &self.context, clock: &self.clock };
        let (mut done, mut counters) = (Completion::default(), Counters::default());
        let run = || {
            work.enumerate().try_for_each(|(i, (prepared, args))| {
                scratch.run(i, prepared, args, &machine, &mut counters, &mut done)
            })
        };
        // A panic must not leave other threads waiting for this work.
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        let result = run.unwrap_or_else(|panic| {
            let text = warploom_core::base::platform::panic_text(&*panic);
            Err(Error::device(format!("cpu:0 panicked: {text}")))
        });
        (result.map(|()| done), counters)
    }

    /// Records that a job was executed, and wakes the waiting tasks.
    fn finish(
        &self,
        number: u64,
        submit: Option<(Ticket, Result<Completion>)>,
        counters: &Counters,
    ) {
        let mut tables = self.tables();
        match submit {
            // The lowest bit marks submits with results, so that the others need not be remembered.
            Some((ticket, done)) if done.is_err() || ticket.0 & 1 == 1 => tables.keep(ticket, done),
            _ => {}
        }
        tables.done = number;
        tables.counters.dispatches += counters.dispatches;
        tables.counters.uploaded_bytes += counters.uploaded_bytes;
        tables.counters.downloaded_bytes += counters.downloaded_bytes;
        let retired = match tables.retired.is_empty() {
            true => Vec::new(),
            false => tables.retired.extract_if(.., |(last, _)| *last <= number).collect::<Vec<_>>(),
        };
        let wakers = std::mem::take(&mut tables.wakers);
        drop(tables);
        drop(retired);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns the result of a submit. If it is not done, executes all queued jobs on the calling
    /// thread first.
    pub(super) fn wait_here(&self, ticket: Ticket) -> Result<Completion> {
        if !self.tables().is_done(ticket) {
            let mut turn = self.turn();
            self.drain(&mut turn);
        }
        self.tables().take(ticket)
    }

    /// Polls for the result of a submit. If it is not done, the task is woken after the next job.
    pub(super) fn poll_wait(
        &self,
        ticket: Ticket,
        context: &TaskContext<'_>,
    ) -> Poll<Result<Completion>> {
        let mut tables = self.tables();
        if tables.is_done(ticket) {
            return Poll::Ready(tables.take(ticket));
        }
        if !tables.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            tables.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Tables {
    pub(super) fn find(&self, id: PreparedId) -> Result<&Arc<Prepared>> {
        match self.prepared.get(id.index as usize) {
            Some((generation, Some(prepared))) if *generation == id.generation => Ok(prepared),
            _ => Err(Error::invalid(format!(
                "prepared work {} of generation {} is not live",
                id.index, id.generation
            ))),
        }
    }

    /// Keeps freed memory until all jobs so far are done. If they already are, returns the memory.
    pub(super) fn retire(&mut self, block: Block) -> Option<Block> {
        if self.done == self.last {
            return Some(block);
        }
        self.retired.push((self.last, block));
        None
    }

    /// Queues a write to a checked range.
    pub(super) fn write_later(&mut self, to: Span, bytes: &[u8]) {
        self.last += 1;
        self.queue.push_back((self.last, Job::Write { to, bytes: bytes.into() }));
    }

    /// Checks and resolves a submit without executing it.
    fn gather(&mut self, work: &[(PreparedId, Args)], turn: &mut Turn) -> Result<()> {
        turn.scratch.clear();
        turn.work.clear();
        for (id, args) in work {
            let prepared = Arc::clone(self.find(*id)?);
            turn.scratch.resolve(&prepared, args, &self.memory)?;
            turn.work.push(prepared);
        }
        Ok(())
    }

    /// Assigns a job number and a ticket to a submit of resolved work.
    fn begin(&mut self, turn: &Turn) -> (u64, Ticket) {
        let has_results = turn.work.iter().any(|prepared| prepared.has_results);
        self.counters.submits += 1;
        self.last += 1;
        (self.last, Ticket(self.last << 1 | u64::from(has_results)))
    }

    /// Returns whether a submit was executed; true for a ticket that was never issued.
    fn is_done(&self, ticket: Ticket) -> bool {
        let number = ticket.0 >> 1;
        number <= self.done || number > self.last
    }

    /// Keeps the results of a submit until they are waited for.
    fn keep(&mut self, ticket: Ticket, done: Result<Completion>) {
        if self.finished.len() == KEPT {
            self.finished.pop_front();
        }
        self.finished.push_back((ticket, done));
    }

    fn take(&mut self, ticket: Ticket) -> Result<Completion> {
        if ticket.0 >> 1 == 0 || ticket.0 >> 1 > self.last {
            return Err(Error::invalid(format!("{ticket:?} was never given")));
        }
        // A failure up to this ticket is reported first, and once.
        let failed = |(t, done): &(Ticket, Result<Completion>)| *t <= ticket && done.is_err();
        let own = |(t, _): &(Ticket, Result<Completion>)| *t == ticket;
        let place = self.finished.iter().position(failed);
        let place = place.or_else(|| self.finished.iter().position(own));
        match place.and_then(|place| self.finished.remove(place)) {
            Some((_, done)) => done,
            None if ticket.0 & 1 == 0 => Ok(Completion::default()),
            None => Err(Error::invalid(format!(
                "{ticket:?} was waited for before, or {KEPT} submits with results came after it"
            ))),
        }
    }
}
