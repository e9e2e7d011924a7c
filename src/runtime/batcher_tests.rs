use super::*;
use crate::base::{Dim, SymbolValues};
use crate::provider::{
    BufferRange, Command, NullProvider, OpenOptions, Recording, SlotRange, Usage,
};

/// Prepares work that downloads four bytes of one buffer.
fn work(device: &Arc<dyn Device>, buffer: BufferId) -> Work {
    let mut recording = Recording::default();
    let slot = recording.slot("x", 4);
    let from = SlotRange { slot, offset: Dim::new(0), bytes: Dim::new(4) };
    recording.commands.push(Command::Download { from });
    let range = BufferRange { buffer, offset: 0, bytes: 4 };
    let prepared = device.prepare(&recording, &[Some(range)]).unwrap();
    Work { prepared, dispatches: 1, downloads: 1, buffers: Arc::new([buffer]) }
}

fn args() -> Args {
    Args { symbols: SymbolValues::new(), ..Args::default() }
}

#[test]
fn runs_without_a_read_between_share_a_submit() {
    let device = NullProvider::device(&OpenOptions::default());
    let batcher = Batcher::new(device.clone(), 100);
    let work = work(&device, device.alloc(4, Usage::Working).unwrap());
    let first = batcher.record(&work, args(), Keep::default()).unwrap();
    let second = batcher.record(&work, args(), Keep::default()).unwrap();
    assert_eq!(device.counters().submits, 0);
    assert_eq!(batcher.read(second).unwrap().len(), 1);
    assert_eq!(batcher.read(first).unwrap(), [[0xFF, 0xFF, 0xFF, 0x7F]]);
    assert_eq!((device.counters().submits, device.counters().waits), (1, 1));
}

#[test]
fn a_full_queue_is_submitted() {
    let device = NullProvider::device(&OpenOptions::default());
    let batcher = Batcher::new(device.clone(), 3);
    let work = work(&device, device.alloc(4, Usage::Working).unwrap());
    for _ in 0..7 {
        drop(batcher.record(&work, args(), Keep::default()).unwrap());
    }
    assert_eq!(device.counters().submits, 2);
    drop(batcher);
    assert_eq!(device.counters().submits, 3);
}

#[test]
fn a_reader_never_overtakes_a_writer_on_another_thread() {
    let device = NullProvider::device(&OpenOptions::default());
    let batcher = Batcher::new(device.clone(), 100);
    let shared = work(&device, device.alloc(4, Usage::Working).unwrap());
    let other = work(&device, device.alloc(4, Usage::Working).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| drop(batcher.record(&shared, args(), Keep::default()).unwrap()));
    });
    drop(batcher.record(&other, args(), Keep::default()).unwrap());
    assert_eq!(device.counters().submits, 0, "nothing is shared so far");
    drop(batcher.record(&shared, args(), Keep::default()).unwrap());
    assert_eq!(device.counters().submits, 1, "the writer's queue goes first");
}

#[test]
fn a_failed_submit_is_an_error_for_every_reader() {
    let device = NullProvider::device(&OpenOptions::default());
    let batcher = Batcher::new(device.clone(), 100);
    let work = work(&device, device.alloc(4, Usage::Working).unwrap());
    let pending = [
        batcher.record(&work, args(), Keep::default()).unwrap(),
        batcher.record(&work, args(), Keep::default()).unwrap(),
    ];
    device.free(crate::provider::Resource::Prepared(work.prepared));
    for pending in pending {
        assert!(batcher.read(pending).is_err());
    }
}

#[test]
fn a_wait_that_is_given_up_ends_that_of_others_with_an_error() {
    let device = NullProvider::device(&OpenOptions::default());
    let batcher = Batcher::new(device.clone(), 100);
    let work = work(&device, device.alloc(4, Usage::Working).unwrap());
    let [first, second] = [(); 2].map(|()| batcher.record(&work, args(), Keep::default()).unwrap());
    batcher.flush().unwrap();
    // The state that `read` leaves while the device works.
    *first.batch.progress() = Progress::Waiting(Vec::new());
    let waits = Waits(first.batch.clone());
    struct Woken(std::sync::atomic::AtomicUsize);
    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    }
    let woken = Arc::new(Woken(Default::default()));
    let times = || woken.0.load(std::sync::atomic::Ordering::SeqCst);
    let waker = Waker::from(woken.clone());
    let mut context = std::task::Context::from_waker(&waker);
    let mut reading = std::pin::pin!(batcher.read_async(second));
    for _ in 0..3 {
        assert!(reading.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(times(), 0, "nobody spins");
    drop(waits);
    assert_eq!(times(), 1);
    let Poll::Ready(Err(error)) = reading.as_mut().poll(&mut context) else {
        panic!("the submit was never read")
    };
    assert!(error.to_string().contains("dropped"), "{error}");
}

#[test]
fn a_dropped_async_read_leaves_the_others_their_results() {
    let device = NullProvider::device(&OpenOptions::default());
    let batcher = Batcher::new(device.clone(), 100);
    let work = work(&device, device.alloc(4, Usage::Working).unwrap());
    for _ in 0..50 {
        let [first, second] =
            [(); 2].map(|()| batcher.record(&work, args(), Keep::default()).unwrap());
        // Outside `block_on`, so the waiter waits.
        let mut context = std::task::Context::from_waker(Waker::noop());
        let mut dropped = Box::pin(batcher.read_async(first));
        let _ = dropped.as_mut().poll(&mut context);
        drop(dropped);
        assert_eq!(batcher.read(second).unwrap().len(), 1);
    }
    assert_eq!((device.counters().submits, device.counters().waits), (50, 50));
}

#[test]
fn queues_of_threads_that_ended_do_not_pile_up() {
    let device = NullProvider::device(&OpenOptions::default());
    let batcher = Batcher::new(device.clone(), 1);
    let work = work(&device, device.alloc(4, Usage::Working).unwrap());
    for _ in 0..3 * KEPT_QUEUES {
        std::thread::scope(|scope| {
            scope.spawn(|| drop(batcher.record(&work, args(), Keep::default()).unwrap()));
        });
    }
    assert_eq!(device.counters().submits as usize, 3 * KEPT_QUEUES);
    assert!(batcher.state().queues.len() <= KEPT_QUEUES);
}
