//! Memory that instances read lives as long as they and their recordings.

use warploom::graph::{BinaryOp, Graph, Op};
use warploom::plan::Plan;
use warploom::provider::Usage;
use warploom::runtime::{DeviceTensors, Instance, Runtime, WeightSource};
use warploom_core::base::{DType, Format, Shape, ShapeClass, SymbolValues};

const COUNT: u64 = 1024;

fn runtime() -> Runtime {
    Runtime::builder().device("cpu").threads(Some(1)).build().unwrap()
}

fn bytes(value: f32) -> Vec<u8> {
    value.to_le_bytes().repeat(COUNT as usize)
}

/// `y = x + w`.
fn instance(runtime: &Runtime, resident: &mut DeviceTensors) -> Instance {
    let mut g = Graph::new("sum");
    let x = g.input("x", Shape::new([COUNT]), DType::F32);
    let w = g.weight("w", Shape::new([COUNT]), Format::F32);
    let y = g.add(Op::Binary(BinaryOp::Add), &[x, w]).unwrap();
    g.output("y", y).unwrap();
    let profile = runtime.device().profile();
    let plan = Plan::new(&g, &ShapeClass::new(), profile, &runtime.plan_options()).unwrap();
    Instance::new(runtime, plan, resident).unwrap()
}

fn resident(runtime: &Runtime) -> DeviceTensors {
    let mut resident = DeviceTensors::new();
    let weights = [WeightSource { name: "w", bytes: &bytes(2.0) }];
    resident.upload(runtime.pool(), &**runtime.device(), &weights, &mut |_| {}).unwrap();
    resident
}

fn read(instance: &Instance) -> Vec<u8> {
    instance.read(SymbolValues::new(), vec![bytes(1.0)]).unwrap().remove(0)
}

/// Allocates from the pool's free memory of the weight's size, and fills it.
fn overwrite(runtime: &Runtime) {
    let taken: Vec<_> =
        (0..4).map(|_| runtime.pool().take(4 * COUNT, Usage::Weights).unwrap()).collect();
    for buffer in &taken {
        runtime.device().write(buffer.range(), &bytes(9.0)).unwrap();
    }
}

#[test]
fn an_instance_keeps_the_weights_that_it_reads() {
    let runtime = runtime();
    let mut resident = resident(&runtime);
    let instance = instance(&runtime, &mut resident);
    drop(resident);
    overwrite(&runtime);
    assert_eq!(read(&instance), bytes(3.0));
}

#[test]
fn a_name_that_is_taken_changes_nothing() {
    let runtime = runtime();
    let mut resident = resident(&runtime);
    let instance = instance(&runtime, &mut resident);
    let (range, held) = (resident.get("w"), resident.bytes());
    let (pool, device) = (runtime.pool(), &**runtime.device());
    let zeros = bytes(0.0);
    let twice = [("w", &zeros), ("v", &zeros)].map(|(name, bytes)| WeightSource { name, bytes });
    let same = ["u", "u"].map(|name| WeightSource { name, bytes: &zeros });
    for refused in [
        resident.state(pool, device, "w", 4 * COUNT),
        resident.upload(pool, device, &twice, &mut |_| {}),
        resident.upload(pool, device, &same, &mut |_| {}),
    ] {
        let error = refused.unwrap_err();
        assert!(error.is_invalid(), "{error}");
    }
    assert_eq!((resident.get("w"), resident.bytes()), (range, held));
    assert_eq!(resident.get("v").or(resident.get("u")), None);
    overwrite(&runtime);
    assert_eq!(read(&instance), bytes(3.0));
}

#[test]
fn recorded_work_outlives_its_instance() {
    let runtime = runtime();
    let mut resident = resident(&runtime);
    let first = instance(&runtime, &mut resident);
    let pending = first.record(SymbolValues::new(), vec![bytes(1.0)]).unwrap();
    drop((first, resident));
    overwrite(&runtime);
    let read = runtime.batcher().read(pending).unwrap();
    assert_eq!(read, [bytes(3.0)]);
}
