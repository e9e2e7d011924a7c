//! Tests fused kernels against a reference for every scalar operation.

use super::*;
use crate::tests::{POISON, bytes, devices, launch, numbers, words};
use warploom_core::ir::scalar::{BinaryOp, UnaryOp};
use warploom_kernels::{KernelSpec, Schedule};

fn flat(dtype: DType) -> Operand {
    Operand { dtype, addressing: Addressing::Flat, binding: 0 }
}

/// Binds each input to a buffer of its own.
fn bound(inputs: &[Operand]) -> Vec<Operand> {
    let with = |(i, operand): (usize, &Operand)| Operand { binding: i as u32, ..*operand };
    inputs.iter().enumerate().map(with).collect()
}

fn expr(inputs: &[Operand], output: DType, values: &[Value]) -> FusedExpr {
    let value = values.len() as u32 - 1;
    FusedExpr {
        rank: 1,
        inputs: bound(inputs),
        values: values.into(),
        outputs: vec![Output { operand: flat(output), value }],
        schedule: Schedule::Elements { width: 1 },
    }
}

/// Evaluates an expression over flat inputs of equal length on every device; the devices must
/// agree.
fn eval(e: &FusedExpr, inputs: &[Vec<u32>], n: usize) -> Vec<u32> {
    let mut params = vec![n as u32, n as u32];
    params.extend(vec![0; inputs.len() + 1]);
    let inputs: Vec<Vec<u8>> = inputs.iter().map(|i| words(i)).collect();
    let spec = KernelSpec::Fused(e.clone());
    let mut results = devices().into_iter().map(|device| {
        let mut got = launch(&*device, &spec, &params, &inputs, n + 1).unwrap();
        assert_eq!(got.pop(), Some(POISON));
        got
    });
    let first = results.next().unwrap();
    for other in results {
        for (a, b) in first.iter().zip(&other) {
            let (a, b) = (f32::from_bits(*a), f32::from_bits(*b));
            assert!(
                a.to_bits() == b.to_bits()
                    || (a - b).abs() <= 1e-5 * a.abs()
                    || (a.is_nan() && b.is_nan()),
                "{a} {b}"
            );
        }
    }
    first
}

fn floats(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn unary_floats() {
    let mut x: Vec<f32> = numbers(1100, 1).iter().map(|v| v * 6.0).collect();
    x[..12].copy_from_slice(&[0.5, 1.5, 2.5, -0.5, -1.5, 0.0, -0.0, 4.49, 1e-9, -30.0, 30.0, 90.0]);
    for op in UnaryOp::ALL.into_iter().filter(|op| *op != UnaryOp::Not) {
        let values = [Value::Input(0), Value::Unary(op, 0)];
        let got = eval(&expr(&[flat(DType::F32)], DType::F32, &values), &[floats(&x)], x.len());
        for (x, got) in x.iter().zip(got) {
            let (x64, got) = (f64::from(*x), f64::from(f32::from_bits(got)));
            let sigmoid = 1.0 / (1.0 + (-x64).exp());
            let want = match op {
                UnaryOp::Neg => -x64,
                UnaryOp::Abs => x64.abs(),
                UnaryOp::Exp => x64.exp(),
                UnaryOp::Log => x64.ln(),
                UnaryOp::Sqrt => x64.sqrt(),
                UnaryOp::Rsqrt => 1.0 / x64.sqrt(),
                UnaryOp::Reciprocal => 1.0 / x64,
                UnaryOp::Sin => x64.sin(),
                UnaryOp::Cos => x64.cos(),
                UnaryOp::Tanh => x64.tanh(),
                UnaryOp::Erf => erf(x64),
                UnaryOp::Floor => x64.floor(),
                UnaryOp::Ceil => x64.ceil(),
                UnaryOp::Round => x64.round_ties_even(),
                UnaryOp::Sigmoid => sigmoid,
                UnaryOp::Silu => x64 * sigmoid,
                UnaryOp::Gelu => x64 * (1.0 + erf(x64 / 2f64.sqrt())) / 2.0,
                UnaryOp::GeluTanh => {
                    x64 * (1.0 + (0.797_884_560_8 * (x64 + 0.044_715 * x64.powi(3))).tanh()) / 2.0
                }
                UnaryOp::Relu => x64.max(0.0),
                UnaryOp::Not => continue,
            };
            let close = (got - want).abs() <= 3e-7 * want.abs().max(1.0);
            let same = got == f64::from(want as f32) || (got.is_nan() && want.is_nan());
            assert!(close || same, "{}({x}) = {got}, not {want}", op.name());
        }
    }
}

/// Computes the error function by its Taylor series in f64; ±1 for large `x`.
fn erf(x: f64) -> f64 {
    if x.abs() > 5.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

fn binary_of(op: BinaryOp, dtype: DType, a: &[u32], b: &[u32]) -> Vec<u32> {
    let output = if op.is_comparison() { DType::Bool } else { dtype };
    let values = [Value::Input(0), Value::Input(1), Value::Binary(op, 0, 1)];
    eval(&expr(&[flat(dtype), flat(dtype)], output, &values), &[a.into(), b.into()], a.len())
}

#[test]
fn binary_floats() {
    let mut a: Vec<f32> = numbers(600, 2).iter().map(|v| v.abs() * 9.0).collect();
    let mut b: Vec<f32> = numbers(600, 3).iter().map(|v| v * 4.0).collect();
    (a[0], b[0], a[1], b[1], a[2], b[2]) = (7.5, 2.0, -7.5, 2.0, 3.0, 3.0);
    for op in BinaryOp::ALL.into_iter().filter(|op| !op.is_logical()) {
        let got = binary_of(op, DType::F32, &floats(&a), &floats(&b));
        for ((a, b), got) in a.iter().zip(&b).zip(got) {
            let compare = |truth: bool| f32::from_bits(u32::from(truth));
            let want = match op {
                BinaryOp::Add => a + b,
                BinaryOp::Sub => a - b,
                BinaryOp::Mul => a * b,
                BinaryOp::Div => a / b,
                BinaryOp::Rem => a - b * (a / b).trunc(),
                BinaryOp::Pow => f64::from(*a).powf(f64::from(*b)) as f32,
                BinaryOp::Min => a.min(*b),
                BinaryOp::Max => a.max(*b),
                BinaryOp::Eq => compare(a == b),
                BinaryOp::Ne => compare(a != b),
                BinaryOp::Lt => compare(a < b),
                BinaryOp::Le => compare(a <= b),
                BinaryOp::Gt => compare(a > b),
                BinaryOp::Ge => compare(a >= b),
                BinaryOp::And | BinaryOp::Or => continue,
            };
            let got = f32::from_bits(got);
            let mut close =
                got.to_bits() == want.to_bits() || (got - want).abs() <= 1e-6 * want.abs();
            // The reference formula is inexact near an integer quotient.
            close |= op == BinaryOp::Rem && (got - want).abs() <= 1e-4;
            close |= op == BinaryOp::Rem && ((got - want).abs() - b.abs()).abs() <= 1e-4;
            close |= got.is_nan() && want.is_nan();
            assert!(close, "{}({a}, {b}) = {got}, not {want}", op.name());
        }
    }
}

#[test]
fn integers_wrap_and_divide_by_zero_as_stated() {
    let int = |v: i32| v as u32;
    let a = [7, -7, i32::MIN, i32::MAX, 5, -5].map(int);
    let b = [2, 2, -1, 1, 0, 0].map(int);
    assert_eq!(
        binary_of(BinaryOp::Div, DType::I32, &a, &b),
        [3, -3, i32::MIN, i32::MAX, 5, -5].map(int)
    );
    assert_eq!(binary_of(BinaryOp::Rem, DType::I32, &a, &b), [1, -1, 0, 0, 0, 0].map(int));
    assert_eq!(binary_of(BinaryOp::Add, DType::I32, &a, &b)[3], int(i32::MIN));
    assert_eq!(binary_of(BinaryOp::Lt, DType::I32, &a, &b), [0, 1, 1, 0, 0, 1]);
    assert_eq!(binary_of(BinaryOp::Lt, DType::U32, &a, &b), [0, 0, 1, 0, 0, 0]);
    assert_eq!(binary_of(BinaryOp::Max, DType::U32, &a, &b)[1], int(-7));
    assert_eq!(binary_of(BinaryOp::Div, DType::U32, &[9, 4], &[2, 0]), [4, 4]);
    assert_eq!(binary_of(BinaryOp::And, DType::Bool, &[0, 2, 1], &[1, 1, 0]), [0, 1, 0]);
    assert_eq!(binary_of(BinaryOp::Or, DType::Bool, &[0, 2, 0], &[1, 1, 0]), [1, 1, 0]);
    assert_eq!(binary_of(BinaryOp::Eq, DType::Bool, &[3, 0], &[1, 1]), [1, 0]);
    let neg =
        expr(&[flat(DType::I32)], DType::I32, &[Value::Input(0), Value::Unary(UnaryOp::Neg, 0)]);
    assert_eq!(eval(&neg, &[vec![5, int(i32::MIN)]], 2), [int(-5), int(i32::MIN)]);
    let not =
        expr(&[flat(DType::Bool)], DType::Bool, &[Value::Input(0), Value::Unary(UnaryOp::Not, 0)]);
    assert_eq!(eval(&not, &[vec![5, 0]], 2), [0, 1]);
}

#[test]
fn casts_saturate_and_select_selects() {
    let cast = |from, to, x: &[u32]| {
        eval(&expr(&[flat(from)], to, &[Value::Input(0), Value::Cast(to, 0)]), &[x.into()], x.len())
    };
    let x = floats(&[1.9, -1.9, 3e9, -3e9, f32::NAN, 0.0]);
    let want = [1, -1, i32::MAX, i32::MIN, 0, 0].map(|v| v as u32);
    assert_eq!(cast(DType::F32, DType::I32, &x), want);
    assert_eq!(cast(DType::F32, DType::U32, &x), [1, 0, 3_000_000_000, 0, 0, 0]);
    assert_eq!(cast(DType::F32, DType::Bool, &x), [1, 1, 1, 1, 1, 0]);
    assert_eq!(cast(DType::I32, DType::F32, &[-3i32 as u32, 4]), floats(&[-3.0, 4.0]));
    assert_eq!(cast(DType::U32, DType::F32, &[u32::MAX]), floats(&[4_294_967_295.0]));
    assert_eq!(cast(DType::Bool, DType::F32, &[7, 0]), floats(&[1.0, 0.0]));
    assert_eq!(cast(DType::I32, DType::Bool, &[7, 0]), [1, 0]);
    // if i < 3 { x } else { 10 }
    let values = [
        Value::Index,
        Value::Constant(DType::U32, 3),
        Value::Binary(BinaryOp::Lt, 0, 1),
        Value::Input(0),
        Value::Constant(DType::F32, 10f32.to_bits()),
        Value::Select(2, 3, 4),
    ];
    let e = expr(&[flat(DType::F32)], DType::F32, &values);
    let want: Vec<f32> = (0..2000).map(|i| if i < 3 { 1.0 } else { 10.0 }).collect();
    assert_eq!(eval(&e, &[floats(&[1.0; 2000])], 2000), floats(&want));
}

#[test]
fn strides_broadcast_transpose_and_scatter() {
    // y[j, i] = x0[i, j] + x1[i] * x2, y with gaps, over an index space [i: 37, j: 53].
    let (rows, cols) = (37, 53);
    let strided = Operand { dtype: DType::F32, addressing: Addressing::Strided, binding: 0 };
    let single = Operand { dtype: DType::F32, addressing: Addressing::Single, binding: 0 };
    let values = [
        Value::Input(1),
        Value::Input(2),
        Value::Binary(BinaryOp::Mul, 0, 1),
        Value::Input(0),
        Value::Binary(BinaryOp::Add, 3, 2),
    ];
    let e = FusedExpr {
        rank: 2,
        inputs: bound(&[strided, strided, single]),
        values: values.into(),
        outputs: vec![Output { operand: strided, value: 4 }],
        schedule: Schedule::Elements { width: 1 },
    };
    let (x0, x1, x2) = (numbers(4 + rows * cols, 5), numbers(rows, 6), numbers(9, 7));
    let params = [rows * cols, rows, cols, 4, cols, 1, 0, 1, 0, 8, 3, 2, rows * 2 + 1];
    let params = params.map(|v| v as u32);
    let inputs = [bytes(&x0), bytes(&x1), bytes(&x2)];
    let len = 3 + cols * (rows * 2 + 1) + 5;
    let mut want = vec![POISON; len];
    for i in 0..rows {
        for j in 0..cols {
            let y = x0[4 + i * cols + j] + x1[i] * x2[8];
            want[3 + i * 2 + j * (rows * 2 + 1)] = y.to_bits();
        }
    }
    for device in devices() {
        let spec = KernelSpec::Fused(e.clone());
        assert_eq!(launch(&*device, &spec, &params, &inputs, len).unwrap(), want);
        let mut wrong = params;
        wrong[1] += 1;
        assert!(launch(&*device, &spec, &wrong, &inputs, len).unwrap_err().is_invalid());
        let mut far = params;
        far[3] += 1;
        assert!(launch(&*device, &spec, &far, &inputs, len).unwrap_err().is_invalid());
    }
}

#[test]
fn malformed_expressions_are_errors() {
    let bad = |e: FusedExpr| Program::new(&e, Role::Kernel).err().unwrap();
    let f32s = [flat(DType::F32)];
    assert!(bad(expr(&f32s, DType::F32, &[Value::Input(1)])).is_invalid());
    assert!(bad(expr(&f32s, DType::F32, &[Value::Unary(UnaryOp::Neg, 0)])).is_invalid());
    assert!(bad(expr(&f32s, DType::I32, &[Value::Input(0)])).is_invalid());
    let mut late = expr(&f32s, DType::F32, &[Value::Input(0)]);
    late.outputs[0].value = 9;
    assert!(bad(late).is_invalid());
    assert!(bad(FusedExpr { rank: 7, ..expr(&f32s, DType::F32, &[Value::Input(0)]) }).is_invalid());
    let exp = [Value::Input(0), Value::Unary(UnaryOp::Exp, 0)];
    assert!(bad(expr(&[flat(DType::I32)], DType::I32, &exp)).is_unsupported());
    let half = [flat(DType::F16)];
    assert!(bad(expr(&half, DType::F16, &exp)).is_unsupported());
    let across = [Value::Input(0), Value::Cast(DType::I32, 0)];
    assert!(bad(expr(&half, DType::I32, &across)).is_invalid());
}
