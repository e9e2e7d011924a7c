//! A session whose device is lost opens it again and goes on with the same tokens, wherever the
//! loss happens: in an upload, a prompt, a decode step or a read.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use warploom::provider::{
    Args, BufferId, BufferRange, Completion, Counters, Device, DeviceProfile, OpenOptions,
    PreparedId, Provider, Recording, Resource, Ticket, Usage,
};
use warploom::runtime::{Runtime, SyncMode};
use warploom::{ComputeMode, Error, Result};
use warploom_core::base::platform::{BoxFuture, block_on, ready};
use warploom_kernels::KernelSpec;
use warploom_llm::{GenerateOptions, Output, Recovery, Sampling, Session, StepRequest};

use crate::plans::embedded;
use crate::{Need, devices, skip, tell};

/// Where a device is lost: after this many calls of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Write,
    Submit,
    Wait,
}

/// Shared by all devices of a provider.
struct Plan {
    at: At,
    /// Calls until the next loss.
    left: AtomicI64,
    /// Calls from a loss to the next one; `None` if there is only one loss.
    again: Option<i64>,
    opened: Mutex<Vec<usize>>,
    /// Whether the first device opens only once.
    once: bool,
}

impl Plan {
    fn call(&self, at: At) -> bool {
        let lost = at == self.at && self.left.fetch_sub(1, Relaxed) == 1;
        if let (true, Some(again)) = (lost, self.again) {
            self.left.store(again, Relaxed);
        }
        lost
    }
}

/// Devices of another provider that are lost at a planned call. Both have the same inner device.
struct Fragile {
    inner: Arc<dyn Provider>,
    plan: Arc<Plan>,
}

impl Provider for Fragile {
    fn name(&self) -> &'static str {
        "fragile"
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<DeviceProfile>>> {
        Box::pin(async move {
            let profile = self.inner.list().await?.swap_remove(0);
            Ok([0, 1].map(|index| named(&profile, index)).into())
        })
    }

    fn open(&self, index: usize, options: OpenOptions) -> BoxFuture<'_, Result<Arc<dyn Device>>> {
        let mut opened = self.plan.opened.lock().unwrap();
        if self.plan.once && index == 0 && opened.contains(&0) {
            return ready(Err(Error::unsupported("the card fell off the bus")));
        }
        opened.push(index);
        Box::pin(async move {
            let inner = self.inner.open(0, options).await?;
            let (profile, plan) = (named(inner.profile(), index), self.plan.clone());
            Ok(Arc::new(Losing { inner, profile, plan, lost: AtomicBool::new(false) })
                as Arc<dyn Device>)
        })
    }
}

fn named(profile: &DeviceProfile, index: usize) -> DeviceProfile {
    let mut profile = profile.clone();
    (profile.provider, profile.index) = ("fragile".into(), index);
    profile
}

struct Losing {
    inner: Arc<dyn Device>,
    profile: DeviceProfile,
    plan: Arc<Plan>,
    lost: AtomicBool,
}

impl Losing {
    fn check(&self, at: At) -> Result<()> {
        if self.plan.call(at) {
            self.lost.store(true, Relaxed);
        }
        match self.lost.load(Relaxed) {
            true => Err(Error::device_lost(format!("{} is lost: pulled out", self.profile.id()))),
            false => Ok(()),
        }
    }
}

impl Device for Losing {
    fn profile(&self) -> &DeviceProfile {
        &self.profile
    }

    fn compile<'a>(&'a self, spec: &'a KernelSpec) -> BoxFuture<'a, Result<()>> {
        self.inner.compile(spec)
    }

    fn alloc(&self, bytes: u64, usage: Usage) -> Result<BufferId> {
        self.inner.alloc(bytes, usage)
    }

    fn write(&self, to: BufferRange, bytes: &[u8]) -> Result<()> {
        self.check(At::Write)?;
        self.inner.write(to, bytes)
    }

    fn prepare(&self, work: &Recording, slots: &[Option<BufferRange>]) -> Result<PreparedId> {
        self.inner.prepare(work, slots)
    }

    fn submit(&self, work: &[(PreparedId, Args)]) -> Result<Ticket> {
        self.check(At::Submit)?;
        self.inner.submit(work)
    }

    fn wait(&self, ticket: Ticket) -> BoxFuture<'_, Result<Completion>> {
        match self.check(At::Wait) {
            Ok(()) => self.inner.wait(ticket),
            Err(error) => ready(Err(error)),
        }
    }

    fn free(&self, what: Resource) {
        self.inner.free(what);
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

/// The providers of this machine that the fragile one wraps.
fn inner() -> Vec<(&'static str, Arc<dyn Provider>)> {
    let webgpu = warploom::webgpu::Provider::new();
    let mut all: Vec<(&'static str, Arc<dyn Provider>)> =
        vec![("cpu", Arc::new(warploom_cpu::Provider))];
    match block_on(webgpu.list()) {
        Ok(found) if !found.is_empty() => all.push(("webgpu", Arc::new(webgpu))),
        _ => skip(Need::WebGpu, "recovery: there is no adapter"),
    }
    all
}

/// The number of places of a loss that are tried: `all`, or three where every device that is opened
/// compiles its kernels for seconds.
fn places(name: &str, all: i64) -> i64 {
    if name == "webgpu" && !devices::whole() { 3 } else { all }
}

fn runtime(inner: &Arc<dyn Provider>, plan: &Arc<Plan>) -> Runtime {
    let provider = Fragile { inner: inner.clone(), plan: plan.clone() };
    Runtime::builder().device("fragile:0").provider(provider).build().unwrap()
}

fn plan(at: At, left: i64) -> Plan {
    Plan { at, left: left.into(), again: None, opened: Mutex::default(), once: false }
}

fn session(runtime: Runtime, recovery: Recovery) -> Result<Session> {
    let builder = Session::builder(embedded()).runtime(runtime).context(64);
    builder.compute(ComputeMode::F32).recovery(recovery).build()
}

/// Greedy tokens after a prompt, by `generate`.
fn generated(session: &mut Session) -> Result<Vec<u32>> {
    let options =
        GenerateOptions::default().max_tokens(24).sampling(Sampling::default().temperature(0.0));
    let done = session.generate("Once upon a time", &options, &mut |_| ControlFlow::Continue(()));
    Ok(done?.tokens)
}

#[test]
fn a_lost_device_is_opened_again_and_the_text_goes_on() {
    for (name, inner) in inner() {
        // Counts the calls of a run without a loss.
        let counted = |at| {
            let quiet = Arc::new(plan(at, 1 << 40));
            let mut session = session(runtime(&inner, &quiet), Recovery::Off).unwrap();
            let uploaded = (1 << 40) - quiet.left.load(Relaxed);
            let tokens = generated(&mut session).unwrap();
            (uploaded, (1 << 40) - quiet.left.load(Relaxed), tokens)
        };
        let mut losses = 0;
        for at in [At::Write, At::Submit, At::Wait] {
            let (_, calls, want) = counted(at);
            assert!(calls >= 10 && want.len() == 24, "{name}: {calls} calls of {at:?}");
            // From the first call to the last.
            let places = places(name, 10);
            for place in 0..places {
                let left = 1 + place * (calls - 1) / (places - 1);
                let planned = Arc::new(plan(at, left));
                let mut session = session(runtime(&inner, &planned), Recovery::SameDevice).unwrap();
                let have = generated(&mut session);
                let what = format!("{name}: lost at call {left} of {calls} of {at:?}");
                assert_eq!(have.unwrap_or_else(|e| panic!("{what}: {e}")), want, "{what}");
                let opened = planned.opened.lock().unwrap().clone();
                // The loss in the last read may be of a run that is not needed.
                let last = place == places - 1 && opened == [0];
                assert!(opened == [0, 0] || last, "{what}: opened {opened:?}");
                losses += opened.len() - 1;
                if let [recovered] = session.recoveries() {
                    assert!(recovered.to_string().contains("pulled out"), "{recovered}");
                }
            }
        }
        tell(&format!("recovery: {name}: {losses} losses, the same text each time"));
    }
}

#[test]
fn sequences_go_on_after_a_loss_in_a_batch() {
    for (name, inner) in inner() {
        let run = |planned: &Arc<Plan>| {
            let builder = Session::builder(embedded()).runtime(runtime(&inner, planned));
            let builder = builder.context(32).sequences(3).compute(ComputeMode::F32);
            let mut session = builder.build().unwrap();
            let mut next: Vec<(usize, u32)> = Vec::new();
            for sequence in 0..3 {
                let prompt: Vec<u32> = (0..4 + sequence as u32).map(|i| 10 + 7 * i).collect();
                let request = StepRequest::tokens(sequence, &prompt, Output::Greedy);
                next.push((sequence, session.step(request).unwrap().token().unwrap()));
            }
            let mut all = next.clone();
            for _ in 0..4 {
                let output = session.step(StepRequest::batch(&next, Output::Greedy)).unwrap();
                next = output.next_tokens().iter().map(|t| (t.sequence, t.id().unwrap())).collect();
                all.extend(&next);
            }
            // The chosen tokens are on the device, also after a loss.
            let ahead = StepRequest::run_ahead(&[0, 1, 2], 4, Output::Greedy);
            let output = session.step(ahead).unwrap();
            all.extend(output.next_tokens().iter().map(|t| (t.sequence, t.id().unwrap())));
            (all, session.recoveries().len())
        };
        let quiet = Arc::new(plan(At::Wait, 1 << 40));
        let (want, none) = run(&quiet);
        let calls = (1 << 40) - quiet.left.load(Relaxed);
        assert_eq!((want.len(), none), (27, 0));
        let places = places(name, calls);
        for place in 0..places {
            let left = 1 + place * (calls - 1) / (places - 1);
            let (have, recoveries) = run(&Arc::new(plan(At::Wait, left)));
            assert_eq!(have, want, "{name}: lost at wait {left} of {calls}");
            assert!(recoveries <= 1, "{name}: lost at wait {left}: {recoveries} recoveries");
        }
        tell(&format!("recovery: {name}: lost in {places} of {calls} waits of a batch"));
    }
}

#[test]
fn a_device_that_does_not_come_back_is_replaced_if_that_is_allowed() {
    let (_, inner) = inner().swap_remove(0);
    let planned = || Arc::new(Plan { once: true, ..plan(At::Submit, 12) });
    let first = planned();
    let mut stays = session(runtime(&inner, &first), Recovery::SameDevice).unwrap();
    let error = generated(&mut stays).unwrap_err();
    assert!(error.is_device_lost() && error.to_string().contains("fell off the bus"), "{error}");
    // The session is as before: it fails again, and does not end the process.
    assert!(generated(&mut stays).unwrap_err().is_device_lost());
    let second = planned();
    let mut moves = session(runtime(&inner, &second), Recovery::AnyDevice).unwrap();
    let mut quiet = session(runtime(&inner, &Arc::new(plan(At::Wait, 1 << 40))), Recovery::Off);
    assert_eq!(generated(&mut moves).unwrap(), generated(quiet.as_mut().unwrap()).unwrap());
    assert_eq!(moves.device().profile().id(), "fragile:1");
    assert_eq!(moves.recoveries()[0].device, "fragile:1");
}

#[test]
fn a_device_that_is_lost_again_and_again_ends_the_step_not_the_process() {
    let (_, inner) = inner().swap_remove(0);
    let planned = Arc::new(Plan { again: Some(2), ..plan(At::Submit, 12) });
    let mut session = session(runtime(&inner, &planned), Recovery::SameDevice).unwrap();
    let error = generated(&mut session).unwrap_err();
    assert!(error.is_device_lost(), "{error}");
    let opened = planned.opened.lock().unwrap().len();
    assert!((2..=4).contains(&opened), "opened {opened} times");
}

#[test]
fn a_device_of_the_caller_is_not_opened_again() {
    let (_, inner) = inner().swap_remove(0);
    let provider = Fragile { inner, plan: Arc::new(plan(At::Submit, 12)) };
    let device = block_on(provider.open(0, OpenOptions::default())).unwrap();
    let runtime = Runtime::on(device, SyncMode::Lazy, None).unwrap();
    assert!(!runtime.can_reopen());
    let mut session = session(runtime, Recovery::SameDevice).unwrap();
    let error = generated(&mut session).unwrap_err().to_string();
    assert!(error.contains("pulled out") && !error.contains("opened again"), "{error}");
}
