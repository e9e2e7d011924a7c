//! Runs what computes apart from the connections, a bounded number at once.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::error::ApiError;

/// Admits a bounded number of computations, each to a thread for blocking work.
///
/// So neither threads nor memory grow with the number of clients: who waits for a gate is a task.
#[derive(Clone, Debug)]
pub(super) struct Gate(Arc<Semaphore>);

impl Gate {
    pub(super) fn new(most: usize) -> Gate {
        Gate(Arc::new(Semaphore::new(most)))
    }

    /// Waits for its turn, and runs `work`. If the future is dropped, work that has begun goes on
    /// to its end, and keeps its place.
    ///
    /// # Errors
    /// Those of `work`; 500 if it panics.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let broken = || ApiError::new(500, "the server failed on this request").code("internal");
        let place = self.0.clone().acquire_owned().await.map_err(|_| broken())?;
        let work = move || {
            let _place = place;
            work()
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|error| {
            tracing::error!(%error, "a request failed");
            Err(broken())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[test]
    fn a_gate_admits_as_many_as_it_has_places_and_survives_panics() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let gate = Gate::new(2);
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        runtime.block_on(async {
            let tasks = (0..20).map(|i| {
                let (gate, now, most) = (gate.clone(), now.clone(), most.clone());
                tokio::spawn(async move {
                    let work = move || {
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::sleep(Duration::from_millis(2));
                        now.fetch_sub(1, Ordering::SeqCst);
                        assert!(i != 3, "planted");
                        Ok(i)
                    };
                    gate.run(work).await
                })
            });
            for (i, task) in tasks.collect::<Vec<_>>().into_iter().enumerate() {
                match task.await.unwrap() {
                    Ok(got) => assert_eq!(got, i),
                    Err(error) => assert_eq!((i, error.status), (3, 500)),
                }
            }
            // A client that leaves while its work runs frees no place early.
            let gate = Gate::new(1);
            let (begun, ended) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
            let work = {
                let (begun, ended) = (begun.clone(), ended.clone());
                move || {
                    begun.add_permits(1);
                    std::thread::sleep(Duration::from_millis(50));
                    ended.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                }
            };
            let task = tokio::spawn({
                let gate = gate.clone();
                async move { gate.run(work).await }
            });
            let _begun = begun.acquire().await.unwrap();
            task.abort();
            let after = gate.run(move || Ok(ended.load(Ordering::SeqCst))).await;
            assert_eq!(after.unwrap(), 1);
        });
        assert_eq!(most.load(Ordering::SeqCst), 2);
    }
}
