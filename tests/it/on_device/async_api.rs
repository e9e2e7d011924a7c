//! An await never blocks the thread that polls it: on tokio's current-thread runtime a timer of
//! 1 ms keeps ticking while the same thread awaits reads and a generation, on every device whose
//! driver submits without waiting.
//!
//! The test machine's cores may be busy, so a tick may be late without any fault of ours. The ticks
//! are therefore compared with those of a control: the same work, done by blocking calls on another
//! thread.

use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval, timeout};
use warploom::provider::DeviceKind;
use warploom::provider::worker::on_thread;
use warploom::runtime::Runtime;
use warploom::{Result, Tensor};
use warploom_core::base::platform::block_on;
use warploom_llm::{Event, GenerateOptions, Sampling, Session};

use crate::devices;
use crate::plans::embedded;
use crate::{Need, skip, tell};

const TICK: Duration = Duration::from_millis(1);
/// Work that is shorter proves nothing.
const SHORTEST: Duration = Duration::from_millis(100);
/// Other processes may take the cores for a while.
const ATTEMPTS: usize = 10;

/// The ticks that came while something was awaited. Ticks that are missed are not made up for.
#[derive(Clone, Copy)]
struct Ticks {
    came: u64,
    elapsed: Duration,
}

impl Ticks {
    /// The share of the ticks of that time.
    fn share(self) -> f64 {
        self.came as f64 / (self.elapsed.as_secs_f64() / TICK.as_secs_f64())
    }
}

/// Awaits `work` while a task of the same thread counts ticks.
async fn ticking<T>(work: impl Future<Output = T>) -> (T, Ticks) {
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    let ticker = tokio::spawn(async move {
        let mut interval = interval(TICK);
        interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            interval.tick().await;
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    tokio::task::yield_now().await;
    let (start, before) = (Instant::now(), count.load(Ordering::Relaxed));
    let value = work.await;
    let elapsed = start.elapsed();
    let came = count.load(Ordering::Relaxed) - before;
    ticker.abort();
    (value, Ticks { came, elapsed })
}

fn on_one_thread<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
}

/// Whether nine of ten ticks came, of those that come during the control.
fn judge(what: &str, awaited: Ticks, control: Ticks) -> bool {
    let (share, usual) = (awaited.share(), control.share());
    tell(&format!(
        "async_api: {what}: {} ticks in {:.0} ms ({:.0} %), {:.0} % during the control",
        awaited.came,
        awaited.elapsed.as_secs_f64() * 1e3,
        share * 100.0,
        usual * 100.0
    ));
    assert!(awaited.elapsed >= SHORTEST, "{what}: {:?} prove nothing", awaited.elapsed);
    share >= 0.9 * usual
}

/// Rows and columns of products that take long compared with the host's work for them.
const LARGE: usize = 768;
/// The same for the fastest devices.
const LARGEST: usize = 8192;
/// Of products that even a software GPU does in some milliseconds.
const SMALL: usize = 96;

/// A tensor of `n * n` elements: `count` products in a chain.
fn chain(runtime: &Runtime, n: usize, count: usize, seed: u64) -> Tensor {
    let x = Tensor::rand(runtime, [n, n], seed) * (2.0 / n as f32);
    let mut y = x.clone();
    for _ in 0..count {
        y = y.matmul(&x);
    }
    y
}

/// The devices whose submits return at once. A software Vulkan driver waits in the call for the work
/// that was submitted before.
fn devices_that_submit_at_once() -> Vec<(String, Runtime)> {
    let mut all = devices::every(false);
    all.retain(|(label, runtime)| {
        let profile = runtime.device().profile();
        let executes = profile.provider == "webgpu" && profile.kind == DeviceKind::Software;
        if executes {
            skip(
                Need::Driver,
                &format!("{label}: its driver waits for earlier work in the submit call"),
            );
        }
        !executes
    });
    all
}

/// The size of products and the length of a chain that takes the device long enough, planned and
/// compiled by now.
fn long_enough(runtime: &Runtime) -> (usize, usize) {
    let (mut n, mut count) = (LARGE, 1);
    loop {
        chain(runtime, n, count, 1).to_vec::<f32>().unwrap();
        let start = Instant::now();
        chain(runtime, n, count, 2).to_vec::<f32>().unwrap();
        let is_last = n >= LARGEST && count >= 128;
        if start.elapsed() >= 5 * SHORTEST || is_last {
            return (n, count);
        }
        // Many steps are planning, which is not the device's time.
        if count < 16 || n >= LARGEST { count *= 2 } else { n *= 2 }
    }
}

#[test]
fn a_timer_keeps_ticking_through_reads_on_every_device() {
    for (label, runtime) in devices_that_submit_at_once() {
        let (n, count) = long_enough(&runtime);
        let passed = (0..ATTEMPTS).any(|attempt| {
            on_one_thread(async {
                let seed = 10 + attempt as u64;
                let (read, awaited) =
                    ticking(chain(&runtime, n, count, seed).to_vec_async::<f32>()).await;
                let other = runtime.clone();
                let work = move || chain(&other, n, count, seed).to_vec::<f32>();
                let (expected, control) = ticking(on_thread("control", work)).await;
                assert!(read.unwrap() == expected.unwrap(), "{label}: other values");
                judge(&format!("{label}: a read"), awaited, control)
            })
        });
        assert!(passed, "{label}: the thread that awaited a read was blocked");
    }
}

#[test]
fn the_timer_does_not_tick_through_a_blocking_read() {
    // Otherwise the test above could not fail.
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    let (n, count) = long_enough(&runtime);
    let blocked = (0..ATTEMPTS).any(|_| {
        on_one_thread(async {
            let (read, ticks) =
                ticking(async { chain(&runtime, n, count, 3).to_vec::<f32>() }).await;
            read.unwrap();
            ticks.share() < 0.2
        })
    });
    assert!(blocked);
}

/// Generates text from nothing that is planned or compiled, then again for the control.
async fn generate(label: &str, runtime: &Runtime, tokens: usize) -> bool {
    let builder = Session::builder(embedded()).runtime(runtime.clone()).context(128);
    let mut session = builder.build().unwrap();
    let options = GenerateOptions::default().max_tokens(tokens).sampling(Sampling::greedy());
    let options = options.ignore_stop(true);
    let prompt = "Once upon a time there was";
    let mut pieces = 0;
    let mut on_event = |event: Event<'_>| {
        pieces += usize::from(matches!(event, Event::Text(_)));
        ControlFlow::Continue(())
    };
    let (written, awaited) = ticking(session.generate_async(prompt, &options, &mut on_event)).await;
    let written = written.unwrap();
    assert_eq!(written.tokens.len(), tokens, "{label}");
    assert!(pieces > 1, "{label}: {pieces} pieces of text");
    let work = move || {
        let mut go_on = |_: Event<'_>| ControlFlow::Continue(());
        let start = Instant::now();
        loop {
            session.truncate(0)?;
            let again = session.generate(prompt, &options, &mut go_on)?;
            if start.elapsed() >= SHORTEST {
                return Ok(again.text);
            }
        }
    };
    let (again, control) = ticking(on_thread("control", work)).await;
    assert_eq!(written.text, again.unwrap(), "{label}");
    judge(&format!("{label}: a generation"), awaited, control)
}

#[test]
fn a_timer_keeps_ticking_through_a_generation_on_every_device() {
    for (label, runtime) in devices_that_submit_at_once() {
        let tokens = devices::sample_software(runtime.device().profile(), 2);
        let tokens = 96 / tokens;
        let passed = (0..ATTEMPTS).any(|_| on_one_thread(generate(&label, &runtime, tokens)));
        assert!(passed, "{label}: the thread that awaited a generation was blocked");
    }
}

#[test]
fn two_tasks_read_at_once() {
    for (label, runtime) in devices::every(false) {
        on_one_thread(async {
            let mut tasks = Vec::new();
            for seed in 0..4 {
                let runtime = runtime.clone();
                tasks.push(tokio::spawn(async move {
                    let mut all = Vec::new();
                    for more in 0..4 {
                        let seed = 10 * seed + more;
                        all.push((
                            seed,
                            chain(&runtime, SMALL, 2, seed).to_vec_async::<f32>().await?,
                        ));
                    }
                    Ok::<_, warploom::Error>(all)
                }));
            }
            for task in tasks {
                for (seed, read) in task.await.unwrap().unwrap() {
                    let expected = chain(&runtime, SMALL, 2, seed).to_vec::<f32>().unwrap();
                    assert!(read == expected, "{label}: seed {seed}");
                }
            }
        });
    }
}

#[test]
fn futures_dropped_half_way_leave_the_device_in_order() {
    for (label, runtime) in devices::every(false) {
        let expected = chain(&runtime, SMALL, 8, 5).to_vec::<f32>().unwrap();
        on_one_thread(async {
            let mut given_up = 0;
            for wait in [0, 0, 1, 2, 5, 20] {
                let read = chain(&runtime, SMALL, 8, 5);
                let read = read.to_vec_async::<f32>();
                given_up += usize::from(timeout(Duration::from_millis(wait), read).await.is_err());
                // Plans that are not cached are dropped in planning and compiling, too.
                let new = chain(&runtime, SMALL, 9 + wait as usize, 5);
                let new = new.to_vec_async::<f32>();
                given_up += usize::from(timeout(Duration::from_millis(wait), new).await.is_err());
            }
            assert!(given_up > 0, "{label}: nothing was dropped");
            let read = chain(&runtime, SMALL, 8, 5).to_vec_async::<f32>().await.unwrap();
            assert!(read == expected, "{label}: other values");
        });
        assert!(chain(&runtime, SMALL, 8, 5).to_vec::<f32>().unwrap() == expected, "{label}");
    }
}

#[test]
fn a_runtime_is_opened_and_detected_without_blocking() {
    on_one_thread(async {
        let detection = Runtime::builder().device("cpu").detect_async().await.unwrap();
        assert_eq!(detection.selected().profile.id(), "cpu:0");
        let runtime = Runtime::builder().device("cpu").build_async().await.unwrap();
        let sum = Tensor::ones(&runtime, [3]).sum(0);
        assert_eq!(sum.item_async::<f32>().await.unwrap(), 3.0);
        let error = Runtime::builder().device("cpu:9").build_async().await.unwrap_err();
        assert!(error.is_invalid(), "{error}");
        // The same values through an executor that may block.
        assert_eq!(block_on(sum.item_async::<f32>()).unwrap(), 3.0);
    });
}

#[test]
fn a_panic_off_the_thread_is_an_error_and_the_runtime_goes_on() {
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    on_one_thread(async {
        let panics = runtime.offload(|_| -> Result<()> { panic!("on purpose") }).await;
        let error = panics.unwrap_err().to_string();
        assert!(error.contains("panicked: on purpose"), "{error}");
        let sum = Tensor::ones(&runtime, [4]).sum(0).item_async::<f32>().await;
        assert_eq!(sum.unwrap(), 4.0);
    });
}
