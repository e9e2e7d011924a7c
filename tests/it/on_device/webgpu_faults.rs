//! Errors reach the right caller once, and the device stays usable.

use std::sync::Arc;

use warploom::kernel::Access::ReadWrite;
use warploom::provider::{Args, Device, OpenOptions, Recording, Resource, Usage};
use warploom::runtime::SyncMode;
use warploom::webgpu::{self, wgpu};
use warploom::{DType, Runtime, Tensor};
use warploom_core::base::Dim;
use warploom_core::base::platform::block_on;

use crate::webgpu_host::*;

/// A device shared with its creator, as in an embedding.
fn shared() -> Option<(wgpu::Device, wgpu::Queue, Arc<dyn Device>)> {
    open(OpenOptions::default())?;
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapters = block_on(instance.enumerate_adapters(wgpu::Backends::PRIMARY));
    let adapter = adapters.first().unwrap();
    let (gpu, queue) = block_on(adapter.request_device(&Default::default())).unwrap();
    let device = webgpu::Provider::from_device(gpu.clone(), queue.clone(), &OpenOptions::default());
    Some((gpu, queue, device))
}

#[test]
fn an_error_of_no_call_surfaces_at_the_next_wait_once() {
    let Some((gpu, _queue, device)) = shared() else { return };
    let mut work = Recording::default();
    let y = work.slot("y", 256);
    download(&mut work, part(y, 0, 256));
    let range = floats(&*device, &[5.0; 64]);
    let prepared = device.prepare(&work, &[Some(range)]).unwrap();
    let ticket = device.submit(&[(prepared, Args::default())]).unwrap();
    // Mappable for reading and writing: not allowed, and outside of any error scope.
    let _ = gpu.create_buffer(&wgpu::BufferDescriptor {
        label: Some("wrong"),
        size: 16,
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::STORAGE,
        mapped_at_creation: false,
    });
    let error = block_on(device.wait(ticket)).unwrap_err();
    assert!(!error.is_device_lost() && error.to_string().contains("wrong"), "{error}");
    // The ticket itself was sound.
    let done = block_on(device.wait(ticket)).unwrap();
    assert_eq!(to_floats(&done.downloads[0]), [5.0; 64]);
    assert_works(&*device);
}

#[test]
fn a_submit_that_wgpu_refuses_is_an_error_at_once_and_the_next_works() {
    let Some(device) = open(OpenOptions::default()) else { return };
    // One element needs 16 bytes and the binding has 4: only wgpu sees it, when encoding ends.
    let spec = source(
        "wide",
        "@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
         @compute @workgroup_size(1) fn main() { y[0] = vec4<f32>(1.0); }",
        &[ReadWrite],
        0,
    );
    let mut bad = Recording { label: "bad".into(), ..Default::default() };
    let y = bad.slot("y", 4);
    dispatch(&mut bad, spec, Default::default(), &[(y, ReadWrite)], Dim::new(1));
    download(&mut bad, part(y, 0, 4));
    compile(&*device, &bad);
    let mut good = Recording { label: "good".into(), ..Default::default() };
    let z = good.slot("z", 256);
    download(&mut good, part(z, 0, 256));
    let bad = device.prepare(&bad, &[Some(floats(&*device, &[7.0]))]).unwrap();
    let good = device.prepare(&good, &[Some(floats(&*device, &[4.0; 64]))]).unwrap();
    let error = device.submit(&[(bad, Args::default())]).unwrap_err();
    assert!(!error.is_device_lost() && error.to_string().contains("a submit on"), "{error}");
    let second = device.submit(&[(good, Args::default())]).unwrap();
    let done = block_on(device.wait(second)).unwrap();
    assert_eq!(to_floats(&done.downloads[0]), [4.0; 64]);
    assert_works(&*device);
}

#[test]
fn kernels_that_are_asked_for_together_fail_alone() {
    let Some(device) = open(OpenOptions::default()) else { return };
    let spec = |i: usize| {
        let value = if i == 5 { "wrong".into() } else { format!("{i}.0") };
        let text = format!(
            "@group(0) @binding(1) var<storage, read_write> y: array<f32>;
             @compute @workgroup_size(1) fn main() {{ y[0] = {value}; }}"
        );
        source(&format!("number_{i}"), &text, &[ReadWrite], 0)
    };
    let specs: Vec<_> = (0..12).map(spec).collect();
    let before = device.counters().compiles;
    // Some without a wait.
    drop(specs.iter().take(3).map(|spec| device.compile(spec)).collect::<Vec<_>>());
    let asked: Vec<_> = specs.iter().map(|spec| device.compile(spec)).collect();
    for (i, compiled) in asked.into_iter().enumerate() {
        match block_on(compiled) {
            Ok(()) => assert_ne!(i, 5),
            Err(error) => {
                assert!(i == 5 && error.is_compile(), "{i}: {error}");
                assert!(error.to_string().contains("number_5"), "{error}");
            }
        }
    }
    assert_eq!(device.counters().compiles, before + 11);
    assert_works(&*device);
}

#[test]
fn a_lost_device_says_so_every_time() {
    let Some((gpu, _queue, device)) = shared() else { return };
    let mut work = Recording::default();
    let y = work.slot("y", 256);
    download(&mut work, part(y, 0, 256));
    let range = floats(&*device, &[5.0; 64]);
    let prepared = device.prepare(&work, &[Some(range)]).unwrap();
    let before = device.submit(&[(prepared, Args::default())]).unwrap();
    gpu.destroy();
    // Submitted after the loss, before any report of it.
    let after = device.submit(&[(prepared, Args::default())]);
    // Work from before may be done or lost, but never zeros.
    match block_on(device.wait(before)) {
        Ok(done) => assert_eq!(to_floats(&done.downloads[0]), [5.0; 64]),
        Err(error) => assert!(error.is_device_lost(), "{error:?}"),
    }
    if let Ok(after) = after {
        let error = block_on(device.wait(after)).unwrap_err();
        assert!(error.is_device_lost(), "{error:?}");
    }
    for _ in 0..2 {
        let errors = [
            device.submit(&[(prepared, Args::default())]).unwrap_err(),
            device.alloc(4, Usage::Working).unwrap_err(),
            device.write(range, &[0; 256]).unwrap_err(),
            device.prepare(&work, &[Some(range)]).unwrap_err(),
            block_on(device.compile(&affine())).unwrap_err(),
        ];
        for error in errors {
            assert!(error.is_device_lost(), "{error:?}");
        }
    }
    device.free(Resource::Buffer(range.buffer));
    // Another device of the machine is not touched by it.
    assert_works(&*open(OpenOptions::default()).unwrap());
}

/// A buffer of the application is a tensor without a copy, and stays the application's.
#[test]
fn a_buffer_of_the_application_is_a_tensor() {
    let Some((gpu, queue, device)) = shared() else { return };
    let runtime = Runtime::on(device, SyncMode::Lazy, None).unwrap();
    let usage =
        wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let make = |size: u64, usage: wgpu::BufferUsages| {
        let label = Some("own");
        gpu.create_buffer(&wgpu::BufferDescriptor { label, size, usage, mapped_at_creation: false })
    };
    let own = make(256 + 48, usage);
    let values: Vec<f32> = (0..12).map(|i| i as f32).collect();
    queue.write_buffer(&own, 256, bytemuck::cast_slice(&values));
    let x = Tensor::from_buffer(&runtime, &own, 256, DType::F32, [3, 4]).unwrap();
    assert!(x.is_evaluated());
    assert_eq!(x.to_vec::<f32>().unwrap(), values);
    assert_eq!(x.matmul(x.t()).sum(..).item::<f32>().unwrap(), 1134.0);
    // What is written later is read later, and what was submitted before is not changed.
    let before = &x + 1.0;
    before.realize().unwrap();
    runtime.flush().unwrap();
    queue.write_buffer(&own, 256, bytemuck::cast_slice(&[9.0f32; 12]));
    assert_eq!((&x + 1.0).to_vec::<f32>().unwrap(), [10.0; 12]);
    assert_eq!(before.to_vec::<f32>().unwrap()[..3], [1.0, 2.0, 3.0]);
    // Its memory is never another tensor's, and is there after it.
    let live = runtime.pool().usage();
    drop(x);
    assert_eq!(runtime.pool().usage(), live);
    for _ in 0..8 {
        Tensor::full(&runtime, [3, 4], 5.0).realize().unwrap();
    }
    runtime.synchronize().unwrap();
    let again = Tensor::from_buffer(&runtime, &own, 256, DType::F32, [12]).unwrap();
    assert_eq!(again.to_vec::<f32>().unwrap(), [9.0; 12]);
    let of = |buffer: &wgpu::Buffer, offset: u64, count: usize| {
        let made = Tensor::from_buffer(&runtime, buffer, offset, DType::F32, [count]);
        made.map(drop).unwrap_err().to_string()
    };
    assert!(
        of(&own, 256, 13).contains("52 bytes, rounded up to 64, from 256 on in a buffer of 304")
    );
    assert!(of(&own, 4, 12).contains("a multiple of 256"));
    assert!(of(&own, 0, 0).contains("no elements"));
    assert!(of(&own, u64::MAX - 255, 12).contains("in a buffer of 304"));
    let plain = make(64, wgpu::BufferUsages::STORAGE);
    assert!(of(&plain, 0, 16).contains("COPY_SRC"), "{}", of(&plain, 0, 16));
    let cpu = Runtime::builder().device("cpu").build().unwrap();
    let error = Tensor::from_buffer(&cpu, &own, 0, DType::F32, [4]).unwrap_err().to_string();
    assert!(error.contains("another provider"), "{error}");
    // A destroyed buffer is an error, and the runtime goes on.
    own.destroy();
    assert!(again.exp().to_vec::<f32>().is_err());
    assert_eq!(Tensor::ones(&runtime, [2]).to_vec::<f32>().unwrap(), [1.0; 2]);
}

/// Also before the device reported its loss.
#[test]
fn whatever_is_asked_first_of_a_lost_device_finds_the_loss() {
    for first in 0..3 {
        let Some((gpu, _queue, device)) = shared() else { return };
        let range = floats(&*device, &[5.0; 64]);
        let mut work = Recording::default();
        let y = work.slot("y", 256);
        download(&mut work, part(y, 0, 256));
        let prepared = device.prepare(&work, &[Some(range)]).unwrap();
        gpu.destroy();
        let error = match first {
            0 => device.alloc(256, Usage::State).map(drop).unwrap_err(),
            1 => block_on(device.compile(&affine())).unwrap_err(),
            _ => match device.submit(&[(prepared, Args::default())]) {
                Ok(ticket) => block_on(device.wait(ticket)).map(drop).unwrap_err(),
                Err(error) => error,
            },
        };
        assert!(error.is_device_lost(), "{first}: {error:?}");
    }
}
