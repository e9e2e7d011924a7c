//! All differences between native and browser builds.
//!
//! In a browser, GPU objects belong to one thread and every result arrives through a promise. So
//! the futures of the provider traits are `Send` on native builds only, and only native builds can
//! block.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
#[cfg(not(target_arch = "wasm32"))]
use std::time::Instant;

#[cfg(target_arch = "wasm32")]
use web_time::Instant;

/// Whether this is a browser build, in which blocking is impossible and errors are asynchronous.
pub const BROWSER: bool = cfg!(target_arch = "wasm32");

/// A boxed future, `Send` on native builds only.
#[cfg(not(target_arch = "wasm32"))]
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
/// A boxed future, `Send` on native builds only.
#[cfg(target_arch = "wasm32")]
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Requires `Send + Sync` on native builds, nothing in a browser.
#[cfg(not(target_arch = "wasm32"))]
pub trait MaybeSend: Send + Sync {}
#[cfg(not(target_arch = "wasm32"))]
impl<T: Send + Sync + ?Sized> MaybeSend for T {}
/// Requires `Send + Sync` on native builds, nothing in a browser.
#[cfg(target_arch = "wasm32")]
pub trait MaybeSend {}
#[cfg(target_arch = "wasm32")]
impl<T: ?Sized> MaybeSend for T {}

#[cfg(not(target_arch = "wasm32"))]
thread_local! {
    /// Depth of nested calls of `blocking` on this thread.
    static BLOCKING: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// Blocks this thread until a future is ready. Absent in a browser, where it would deadlock.
/// Futures of this workspace that it polls do their long work on this thread: see
/// [`runs_in_place`].
#[cfg(not(target_arch = "wasm32"))]
pub fn block_on<F: Future>(future: F) -> F::Output {
    blocking(|| pollster::block_on(future))
}

/// Calls `work`, which may block for a long time, with [`runs_in_place`] true on this thread.
#[cfg(not(target_arch = "wasm32"))]
pub fn blocking<T>(work: impl FnOnce() -> T) -> T {
    struct Inside;
    impl Drop for Inside {
        fn drop(&mut self) {
            BLOCKING.with(|count| count.set(count.get() - 1));
        }
    }
    BLOCKING.with(|count| count.set(count.get() + 1));
    let _inside = Inside;
    work()
}

/// Returns whether this thread may block, because it is inside [`block_on`] or [`blocking`].
/// Otherwise it may be polling other futures too, so long work belongs on another thread. Always
/// true in a browser build, which has no other threads.
pub fn runs_in_place() -> bool {
    #[cfg(not(target_arch = "wasm32"))]
    return BLOCKING.with(std::cell::Cell::get) > 0;
    #[cfg(target_arch = "wasm32")]
    return true;
}

/// Returns the message of a panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// Polls a future once; returns its value if it is ready, otherwise `None`.
pub fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Yields to the executor once.
pub async fn let_others_run() {
    let mut begun = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut begun, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Creates a future that is immediately ready with this value.
pub fn ready<'a, T: MaybeSendValue + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

/// A bound on values that futures return: `Send` on native builds, nothing in a browser.
#[cfg(not(target_arch = "wasm32"))]
pub trait MaybeSendValue: Send {}
#[cfg(not(target_arch = "wasm32"))]
impl<T: Send> MaybeSendValue for T {}
/// A bound on values that futures return: `Send` on native builds, nothing in a browser.
#[cfg(target_arch = "wasm32")]
pub trait MaybeSendValue {}
#[cfg(target_arch = "wasm32")]
impl<T> MaybeSendValue for T {}

/// A point in time for measuring durations; monotonic.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Returns the current time.
    pub fn now() -> Clock {
        Clock(Instant::now())
    }

    /// Returns the time since this point.
    pub fn elapsed(&self) -> std::time::Duration {
        self.0.elapsed()
    }
}

/// Returns the current time of the system's calendar.
pub fn system_time() -> std::time::SystemTime {
    #[cfg(not(target_arch = "wasm32"))]
    return std::time::SystemTime::now();
    // The standard library has no clock there.
    #[cfg(target_arch = "wasm32")]
    return std::time::SystemTime::UNIX_EPOCH
        + web_time::SystemTime::now()
            .duration_since(web_time::SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
}

/// Returns the folder of warploom's caches: the one that `WARPLOOM_CACHE` names, otherwise
/// `warploom` in the user's cache folder. Returns `None` if the variable is `off`, if the user has
/// no cache folder, or in a browser.
pub fn cache_folder() -> Option<std::path::PathBuf> {
    #[cfg(not(target_arch = "wasm32"))]
    return match crate::config::var(&crate::config::CACHE).as_deref() {
        Some("off") => None,
        Some(folder) => Some(folder.into()),
        None => {
            use etcetera::BaseStrategy;
            let strategy = etcetera::choose_base_strategy().ok();
            strategy.map(|strategy| strategy.cache_dir().join("warploom"))
        }
    };
    #[cfg(target_arch = "wasm32")]
    return None;
}

/// Returns the current UTC date as `YYYY-MM-DD`.
pub fn date() -> String {
    let now = system_time().duration_since(std::time::SystemTime::UNIX_EPOCH);
    let (year, month, day) = civil(now.unwrap_or_default().as_secs() / 86_400);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Converts days since 1970-01-01 to year, month and day in the Gregorian calendar.
fn civil(mut day: u64) -> (u64, usize, u64) {
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 0;
    let days = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    while day >= days[month] {
        day -= days[month];
        month += 1;
    }
    (year, month + 1, day + 1)
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_the_thread_inside_block_on_may_block() {
        use super::{block_on, blocking, runs_in_place};
        assert!(!runs_in_place());
        block_on(async {
            assert!(runs_in_place());
            blocking(|| assert!(runs_in_place()));
            assert!(runs_in_place());
            std::thread::spawn(|| assert!(!runs_in_place())).join().unwrap();
        });
        let panicked = std::panic::catch_unwind(|| blocking(|| panic!("on purpose")));
        assert!(panicked.is_err() && !runs_in_place());
    }

    #[test]
    fn days_have_dates() {
        for (day, date) in [
            (0, (1970, 1, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_818, (2026, 12, 31)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(super::civil(day), date, "day {day}");
        }
    }
}
