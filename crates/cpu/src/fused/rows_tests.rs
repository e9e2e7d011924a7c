//! Tests generated kernels with reductions and several outputs against `fused_reference`.

use super::*;
use crate::tests::{POISON, devices, launch_many, numbers, words};
use warploom_core::ir::ReduceOp;
use warploom_core::ir::scalar::{BinaryOp, UnaryOp};
use warploom_kernels::fused_reference::evaluate;
use warploom_kernels::{KernelSpec, Schedule};

use Addressing::{Flat, Row, Single, Strided};
use Value::{Binary, Constant, Index, Input, Reduce, Unary};

fn float(addressing: Addressing, binding: u32) -> Operand {
    Operand { dtype: DType::F32, addressing, binding }
}

fn constant(v: f32) -> Value {
    Constant(DType::F32, v.to_bits())
}

/// Builds a body of rank 2 from inputs (addressing, binding) and outputs (addressing, binding,
/// value).
fn body(
    inputs: &[(Addressing, u32)],
    values: &[Value],
    outputs: &[(Addressing, u32, u32)],
) -> FusedExpr {
    let output = |(addressing, binding, value): &(Addressing, u32, u32)| Output {
        operand: float(*addressing, *binding),
        value: *value,
    };
    FusedExpr {
        rank: 2,
        inputs: inputs.iter().map(|(a, binding)| float(*a, *binding)).collect(),
        values: values.into(),
        outputs: outputs.iter().map(output).collect(),
        schedule: Schedule::Rows { threads: 64, width: 1, held: 4, subgroup: false },
    }
}

/// Builds the parameters over `[rows, cols]`: a `Flat` operand starts at element 1, a `Single` one
/// at 3; a `Strided` or `Row` one takes the next of `strides`.
fn params(e: &FusedExpr, rows: usize, cols: usize, strides: &[[usize; 3]]) -> Vec<u32> {
    let mut words = vec![rows * cols, rows, cols];
    let mut strides = strides.iter();
    for operand in e.operands() {
        match operand.addressing {
            Flat => words.push(1),
            Single => words.push(3),
            Strided | Row => words.extend(strides.next().unwrap()),
        }
    }
    words.into_iter().map(|w| w as u32).collect()
}

/// Launches on every device and compares the results with the reference. Devices with the same
/// instruction set must agree bit for bit.
fn check(e: &FusedExpr, params: &[u32], reads: &[Vec<f32>], tolerance: f64) {
    let reads: Vec<Vec<u32>> =
        reads.iter().map(|r| r.iter().map(|v| v.to_bits()).collect()).collect();
    let written = evaluate(e, params, &reads).unwrap();
    let mut want: Vec<Vec<Option<f64>>> = vec![Vec::new(); e.writes() as usize];
    for (output, written) in e.outputs.iter().zip(&written) {
        let buffer = &mut want[output.operand.binding as usize];
        for (place, value) in written.places.iter().zip(written.values.floats()) {
            buffer.resize(buffer.len().max(place + 3), None);
            buffer[*place] = Some(value);
        }
    }
    let reads: Vec<Vec<u8>> = reads.iter().map(|r| words(r)).collect();
    let sizes: Vec<usize> = want.iter().map(Vec::len).collect();
    let mut alone = None;
    for device in devices() {
        let spec = KernelSpec::Fused(e.clone());
        let got = launch_many(&*device, &spec, params, &reads, &sizes).unwrap();
        let place = format!("{e} {} {params:?}", device.profile().driver);
        for (b, (got, want)) in got.iter().zip(&want).enumerate() {
            for (i, (got, want)) in got.iter().zip(want).enumerate() {
                let Some(want) = want else {
                    assert_eq!(*got, POISON, "{place}: element {i} of {b} was written");
                    continue;
                };
                let got = f64::from(f32::from_bits(*got));
                let same = got == *want || (got.is_nan() && want.is_nan());
                let close = (got - want).abs() <= tolerance * want.abs().max(1.0);
                assert!(same || close, "{place}: element {i} of {b} is {got}, not {want}");
            }
        }
        // The number of threads does not change the bits.
        match alone.take() {
            Some(before) => assert_eq!(before, got, "{place}"),
            None => alone = Some(got),
        }
    }
}

/// Shapes with several rows per tile, with several tiles per row, and in between.
const SHAPES: [(usize, usize); 13] = [
    (1, 1),
    (700, 1),
    (300, 3),
    (129, 31),
    (7, 64),
    (37, 200),
    (3, 512),
    (3, 513),
    (5, 2000),
    (1, 20_000),
    (0, 4),
    (6, 0),
    (1100, 40),
];

fn softmax(x: Addressing) -> FusedExpr {
    let values = [
        Input(0),
        Reduce(ReduceOp::Max, 0),
        Binary(BinaryOp::Sub, 0, 1),
        Unary(UnaryOp::Exp, 2),
        Reduce(ReduceOp::Sum, 3),
        Binary(BinaryOp::Div, 3, 4),
    ];
    body(&[(x, 0)], &values, &[(Flat, 0, 5)])
}

/// Builds `(x - mean) * rsqrt(mean of (x - mean)^2 + eps) * w + b`; the mean and the rsqrt are
/// outputs too.
fn layer_norm() -> FusedExpr {
    let values = [
        Input(0),
        Reduce(ReduceOp::Mean, 0),
        Binary(BinaryOp::Sub, 0, 1),
        Binary(BinaryOp::Mul, 2, 2),
        Reduce(ReduceOp::Mean, 3),
        constant(1e-5),
        Binary(BinaryOp::Add, 4, 5),
        Unary(UnaryOp::Rsqrt, 6),
        Binary(BinaryOp::Mul, 2, 7),
        Input(1),
        Binary(BinaryOp::Mul, 8, 9),
        Input(2),
        Binary(BinaryOp::Add, 10, 11),
    ];
    let outputs = [(Flat, 0, 12), (Strided, 1, 1), (Strided, 1, 7)];
    body(&[(Strided, 0), (Strided, 1), (Single, 1)], &values, &outputs)
}

#[test]
fn softmax_and_layer_norm_of_all_shapes() {
    for (rows, cols) in SHAPES {
        let x = numbers(1 + rows * cols, 1);
        let e = softmax(Flat);
        check(&e, &params(&e, rows, cols, &[]), &[x], 2e-6);
        let (pitch, e) = (cols + 5, layer_norm());
        let strides = [[2, pitch, 1], [0, 0, 1], [1, 2, 9], [2, 2, 9]];
        let reads = [numbers(2 + rows * pitch + 1, 2), numbers(cols + 4, 3)];
        // A row of one has no variance: its residual is rounding error, times 300.
        check(&e, &params(&e, rows, cols, &strides), &reads, 3e-5);
    }
}

#[test]
fn every_reduction_with_what_is_before_and_behind_it() {
    for op in ReduceOp::ALL {
        for (rows, cols) in SHAPES {
            // y = 2 * op(x * 0.9 + 1) by row, and |x| by element.
            let values = [
                Input(0),
                constant(0.9),
                Binary(BinaryOp::Mul, 0, 1),
                constant(1.0),
                Binary(BinaryOp::Add, 2, 3),
                Reduce(op, 4),
                constant(2.0),
                Binary(BinaryOp::Mul, 5, 6),
                Unary(UnaryOp::Abs, 0),
            ];
            let e = body(&[(Flat, 0)], &values, &[(Strided, 0, 7), (Flat, 1, 8)]);
            let mut x = numbers(1 + rows * cols, 4);
            if op == ReduceOp::Prod {
                // Keeps the product from underflow and overflow.
                x.iter_mut().for_each(|v| *v *= 0.01);
                x.iter_mut().skip(1).for_each(|v| *v -= (*v * 0.9).fract());
            }
            check(&e, &params(&e, rows, cols, &[[1, 3, 0]]), &[x], 1e-5);
        }
    }
}

#[test]
fn reductions_across_rows_of_memory() {
    // The index space is [columns, rows] of x: neighbours in memory belong to different rows.
    for (rows, cols) in [(700, 9), (64, 300), (1030, 33), (40, 5000), (16, 2), (17, 1)] {
        let strides = [[2, 1, rows + 1], [1, 1, rows]];
        let mut e = softmax(Strided);
        e.outputs[0].operand.addressing = Strided;
        let x = numbers(2 + cols * (rows + 1), 5);
        check(&e, &params(&e, rows, cols, &strides), std::slice::from_ref(&x), 2e-6);
        let values = [
            Input(0),
            Index,
            Value::Cast(DType::F32, 1),
            constant(1e-5),
            Binary(BinaryOp::Mul, 2, 3),
            Binary(BinaryOp::Add, 0, 4),
            Reduce(ReduceOp::Sum, 5),
        ];
        let e = body(&[(Strided, 0)], &values, &[(Strided, 0, 6)]);
        check(&e, &params(&e, rows, cols, &[strides[0], [0, 2, 7]]), &[x], 1e-5);
    }
}

#[test]
fn values_of_rows_and_of_everywhere_are_reduced_too() {
    for (rows, cols) in SHAPES {
        // The row sums of (x0 * 2 + row maximum), of a constant, and of a value that is constant
        // over the index space; the last one is stored per element.
        let values = [
            Input(0),
            Reduce(ReduceOp::Max, 0),
            Input(1),
            constant(2.0),
            Binary(BinaryOp::Mul, 2, 3),
            Binary(BinaryOp::Add, 1, 4),
            Reduce(ReduceOp::Sum, 5),
            Reduce(ReduceOp::Sum, 3),
            Reduce(ReduceOp::Mean, 4),
        ];
        let outputs = [(Strided, 0, 6), (Strided, 0, 7), (Flat, 1, 8), (Strided, 2, 4)];
        let e = body(&[(Flat, 0), (Single, 0)], &values, &outputs);
        if rows * cols < 3 {
            continue;
        }
        let strides = [[0, 2, 0], [1, 2, 0], [0, 1, 0]];
        check(&e, &params(&e, rows, cols, &strides), &[numbers(1 + rows * cols, 6)], 1e-5);
    }
}

/// One value per row, read before the first reduction, between two reductions and after the last
/// one, where it is defined even if the row is empty.
#[test]
fn numbers_of_rows() {
    let values = [
        Input(0),
        Input(1),
        Binary(BinaryOp::Sub, 0, 1),
        Reduce(ReduceOp::Max, 2),
        Binary(BinaryOp::Mul, 3, 1),
        Binary(BinaryOp::Add, 2, 4),
        Reduce(ReduceOp::Sum, 5),
        Input(2),
        Unary(UnaryOp::Neg, 7),
        Binary(BinaryOp::Add, 6, 8),
    ];
    let outputs = [(Flat, 0, 5), (Strided, 1, 9), (Row, 2, 8), (Flat, 3, 1)];
    let e = body(&[(Flat, 0), (Row, 1), (Row, 1)], &values, &outputs);
    for (rows, cols) in SHAPES {
        let strides = [[0, 2, 0], [1, 1, 0], [1, 2, 0], [0, 1, 0]];
        let reads = [numbers(rows * cols + 1, 3), numbers(2 * rows + 2, 4)];
        check(&e, &params(&e, rows, cols, &strides), &reads, 1e-4);
    }
    let mut none = e.clone();
    none.values.iter_mut().for_each(|value| {
        if let Reduce(_, a) = *value {
            *value = Unary(UnaryOp::Neg, a);
        }
    });
    assert!(Program::new(&none, Role::Kernel).err().unwrap().is_invalid());
}

#[test]
fn not_a_number_and_infinities() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let x = [nan, 1.0, 3.0, nan, nan, nan, -inf, -inf, -inf, inf, -inf, 0.0];
    let x: Vec<f32> = std::iter::once(0.0).chain(x).collect();
    for op in ReduceOp::ALL {
        let e = body(&[(Flat, 0)], &[Input(0), Reduce(op, 0)], &[(Strided, 0, 1)]);
        check(&e, &params(&e, 4, 3, &[[0, 1, 0]]), std::slice::from_ref(&x), 0.0);
        check(&e, &params(&e, 1, 12, &[[0, 1, 0]]), std::slice::from_ref(&x), 0.0);
    }
    let e = softmax(Flat);
    check(&e, &params(&e, 4, 3, &[]), &[x], 1e-6);
}

#[test]
fn rank_six_and_one() {
    let dims = [2, 3, 1, 2, 3, 5];
    let values = [Input(0), Reduce(ReduceOp::Sum, 0), Binary(BinaryOp::Sub, 0, 1)];
    let mut e = body(&[(Strided, 0)], &values, &[(Flat, 0, 2), (Strided, 1, 1)]);
    e.rank = 6;
    let mut words = vec![180];
    words.extend(dims);
    // x is [3, 2, .., 3, 5] with the first two axes swapped; the sums have stride 2.
    words.extend([0, 30, 60, 0, 15, 5, 1, 0, 0, 36, 12, 12, 6, 2, 0]);
    check(&e, &words, &[numbers(180, 7)], 1e-6);
    e.rank = 1;
    for n in [0, 1, 700, 3000] {
        let words = [n as u32, n as u32, 0, 1, 0, 4, 0];
        check(&e, &words, &[numbers(n, 8)], 1e-5);
    }
}

#[test]
fn several_outputs_of_elements_share_buffers() {
    // Two outputs interleaved in one buffer, a third in its own, a copy of an input among them.
    let values = [Input(0), Input(1), Binary(BinaryOp::Add, 0, 1), Unary(UnaryOp::Neg, 2)];
    let outputs = [(Strided, 0, 2), (Strided, 0, 3), (Flat, 1, 0)];
    let mut e = body(&[(Strided, 0), (Strided, 0)], &values, &outputs);
    e.schedule = Schedule::Elements { width: 1 };
    for (rows, cols) in [(3, 5), (130, 700)] {
        let strides = [[0, cols, 1], [4, cols, 1], [0, 2 * cols, 2], [1, 2 * cols, 2]];
        check(&e, &params(&e, rows, cols, &strides), &[numbers(rows * cols + 4, 9)], 1e-6);
    }
}

#[test]
fn malformed_reductions_are_errors() {
    let mut e = softmax(Flat);
    e.rank = 0;
    assert!(Program::new(&e, Role::Kernel).err().unwrap().is_invalid());
    let e = softmax(Flat);
    assert!(Program::new(&e, Role::Segment(1)).err().unwrap().is_invalid());
    let anchor = body(&[], &[Value::Anchor(1)], &[(Strided, 0, 0)]);
    assert!(Program::new(&anchor, Role::Kernel).err().unwrap().is_invalid());
    assert!(Program::new(&anchor, Role::Segment(1)).err().unwrap().is_invalid());
    assert!(Program::new(&anchor, Role::Segment(2)).is_ok());
    let mut integers = body(&[(Flat, 0)], &[Input(0), Reduce(ReduceOp::Sum, 0)], &[]);
    integers.inputs[0].dtype = DType::I32;
    assert!(Program::new(&integers, Role::Kernel).err().unwrap().is_unsupported());
    for device in devices() {
        let spec = KernelSpec::Fused(softmax(Flat));
        let x = [words(&[0; 13])];
        for params in [[12, 3, 5, 0, 0], [13, 13, 1, 1, 0], [12, 3, 4, 0, 1], [12, 3, 4, 2, 0]] {
            let error = launch_many(&*device, &spec, &params, &x, &[12]).unwrap_err();
            assert!(error.is_invalid(), "{error}");
        }
        let far = [0, u32::MAX, 0, 0, 0];
        assert!(launch_many(&*device, &spec, &far, &x, &[12]).is_ok());
    }
}
