//! All differences between native and browser builds.
//!
//! A browser's GPU objects belong to one thread and every result is a promise. So the futures of
//! the provider traits are `Send` on native builds only, and only native builds can block.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

/// Whether this is a browser build: blocking is impossible, and errors are asynchronous.
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

#[cfg(not(target_arch = "wasm32"))]
thread_local! {
    /// Calls of `blocking` that this thread is inside.
    static BLOCKING: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// Blocks this thread on a future. Absent in a browser, where it would deadlock. Futures of this
/// workspace that are polled inside wait in place, without another thread: see [`runs_in_place`].
#[cfg(not(target_arch = "wasm32"))]
pub fn block_on<F: Future>(future: F) -> F::Output {
    blocking(|| pollster::block_on(future))
}

/// Calls `work` with [`runs_in_place`] true on this thread: it may block for long.
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

/// Whether this thread may block: inside [`block_on`] or [`blocking`]. If not, it may poll other
/// futures too, so long work belongs on another thread. Always true in a browser build, which has
/// no other threads.
pub fn runs_in_place() -> bool {
    #[cfg(not(target_arch = "wasm32"))]
    return BLOCKING.with(std::cell::Cell::get) > 0;
    #[cfg(target_arch = "wasm32")]
    return true;
}

/// The message of a panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// The value of a future that is already ready, else `None`.
pub fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// A future that is ready immediately.
pub fn ready<'a, T: MaybeSendValue + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

/// `Send` on native builds, nothing in a browser: for values that futures return.
#[cfg(not(target_arch = "wasm32"))]
pub trait MaybeSendValue: Send {}
#[cfg(not(target_arch = "wasm32"))]
impl<T: Send> MaybeSendValue for T {}
/// `Send` on native builds, nothing in a browser: for values that futures return.
#[cfg(target_arch = "wasm32")]
pub trait MaybeSendValue {}
#[cfg(target_arch = "wasm32")]
impl<T> MaybeSendValue for T {}

/// A point in time for measuring durations: monotonic on native builds. Browser builds have no
/// clock and measure zero.
#[derive(Clone, Copy, Debug)]
pub struct Clock(#[cfg(not(target_arch = "wasm32"))] std::time::Instant);

impl Clock {
    /// The current time.
    pub fn now() -> Clock {
        Clock(
            #[cfg(not(target_arch = "wasm32"))]
            std::time::Instant::now(),
        )
    }

    /// Time elapsed since this point.
    pub fn elapsed(&self) -> std::time::Duration {
        #[cfg(not(target_arch = "wasm32"))]
        return self.0.elapsed();
        #[cfg(target_arch = "wasm32")]
        return std::time::Duration::ZERO;
    }
}

/// The cache folder: the one that `WARPLOOM_CACHE` names, else `warploom` in the user's cache
/// folder. `None` if the variable is `off`, if no such folder is known, and in a browser.
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

/// The current UTC date as `YYYY-MM-DD`; empty in a browser build, which has no clock.
pub fn date() -> String {
    #[cfg(not(target_arch = "wasm32"))]
    {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let (year, month, day) = civil(now.unwrap_or_default().as_secs() / 86_400);
        format!("{year:04}-{month:02}-{day:02}")
    }
    #[cfg(target_arch = "wasm32")]
    String::new()
}

/// Year, month and day from days since 1970-01-01 (Gregorian calendar).
#[cfg(not(target_arch = "wasm32"))]
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
