use crate::base::{ComputeMode, DType, Dim, Format, Shape, Symbol};
use crate::ir::{BinaryOp, Conv2d, Graph, NodeId, Op, ReduceOp, RopePairs, UnaryOp};

fn s() -> Dim {
    Dim::symbol(Symbol::new("s"))
}

fn past() -> Dim {
    Dim::symbol(Symbol::new("past"))
}

fn shape<const N: usize>(dims: [Dim; N]) -> Shape {
    Shape::new(dims)
}

fn f32_input(g: &mut Graph, dims: impl IntoIterator<Item = i64>) -> NodeId {
    let name = format!("x{}", g.nodes().len());
    g.input(&name, Shape::new(dims), DType::F32)
}

/// Adds `op` to the graph and returns the inferred type and shape as text, or the error message.
fn check(g: &mut Graph, op: Op, inputs: &[NodeId]) -> Result<String, String> {
    match g.add(op, inputs) {
        Ok(id) => Ok(format!("{}{}", g.node(id).dtype, g.node(id).shape)),
        Err(error) => {
            assert!(error.is_invalid());
            Err(error.to_string())
        }
    }
}

#[test]
fn elementwise_types_and_broadcast() {
    let mut g = Graph::new("t");
    let a = g.input("a", shape([s(), Dim::new(1), Dim::new(3)]), DType::F32);
    let b = f32_input(&mut g, [4, 3]);
    let i = g.input("i", Shape::new([3]), DType::I32);
    let m = g.input("m", Shape::new([4, 1]), DType::Bool);
    assert_eq!(check(&mut g, Op::Binary(BinaryOp::Add), &[a, b]).unwrap(), "f32[s, 4, 3]");
    assert_eq!(check(&mut g, Op::Binary(BinaryOp::Lt), &[i, i]).unwrap(), "bool[3]");
    assert_eq!(check(&mut g, Op::Select, &[m, a, b]).unwrap(), "f32[s, 4, 3]");
    assert_eq!(check(&mut g, Op::Cast(DType::U32), &[a]).unwrap(), "u32[s, 1, 3]");
    assert_eq!(check(&mut g, Op::Unary(UnaryOp::Neg), &[i]).unwrap(), "i32[3]");
    let error = check(&mut g, Op::Binary(BinaryOp::Add), &[a, i]).unwrap_err();
    assert!(error.contains("add(f32[s, 1, 3], i32[3])"), "{error}");
    assert!(check(&mut g, Op::Unary(UnaryOp::Exp), &[i]).is_err());
    assert!(check(&mut g, Op::Unary(UnaryOp::Not), &[a]).is_err());
    assert!(check(&mut g, Op::Binary(BinaryOp::And), &[a, a]).is_err());
    assert!(check(&mut g, Op::Binary(BinaryOp::Add), &[m, m]).is_err());
    assert!(check(&mut g, Op::Binary(BinaryOp::Add), &[a]).is_err());
    assert!(check(&mut g, Op::Select, &[a, a, a]).is_err());
}

#[test]
fn arithmetic_of_two_bytes_keeps_its_type() {
    let mut g = Graph::new("t");
    let [x, y] = ["x", "y"].map(|name| g.input(name, Shape::new([4, 64]), DType::F16));
    let brain = g.input("brain", Shape::new([4, 64]), DType::BF16);
    let ones = g.input("ones", Shape::new([64]), DType::F16);
    let w = g.weight("w", Shape::new([7, 64]), Format::Q8_0);
    let scale = g.weight("scale", Shape::new([64]), Format::Plain(DType::F16));
    assert_eq!(check(&mut g, Op::Binary(BinaryOp::Add), &[x, y]).unwrap(), "f16[4, 64]");
    assert_eq!(check(&mut g, Op::Binary(BinaryOp::Lt), &[x, y]).unwrap(), "bool[4, 64]");
    assert_eq!(check(&mut g, Op::Unary(UnaryOp::Exp), &[brain]).unwrap(), "bf16[4, 64]");
    assert_eq!(check(&mut g, Op::linear(), &[brain, w]).unwrap(), "bf16[4, 7]");
    let norm = Op::RmsNorm { eps: 1e-5 };
    assert_eq!(check(&mut g, norm.clone(), &[x, scale]).unwrap(), "f16[4, 64]");
    assert_eq!(check(&mut g, norm.clone(), &[x, ones]).unwrap(), "f16[4, 64]");
    assert!(check(&mut g, norm, &[brain, ones]).is_err());
    assert!(check(&mut g, Op::Binary(BinaryOp::Add), &[x, brain]).is_err());
    let turned = check(&mut g, Op::MatMul, &[x, brain]).unwrap_err();
    assert!(turned.contains("matmul(f16[4, 64], bf16[4, 64])"), "{turned}");
}

#[test]
fn reductions() {
    let mut g = Graph::new("t");
    let a = g.input("a", shape([s(), Dim::new(2), Dim::new(3)]), DType::F32);
    let reduce = |axes: &[usize], keep| Op::Reduce { op: ReduceOp::Sum, axes: axes.to_vec(), keep };
    assert_eq!(check(&mut g, reduce(&[0, 2], false), &[a]).unwrap(), "f32[2]");
    assert_eq!(check(&mut g, reduce(&[1], true), &[a]).unwrap(), "f32[s, 1, 3]");
    assert!(check(&mut g, reduce(&[2, 0], false), &[a]).is_err());
    assert!(check(&mut g, reduce(&[3], false), &[a]).is_err());
    assert_eq!(check(&mut g, Op::ArgMax, &[a]).unwrap(), "u32[s, 2]");
    let none = f32_input(&mut g, [2, 0]);
    assert!(check(&mut g, Op::ArgMax, &[none]).is_err());
    assert_eq!(check(&mut g, Op::Softmax, &[none]).unwrap(), "f32[2, 0]");
    let draws = |g: &mut Graph, dims: [Dim; 3], dtype| g.input("draws", shape(dims), dtype);
    let good = draws(&mut g, [s(), Dim::new(2), Dim::new(7)], DType::U32);
    assert_eq!(check(&mut g, Op::Sample, &[a, good]).unwrap(), "u32[s, 2]");
    assert!(check(&mut g, Op::Sample, &[a]).is_err());
    for (dims, dtype) in [
        ([s(), Dim::new(2), Dim::new(7)], DType::I32),
        ([s(), Dim::new(2), Dim::new(8)], DType::U32),
        ([s(), Dim::new(3), Dim::new(7)], DType::U32),
    ] {
        let wrong = draws(&mut g, dims, dtype);
        assert!(check(&mut g, Op::Sample, &[a, wrong]).is_err());
    }
}

#[test]
fn products() {
    let mut g = Graph::new("t");
    let x = g.input("x", shape([s(), Dim::new(512)]), DType::F32);
    let w = g.weight("w", Shape::new([7, 512]), Format::Q4K);
    let narrow = g.weight("narrow", Shape::new([7, 96]), Format::Q4K);
    let y = f32_input(&mut g, [5, 96]);
    let plain = f32_input(&mut g, [7, 512]);
    assert_eq!(check(&mut g, Op::linear(), &[x, w]).unwrap(), "f32[s, 7]");
    let error = check(&mut g, Op::linear(), &[y, narrow]).unwrap_err();
    assert!(error.contains("whole q4_k blocks of 256, not 96"), "{error}");
    let error = check(&mut g, Op::linear(), &[y, w]).unwrap_err();
    assert!(error.contains("linear(f32[5, 96], f32[7, 512])"), "{error}");
    assert!(check(&mut g, Op::linear(), &[x, plain]).is_err());
    let error = check(&mut g, Op::Binary(BinaryOp::Add), &[w, w]).unwrap_err();
    assert!(error.contains("q4_k"), "{error}");
    let a = f32_input(&mut g, [2, 1, 4, 5]);
    let b = f32_input(&mut g, [3, 5, 6]);
    assert_eq!(check(&mut g, Op::MatMul, &[a, b]).unwrap(), "f32[2, 3, 4, 6]");
    assert!(check(&mut g, Op::MatMul, &[b, a]).is_err());
}

#[test]
fn convolution_counts_windows() {
    let mut g = Graph::new("t");
    let x = g.input("x", shape([Dim::new(1), Dim::new(4), s(), Dim::new(9)]), DType::F32);
    let w = f32_input(&mut g, [6, 2, 3, 3]);
    let conv = Conv2d {
        stride: (2, 2),
        pad_before: (1, 0),
        pad_after: (1, 0),
        dilation: (1, 2),
        groups: 2,
    };
    assert_eq!(check(&mut g, Op::Conv2d(conv), &[x, w]).unwrap(), "f32[1, 6, ((s-1)/(2))+1, 3]");
    assert!(check(&mut g, Op::Conv2d(Conv2d { groups: 1, ..conv }), &[x, w]).is_err());
    assert!(check(&mut g, Op::Conv2d(Conv2d { stride: (0, 1), ..conv }), &[x, w]).is_err());
    assert!(check(&mut g, Op::Conv2d(Conv2d { dilation: (1, 5), ..conv }), &[x, w]).is_err());
}

#[test]
fn transformers() {
    let mut g = Graph::new("t");
    let q = g.input("q", shape([s(), Dim::new(9), Dim::new(64)]), DType::F32);
    let k = g.input("k", shape([past() + s(), Dim::new(3), Dim::new(64)]), DType::F32);
    let bad = g.input("bad", shape([past() + s(), Dim::new(4), Dim::new(64)]), DType::F32);
    let attention = |window| Op::attention(0.125, true, window, past());
    assert_eq!(check(&mut g, attention(None), &[q, k, k]).unwrap(), "f32[s, 9, 64]");
    assert!(check(&mut g, attention(Some(0)), &[q, k, k]).is_err());
    assert!(check(&mut g, attention(None), &[q, bad, bad]).is_err());
    assert!(check(&mut g, attention(None), &[q, k, bad]).is_err());
    // f16 keys and values allow the f16 mode, never int8.
    let half = g.input("half", shape([past() + s(), Dim::new(3), Dim::new(64)]), DType::F16);
    let rounded = |mode| Op::Attention {
        scale: 0.125,
        causal: true,
        window: None,
        past: past(),
        mode,
        sinks: false,
        soft_cap: None,
    };
    for (mode, keys, fits) in [
        (ComputeMode::F16, half, true),
        (ComputeMode::F16, k, false),
        (ComputeMode::Int8, half, false),
        (ComputeMode::F32, half, true),
    ] {
        let made = check(&mut g, rounded(mode), &[q, keys, keys]);
        let said = made.map_err(|e| e.to_string());
        assert!(said.is_ok() == fits, "{mode}: {said:?}");
        assert!(fits || said.unwrap_err().contains(&format!("computes in {mode}")));
    }
    let positions = g.input("p", shape([s()]), DType::I32);
    let frequencies = f32_input(&mut g, [16]);
    let rope = |rot_dim| Op::Rope { pairs: RopePairs::Half, rot_dim };
    assert_eq!(check(&mut g, rope(32), &[q, positions, frequencies]).unwrap(), "f32[s, 9, 64]");
    assert!(check(&mut g, rope(64), &[q, positions, frequencies]).is_err());
    assert!(check(&mut g, rope(128), &[q, positions, frequencies]).is_err());
    let n = f32_input(&mut g, [64]);
    assert!(check(&mut g, Op::RmsNorm { eps: 1e-5 }, &[q, n]).is_ok());
    assert!(check(&mut g, Op::RmsNorm { eps: f32::NAN }, &[q, n]).is_err());
    assert!(check(&mut g, Op::RmsNorm { eps: 1e-5 }, &[q, frequencies]).is_err());
    assert!(check(&mut g, Op::LayerNorm { eps: 1e-5 }, &[q, n]).is_err());
}

#[test]
fn movement() {
    let mut g = Graph::new("t");
    let x = g.input("x", shape([s(), Dim::new(6)]), DType::F32);
    let ids = g.input("ids", Shape::new([2, 5]), DType::U32);
    assert_eq!(check(&mut g, Op::Gather { axis: 1 }, &[x, ids]).unwrap(), "f32[s, 2, 5]");
    assert!(check(&mut g, Op::Gather { axis: 2 }, &[x, ids]).is_err());
    assert!(check(&mut g, Op::Gather { axis: 0 }, &[x, x]).is_err());
    let packed = g.weight("w", Shape::new([9, 64]), Format::Q8_0);
    assert_eq!(check(&mut g, Op::Gather { axis: 0 }, &[packed, ids]).unwrap(), "f32[2, 5, 64]");
    assert!(check(&mut g, Op::Gather { axis: 1 }, &[packed, ids]).is_err());
    assert_eq!(check(&mut g, Op::Concat { axis: 0 }, &[x, x]).unwrap(), "f32[2*s, 6]");
    assert!(check(&mut g, Op::Concat { axis: 0 }, &[]).is_err());
    let pad = Op::Pad { amounts: vec![(1, 0), (2, 3)], word: 0 };
    assert_eq!(check(&mut g, pad, &[x]).unwrap(), "f32[s+1, 11]");
    let reshape = |dims: [Dim; 3]| Op::Reshape(shape(dims));
    assert!(check(&mut g, reshape([Dim::new(2), s(), Dim::new(3)]), &[x]).is_ok());
    let error = check(&mut g, reshape([Dim::new(2), past(), Dim::new(3)]), &[x]).unwrap_err();
    assert!(error.contains("6*s") && error.contains("6*past"), "{error}");
    assert!(check(&mut g, reshape([Dim::new(-1), s(), Dim::new(-6)]), &[x]).is_err());
    let huge = Dim::new(i64::MAX);
    assert!(check(&mut g, reshape([huge.clone(), huge, Dim::new(1)]), &[x]).is_err());
    assert_eq!(check(&mut g, Op::Transpose(vec![1, 0]), &[x]).unwrap(), "f32[6, s]");
    assert!(check(&mut g, Op::Transpose(vec![1, 1]), &[x]).is_err());
    let expand = Op::Expand(shape([Dim::new(2), s(), Dim::new(6)]));
    assert_eq!(check(&mut g, expand, &[x]).unwrap(), "f32[2, s, 6]");
    assert!(check(&mut g, Op::Expand(Shape::new([6])), &[x]).is_err());
}

#[test]
fn slices_stay_inside() {
    let mut g = Graph::new("t");
    let x = g.input("x", shape([s(), Dim::new(6)]), DType::F32);
    let slice =
        |axis, start: Dim, len: i64, step| Op::Slice { axis, start, len: Dim::new(len), step };
    assert_eq!(check(&mut g, slice(1, Dim::new(1), 3, 2), &[x]).unwrap(), "f32[s, 3]");
    assert_eq!(check(&mut g, slice(0, s() - Dim::new(1), 1, 1), &[x]).unwrap(), "f32[1, 6]");
    assert_eq!(check(&mut g, slice(1, Dim::new(6), 0, 1), &[x]).unwrap(), "f32[s, 0]");
    assert!(check(&mut g, slice(0, s(), 1, 1), &[x]).is_err());
    assert!(check(&mut g, slice(1, Dim::new(2), 3, 2), &[x]).is_err());
    assert!(check(&mut g, slice(1, Dim::new(-1), 3, 1), &[x]).is_err());
    assert!(check(&mut g, slice(1, Dim::new(0), 3, 0), &[x]).is_err());
    assert!(check(&mut g, slice(2, Dim::new(0), 1, 1), &[x]).is_err());
}

#[test]
fn updates_are_chains_from_a_state() {
    let mut g = Graph::new("t");
    let state = g.state("kv", Shape::new([8, 2]), DType::F32);
    let src = g.input("x", shape([s(), Dim::new(2)]), DType::F32);
    let long = f32_input(&mut g, [9, 2]);
    let update = |at: Dim| Op::Update { at };
    let first = g.add(update(past()), &[state, src]).unwrap();
    assert_eq!(check(&mut g, update(past() + s()), &[first, src]).unwrap(), "f32[8, 2]");
    assert!(check(&mut g, update(past()), &[src, src]).is_err());
    assert!(check(&mut g, update(Dim::new(0)), &[state, long]).is_err());
    assert!(check(&mut g, update(Dim::new(-1)), &[state, src]).is_err());
}
