//! Lets the worker's event loop run during long work.
//!
//! The CPU provider computes in place, so a future over it is never woken by an event: it wakes
//! itself, in a microtask, and messages such as the page's wish to stop would wait for its end.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use js_sys::{Function, Promise};
use warploom_core::base::platform::Clock;
use wasm_bindgen::prelude::Closure;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{MessageChannel, MessagePort};

/// Maximum time between two turns of the event loop, if the future yields often enough.
const TURN: Duration = Duration::from_millis(16);

/// Sends itself messages, each of which is a task of the event loop. A timer would wait 4 ms.
struct Tasks {
    to: MessagePort,
    waiting: RefCell<VecDeque<Function>>,
}

thread_local! {
    static TASKS: Option<Tasks> = Tasks::new();
}

impl Tasks {
    fn new() -> Option<Tasks> {
        let channel = MessageChannel::new().ok()?;
        let next = Closure::<dyn FnMut()>::new(|| {
            let resolve = TASKS.with(|tasks| tasks.as_ref()?.waiting.borrow_mut().pop_front());
            if let Some(resolve) = resolve {
                // A promise's own function throws nothing.
                let _ = resolve.call0(&JsValue::UNDEFINED);
            }
        });
        channel.port2().set_onmessage(Some(next.as_ref().unchecked_ref()));
        // Lives as long as the module.
        next.forget();
        Some(Tasks { to: channel.port1(), waiting: RefCell::default() })
    }
}

/// Returns a future that is ready in a later task of the event loop, or `None` if the environment
/// has no message channels.
fn next_task() -> Option<JsFuture> {
    TASKS.with(|tasks| {
        let tasks = tasks.as_ref()?;
        let promise = Promise::new(&mut |resolve, _| tasks.waiting.borrow_mut().push_back(resolve));
        tasks.to.post_message(&JsValue::UNDEFINED).ok()?;
        Some(JsFuture::from(promise))
    })
}

/// A future that gives the event loop a turn every [`TURN`], whenever the inner future is pending.
struct Paced<F> {
    inner: Pin<Box<F>>,
    since: Clock,
    task: Option<JsFuture>,
}

/// Wraps a future so that other events of the worker run while it is computed.
pub(crate) fn paced<F: Future>(inner: F) -> impl Future<Output = F::Output> {
    Paced { inner: Box::pin(inner), since: Clock::now(), task: None }
}

impl<F: Future> Future for Paced<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if let Some(task) = &mut self.task {
            if Pin::new(task).poll(context).is_pending() {
                return Poll::Pending;
            }
            self.task = None;
            self.since = Clock::now();
        }
        let polled = self.inner.as_mut().poll(context);
        if polled.is_pending() && self.since.elapsed() >= TURN {
            self.task = next_task();
            if let Some(task) = &mut self.task
                && Pin::new(task).poll(context).is_ready()
            {
                // The next poll finds no task to wait for.
                self.task = None;
                context.waker().wake_by_ref();
            }
        }
        polled
    }
}
