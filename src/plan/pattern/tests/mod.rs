//! Tests of the patterns: operations spelled out in primitives in several ways, and near misses.

mod activation;
mod attention;
mod norm;
mod rope;

use std::collections::BTreeMap;

use super::{found, raised, simplified};
use crate::base::{DType, Dim, Shape, Symbol, SymbolValues};
use crate::ir::{BinaryOp, Graph, NodeId, Op, ReduceOp, UnaryOp, verify};
use crate::reference::{self, Data, Tensor};

/// A graph under construction.
struct Spell {
    g: Graph,
}

impl Spell {
    fn input(&mut self, name: &str, dims: &[i64]) -> NodeId {
        self.g.input(name, Shape::new(dims.iter().copied()), DType::F32)
    }

    fn op(&mut self, op: Op, inputs: &[NodeId]) -> NodeId {
        self.g.add(op, inputs).unwrap()
    }

    fn un(&mut self, op: UnaryOp, x: NodeId) -> NodeId {
        self.op(Op::Unary(op), &[x])
    }

    fn bin(&mut self, op: BinaryOp, a: NodeId, b: NodeId) -> NodeId {
        self.op(Op::Binary(op), &[a, b])
    }

    fn add(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.bin(BinaryOp::Add, a, b)
    }

    fn sub(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.bin(BinaryOp::Sub, a, b)
    }

    fn mul(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.bin(BinaryOp::Mul, a, b)
    }

    fn div(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.bin(BinaryOp::Div, a, b)
    }

    fn num(&mut self, value: f64) -> NodeId {
        self.g.constant_f32(Shape::default(), &[value as f32])
    }

    fn reduce(&mut self, op: ReduceOp, x: NodeId, axis: usize, keep: bool) -> NodeId {
        self.op(Op::Reduce { op, axes: vec![axis], keep }, &[x])
    }

    fn reshape(&mut self, x: NodeId, dims: &[i64]) -> NodeId {
        self.op(Op::Reshape(Shape::new(dims.iter().copied())), &[x])
    }

    fn transpose(&mut self, x: NodeId, perm: &[usize]) -> NodeId {
        self.op(Op::Transpose(perm.to_vec()), &[x])
    }

    fn slice(&mut self, x: NodeId, axis: usize, start: i64, len: i64, step: u64) -> NodeId {
        self.op(Op::Slice { axis, start: Dim::new(start), len: Dim::new(len), step }, &[x])
    }
}

fn graph(spell: impl FnOnce(&mut Spell) -> NodeId) -> Graph {
    let mut s = Spell { g: Graph::new("g") };
    let y = spell(&mut s);
    s.g.output("y", y).unwrap();
    verify(&s.g).unwrap();
    s.g
}

/// Returns the graph after the passes `simplify` and `pattern`, without the merging of products.
fn after(graph: &Graph) -> Graph {
    let new = simplified(&raised(simplified(graph).unwrap()).unwrap()).unwrap();
    verify(&new).unwrap();
    new
}

/// Returns values for every input and weight: pseudo-random floats; integers count up from 3.
fn bindings(graph: &Graph, symbols: &SymbolValues) -> BTreeMap<String, Tensor> {
    let mut bindings = BTreeMap::new();
    for node in graph.nodes() {
        for name in node.op.bound_names() {
            let shape = node.shape.eval(symbols).unwrap();
            let count = shape.iter().product::<u64>();
            let seed = name.bytes().fold(7u64, |h, b| h.wrapping_mul(31).wrapping_add(b.into()));
            let float = |i: u64| {
                let bits = (i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
                bits as f32 / 8_388_608.0 * 1.5 - 1.3
            };
            let data = match node.dtype {
                DType::I32 => Data::I32((0..count as i32).map(|i| i + 3).collect()),
                _ => Data::F32((0..count).map(float).collect()),
            };
            bindings.insert(name.to_string(), Tensor::new(shape, data).unwrap());
        }
    }
    bindings
}

/// Asserts that two graphs compute the same values, up to a millionth of the largest.
fn agree(a: &Graph, b: &Graph, symbols: &SymbolValues) {
    let bindings = bindings(a, symbols);
    let values = |g: &Graph| -> Vec<Vec<f64>> {
        let run = reference::eval_with(g, symbols, &bindings, reference::Precision::F64).unwrap();
        g.outputs().iter().map(|(_, id)| run.value(*id).floats()).collect()
    };
    for (a, b) in values(a).iter().zip(values(b)) {
        let most = a.iter().fold(1.0f64, |most, v| most.max(v.abs()));
        assert_eq!(a.len(), b.len());
        for (x, y) in a.iter().zip(b) {
            assert!((x - y).abs() <= 1e-6 * most, "{x} is not {y}");
        }
    }
}

/// Asserts that the graph is raised to `want`, with the same results.
fn becomes(graph: &Graph, want: &str) {
    let new = after(graph);
    let text = new.to_string();
    assert_eq!(text.strip_prefix("graph g\n").unwrap(), want, "from {graph}");
    agree(graph, &new, &SymbolValues::new().with(Symbol::new("seq"), 5));
}

/// Asserts that the graph is unchanged.
fn stays(graph: &Graph) {
    assert_eq!(after(graph).to_string(), simplified(graph).unwrap().to_string());
}

/// Pseudo-random inputs have both signs; otherwise a test of ReLU proves nothing.
#[test]
fn numbers_have_both_signs() {
    let g = graph(|s| s.input("x", &[100]));
    let values = bindings(&g, &SymbolValues::new())["x"].floats();
    assert!(values.iter().any(|v| *v > 0.2) && values.iter().any(|v| *v < -0.2), "{values:?}");
}

#[test]
fn every_case_of_the_table_means_the_same_after() {
    let profile = crate::provider::DeviceProfile::webgpu_floor("floor");
    for case in warploom_cases::cases() {
        let new = found(&simplified(&case.graph).unwrap(), profile.max_buffer_bytes).unwrap();
        verify(&new).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let tensors = case.tensors();
        let run = |g| reference::eval(g, &case.symbols, &tensors).unwrap();
        let (old, new_run) = (run(&case.graph), run(&new));
        let pairs = case.graph.outputs().iter().zip(new.outputs());
        let outputs =
            pairs.map(|((_, a), (_, b))| (old.value(*a).clone(), new_run.value(*b).clone()));
        let states = old.states.iter().map(|(n, a)| (a.clone(), new_run.states[n].clone()));
        for (a, b) in outputs.chain(states) {
            assert_eq!(a.shape, b.shape, "{}", case.name);
            let most =
                a.floats().iter().filter(|v| v.is_finite()).fold(1.0, |m: f64, v| m.max(v.abs()));
            for (x, y) in a.floats().into_iter().zip(b.floats()) {
                let close = x == y || (x - y).abs() <= 1e-6 * most || (x.is_nan() && y.is_nan());
                assert!(close, "{}: {x} is not {y}\n{new}", case.name);
            }
        }
    }
}
