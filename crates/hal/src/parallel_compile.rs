//! Parallel compilation: kernels requested together are compiled on several threads.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError, mpsc};
use std::thread;

use warploom_core::error::{Error, Result};
use warploom_kernels::KernelSpec;

/// Stack size of a compiler thread in bytes (reserved, committed on use). Vendor compilers recurse
/// over expressions, and NVRTC overflows the default of 2 MiB.
const STACK: usize = 64 << 20;

/// A kernel that is being compiled. Dropping it cancels a job that has not started and waits for
/// one that has: a process that exits while a driver compiles may crash.
pub struct Building<T> {
    done: mpsc::Receiver<Result<T>>,
    given_up: Arc<AtomicBool>,
}

/// Starts compiling a kernel on a background thread. At most one job per core runs at a time.
///
/// # Errors
/// I/O if the system cannot create a thread.
pub fn build<T: Send + 'static>(
    spec: &KernelSpec,
    work: impl FnOnce(&KernelSpec) -> Result<T> + Send + 'static,
) -> Result<Building<T>> {
    static GATE: LazyLock<Gate> =
        LazyLock::new(|| Gate::new(thread::available_parallelism().map_or(1, NonZeroUsize::get)));
    let (sender, done) = mpsc::channel();
    let given_up = Arc::new(AtomicBool::new(false));
    let (wanted, unwanted) = (spec.clone(), Arc::clone(&given_up));
    let work = move || {
        let _turn = GATE.enter();
        if !unwanted.load(Ordering::Relaxed) {
            // The receiver is gone if the caller dropped its handle.
            let _ = sender.send(work(&wanted));
        }
    };
    let thread = thread::Builder::new().name("warploom compile".into()).stack_size(STACK);
    match thread.spawn(work) {
        Ok(_) => Ok(Building { done, given_up }),
        Err(error) => Err(Error::io(format!("a thread to compile {spec}"), error)),
    }
}

impl<T> Building<T> {
    /// Waits for the kernel.
    ///
    /// # Errors
    /// Compile if the thread panicked; otherwise any error of the compiler.
    pub fn wait(self) -> Result<T> {
        self.done.recv().map_err(|_| Error::compile("the compiler panicked"))?
    }
}

impl<T> Drop for Building<T> {
    fn drop(&mut self) {
        self.given_up.store(true, Ordering::Relaxed);
        // Wait until the thread closes the channel.
        while self.done.recv().is_ok() {}
    }
}

/// A semaphore that limits the number of running threads.
struct Gate {
    free: Mutex<usize>,
    left: Condvar,
}

struct Turn<'a>(&'a Gate);

impl Gate {
    fn new(places: usize) -> Gate {
        Gate { free: Mutex::new(places), left: Condvar::new() }
    }

    fn enter(&self) -> Turn<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free =
            self.left.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warploom_kernels::AssetSpec;

    #[test]
    fn what_a_thread_makes_comes_back_and_its_panic_is_an_error() {
        let spec = KernelSpec::Asset(AssetSpec::new("softmax"));
        let all: Vec<_> = (0..64).map(|i| build(&spec, move |_| Ok(i)).unwrap()).collect();
        for (i, building) in all.into_iter().enumerate() {
            assert_eq!(building.wait().unwrap(), i);
        }
        let fails = build::<()>(&spec, |spec| Err(Error::compile(spec.name()))).unwrap();
        assert_eq!(fails.wait().unwrap_err().to_string(), "softmax");
        // Recurses deeper than a default stack allows.
        fn depth(n: u64) -> u64 {
            let kept = std::hint::black_box([n; 128]);
            if n == 0 { 0 } else { 1 + depth(n - 1) + (kept[0] - kept[127]) }
        }
        assert_eq!(build(&spec, |_| Ok(depth(16 << 10))).unwrap().wait().unwrap(), 16 << 10);
        let panics = build::<()>(&spec, |_| panic!("on purpose")).unwrap();
        assert!(panics.wait().unwrap_err().is_compile());
    }

    #[test]
    fn a_cancelled_compile_waits_for_started_work() {
        let spec = KernelSpec::Asset(AssetSpec::new("softmax"));
        let ended = Arc::new(AtomicBool::new(false));
        let (begun, has_begun) = mpsc::channel();
        let reported = Arc::clone(&ended);
        let building = build(&spec, move |_| {
            begun.send(()).unwrap();
            thread::sleep(std::time::Duration::from_millis(50));
            reported.store(true, Ordering::Relaxed);
            Ok(())
        });
        let building = building.unwrap();
        has_begun.recv().unwrap();
        drop(building);
        assert!(ended.load(Ordering::Relaxed));
    }
}
