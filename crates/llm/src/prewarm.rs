//! Prewarming: makes the plans of the first text and compiles their kernels while weights are
//! uploaded, on a background thread or, in a browser, on those of the browser.

use std::sync::Arc;

use super::decoder::{DecoderInput, DecoderOutput};
use super::planner::{DeviceModel, PlanKey, Ready};
use super::shape_buckets::{CLASSES, bucket_of, class_of_key};
use warploom::Result;
use warploom::provider::{DeviceKind, DeviceProfile};
#[cfg(target_arch = "wasm32")]
use warploom_core::base::platform::{BoxFuture, poll_once};

/// The prompt length and the output that are expected of the first text of a new session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    /// Number of prompt tokens.
    pub(super) tokens: usize,
    /// The output after the prompt and after each later token.
    pub(super) output: DecoderOutput,
}

impl Expected {
    /// Returns the keys of the plans for the prompt, and of the plan for later tokens if that is a
    /// different one.
    fn keys(&self, profile: &DeviceProfile) -> (Vec<PlanKey>, Option<PlanKey>) {
        let one = |tokens: usize, output| {
            let bucket = bucket_of(tokens).ok()?;
            Some(PlanKey { input: DecoderInput::Tokens, bucket, output })
        };
        let most = CLASSES[3].1;
        let last = self.tokens.saturating_sub(1) % most + 1;
        let early = (self.tokens > most).then(|| one(most, DecoderOutput::Nothing)).flatten();
        let next = match self.output.is_token() && profile.kind != DeviceKind::Cpu {
            true => Some(PlanKey { input: DecoderInput::RunAhead, bucket: 0, output: self.output }),
            false => one(1, self.output),
        };
        let prompt: Vec<PlanKey> = [early, one(last, self.output)].into_iter().flatten().collect();
        let next = next.filter(|next| !prompt.contains(next));
        (prompt, next)
    }
}

/// Prewarming in progress.
pub(super) struct Prewarm {
    #[cfg(not(target_arch = "wasm32"))]
    thread: Option<(std::thread::JoinHandle<Vec<Ready>>, Arc<Done>)>,
    #[cfg(target_arch = "wasm32")]
    compiling: Option<BoxFuture<'static, Vec<Ready>>>,
}

#[cfg(not(target_arch = "wasm32"))]
impl Prewarm {
    /// Starts making plans and compiling kernels for the expected text on a background thread.
    /// Errors there are ignored: a plan that failed is made again on first use.
    pub(super) fn begin(on: &Arc<DeviceModel>, expected: Option<Expected>) -> Prewarm {
        // A tuning search needs the device to itself while it measures.
        let expected = expected.filter(|_| !on.runtime.searches_at_first_use());
        let Some(expected) = expected else { return Prewarm { thread: None } };
        let (on, done) = (on.clone(), Arc::new(Done::default()));
        let ended = DoneOnDrop(done.clone());
        let thread = std::thread::Builder::new().name("warploom-plans".into());
        let thread = thread.spawn(move || {
            let _ended = ended;
            ready(&on, expected)
        });
        Prewarm { thread: thread.ok().map(|thread| (thread, done)) }
    }

    /// Waits for the thread and returns its plans.
    pub(super) async fn end(self) -> Vec<Ready> {
        let Some((thread, done)) = self.thread else { return Vec::new() };
        done.wait().await;
        // The thread is done, so this does not block. If it panicked, its plans are lost.
        thread.join().unwrap_or_default()
    }
}

/// In a browser, plans are made in place; the browser compiles while the page's worker goes on.
#[cfg(target_arch = "wasm32")]
impl Prewarm {
    /// Makes plans and requests the kernels of the expected text. Errors are ignored: a plan that
    /// failed is made again on first use.
    pub(super) fn begin(on: &Arc<DeviceModel>, expected: Option<Expected>) -> Prewarm {
        let on = on.clone();
        let mut compiling = expected.map(|expected| -> BoxFuture<'static, Vec<Ready>> {
            Box::pin(async move {
                let device = on.runtime.device();
                let (prompt, next) = expected.keys(device.profile());
                let mut ready: Vec<Ready> =
                    prompt.into_iter().flat_map(|key| made(&on, key)).collect();
                // Only those of the prompt, as on the thread.
                let kernels = ready.iter().flat_map(|ready| ready.plan.recording.kernels.clone());
                let kernels: Vec<_> = kernels.collect();
                let compiling: Vec<_> = kernels.iter().map(|k| device.compile(k)).collect();
                ready.extend(next.and_then(|key| made(&on, key).ok()));
                for compiled in compiling {
                    let _ = compiled.await;
                }
                ready
            })
        });
        // Up to the first kernel that is waited for: all are requested then.
        if let Some(compiling) = &mut compiling {
            let polled = poll_once(std::future::poll_fn(|context| {
                std::task::Poll::Ready(compiling.as_mut().poll(context))
            }));
            if let Some(std::task::Poll::Ready(ready)) = polled {
                *compiling = Box::pin(std::future::ready(ready));
            }
        }
        Prewarm { compiling }
    }

    /// Waits for the browser's compiler and returns the plans.
    pub(super) async fn end(self) -> Vec<Ready> {
        match self.compiling {
            Some(compiling) => compiling.await,
            None => Vec::new(),
        }
    }
}

/// Whether a thread has ended, and the waker of the future that waits for its end.
#[cfg(not(target_arch = "wasm32"))]
#[derive(Default)]
struct Done(std::sync::Mutex<(bool, Option<std::task::Waker>)>);

#[cfg(not(target_arch = "wasm32"))]
impl Done {
    /// Locks the state. No code panics while the lock is held, so the state is always consistent.
    fn state(&self) -> std::sync::MutexGuard<'_, (bool, Option<std::task::Waker>)> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    async fn wait(&self) {
        std::future::poll_fn(|context| {
            let mut state = self.state();
            match state.0 {
                true => std::task::Poll::Ready(()),
                false => {
                    state.1 = Some(context.waker().clone());
                    std::task::Poll::Pending
                }
            }
        })
        .await;
    }
}

/// Marks a thread as ended when it is dropped, even after a panic.
#[cfg(not(target_arch = "wasm32"))]
struct DoneOnDrop(Arc<Done>);

#[cfg(not(target_arch = "wasm32"))]
impl Drop for DoneOnDrop {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.0.state();
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

fn made(on: &DeviceModel, key: PlanKey) -> Result<Ready> {
    let graph = on.graph(key.input, key.output)?;
    let plan = on.plan(&graph, &class_of_key(key, on.cache))?;
    Ok(Ready { key, graph, plan })
}

#[cfg(not(target_arch = "wasm32"))]
fn ready(on: &DeviceModel, expected: Expected) -> Vec<Ready> {
    let device = on.runtime.device();
    let (prompt, next) = expected.keys(device.profile());
    let mut ready: Vec<Ready> = prompt.into_iter().flat_map(|key| made(on, key)).collect();
    // Only the kernels of the prompt: with cold caches, the first token would wait for the others
    // too.
    let kernels = ready.iter().flat_map(|ready| ready.plan.recording.kernels.clone());
    let kernels: Vec<_> = kernels.collect();
    let compiling: Vec<_> = kernels.iter().map(|kernel| device.compile(kernel)).collect();
    ready.extend(next.and_then(|key| made(on, key).ok()));
    for compiled in compiling {
        let _ = warploom_core::base::platform::block_on(compiled);
    }
    ready
}

#[cfg(test)]
mod tests {
    use super::*;
    use warploom::provider::NullProvider;
    use warploom::provider::OpenOptions;

    #[test]
    fn a_text_takes_a_plan_for_each_class_that_its_runs_fall_in() {
        let gpu = NullProvider::device(&OpenOptions::default()).profile().clone();
        let cpu = gpu.clone().with(|p| p.kind = DeviceKind::Cpu);
        let keys = |tokens, output, profile: &DeviceProfile| {
            let (prompt, next) = Expected { tokens, output }.keys(profile);
            prompt
                .iter()
                .chain(&next)
                .map(|key| (key.input, key.bucket, key.output))
                .collect::<Vec<_>>()
        };
        let ahead = |output| (DecoderInput::RunAhead, 0, output);
        assert_eq!(
            keys(16, DecoderOutput::Sample, &gpu),
            [(DecoderInput::Tokens, 2, DecoderOutput::Sample), ahead(DecoderOutput::Sample)]
        );
        assert_eq!(
            keys(1, DecoderOutput::Greedy, &gpu),
            [(DecoderInput::Tokens, 0, DecoderOutput::Greedy), ahead(DecoderOutput::Greedy)]
        );
        // If the host chooses, or nothing runs ahead, one plan serves the prompt and later tokens.
        assert_eq!(
            keys(1, DecoderOutput::Logits, &gpu),
            [(DecoderInput::Tokens, 0, DecoderOutput::Logits)]
        );
        assert_eq!(
            keys(1, DecoderOutput::Greedy, &cpu),
            [(DecoderInput::Tokens, 0, DecoderOutput::Greedy)]
        );
        assert_eq!(
            keys(1024 + 9, DecoderOutput::Greedy, &gpu),
            [
                (DecoderInput::Tokens, 3, DecoderOutput::Nothing),
                (DecoderInput::Tokens, 2, DecoderOutput::Greedy),
                ahead(DecoderOutput::Greedy)
            ]
        );
        assert_eq!(
            keys(512, DecoderOutput::Greedy, &gpu)[0],
            (DecoderInput::Tokens, 3, DecoderOutput::Greedy)
        );
    }
}
