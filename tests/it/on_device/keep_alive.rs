//! A keep-alive keeps a device busy during a hold, next to other work, and stops on request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use warploom::provider::{Device, OpenOptions};
use warploom::runtime::tensor::Tensor;
use warploom::runtime::{KeepAlive, Runtime, SyncMode};

use crate::webgpu_host::on_each;

/// Waits for this many more launches.
fn until(device: &Arc<dyn Device>, more: u64) {
    let (from, begin) = (device.counters().dispatches, Instant::now());
    while device.counters().dispatches < from + more {
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not work");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn assert_rests(device: &Arc<dyn Device>, what: &str) {
    // What had begun ends.
    std::thread::sleep(Duration::from_millis(200));
    let count = device.counters().dispatches;
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(device.counters().dispatches, count, "{what}");
}

#[test]
fn a_device_is_busy_while_it_is_held() {
    on_each(OpenOptions::default(), |device| {
        let before = device.counters().allocated_bytes;
        let awake = KeepAlive::new(device.clone());
        assert_rests(&device, "before it is held");
        awake.hold(Duration::from_secs(600));
        until(&device, 20);

        let runtime = Runtime::on(device.clone(), SyncMode::Lazy, None).unwrap();
        let numbers: Vec<f32> = (0..1000).map(|i| i as f32).collect();
        let twice: Vec<f32> = numbers.iter().map(|v| v + v).collect();
        for _ in 0..20 {
            let x = Tensor::from_slice(&runtime, &numbers, [1000]);
            assert_eq!(x.add(&x).to_vec::<f32>().unwrap(), twice);
        }

        awake.rest();
        assert_rests(&device, "asked to rest");
        let time = Duration::from_secs(1);
        awake.hold(time);
        until(&device, 1);
        std::thread::sleep(time);
        assert_rests(&device, "the time is over");
        awake.hold(Duration::MAX);
        until(&device, 1);
        drop(runtime);
        drop(awake);
        assert_rests(&device, "dropped");
        assert_eq!(device.counters().allocated_bytes, before);
    });
}
