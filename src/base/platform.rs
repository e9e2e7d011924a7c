//! What differs between a native build and a browser, in one place.
//!
//! A browser's GPU objects belong to one thread and every answer is a promise, so the futures of
//! the provider traits are `Send` on native builds only, and blocking exists there only.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

/// Whether this is a browser build: nothing may block, and errors arrive later.
pub const BROWSER: bool = cfg!(target_arch = "wasm32");

/// A boxed future, `Send` on native builds only.
#[cfg(not(target_arch = "wasm32"))]
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
/// A boxed future, `Send` on native builds only.
#[cfg(target_arch = "wasm32")]
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// `Send + Sync` on native builds, nothing in a browser.
#[cfg(not(target_arch = "wasm32"))]
pub trait MaybeSend: Send + Sync {}
#[cfg(not(target_arch = "wasm32"))]
impl<T: Send + Sync + ?Sized> MaybeSend for T {}
/// `Send + Sync` on native builds, nothing in a browser.
#[cfg(target_arch = "wasm32")]
pub trait MaybeSend {}
#[cfg(target_arch = "wasm32")]
impl<T: ?Sized> MaybeSend for T {}

/// Waits for a future on this thread. Absent in a browser, where it could never end.
#[cfg(not(target_arch = "wasm32"))]
pub fn block_on<F: Future>(future: F) -> F::Output {
    pollster::block_on(future)
}

/// The value of a future that is ready already; `None` where it is not.
pub fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// A future that is ready at once.
pub fn ready<'a, T: MaybeSendValue + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

/// `Send` on native builds, nothing in a browser: for values that travel through a future.
#[cfg(not(target_arch = "wasm32"))]
pub trait MaybeSendValue: Send {}
#[cfg(not(target_arch = "wasm32"))]
impl<T: Send> MaybeSendValue for T {}
/// `Send` on native builds, nothing in a browser: for values that travel through a future.
#[cfg(target_arch = "wasm32")]
pub trait MaybeSendValue {}
#[cfg(target_arch = "wasm32")]
impl<T> MaybeSendValue for T {}

/// A point in time to measure from: monotonic natively. A browser build without a clock of the
/// page measures nothing and says zero.
#[derive(Clone, Copy, Debug)]
pub struct Clock(#[cfg(not(target_arch = "wasm32"))] std::time::Instant);

impl Clock {
    /// Now.
    pub fn now() -> Clock {
        Clock(
            #[cfg(not(target_arch = "wasm32"))]
            std::time::Instant::now(),
        )
    }

    /// Time since then.
    pub fn elapsed(&self) -> std::time::Duration {
        #[cfg(not(target_arch = "wasm32"))]
        return self.0.elapsed();
        #[cfg(target_arch = "wasm32")]
        return std::time::Duration::ZERO;
    }
}
