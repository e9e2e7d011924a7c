//! Bodies of generated kernels, for tests of their text and of their results on devices.

use warploom::graph::ReduceOp;
use warploom::graph::scalar::{BinaryOp, UnaryOp};
use warploom::kernel::{Addressing, FusedExpr, Operand, Output, Schedule, Value};
use warploom_core::base::DType;
use warploom_kernels::codegen::fused_wgsl;

const FLAT: Addressing = Addressing::Flat;

pub(crate) fn operand(dtype: DType, addressing: Addressing) -> Operand {
    Operand { dtype, addressing, binding: 0 }
}

/// A buffer for each input.
pub(crate) fn bound(inputs: impl IntoIterator<Item = Operand>) -> Vec<Operand> {
    (0..).zip(inputs).map(|(binding, operand)| Operand { binding, ..operand }).collect()
}

/// `y = value` of inputs of these types, with everything before it loaded in order.
pub(crate) fn expr(inputs: &[DType], output: DType, values: &[Value]) -> FusedExpr {
    let mut all: Vec<Value> = (0..inputs.len() as u32).map(Value::Input).collect();
    all.extend(values);
    FusedExpr {
        rank: 1,
        inputs: bound(inputs.iter().map(|d| operand(*d, FLAT))),
        outputs: vec![Output { operand: operand(output, FLAT), value: all.len() as u32 - 1 }],
        values: all,
        schedule: Schedule::Elements { width: 1 },
    }
}

/// Elementwise expressions that cover every operation, type, addressing and width.
pub(crate) fn elementwise() -> Vec<FusedExpr> {
    let mut all = operations();
    all.extend(addressings());
    let one = all.len();
    for i in 0..one {
        let narrow = &all[i];
        let strided = |o: &Output| o.operand.addressing == Addressing::Strided;
        if !narrow.outputs.iter().any(strided) {
            all.push(FusedExpr { schedule: Schedule::Elements { width: 4 }, ..narrow.clone() });
        }
    }
    all
}

fn operations() -> Vec<FusedExpr> {
    use DType::{Bool, F32, I32, U32};
    let mut all = Vec::new();
    for op in UnaryOp::ALL {
        let dtype = if op == UnaryOp::Not { Bool } else { F32 };
        all.push(expr(&[dtype], dtype, &[Value::Unary(op, 0)]));
    }
    all.push(expr(&[I32], I32, &[Value::Unary(UnaryOp::Neg, 0)]));
    all.push(expr(&[I32], I32, &[Value::Unary(UnaryOp::Abs, 0)]));
    for op in BinaryOp::ALL {
        for dtype in [F32, I32, U32, Bool] {
            let fits = match op {
                BinaryOp::And | BinaryOp::Or => dtype == Bool,
                BinaryOp::Eq | BinaryOp::Ne => true,
                BinaryOp::Pow => dtype == F32,
                _ => dtype != Bool,
            };
            let one = Value::Binary(op, 0, 1);
            let output = if op.is_comparison() { Bool } else { dtype };
            let made = expr(&[dtype, dtype], output, &[one]);
            match fits {
                true => all.push(made),
                false => assert!(fused_wgsl(&made).unwrap_err().is_invalid()),
            }
        }
    }
    for from in [F32, I32, U32, Bool] {
        for to in [F32, I32, U32, Bool] {
            all.push(expr(&[from], to, &[Value::Cast(to, 0)]));
        }
        all.push(expr(&[Bool, from, from], from, &[Value::Select(0, 1, 2)]));
    }
    for half in [DType::F16, DType::BF16] {
        all.push(expr(&[half], half, &[]));
        all.push(expr(&[F32], half, &[Value::Cast(half, 0)]));
        all.push(expr(&[half], F32, &[Value::Cast(F32, 0)]));
        all.push(expr(&[Bool, half, half], half, &[Value::Select(0, 1, 2)]));
        all.push(expr(&[], half, &[Value::Constant(half, 0xffff_3f80)]));
    }
    for bits in [0, 1, 0x7f7fffff, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0x3dcccccd] {
        all.push(expr(
            &[F32],
            F32,
            &[Value::Constant(F32, bits), Value::Binary(BinaryOp::Max, 0, 1)],
        ));
    }
    for power in [-1.0f32, 0.5, 1.0, 2.0, 3.0, 4.0] {
        let constant = Value::Constant(F32, power.to_bits());
        all.push(expr(&[F32], F32, &[constant, Value::Binary(BinaryOp::Pow, 0, 1)]));
    }
    let i32_min = Value::Constant(I32, 0x80000000);
    all.push(expr(&[I32], I32, &[i32_min, Value::Binary(BinaryOp::Add, 0, 1)]));
    all.push(expr(&[], U32, &[Value::Index]));
    all
}

/// Every way to address operands, and buffers that several of them share.
pub(crate) fn addressings() -> Vec<FusedExpr> {
    use DType::{Bool, F32, I32};
    let mut all = Vec::new();
    for rank in 0..=6 {
        let gate = [Value::Input(0), Value::Input(1), Value::Input(2)];
        let values = [Value::Unary(UnaryOp::Silu, 0), Value::Binary(BinaryOp::Mul, 3, 1)];
        let last = [Value::Binary(BinaryOp::Add, 4, 2)];
        all.push(FusedExpr {
            rank,
            inputs: bound([
                operand(F32, Addressing::Strided),
                operand(F32, FLAT),
                operand(F32, Addressing::Single),
            ]),
            values: gate.into_iter().chain(values).chain(last).collect(),
            outputs: vec![Output {
                operand: operand(F32, if rank % 2 == 0 { FLAT } else { Addressing::Strided }),
                value: 5,
            }],
            schedule: Schedule::Elements { width: 1 },
        });
    }

    // x0 and the integers of x1 share one buffer, all outputs another.
    let mut shared = FusedExpr {
        rank: 2,
        inputs: vec![operand(F32, FLAT), operand(I32, FLAT), operand(F32, Addressing::Single)],
        values: vec![
            Value::Input(0),
            Value::Input(1),
            Value::Cast(F32, 1),
            Value::Input(2),
            Value::Binary(BinaryOp::Mul, 0, 3),
            Value::Binary(BinaryOp::Add, 4, 2),
            Value::Binary(BinaryOp::Lt, 0, 2),
        ],
        outputs: vec![
            Output { operand: operand(F32, FLAT), value: 5 },
            Output { operand: operand(Bool, FLAT), value: 6 },
            Output { operand: operand(I32, FLAT), value: 1 },
        ],
        schedule: Schedule::Elements { width: 1 },
    };
    all.push(shared.clone());
    shared.inputs[1].binding = 1;
    shared.outputs[2].operand.binding = 1;
    all.push(shared);
    for half in [DType::F16, DType::BF16] {
        all.extend([FLAT, Addressing::Strided].map(|to| halves(half, to)));
    }
    all
}

/// Two elements of a word with every addressing, read from and written to one buffer each, and a
/// condition.
fn halves(half: DType, to: Addressing) -> FusedExpr {
    use DType::{Bool, F32};
    let flag = Operand { binding: 1, ..operand(Bool, FLAT) };
    FusedExpr {
        rank: 3,
        inputs: vec![
            operand(half, Addressing::Strided),
            operand(half, FLAT),
            operand(half, Addressing::Single),
        ],
        values: vec![
            Value::Input(0),
            Value::Cast(F32, 0),
            Value::Input(1),
            Value::Cast(F32, 2),
            Value::Input(2),
            Value::Cast(F32, 4),
            Value::Binary(BinaryOp::Mul, 1, 3),
            Value::Binary(BinaryOp::Add, 6, 5),
            Value::Cast(half, 7),
            Value::Binary(BinaryOp::Lt, 1, 3),
            Value::Select(9, 8, 0),
        ],
        outputs: vec![
            Output { operand: operand(half, to), value: 8 },
            Output { operand: flag, value: 9 },
            Output { operand: operand(half, FLAT), value: 10 },
        ],
        schedule: Schedule::Elements { width: 1 },
    }
}

/// Ways to split rows.
pub(crate) fn cuts() -> Vec<Schedule> {
    let cut = |threads, held, width, subgroup| Schedule::Rows { threads, held, width, subgroup };
    vec![
        cut(1, 0, 1, false),
        cut(1, 5, 1, false),
        cut(2, 0, 4, false),
        cut(8, 3, 1, false),
        cut(16, 4, 4, false),
        cut(32, 0, 1, false),
        cut(64, 1, 1, true),
        cut(64, 0, 1, true),
        cut(128, 0, 4, false),
        cut(256, 8, 4, true),
        cut(256, 2, 1, false),
        cut(4, 2, 1, true),
    ]
}

/// Bodies with reductions, in every schedule.
pub(crate) fn rows() -> Vec<FusedExpr> {
    let bodies = [
        softmax(),
        layer_norm(),
        every_reduction(),
        indices(),
        of_constants(),
        sum_of_all(),
        of_rows(),
        softmax_f16(DType::F16),
        softmax_f16(DType::BF16),
    ];
    let with = |body: FusedExpr| {
        cuts().into_iter().map(move |s| FusedExpr { schedule: s, ..body.clone() })
    };
    bodies.into_iter().flat_map(with).collect()
}

const NOT_CUT: Schedule = Schedule::Rows { threads: 64, held: 0, width: 1, subgroup: false };

/// Two stages; the largest is also written for each element.
fn softmax() -> FusedExpr {
    let flat = operand(DType::F32, FLAT);
    FusedExpr {
        rank: 3,
        inputs: vec![flat],
        values: vec![
            Value::Input(0),
            Value::Reduce(ReduceOp::Max, 0),
            Value::Binary(BinaryOp::Sub, 0, 1),
            Value::Unary(UnaryOp::Exp, 2),
            Value::Reduce(ReduceOp::Sum, 3),
            Value::Binary(BinaryOp::Div, 3, 4),
        ],
        outputs: vec![
            Output { operand: flat, value: 5 },
            Output { operand: Operand { binding: 1, ..flat }, value: 1 },
        ],
        schedule: NOT_CUT,
    }
}

/// The same in two bytes, and the maximum of each row, in a separate buffer and not.
fn softmax_f16(half: DType) -> FusedExpr {
    let at = |addressing, binding| Operand { binding, ..operand(half, addressing) };
    FusedExpr {
        rank: 2,
        inputs: vec![at(FLAT, 0), at(Addressing::Row, 0)],
        values: vec![
            Value::Input(0),
            Value::Cast(DType::F32, 0),
            Value::Input(1),
            Value::Cast(DType::F32, 2),
            Value::Binary(BinaryOp::Mul, 1, 3),
            Value::Reduce(ReduceOp::Max, 4),
            Value::Binary(BinaryOp::Sub, 4, 5),
            Value::Unary(UnaryOp::Exp, 6),
            Value::Reduce(ReduceOp::Sum, 7),
            Value::Binary(BinaryOp::Div, 7, 8),
            Value::Cast(half, 9),
            Value::Cast(half, 5),
        ],
        outputs: vec![
            Output { operand: at(FLAT, 0), value: 10 },
            Output { operand: at(Addressing::Row, 1), value: 11 },
            Output { operand: at(FLAT, 2), value: 10 },
            Output { operand: at(Addressing::Strided, 2), value: 11 },
        ],
        schedule: NOT_CUT,
    }
}

/// A residual into a norm, whose mean is written as well; four inputs of three layouts, two
/// buffers.
fn layer_norm() -> FusedExpr {
    let at = |addressing, binding| Operand { binding, ..operand(DType::F32, addressing) };
    let strided = Addressing::Strided;
    FusedExpr {
        rank: 3,
        inputs: vec![at(strided, 0), at(strided, 1), at(strided, 1), at(FLAT, 1)],
        values: vec![
            Value::Input(0),
            Value::Input(3),
            Value::Binary(BinaryOp::Add, 0, 1),
            Value::Reduce(ReduceOp::Mean, 2),
            Value::Binary(BinaryOp::Sub, 2, 3),
            Value::Binary(BinaryOp::Mul, 4, 4),
            Value::Reduce(ReduceOp::Mean, 5),
            Value::Constant(DType::F32, 1e-5f32.to_bits()),
            Value::Binary(BinaryOp::Add, 6, 7),
            Value::Unary(UnaryOp::Rsqrt, 8),
            Value::Binary(BinaryOp::Mul, 4, 9),
            Value::Input(1),
            Value::Input(2),
            Value::Binary(BinaryOp::Mul, 10, 11),
            Value::Binary(BinaryOp::Add, 13, 12),
        ],
        outputs: vec![
            Output { operand: at(strided, 0), value: 14 },
            Output { operand: at(FLAT, 1), value: 2 },
            Output { operand: at(strided, 1), value: 3 },
        ],
        schedule: NOT_CUT,
    }
}

/// All reductions of one stage, each written for each row, into one buffer.
fn every_reduction() -> FusedExpr {
    let strided = operand(DType::F32, Addressing::Strided);
    let mut values = vec![Value::Input(0), Value::Unary(UnaryOp::Abs, 0)];
    values.extend(ReduceOp::ALL.map(|op| Value::Reduce(op, 0)));
    values.push(Value::Reduce(ReduceOp::Sum, 1));
    // Not needed by anything.
    values.push(Value::Reduce(ReduceOp::Prod, 1));
    let output = |value| Output { operand: strided, value };
    let outputs = (2..8).map(output).collect();
    FusedExpr { rank: 2, inputs: vec![strided], values, outputs, schedule: NOT_CUT }
}

/// Indices of true values, modulo 7 so that sums are exact; integers and bools in and out.
fn indices() -> FusedExpr {
    use DType::{Bool, F32, U32};
    FusedExpr {
        rank: 2,
        inputs: bound([operand(Bool, FLAT), operand(U32, Addressing::Strided)]),
        values: vec![
            Value::Index,
            Value::Constant(U32, 7),
            Value::Binary(BinaryOp::Rem, 0, 1),
            Value::Cast(F32, 2),
            Value::Constant(F32, 0),
            Value::Input(0),
            Value::Select(5, 3, 4),
            Value::Reduce(ReduceOp::Sum, 6),
            Value::Binary(BinaryOp::Ge, 3, 7),
            Value::Input(1),
            Value::Binary(BinaryOp::Add, 0, 9),
            Value::Cast(U32, 7),
        ],
        outputs: vec![
            Output { operand: operand(Bool, FLAT), value: 8 },
            Output { operand: operand(U32, FLAT), value: 10 },
            Output {
                operand: Operand { binding: 1, ..operand(U32, Addressing::Strided) },
                value: 11,
            },
        ],
        schedule: NOT_CUT,
    }
}

/// Reductions of values that are equal for all elements.
fn of_constants() -> FusedExpr {
    let single = operand(DType::F32, Addressing::Single);
    FusedExpr {
        rank: 2,
        inputs: vec![single],
        values: vec![
            Value::Constant(DType::F32, 1.5f32.to_bits()),
            Value::Reduce(ReduceOp::Sum, 0),
            Value::Input(0),
            Value::Binary(BinaryOp::Mul, 1, 2),
            Value::Reduce(ReduceOp::Mean, 3),
        ],
        outputs: vec![
            Output { operand: operand(DType::F32, Addressing::Strided), value: 1 },
            Output { operand: operand(DType::F32, FLAT), value: 4 },
        ],
        schedule: NOT_CUT,
    }
}

/// One number a row, before a reduction and after it.
fn of_rows() -> FusedExpr {
    let at = |addressing, binding| Operand { binding, ..operand(DType::F32, addressing) };
    let row = Addressing::Row;
    FusedExpr {
        rank: 3,
        inputs: vec![at(FLAT, 0), at(row, 0), at(row, 1)],
        values: vec![
            Value::Input(0),
            Value::Input(1),
            Value::Binary(BinaryOp::Sub, 0, 1),
            Value::Reduce(ReduceOp::Sum, 2),
            Value::Input(2),
            Value::Binary(BinaryOp::Mul, 3, 4),
            Value::Binary(BinaryOp::Add, 2, 4),
            Value::Unary(UnaryOp::Neg, 1),
        ],
        outputs: vec![
            Output { operand: at(row, 0), value: 5 },
            Output { operand: at(FLAT, 1), value: 6 },
            Output { operand: at(Addressing::Strided, 2), value: 7 },
        ],
        schedule: NOT_CUT,
    }
}

/// One row, one number.
fn sum_of_all() -> FusedExpr {
    FusedExpr {
        rank: 1,
        inputs: vec![operand(DType::F32, FLAT)],
        values: vec![Value::Input(0), Value::Reduce(ReduceOp::Sum, 0)],
        outputs: vec![Output { operand: operand(DType::F32, Addressing::Single), value: 1 }],
        schedule: NOT_CUT,
    }
}
