use std::time::Instant;

use super::super::batcher::{Keep, Work};
use super::*;
use crate::base::{Dim, SymbolValues};
use crate::provider::{
    Args, BufferRange, Command, NullProvider, OpenOptions, Recording, Resource, SlotRange, Usage,
};

/// Work that downloads four bytes.
fn work(device: &Arc<dyn Device>) -> Work {
    let buffer = device.alloc(4, Usage::Working).unwrap();
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

/// Waits until `reached`, for at most ten seconds.
#[track_caller]
fn eventually(what: &str, reached: impl Fn() -> bool) {
    let begin = Instant::now();
    while !reached() {
        assert!(begin.elapsed() < Duration::from_secs(10), "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn started_work_is_submitted_without_a_read() {
    let device = NullProvider::device(&OpenOptions::default());
    let batcher = Batcher::new(device.clone(), 100);
    let work = work(&device);
    for submits in 1..4 {
        let pending = batcher.record(&work, args(), Keep::default()).unwrap();
        assert!(!pending.receipt().is_complete());
        batcher.start().unwrap();
        eventually("complete", || pending.receipt().is_complete());
        assert_eq!((device.counters().submits, device.counters().waits), (submits, submits));
        // A read finds the result.
        assert_eq!(batcher.read(pending).unwrap().len(), 1);
        assert_eq!(device.counters().waits, submits);
    }
    // The thread's duty is over.
    eventually("idle", || !batcher.state.lock().is_followed);
}

#[test]
fn work_that_is_not_started_stays_recorded() {
    let device = NullProvider::device(&OpenOptions::default());
    let batcher = Batcher::new(device.clone(), 100);
    batcher.start().unwrap();
    let work = work(&device);
    drop(batcher.record(&work, args(), Keep::default()).unwrap());
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(device.counters().submits, 0);
}

#[test]
fn every_thread_reads_what_it_started() {
    let device = NullProvider::device(&OpenOptions::default());
    let batcher = Batcher::new(device.clone(), 100);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let work = work(&device);
                for _ in 0..200 {
                    let pending = batcher.record(&work, args(), Keep::default()).unwrap();
                    batcher.start().unwrap();
                    assert_eq!(batcher.read(pending).unwrap(), [[0xFF, 0xFF, 0xFF, 0x7F]]);
                }
            });
        }
    });
    assert!(device.counters().submits <= 800);
}

#[test]
fn a_failed_submit_is_an_error_of_the_result() {
    let device = NullProvider::device(&OpenOptions::default());
    let batcher = Batcher::new(device.clone(), 100);
    let work = work(&device);
    let pending = batcher.record(&work, args(), Keep::default()).unwrap();
    device.free(Resource::Prepared(work.prepared));
    batcher.start().unwrap();
    eventually("failed", || pending.receipt().failure().is_some());
    assert!(batcher.read(pending).is_err());
    eventually("idle", || !batcher.state.lock().is_followed);
}

#[test]
fn a_batcher_with_started_work_is_dropped() {
    let device = NullProvider::device(&OpenOptions::default());
    for _ in 0..50 {
        let batcher = Batcher::new(device.clone(), 100);
        let work = work(&device);
        drop(batcher.record(&work, args(), Keep::default()).unwrap());
        batcher.start().unwrap();
    }
    assert_eq!(device.counters().submits, 50);
}
