use super::{Spell, agree, becomes, graph, stays};
use crate::base::SymbolValues;
use crate::ir::{BinaryOp, NodeId, Op, UnaryOp};

type Spelling = fn(&mut Spell, NodeId) -> NodeId;

/// Asserts that each spelling of `x` `[3, 8]` becomes one operation.
fn all_become(op: UnaryOp, spellings: &[Spelling]) {
    let want = format!(
        "%0: f32[3, 8] = input \"x\"\n%1: f32[3, 8] = {}(%0)\noutput \"y\" = %1\n",
        op.name()
    );
    for spelling in spellings {
        becomes(
            &graph(|s| {
                let x = s.input("x", &[3, 8]);
                spelling(s, x)
            }),
            &want,
        );
    }
}

fn all_stay(spellings: &[Spelling]) {
    for spelling in spellings {
        stays(&graph(|s| {
            let x = s.input("x", &[3, 8]);
            spelling(s, x)
        }));
    }
}

fn one_plus_exp_minus(s: &mut Spell, x: NodeId) -> NodeId {
    let (one, minus) = (s.num(1.0), s.un(UnaryOp::Neg, x));
    let exp = s.un(UnaryOp::Exp, minus);
    s.add(one, exp)
}

#[test]
fn sigmoid() {
    all_become(
        UnaryOp::Sigmoid,
        &[
            |s, x| {
                let (one, under) = (s.num(1.0), one_plus_exp_minus(s, x));
                s.div(one, under)
            },
            |s, x| {
                let minus = s.num(-1.0);
                let minus = s.mul(minus, x);
                let exp = s.un(UnaryOp::Exp, minus);
                let one = s.num(1.0);
                let under = s.add(exp, one);
                s.un(UnaryOp::Reciprocal, under)
            },
            |s, x| {
                let (exp, one) = (s.un(UnaryOp::Exp, x), s.num(1.0));
                let under = s.add(one, exp);
                s.div(exp, under)
            },
        ],
    );
    all_stay(&[
        |s, x| {
            let (two, under) = (s.num(2.0), one_plus_exp_minus(s, x));
            s.div(two, under)
        },
        |s, x| {
            let exp = s.un(UnaryOp::Exp, x);
            let one = s.num(1.0);
            let under = s.add(exp, one);
            s.un(UnaryOp::Reciprocal, under)
        },
    ]);
}

#[test]
fn silu() {
    all_become(
        UnaryOp::Silu,
        &[
            |s, x| {
                let gate = s.un(UnaryOp::Sigmoid, x);
                s.mul(gate, x)
            },
            |s, x| {
                let under = one_plus_exp_minus(s, x);
                s.div(x, under)
            },
            |s, x| {
                let (one, under) = (s.num(1.0), one_plus_exp_minus(s, x));
                let gate = s.div(one, under);
                s.mul(x, gate)
            },
        ],
    );
    all_stay(&[
        // Also called quick GELU.
        |s, x| {
            let scale = s.num(1.702);
            let inside = s.mul(scale, x);
            let gate = s.un(UnaryOp::Sigmoid, inside);
            s.mul(x, gate)
        },
        // The gate has another reader.
        |s, x| {
            let gate = s.un(UnaryOp::Sigmoid, x);
            let y = s.mul(x, gate);
            let y = s.add(y, gate);
            let e = s.un(UnaryOp::Exp, gate);
            s.add(y, e)
        },
    ]);
}

#[test]
fn silu_of_a_product_within_a_product() {
    let g = graph(|s| {
        let (a, b, up) = (s.input("a", &[4]), s.input("b", &[4]), s.input("up", &[4]));
        let x = s.mul(a, b);
        let gate = s.un(UnaryOp::Sigmoid, x);
        let y = s.mul(x, gate);
        s.mul(up, y)
    });
    becomes(
        &g,
        "%0: f32[4] = input \"a\"\n%1: f32[4] = input \"b\"\n%2: f32[4] = input \"up\"\n%3: f32[4] \
         = mul(%0, %1)\n%4: f32[4] = silu(%3)\n%5: f32[4] = mul(%2, %4)\noutput \"y\" = %5\n",
    );
}

fn one_plus_erf(s: &mut Spell, x: NodeId, scale: f64) -> NodeId {
    let scale = s.num(scale);
    let inside = s.mul(x, scale);
    let (erf, one) = (s.un(UnaryOp::Erf, inside), s.num(1.0));
    s.add(erf, one)
}

#[test]
fn gelu() {
    all_become(
        UnaryOp::Gelu,
        &[
            |s, x| {
                let (half, gate) = (s.num(0.5), one_plus_erf(s, x, 0.5f64.sqrt()));
                let x = s.mul(half, x);
                s.mul(x, gate)
            },
            |s, x| {
                let root = s.num(2f64.sqrt());
                let inside = s.div(x, root);
                let (erf, one) = (s.un(UnaryOp::Erf, inside), s.num(1.0));
                let gate = s.add(one, erf);
                let y = s.mul(gate, x);
                let two = s.num(2.0);
                s.div(y, two)
            },
            |s, x| {
                let root = s.num(0.5f64.sqrt());
                let inside = s.mul(root, x);
                let (erf, half) = (s.un(UnaryOp::Erf, inside), s.num(0.5));
                let erf = s.mul(half, erf);
                let gate = s.add(half, erf);
                s.mul(x, gate)
            },
        ],
    );
    all_stay(&[
        |s, x| {
            let (half, gate) = (s.num(0.5), one_plus_erf(s, x, 0.7));
            let x = s.mul(half, x);
            s.mul(x, gate)
        },
        |s, x| {
            let gate = one_plus_erf(s, x, 0.5f64.sqrt());
            s.mul(x, gate)
        },
    ]);
}

const ROOT: f64 = 0.797_884_560_802_865_4;

/// Adds `x^3` as a power.
fn cube(s: &mut Spell, x: NodeId) -> NodeId {
    let three = s.num(3.0);
    s.bin(BinaryOp::Pow, x, three)
}

fn gate_of_tanh(s: &mut Spell, inside: NodeId) -> NodeId {
    let (tanh, one) = (s.un(UnaryOp::Tanh, inside), s.num(1.0));
    s.add(one, tanh)
}

#[test]
fn gelu_of_tanh() {
    all_become(
        UnaryOp::GeluTanh,
        &[
            |s, x| {
                let (cube, c) = (cube(s, x), s.num(0.044715));
                let cubic = s.mul(c, cube);
                let sum = s.add(x, cubic);
                let root = s.num(ROOT);
                let inside = s.mul(root, sum);
                let (gate, half) = (gate_of_tanh(s, inside), s.num(0.5));
                let x = s.mul(half, x);
                s.mul(x, gate)
            },
            |s, x| {
                let (square, c) = (s.mul(x, x), s.num(0.044715));
                let square = s.mul(square, c);
                let one = s.num(1.0);
                let sum = s.add(one, square);
                let root = s.num(ROOT);
                let x_root = s.mul(x, root);
                let inside = s.mul(x_root, sum);
                let (gate, half) = (gate_of_tanh(s, inside), s.num(0.5));
                let gate = s.mul(gate, half);
                s.mul(gate, x)
            },
            |s, x| {
                let (square, c) = (s.mul(x, x), s.num(2.0 * ROOT * 0.044715));
                let cube = s.mul(square, x);
                let (cubic, c1) = (s.mul(c, cube), s.num(2.0 * ROOT));
                let linear = s.mul(c1, x);
                let inside = s.add(cubic, linear);
                let gate = s.un(UnaryOp::Sigmoid, inside);
                s.mul(gate, x)
            },
        ],
    );
    all_stay(&[|s, x| {
        let (cube, c) = (cube(s, x), s.num(0.0447));
        let cubic = s.mul(c, cube);
        let sum = s.add(x, cubic);
        let root = s.num(ROOT);
        let inside = s.mul(root, sum);
        let (gate, half) = (gate_of_tanh(s, inside), s.num(0.5));
        let x = s.mul(half, x);
        s.mul(x, gate)
    }]);
}

#[test]
fn relu() {
    all_become(
        UnaryOp::Relu,
        &[
            |s, x| {
                let zero = s.num(0.0);
                s.bin(BinaryOp::Max, zero, x)
            },
            |s, x| {
                let zero = s.num(0.0);
                let above = s.bin(BinaryOp::Gt, x, zero);
                s.op(Op::Select, &[above, x, zero])
            },
        ],
    );
    all_stay(&[
        |s, x| {
            let one = s.num(1.0);
            s.bin(BinaryOp::Max, one, x)
        },
        |s, x| {
            let zero = s.num(0.0);
            let below = s.bin(BinaryOp::Lt, x, zero);
            s.op(Op::Select, &[below, x, zero])
        },
    ]);
}

/// No activation matches if broadcasting makes the result larger than the operand.
#[test]
fn a_larger_result_is_no_activation() {
    let g = graph(|s| {
        let x = s.input("x", &[1, 8]);
        let zeros = s.g.constant_f32(crate::base::Shape::new([3, 1]), &[0.0]);
        s.bin(BinaryOp::Max, x, zeros)
    });
    stays(&g);
    agree(&g, &super::after(&g), &SymbolValues::new());
}
