//! Keeps a GPU's clock high between requests.
//!
//! An idle GPU lowers its clock, and the next run takes several times as long: an H200 drops from
//! 1,980 to 345 MHz within two seconds, and an H100 behaves the same. The driver follows the
//! fraction of time in which anything runs, not how much of the device it uses. So one spinning
//! workgroup is enough (`docs/performance/nvidia-h200.md`, "The clock between questions"). A CUDA
//! context keeps the clock high by itself.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use smallvec::smallvec;

use crate::base::platform::block_on;
use crate::base::{Dim, Symbol, SymbolValues};
use crate::error::Result;
use crate::kernel::{Access, KernelSpec, SourceSpec};
use crate::provider::{
    Args, Binding, BufferRange, Command, Device, Dispatch, ParamBlock, PreparedId, Recording,
    Resource, Usage, Word,
};

/// Target duration of a beat, which is the longest that it delays other work.
const BEAT: Duration = Duration::from_millis(2);
/// Pause between two beats. At 50 % the clock stays at its maximum. With beats of 1 ms it still
/// fell, because host overhead is too large a share of them.
const PAUSE: Duration = Duration::from_millis(2);
/// Time from a hold to the first beat. No clock falls that fast, and work that follows immediately
/// is not delayed by a beat.
const LATER: Duration = Duration::from_millis(100);

/// Maximum hold, a century: adding more to an `Instant` can overflow.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

const TURNS: Symbol = Symbol::new("turns");
const FIRST_TURNS: u64 = 10_000;
const MOST_TURNS: u64 = 1 << 20;
const BYTES: u64 = 256;

/// Runs dependent multiply-adds; the comparison keeps the compiler from removing them.
const SPIN: &str = "
@group(0) @binding(0) var<uniform> turns: vec4<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) at: u32) {
    var sum = f32(at);
    for (var i = 0u; i < turns.x; i++) {
        sum = fma(sum, 0.5f, 1.0f);
    }
    if (sum > 1e30f) {
        y[at] = sum;
    }
}
";

/// A thread that keeps a device busy half of the time during a hold, so that its clock does not
/// fall.
///
/// ```no_run
/// # fn main() -> warploom::Result<()> {
/// use std::time::Duration;
/// use warploom::runtime::{KeepAlive, Runtime};
/// let runtime = Runtime::auto()?;
/// let awake = KeepAlive::if_needed(runtime.device());
/// // An answer is complete; another question may follow.
/// if let Some(awake) = &awake {
///     awake.hold(Duration::from_secs(120));
/// }
/// // The next question has arrived.
/// if let Some(awake) = &awake {
///     awake.rest();
/// }
/// # Ok(()) }
/// ```
pub struct KeepAlive {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

crate::base::debug_as!(KeepAlive, |this| running: this.thread.is_some());

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Time of the first beat and end of the hold.
    held: Option<(Instant, Instant)>,
    ended: bool,
}

impl KeepAlive {
    /// Creates a keep-alive if the clock of the device drops when idle, as that of a discrete GPU
    /// through wgpu does. Returns `None` for other devices. The keep-alive is idle until
    /// [`KeepAlive::hold`].
    pub fn if_needed(device: &Arc<dyn Device>) -> Option<KeepAlive> {
        let drops = device.profile().clock_drops_when_idle;
        drops.then(|| KeepAlive::new(device.clone()))
    }

    /// Creates a keep-alive for any device that compiles WGSL. If the thread cannot start, or the
    /// kernel does not compile or run, the keep-alive does nothing from then on. The caller gets no
    /// error: the reason is only logged, at debug level.
    pub fn new(device: Arc<dyn Device>) -> KeepAlive {
        let shared = Arc::new(Shared::default());
        let (seen, name) = (shared.clone(), "warploom awake".to_string());
        let run = move || {
            if let Err(error) = beat_while_held(&*device, &seen) {
                tracing::debug!(%error, device = device.profile().id(), "not kept awake");
            }
        };
        // Without the thread only the keep-alive is lost.
        let thread = std::thread::Builder::new().name(name).spawn(run);
        let thread = thread.inspect_err(|error| tracing::debug!(%error, "not kept awake")).ok();
        KeepAlive { shared, thread }
    }

    /// Keeps the clock of the device high for `time` from now on; replaces an earlier hold.
    pub fn hold(&self, time: Duration) {
        let now = Instant::now();
        self.shared.set(|state| state.held = Some((now + LATER, now + time.min(LONGEST))));
    }

    /// Ends the hold and lets the device idle. A kernel in flight ends in about 2 ms.
    pub fn rest(&self) {
        self.shared.set(|state| state.held = None);
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.shared.set(|state| state.ended = true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    /// Waits until a beat is due; returns false at shutdown.
    fn wait_for_beat(&self) -> bool {
        let mut state = self.state();
        loop {
            if state.ended {
                return false;
            }
            let now = Instant::now();
            state = match state.held {
                Some((first, until)) if now < first.min(until) => {
                    let waited = self.changed.wait_timeout(state, first - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Some((_, until)) if now < until => return true,
                _ => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

fn beat_while_held(device: &dyn Device, shared: &Shared) -> Result<()> {
    if !shared.wait_for_beat() {
        return Ok(());
    }
    let mut pulse = Pulse::new(device)?;
    while shared.wait_for_beat() {
        pulse.beat()?;
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// The keep-alive kernel on its device.
struct Pulse<'a> {
    device: &'a dyn Device,
    y: BufferRange,
    prepared: PreparedId,
    turns: u64,
}

impl Pulse<'_> {
    fn new(device: &dyn Device) -> Result<Pulse<'_>> {
        let spec = KernelSpec::Source(SourceSpec {
            name: "spin".into(),
            wgsl: SPIN.into(),
            entry: "main".into(),
            bindings: vec![Access::ReadWrite],
            param_words: 4,
            constants: Default::default(),
            twins: Vec::new(),
        });
        block_on(device.compile(&spec))?;
        let mut recording = Recording { label: "awake".into(), ..Recording::default() };
        let kernel = recording.kernel(spec);
        let mut words = vec![Word::Bits(0); 4];
        words[0] = Word::dim(&Dim::symbol(TURNS))?;
        let params = recording.param_block(ParamBlock(words));
        let slot = recording.slot("y", BYTES);
        let y = Binding { slot, offset: 0, bytes: BYTES, access: Access::ReadWrite };
        recording.commands.push(Command::Dispatch(Dispatch {
            kernel,
            params,
            bindings: smallvec![y],
            grid: [Dim::new(1), Dim::new(1), Dim::new(1)],
            label: "spin".into(),
        }));
        let y =
            BufferRange { buffer: device.alloc(BYTES, Usage::Working)?, offset: 0, bytes: BYTES };
        let prepared = device.prepare(&recording, &[Some(y)]).inspect_err(|_| {
            device.free(Resource::Buffer(y.buffer));
        })?;
        Ok(Pulse { device, y, prepared, turns: FIRST_TURNS })
    }

    /// Launches the kernel once, then adjusts the number of turns so that a launch takes [`BEAT`]
    /// at the current clock.
    fn beat(&mut self) -> Result<()> {
        let symbols = SymbolValues::new().with(TURNS, self.turns);
        let args = Args { symbols, ..Args::default() };
        let begin = Instant::now();
        let ticket = self.device.submit(&[(self.prepared, args)])?;
        // `Device::wait` spins at first, so the host sleeps for most of the beat.
        std::thread::sleep(BEAT - BEAT / 8);
        block_on(self.device.wait(ticket))?;
        let took = begin.elapsed().max(Duration::from_micros(1)).as_secs_f64();
        let wanted = self.turns as f64 * BEAT.as_secs_f64() / took;
        // A beat delayed by other work is a bad measurement, so the change is bounded.
        let (least, most) = (self.turns.div_ceil(2), (2 * self.turns).min(MOST_TURNS));
        self.turns = (wanted as u64).clamp(least, most);
        Ok(())
    }
}

impl Drop for Pulse<'_> {
    fn drop(&mut self) {
        self.device.free(Resource::Prepared(self.prepared));
        self.device.free(Resource::Buffer(self.y.buffer));
    }
}
