//! `f16` and `bf16`: conversions, arithmetic with rounding, and packed pairs in one word, at odd
//! sizes and offsets.

use crate::Tolerance;
use crate::build::{Build, Case, halves};
use warploom_core::base::{DType, Dim, Format, Shape};
use warploom_core::ir::{
    BinaryOp, Conv2d, NodeId, Op, Pool2d, PoolKind, ReduceOp, RopePairs, UnaryOp,
};
use warploom_core::reference::Data;

pub(super) fn add(table: &mut Vec<Case>) {
    for dtype in [DType::F16, DType::BF16] {
        casts(table, dtype);
        elementwise(table, dtype);
        views(table, dtype);
        movement(table, dtype);
        rows(table, dtype);
        products(table, dtype);
        attention(table, dtype);
        states(table, dtype);
        stored(table, dtype);
    }
}

/// Returns a tolerance of one ulp, since a value near a midpoint may round to either neighbour; for
/// sums of `k` products, their own rounding error is added.
fn close(dtype: DType, k: u64) -> Tolerance {
    let rtol = if dtype == DType::F16 { 2f64.powi(-10) } else { 2f64.powi(-7) };
    Tolerance { rtol, nmse: 1e-4, ..Tolerance::product(k) }
}

fn casts(table: &mut Vec<Case>, dtype: DType) {
    // Midpoints and numbers next to them, the largest, beyond it, below the smallest.
    let f32s = vec![
        0.0,
        -0.0,
        1.0,
        -1.5,
        0.1,
        1.000_488_3,
        1.000_488_4,
        1.001_464_8,
        1.003_906_3,
        1.011_718_8,
        2049.0,
        2051.0,
        65_504.0,
        65_519.0,
        65_520.0,
        -1e6,
        3e38,
        3.4e38,
        -f32::INFINITY,
        6.1e-5,
        6.097e-5,
        5.96e-8,
        2.98e-8,
        2.99e-8,
        -8.94e-8,
        1e-9,
        1e-30,
        -3.3,
    ];
    let sources = [
        ("f32", Data::F32(f32s.clone())),
        ("i32", Data::I32(vec![0, 1, -1, 257, 2049, -2051, 65_519, 1 << 24, i32::MIN])),
        ("u32", Data::U32(vec![0, 1, 259, 4097, 70_000, u32::MAX])),
        ("bool", Data::Bool(vec![true, false, true])),
    ];
    for (name, data) in sources {
        let mut b = Build::new(format!("half_precision/cast/{name}_{dtype}"));
        let x = b.input("x", Shape::new([data.len()]), data);
        let y = b.op(Op::Cast(dtype), &[x]);
        table.push(b.done(y));
    }
    let mut all = vec![DType::F32, DType::I32, DType::U32, DType::Bool, DType::F16, DType::BF16];
    all.retain(|to| *to != dtype);
    // A device may flush subnormal numbers of a type to zero.
    let normal: Vec<f32> = f32s.into_iter().filter(|v| *v == 0.0 || v.abs() > 6.2e-5).collect();
    for to in all {
        let mut b = Build::new(format!("half_precision/cast/{dtype}_{to}"));
        let x = b.input("x", Shape::new([normal.len()]), halves(dtype, &normal));
        let y = b.op(Op::Cast(to), &[x]);
        table.push(b.done(y));
    }
    let mut b = Build::new(format!("half_precision/cast/f32_{dtype}_f32"));
    let x = b.f32("x", [70_001]);
    let y = b.op(Op::Cast(dtype), &[x]);
    let z = b.op(Op::Cast(DType::F32), &[y]);
    table.push(b.done(z));
}

fn elementwise(table: &mut Vec<Case>, dtype: DType) {
    // Sums and products have one rounding in f32, then one to the type.
    for n in [0u64, 1, 2, 3, 4, 5, 7, 8, 255, 1024, 4099, 8192] {
        let mut b = Build::new(format!("half_precision/{dtype}/mul_{n}"));
        let (x, y) = (b.half(dtype, "a", [n]), b.half(dtype, "b", [n]));
        let z = b.op(Op::Binary(BinaryOp::Mul), &[x, y]);
        table.push(b.done(z));
    }
    let shapes: [(&[u64], &[u64]); 6] = [
        (&[3, 5], &[5]),
        (&[3, 5], &[3, 1]),
        (&[4, 8], &[1, 8]),
        (&[2, 1, 3], &[4, 1]),
        (&[], &[9]),
        (&[5, 64], &[5, 1]),
    ];
    for (left, right) in shapes {
        let mut b = Build::new(format!("half_precision/{dtype}/add_{left:?}_{right:?}"));
        let x = b.half(dtype, "a", left.iter().copied());
        let y = b.half(dtype, "b", right.iter().copied());
        let z = b.op(Op::Binary(BinaryOp::Add), &[x, y]);
        table.push(b.done(z));
    }
    for op in [UnaryOp::Exp, UnaryOp::Silu, UnaryOp::Abs, UnaryOp::Floor] {
        let mut b =
            Build::new(format!("half_precision/{dtype}/{}", op.name())).within(close(dtype, 1));
        let x = b.half(dtype, "x", [3, 11]);
        let y = b.unary(op, x);
        table.push(b.done(y));
    }
    let mut b = Build::new(format!("half_precision/{dtype}/compare_select"));
    let (x, y) = (b.half(dtype, "a", [3, 7]), b.half(dtype, "b", [7]));
    let less = b.op(Op::Binary(BinaryOp::Lt), &[x, y]);
    let least = b.op(Op::Select, &[less, x, y]);
    b.output("less", less);
    table.push(b.done(least));

    let mut b = Build::new(format!("half_precision/{dtype}/rounds_between"))
        .note("every operation rounds: a chain is not one operation in f32");
    let x = b.half(dtype, "x", [6, 9]);
    let mut y = x;
    for _ in 0..4 {
        y = b.op(Op::Binary(BinaryOp::Mul), &[y, x]);
        y = b.op(Op::Binary(BinaryOp::Add), &[y, x]);
    }
    let wide = b.op(Op::Cast(DType::F32), &[y]);
    b.output("wide", wide);
    table.push(b.done(y));
}

fn views(table: &mut Vec<Case>, dtype: DType) {
    let slice = |axis, start: u64, len: u64, step| Op::Slice {
        axis,
        start: Dim::from(start),
        len: Dim::from(len),
        step,
    };
    let views: [(&str, Vec<Op>); 7] = [
        ("transposed", vec![Op::Transpose(vec![1, 0])]),
        ("odd_start", vec![slice(0, 1, 3, 1)]),
        ("odd_columns", vec![slice(1, 1, 3, 1)]),
        ("every_second", vec![slice(1, 0, 4, 2)]),
        ("expanded", vec![slice(0, 2, 1, 1), Op::Expand(Shape::new([3, 7]))]),
        ("one", vec![slice(0, 3, 1, 1), slice(1, 3, 1, 1)]),
        ("reshaped", vec![Op::Transpose(vec![1, 0]), Op::Reshape(Shape::new([5, 7]))]),
    ];
    for (name, ops) in views {
        let mut b = Build::new(format!("half_precision/{dtype}/view_{name}"));
        let x = b.half(dtype, "x", [5, 7]);
        let seen = ops.into_iter().fold(x, |x, op| b.op(op, &[x]));
        let double = b.op(Op::Binary(BinaryOp::Add), &[seen, seen]);
        // The view itself, and a view of a computed value.
        b.output("seen", seen);
        let len = b.shape(double)[0].as_const().unwrap_or(1) - 1;
        let rest = b.slice(double, 0, 1 - i64::from(len == 0), len.max(1), 1);
        b.output("rest", rest);
        table.push(b.done(double));
    }
}

fn movement(table: &mut Vec<Case>, dtype: DType) {
    for axis in [0, 1] {
        let mut b = Build::new(format!("half_precision/{dtype}/concat_{axis}"));
        let (x, y) = (b.half(dtype, "a", [3, 5]), b.half(dtype, "b", [3, 5]));
        let sum = b.op(Op::Binary(BinaryOp::Add), &[x, y]);
        let z = b.op(Op::Concat { axis }, &[x, sum, y]);
        table.push(b.done(z));
    }
    let mut b = Build::new(format!("half_precision/{dtype}/pad"));
    let x = b.half(dtype, "x", [3, 5]);
    let word = if dtype == DType::F16 { 0x3e00 } else { 0x3fc0 };
    let y = b.op(Op::Pad { amounts: vec![(1, 0), (2, 1)], word }, &[x]);
    table.push(b.done(y));
    for (name, axis, shape) in
        [("rows", 0, vec![6u64, 5]), ("columns", 1, vec![4, 6]), ("deep", 1, vec![2, 6, 3])]
    {
        let mut b = Build::new(format!("half_precision/{dtype}/gather_{name}"));
        let x = b.half(dtype, "x", shape.iter().copied());
        let ids = b.i32_row("ids", &[5, 0, -1, 3, 6]);
        let y = b.op(Op::Gather { axis }, &[x, ids]);
        let part = b.slice(x, 0, 1, shape[0] - 1, 1);
        let z = b.op(Op::Gather { axis }, &[part, ids]);
        b.output("part", z);
        table.push(b.done(y));
    }
}

fn rows(table: &mut Vec<Case>, dtype: DType) {
    let shapes: [(&[u64], &[usize], bool); 5] = [
        (&[5, 3], &[1], false),
        (&[5, 33], &[0], true),
        (&[2, 3, 64], &[2], true),
        (&[3, 4, 5], &[0, 2], false),
        (&[1000], &[0], false),
    ];
    for (dims, axes, keep) in shapes {
        for op in [ReduceOp::Sum, ReduceOp::Max] {
            let name = format!("half_precision/{dtype}/{}_{dims:?}_{axes:?}", op.name());
            let mut b = Build::new(name).within(close(dtype, 1000));
            let x = b.half(dtype, "x", dims.iter().copied());
            let y = b.op(Op::Reduce { op, axes: axes.to_vec(), keep }, &[x]);
            table.push(b.done(y));
        }
    }
    for n in [1u64, 7, 64, 1001] {
        let mut b =
            Build::new(format!("half_precision/{dtype}/softmax_{n}")).within(close(dtype, 1000));
        let x = b.half(dtype, "x", [3, n]);
        let y = b.op(Op::Softmax, &[x]);
        table.push(b.done(y));
    }
    let mut b = Build::new(format!("half_precision/{dtype}/argmax"));
    let x = b.half(dtype, "x", [4, 9]);
    let y = b.op(Op::ArgMax, &[x]);
    table.push(b.done(y));
    for layer in [false, true] {
        let name = if layer { "layer_norm" } else { "rms_norm" };
        let mut b = Build::new(format!("half_precision/{dtype}/{name}"))
            .within(Tolerance { atol: 1e-4, ..close(dtype, 64) });
        let x = b.half(dtype, "x", [5, 24]);
        let weight = b.half(dtype, "weight", [24]);
        let y = match layer {
            false => b.op(Op::RmsNorm { eps: 1e-2 }, &[x, weight]),
            true => {
                let bias = b.weight("bias", &[24], Format::Plain(dtype));
                b.op(Op::LayerNorm { eps: 1e-2 }, &[x, weight, bias])
            }
        };
        table.push(b.done(y));
    }
}

fn products(table: &mut Vec<Case>, dtype: DType) {
    for (m, k, n) in [(1u64, 32u64, 5u64), (3, 17, 7), (33, 64, 9)] {
        let mut b = Build::new(format!("half_precision/{dtype}/matmul_{m}_{k}_{n}"))
            .within(close(dtype, k));
        let (x, y) = (b.half(dtype, "a", [2, m, k]), b.half(dtype, "b", [k, n]));
        let z = b.op(Op::MatMul, &[x, y]);
        table.push(b.done(z));
    }
    for format in [Format::F32, Format::Plain(dtype), Format::Q8_0] {
        for m in [1u64, 5] {
            let mut b = Build::new(format!("half_precision/{dtype}/linear_{format}_m{m}"))
                .within(close(dtype, 64));
            let x = b.half(dtype, "x", [m, 64]);
            let w = b.weight("w", &[11, 64], format);
            let y = b.op(Op::linear(), &[x, w]);
            table.push(b.done(y));
        }
    }
    // Three intermediate results are rounded, each possibly to the other neighbour, and sums of 20
    // of them cancel.
    let one = close(dtype, 64);
    let tolerance = Tolerance { atol: 6.0 * one.rtol, nmse: 1e-3, ..one };
    let mut b = Build::new(format!("half_precision/{dtype}/gated")).within(tolerance);
    let x = b.half(dtype, "x", [3, 32]);
    let [gate, up] = ["gate", "up"].map(|name| b.weight(name, &[20, 32], Format::Plain(dtype)));
    let down = b.weight("down", &[6, 20], Format::Plain(dtype));
    let gate = b.op(Op::linear(), &[x, gate]);
    let gate = b.unary(UnaryOp::Tanh, gate);
    let up = b.op(Op::linear(), &[x, up]);
    let up = b.unary(UnaryOp::Tanh, up);
    let both = b.op(Op::Binary(BinaryOp::Mul), &[gate, up]);
    let y = b.op(Op::linear(), &[both, down]);
    table.push(b.done(y));

    let mut b = Build::new(format!("half_precision/{dtype}/conv2d")).within(close(dtype, 18));
    let x = b.half(dtype, "x", [1, 2, 5, 7]);
    let w = b.half(dtype, "w", [3, 2, 3, 3]);
    let y = b.op(Op::Conv2d(Conv2d::default()), &[x, w]);
    table.push(b.done(y));
    let mut b = Build::new(format!("half_precision/{dtype}/pool2d")).within(close(dtype, 4));
    let x = b.half(dtype, "x", [1, 3, 5, 7]);
    let pool = Pool2d {
        kind: PoolKind::Mean,
        kernel: (2, 2),
        stride: (1, 1),
        pad_before: (0, 0),
        pad_after: (0, 0),
        dilation: (1, 1),
        count_pad: false,
    };
    let y = b.op(Op::Pool2d(pool), &[x]);
    table.push(b.done(y));
}

fn attention(table: &mut Vec<Case>, dtype: DType) {
    let tolerance = Tolerance { atol: 1e-4, ..close(dtype, 64) };
    let mut b = Build::new(format!("half_precision/{dtype}/rope")).within(tolerance);
    let x = b.half(dtype, "x", [3, 2, 8]);
    let positions = b.i32_row("positions", &[0, 3, 9]);
    let frequencies = b.f32("frequencies", [4]);
    let rope = Op::Rope { pairs: RopePairs::Half, rot_dim: 8 };
    let y = b.op(rope, &[x, positions, frequencies]);
    table.push(b.done(y));
    for tokens in [1u64, 5] {
        let name = format!("half_precision/{dtype}/attention_{tokens}");
        let mut b = Build::new(name).within(tolerance);
        let q = b.half(dtype, "q", [tokens, 4, 8]);
        let [k, v] = ["k", "v"].map(|name| b.half(dtype, name, [9, 2, 8]));
        let past = Dim::from(9 - tokens);
        let op = Op::attention(0.35, true, None, past);
        let y = b.op(op, &[q, k, v]);
        table.push(b.done(y));
    }
}

fn update(b: &mut Build, at: Dim, state: NodeId, source: NodeId) -> NodeId {
    b.op(Op::Update { at }, &[state, source])
}

fn states(table: &mut Vec<Case>, dtype: DType) {
    // Rows of odd size begin within a word; neighbouring rows must not change.
    for (columns, at) in [(3u64, 1i64), (3, 2), (4, 1), (5, 0), (8, 3)] {
        let mut b = Build::new(format!("half_precision/{dtype}/update_{columns}_at_{at}"));
        let state = b.f16_state(dtype, "state", &[7, columns]);
        let x = b.half(dtype, "x", [3, columns]);
        let sum = b.op(Op::Binary(BinaryOp::Add), &[x, x]);
        let y = update(&mut b, Dim::new(at), state, sum);
        table.push(b.done(y));
    }
    let tolerance = Tolerance { atol: 1e-4, ..close(dtype, 64) };
    let mut b = Build::new(format!("half_precision/{dtype}/cache")).within(tolerance);
    let (past, seq) = (b.symbol("past", 3), b.symbol("seq", 2));
    let [k, v] = ["k", "v"].map(|name| b.f16_state(dtype, name, &[16, 1, 6]));
    let x = b.f32("x", [seq.clone(), Dim::new(1), Dim::new(6)]);
    let new = b.op(Op::Cast(dtype), &[x]);
    let len = past.clone() + seq;
    let [k, v] = [k, v].map(|state| {
        let state = update(&mut b, past.clone(), state, new);
        let seen = b.slice(state, 0, 0, len.clone(), 1);
        b.op(Op::Cast(DType::F32), &[seen])
    });
    let op = Op::attention(0.4, true, None, past);
    let y = b.op(op, &[x, k, v]);
    table.push(b.done(y));
}

/// Adds a case with weights in a 2-byte format that operations other than `Op::Linear` read.
fn stored(table: &mut Vec<Case>, dtype: DType) {
    let mut b = Build::new(format!("half_precision/{dtype}/stored_weights"))
        .within(Tolerance { atol: 1e-4, ..Tolerance::product(64) });
    let x = b.f32("x", [4, 15]);
    let [scale, bias, base] = ["scale", "bias", "base"].map(|name| {
        let dims: &[u64] = if name == "base" { &[9, 15] } else { &[15] };
        b.weight(name, dims, Format::Plain(dtype))
    });
    let norm = b.op(Op::RmsNorm { eps: 1e-2 }, &[x, scale]);
    let sum = b.op(Op::Binary(BinaryOp::Add), &[norm, bias]);
    let turned = b.transpose(base, &[1, 0]);
    let y = b.op(Op::MatMul, &[sum, turned]);
    b.output("sum", sum);
    table.push(b.done(y));
}
