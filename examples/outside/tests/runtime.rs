//! Runs a graph on this crate's provider.

use std::collections::BTreeMap;
use std::sync::Arc;

use warploom::graph::{BinaryOp, Graph, Op, UnaryOp};
use warploom::runtime::{RunOptions, RuntimeBuilder, run_graph};
use warploom::{DType, Dim, Shape, Symbol, SymbolValues};
use warploom::{Result, Runtime};
use warploom_outside::Counted;

const ROWS: Symbol = Symbol::new("rows");

/// Builds `y = gelu(x w + b)` from `[rows, 5]` to `[rows, 3]`, for a symbolic number of rows.
fn graph() -> Result<Graph> {
    let mut graph = Graph::new("layer");
    let rows = Dim::symbol(ROWS);
    let x = graph.input("x", Shape::new([rows, Dim::new(5)]), DType::F32);
    let w = graph.input("w", Shape::new([5, 3]), DType::F32);
    let b = graph.input("b", Shape::new([3]), DType::F32);
    let product = graph.add(Op::MatMul, &[x, w])?;
    let sum = graph.add(Op::Binary(BinaryOp::Add), &[product, b])?;
    let y = graph.add(Op::Unary(UnaryOp::GeluTanh), &[sum])?;
    graph.output("y", y)?;
    Ok(graph)
}

fn run(runtime: &Runtime) -> Result<Vec<f32>> {
    let bytes = |count: i16, scale: f32| {
        let numbers = (0..count).map(|i| (f32::from(i * 7 % 11) - 5.0) * scale);
        numbers.flat_map(f32::to_le_bytes).collect::<Vec<u8>>()
    };
    let inputs: BTreeMap<String, Vec<u8>> = [
        ("x".to_string(), bytes(4 * 5, 0.25)),
        ("w".to_string(), bytes(5 * 3, 0.5)),
        ("b".to_string(), bytes(3, 0.125)),
    ]
    .into();
    let (graph, symbols) = (graph()?, SymbolValues::new().with(ROWS, 4));
    let options = RunOptions::default();
    let outputs = run_graph(runtime, &graph, &symbols, &inputs, &options)?;
    Ok(outputs["y"].chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

fn counted() -> (Arc<Counted<warploom::cpu::Provider>>, RuntimeBuilder) {
    let provider = Arc::new(Counted::new(warploom::cpu::Provider));
    (provider.clone(), Runtime::builder().provider(provider))
}

#[test]
fn a_graph_runs_on_the_provider() -> Result<()> {
    let (provider, builder) = counted();
    let runtime = builder.device("counted:0").build()?;
    println!("{}", runtime.startup_line());
    assert_eq!(runtime.device().profile().id(), "counted:0");
    let plain = Runtime::builder().device("cpu").build()?;
    assert_eq!(run(&runtime)?, run(&plain)?, "it is the same device");
    assert!(provider.bytes() > 0);
    Ok(())
}

#[test]
fn the_provider_comes_first_unless_a_device_is_named() -> Result<()> {
    let chosen = |device: &str| -> Result<String> {
        Ok(counted().1.device(device).detect()?.selected().profile.id())
    };
    assert_eq!((chosen("auto")?.as_str(), chosen("cpu")?.as_str()), ("counted:0", "cpu:0"));
    Ok(())
}
