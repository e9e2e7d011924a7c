//! Unary, binary, select and cast: every operation on edge values and on every kind of shape.

use super::MANY;
use crate::build::{Build, Case};
use crate::compare::Tolerance;
use warploom_core::base::{DType, Shape};
use warploom_core::ir::{BinaryOp, Op, UnaryOp};
use warploom_core::reference::Data;

/// Values of every sign and magnitude.
const AWKWARD: [f32; 21] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    -1.5,
    2.5,
    0.499_999_97,
    -0.499_999_97,
    1e-3,
    -1e-3,
    1e-6,
    -1e-6,
    1e-20,
    3.0,
    -7.25,
    12.0,
    -19.5,
    1.000_000_1,
];

pub(super) fn add(table: &mut Vec<Case>) {
    table.extend(UnaryOp::ALL.map(unary));
    integer_unary(table);
    table.extend(BinaryOp::ALL.into_iter().filter(|op| !op.is_logical()).map(binary_f32));
    for op in BinaryOp::ALL {
        if !op.is_logical() && op != BinaryOp::Pow {
            table.extend([binary_i32(op), binary_u32(op)]);
        }
        if op.is_logical() || matches!(op, BinaryOp::Eq | BinaryOp::Ne) {
            table.push(binary_bool(op));
        }
    }
    sizes(table);
    broadcasts(table);
    selects(table);
    casts(table);
}

/// Returns the tolerance of a function, and the operand values to test it with.
fn domain(op: UnaryOp, b: &Build) -> (Tolerance, Vec<f32>) {
    let mut random = b.random("x");
    let mut with = |extra: &[f32], low: f32, high: f32| {
        let mut values = extra.to_vec();
        values.extend(random.evenly(129 - extra.len(), low, high));
        values
    };
    let large = [88.0, -88.0, 100.0, -100.0, 1e4, -1e4];
    let all = [&AWKWARD[..], &large].concat();
    let huge = [&AWKWARD[..], &[1e10, -1e10, 8_388_609.0, -3e38]].concat();
    let positive: Vec<f32> = [1e-30, 1e-10, 1e10, 1e30, 1.0, 2.0, 4.0, 0.25].to_vec();
    match op {
        UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Relu | UnaryOp::Not => {
            (Tolerance::EXACT, with(&huge, -4.0, 4.0))
        }
        UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round => {
            (Tolerance::EXACT, with(&huge, -40.0, 40.0))
        }
        // WGSL allows 3 + 2|x| ulp.
        UnaryOp::Exp => (Tolerance::relative(2e-5), with(&AWKWARD, -80.0, 80.0)),
        UnaryOp::Log => {
            (Tolerance { atol: 1e-6, ..Tolerance::relative(1e-6) }, with(&positive, 0.01, 9.0))
        }
        UnaryOp::Sqrt | UnaryOp::Rsqrt => (Tolerance::relative(1e-6), with(&positive, 0.01, 90.0)),
        UnaryOp::Reciprocal => {
            let signs = [1e-30, -1e-30, 1e30, -1e30, 3.0, -7.0];
            (Tolerance::relative(1e-6), with(&signs, 0.01, 90.0))
        }
        // Argument reduction in f32 costs about 1e-7 of the angle.
        UnaryOp::Sin | UnaryOp::Cos => (Tolerance::absolute(5e-6), with(&AWKWARD, -12.0, 12.0)),
        UnaryOp::Tanh | UnaryOp::Erf => (Tolerance::absolute(1e-6), with(&all, -4.0, 4.0)),
        UnaryOp::Sigmoid => (Tolerance::absolute(1e-6), with(&all, -12.0, 12.0)),
        UnaryOp::Silu | UnaryOp::Gelu | UnaryOp::GeluTanh => {
            (Tolerance { atol: 2e-6, ..Tolerance::relative(1e-5) }, with(&all, -6.0, 6.0))
        }
    }
}

fn unary(op: UnaryOp) -> Case {
    let b = Build::new(format!("unary/{}", op.name()));
    let (tolerance, values) = domain(op, &b);
    let mut b = b.within(tolerance);
    let x = match op {
        UnaryOp::Not => {
            let bools = values.iter().map(|v| *v > 0.0).collect();
            b.input("x", Shape::new([values.len()]), Data::Bool(bools))
        }
        _ => b.f32_row("x", &values),
    };
    let y = b.unary(op, x);
    b.done(y)
}

fn integer_unary(table: &mut Vec<Case>) {
    for op in [UnaryOp::Neg, UnaryOp::Abs] {
        let mut b =
            Build::new(format!("unary/{}_i32", op.name())).note("the least has no opposite");
        let x = b.i32_row("x", &[0, 1, -1, 7, -7, i32::MAX, i32::MIN + 1, i32::MIN, 65_536]);
        let y = b.unary(op, x);
        table.push(b.done(y));
    }
}

fn binary_f32(op: BinaryOp) -> Case {
    let tolerance = match op {
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul => Tolerance::relative(2.5e-7),
        BinaryOp::Div => Tolerance::relative(1e-6),
        BinaryOp::Rem => Tolerance::absolute(1e-5),
        BinaryOp::Pow => Tolerance::relative(5e-5),
        _ => Tolerance::EXACT,
    };
    let mut b = Build::new(format!("binary/{}", op.name())).within(tolerance);
    let count = 3 * 43;
    let mut random = b.random("values");
    let (left, right): (Vec<f32>, Vec<f32>) = match op {
        BinaryOp::Div => (random.shaped(count), random.evenly(count, 0.25, 8.0)),
        // Avoids integer quotients, where one ulp of the quotient changes the result by a divisor.
        BinaryOp::Rem => (0..count)
            .map(|_| {
                let (divisor, quotient) = (random.between(0.5, 4.0), random.below(20) as f32);
                let sign = if random.below(2) == 0 { 1.0 } else { -1.0 };
                (sign * divisor * (quotient + random.between(0.2, 0.8)), divisor)
            })
            .unzip(),
        BinaryOp::Pow => (random.evenly(count, 0.1, 9.0), random.evenly(count, -3.0, 3.0)),
        // A third of the pairs are equal.
        _ => {
            let left = random.shaped(count);
            let other = random.shaped(count);
            let right = (0..count).map(|i| if i % 3 == 0 { left[i] } else { other[i] }).collect();
            (left, right)
        }
    };
    let x = b.input("a", Shape::new([3, 43]), Data::F32(left));
    let y = b.input("b", Shape::new([3, 43]), Data::F32(right));
    let z = b.op(Op::Binary(op), &[x, y]);
    b.done(z)
}

/// Builds a case with pairs of integers, among them pairs that overflow, divide by zero or are
/// equal.
fn binary_i32(op: BinaryOp) -> Case {
    let pairs = [
        (7, 3),
        (-7, 3),
        (7, -3),
        (-7, -3),
        (0, 5),
        (5, 0),
        (-5, 0),
        (0, 0),
        (i32::MAX, 2),
        (i32::MIN, -1),
        (i32::MIN, 2),
        (1 << 20, 1 << 13),
        (-1, 1),
        (100, 100),
        (i32::MIN, i32::MAX),
    ];
    let mut b = Build::new(format!("binary/{}_i32", op.name()));
    let (left, right): (Vec<i32>, Vec<i32>) = pairs.into_iter().unzip();
    let x = b.i32_row("a", &left);
    let y = b.i32_row("b", &right);
    let z = b.op(Op::Binary(op), &[x, y]);
    b.done(z)
}

fn binary_u32(op: BinaryOp) -> Case {
    let pairs = [
        (7, 3),
        (3, 7),
        (0, 5),
        (5, 0),
        (0, 0),
        (u32::MAX, 2),
        (u32::MAX, u32::MAX),
        (1 << 31, 2),
        (1 << 20, 1 << 13),
        (0, 1),
        (100, 100),
        (1, 1 << 31),
        (u32::MAX, 1),
    ];
    let mut b = Build::new(format!("binary/{}_u32", op.name()));
    let (left, right): (Vec<u32>, Vec<u32>) = pairs.into_iter().unzip();
    let shape = Shape::new([left.len()]);
    let x = b.input("a", shape.clone(), Data::U32(left));
    let y = b.input("b", shape, Data::U32(right));
    let z = b.op(Op::Binary(op), &[x, y]);
    b.done(z)
}

fn binary_bool(op: BinaryOp) -> Case {
    let mut b = Build::new(format!("binary/{}_bool", op.name()));
    let x = b.input("a", Shape::new([2, 1]), Data::Bool(vec![false, true]));
    let y = b.input("b", Shape::new([2]), Data::Bool(vec![false, true]));
    let z = b.op(Op::Binary(op), &[x, y]);
    b.done(z)
}

fn sizes(table: &mut Vec<Case>) {
    for n in [0, 1, 2, 3, 31, 33, 127, 129, 255, 257, 1025] {
        let mut b = Build::new(format!("elementwise/size{n}")).within(Tolerance::relative(1e-6));
        let (x, y) = (b.f32("a", [n]), b.f32("b", [n]));
        let z = b.op(Op::Binary(BinaryOp::Add), &[x, y]);
        table.push(b.done(z));
    }
    for (seq, note) in [(1, "one"), (2, "another"), (7, "and another run of the same graph")] {
        let mut b = Build::new(format!("elementwise/symbol/seq{seq}"))
            .within(Tolerance::relative(1e-6))
            .note(note);
        let seq = b.symbol("seq", seq);
        let x = b.f32("a", [seq, 5.into()]);
        let y = b.f32("b", [5]);
        let z = b.op(Op::Binary(BinaryOp::Mul), &[x, y]);
        table.push(b.done(z));
    }
    let mut b = Build::new("elementwise/many_rows").within(Tolerance::relative(1e-6));
    let x = b.f32("a", [MANY, 2]);
    let y = b.f32("b", [MANY, 1]);
    let z = b.op(Op::Binary(BinaryOp::Sub), &[x, y]);
    table.push(b.done(z));
    let mut b = Build::new("elementwise/scalars").within(Tolerance::relative(1e-6));
    let x = b.f32("a", [0u64; 0]);
    let y = b.f32("b", [0u64; 0]);
    let z = b.op(Op::Binary(BinaryOp::Sub), &[x, y]);
    table.push(b.done(z));
    let mut b = Build::new("elementwise/rank5").within(Tolerance::relative(1e-6));
    let x = b.f32("a", [2, 3, 1, 5, 2]);
    let y = b.f32("b", [3, 4, 1, 2]);
    let z = b.op(Op::Binary(BinaryOp::Sub), &[x, y]);
    table.push(b.done(z));
}

fn broadcasts(table: &mut Vec<Case>) {
    let rows: [(&str, &[u64], &[u64]); 10] = [
        ("scalar_right", &[5, 33], &[]),
        ("scalar_left", &[], &[5, 33]),
        ("one_right", &[5, 33], &[1]),
        ("row", &[5, 33], &[33]),
        ("column", &[5, 33], &[5, 1]),
        ("outer", &[5, 1], &[1, 33]),
        ("leading", &[3, 5, 7], &[5, 7]),
        ("middle", &[3, 5, 7], &[3, 1, 7]),
        ("both", &[3, 1, 7], &[1, 5, 1]),
        ("empty", &[0, 7], &[1, 7]),
    ];
    for (name, left, right) in rows {
        let mut b = Build::new(format!("broadcast/{name}")).within(Tolerance::relative(1e-6));
        let x = b.f32("a", left.iter().copied());
        let y = b.f32("b", right.iter().copied());
        let z = b.op(Op::Binary(BinaryOp::Sub), &[x, y]);
        table.push(b.done(z));
    }
}

fn selects(table: &mut Vec<Case>) {
    type Dims = &'static [u64];
    let rows: [(&str, Dims, Dims, Dims); 4] = [
        ("plain", &[3, 31], &[3, 31], &[3, 31]),
        ("mask_row", &[31], &[3, 31], &[3, 31]),
        ("scalars", &[3, 31], &[], &[1]),
        ("all_different", &[3, 1, 1], &[5, 1], &[7]),
    ];
    for (name, mask, left, right) in rows {
        let mut b = Build::new(format!("select/{name}"));
        let count = mask.iter().product::<u64>() as usize;
        let bits = b.random("mask").evenly(count, 0.0, 1.0).iter().map(|v| *v < 0.4).collect();
        let mask = b.input("mask", Shape::new(mask.iter().copied()), Data::Bool(bits));
        let x = b.f32("a", left.iter().copied());
        let y = b.f32("b", right.iter().copied());
        let z = b.op(Op::Select, &[mask, x, y]);
        table.push(b.done(z));
    }
    let mut b = Build::new("select/i32");
    let mask = b.input("mask", Shape::new([4]), Data::Bool(vec![true, false, false, true]));
    let x = b.i32_row("a", &[i32::MIN, 1, 2, 3]);
    let y = b.i32_row("b", &[-1, i32::MAX, -3, -4]);
    let z = b.op(Op::Select, &[mask, x, y]);
    table.push(b.done(z));
}

fn casts(table: &mut Vec<Case>) {
    let floats = [AWKWARD.as_slice(), &[3e9, -3e9, 5e9, 1e30, -1e30, 16_777_217.0, 255.9]].concat();
    let sources = [
        ("f32", Data::F32(floats)),
        ("i32", Data::I32(vec![0, 1, -1, 1 << 24, -(1 << 24), i32::MIN, 1 << 30])),
        ("u32", Data::U32(vec![0, 1, 1 << 24, 1 << 31, 4_294_967_040])),
        ("bool", Data::Bool(vec![true, false, true])),
    ];
    for (name, data) in sources {
        for to in [DType::F32, DType::I32, DType::U32, DType::Bool] {
            let mut b = Build::new(format!("cast/{name}_{to}"));
            let x = b.input("x", Shape::new([data.len()]), data.clone());
            let y = b.op(Op::Cast(to), &[x]);
            table.push(b.done(y));
        }
    }
}
