//! A one-shot channel from a callback to a future, independent of any async runtime.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

#[derive(Debug)]
struct Cell<T> {
    value: Option<T>,
    closed: bool,
    waker: Option<Waker>,
}

type Shared<T> = Arc<Mutex<Cell<T>>>;

fn lock<T>(shared: &Shared<T>) -> MutexGuard<'_, Cell<T>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The sending end, for the callback. If it is dropped unused, the receiver returns `None`.
#[derive(Debug)]
pub struct Sender<T>(Shared<T>);

/// The receiving end, which is a future.
#[derive(Debug)]
pub struct Receiver<T>(Shared<T>);

/// Creates a channel.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Mutex::new(Cell { value: None, closed: false, waker: None }));
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl<T> Sender<T> {
    /// Sends the value and wakes the receiver.
    pub fn send(self, value: T) {
        lock(&self.0).value = Some(value);
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut cell = lock(&self.0);
            cell.closed = true;
            cell.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Receiver<T> {
    /// Returns whether awaiting the receiver would return immediately.
    pub fn is_ready(&self) -> bool {
        lock(&self.0).closed
    }
}

impl<T> Future for Receiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut cell = lock(&self.0);
        if cell.closed {
            return Poll::Ready(cell.value.take());
        }
        cell.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::platform::{block_on, poll_once};

    #[test]
    fn a_value_crosses_threads_and_a_dropped_sender_ends_the_wait() {
        let (sender, receiver) = channel();
        let sending = std::thread::spawn(move || sender.send(7));
        assert_eq!(block_on(receiver), Some(7));
        sending.join().unwrap();

        let (sender, mut receiver) = channel::<u32>();
        assert_eq!(poll_once(&mut receiver), None);
        drop(sender);
        assert!(receiver.is_ready());
        assert_eq!(block_on(receiver), None);
    }
}
