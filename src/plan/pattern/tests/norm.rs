use super::{Spell, becomes, graph, stays};
use crate::base::{DType, Dim, Shape, Symbol};
use crate::ir::{BinaryOp, NodeId, Op, ReduceOp, UnaryOp};

type Spelling = fn(&mut Spell, NodeId, NodeId, NodeId) -> NodeId;

/// Builds a graph from a spelling of `x` `[seq, 8]`, `w` and `b` `[8]`.
fn spelled(spelling: Spelling) -> crate::ir::Graph {
    graph(|s| {
        let shape = Shape::new([Dim::symbol(Symbol::new("seq")), Dim::new(8)]);
        let x = s.g.input("x", shape, DType::F32);
        let (w, b) = (s.input("w", &[8]), s.input("b", &[8]));
        spelling(s, x, w, b)
    })
}

fn mean(s: &mut Spell, x: NodeId) -> NodeId {
    s.reduce(ReduceOp::Mean, x, 1, true)
}

fn mean_square(s: &mut Spell, x: NodeId) -> NodeId {
    let square = s.mul(x, x);
    mean(s, square)
}

fn plus_eps(s: &mut Spell, x: NodeId) -> NodeId {
    let eps = s.num(1e-3);
    s.add(x, eps)
}

/// Adds `1 / sqrt(x + eps)`.
fn rsqrt(s: &mut Spell, x: NodeId) -> NodeId {
    let sum = plus_eps(s, x);
    s.un(UnaryOp::Rsqrt, sum)
}

const RMS: &str = "%0: f32[seq, 8] = input \"x\"\n%1: f32[8] = input \"w\"\n%2: f32[seq, 8] = \
                   rms_norm(%0, %1) eps=0.001\noutput \"y\" = %2\n";

#[test]
fn rms_norm() {
    let spellings: [Spelling; 6] = [
        |s, x, w, _| {
            let ms = mean_square(s, x);
            let r = rsqrt(s, ms);
            let y = s.mul(x, r);
            s.mul(y, w)
        },
        |s, x, w, _| {
            let two = s.num(2.0);
            let square = s.bin(BinaryOp::Pow, x, two);
            let ms = mean(s, square);
            let r = rsqrt(s, ms);
            let y = s.mul(r, x);
            s.mul(w, y)
        },
        |s, x, w, _| {
            let ms = mean_square(s, x);
            let sum = plus_eps(s, ms);
            let root = s.un(UnaryOp::Sqrt, sum);
            let y = s.div(x, root);
            s.mul(w, y)
        },
        // The weight first, the sum divided by the width, the axis put back by a reshape.
        |s, x, w, _| {
            let square = s.mul(x, x);
            let sum = s.reduce(ReduceOp::Sum, square, 1, false);
            let n = s.num(8.0);
            let ms = s.div(sum, n);
            let r = rsqrt(s, ms);
            let rows = Shape::new([Dim::symbol(Symbol::new("seq")), Dim::new(1)]);
            let r = s.op(Op::Reshape(rows), &[r]);
            let scaled = s.mul(x, w);
            s.mul(scaled, r)
        },
        // Expanded by hand, and the weight with an axis of one.
        |s, x, w, _| {
            let square = s.mul(x, x);
            let sum = s.reduce(ReduceOp::Sum, square, 1, true);
            let share = s.num(1.0 / 8.0);
            let ms = s.mul(share, sum);
            let shape = s.g.node(x).shape.clone();
            let ms = s.op(Op::Expand(shape), &[ms]);
            let (r, w) = (rsqrt(s, ms), s.reshape(w, &[1, 8]));
            let weighted = s.mul(r, w);
            s.mul(x, weighted)
        },
        |s, x, w, _| {
            let ms = mean_square(s, x);
            let (sum, power) = (plus_eps(s, ms), s.num(-0.5));
            let r = s.bin(BinaryOp::Pow, sum, power);
            let y = s.mul(x, r);
            s.mul(w, y)
        },
    ];
    spellings.into_iter().for_each(|spelling| becomes(&spelled(spelling), RMS));
    becomes(
        &spelled(|s, x, _, _| {
            let ms = mean_square(s, x);
            let r = rsqrt(s, ms);
            s.mul(x, r)
        }),
        "%0: f32[seq, 8] = input \"x\"\n%1: f32[8] = constant 1.0\n%2: f32[seq, 8] = rms_norm(%0, \
         %1) eps=0.001\noutput \"y\" = %2\n",
    );
}

#[test]
fn a_weight_that_is_computed() {
    becomes(
        &spelled(|s, x, w, _| {
            let ms = mean_square(s, x);
            let r = rsqrt(s, ms);
            let (y, one) = (s.mul(x, r), s.num(1.0));
            let weight = s.add(one, w);
            s.mul(y, weight)
        }),
        "%0: f32[seq, 8] = input \"x\"\n%1: f32[8] = input \"w\"\n%2: f32[] = constant 1.0\n%3: \
         f32[8] = add(%2, %1)\n%4: f32[seq, 8] = rms_norm(%0, %3) eps=0.001\noutput \"y\" = %4\n",
    );
}

#[test]
fn what_is_almost_an_rms_norm_stays() {
    let spellings: [Spelling; 4] = [
        // The epsilon outside the root.
        |s, x, w, _| {
            let ms = mean_square(s, x);
            let root = s.un(UnaryOp::Sqrt, ms);
            let root = plus_eps(s, root);
            let y = s.div(x, root);
            s.mul(y, w)
        },
        // A sum for a mean.
        |s, x, w, _| {
            let square = s.mul(x, x);
            let sum = s.reduce(ReduceOp::Sum, square, 1, true);
            let r = rsqrt(s, sum);
            let y = s.mul(x, r);
            s.mul(y, w)
        },
        // Along the other axis.
        |s, x, w, _| {
            let square = s.mul(x, x);
            let ms = s.reduce(ReduceOp::Mean, square, 0, true);
            let r = rsqrt(s, ms);
            let y = s.mul(x, r);
            s.mul(y, w)
        },
        // The root has another reader.
        |s, x, w, _| {
            let ms = mean_square(s, x);
            let r = rsqrt(s, ms);
            let y = s.mul(x, r);
            let y = s.mul(y, w);
            s.add(y, r)
        },
    ];
    spellings.into_iter().for_each(|spelling| stays(&spelled(spelling)));
}

const LAYER: &str = "%0: f32[seq, 8] = input \"x\"\n%1: f32[8] = input \"w\"\n%2: f32[8] = input \
                     \"b\"\n%3: f32[seq, 8] = layer_norm(%0, %1, %2) eps=0.001\noutput \"y\" = \
                     %3\n";

#[test]
fn layer_norm() {
    let spellings: [Spelling; 4] = [
        |s, x, w, b| {
            let mu = mean(s, x);
            let centred = s.sub(x, mu);
            let variance = mean_square(s, centred);
            let r = rsqrt(s, variance);
            let y = s.mul(centred, r);
            let y = s.mul(y, w);
            s.add(y, b)
        },
        |s, x, w, b| {
            let mu = mean(s, x);
            let centred = s.sub(x, mu);
            let variance = mean_square(s, centred);
            let sum = plus_eps(s, variance);
            let root = s.un(UnaryOp::Sqrt, sum);
            let y = s.div(centred, root);
            let y = s.mul(w, y);
            s.add(b, y)
        },
        // The variance as a difference, the mean as a share of the sum.
        |s, x, w, b| {
            let (sum, n) = (s.reduce(ReduceOp::Sum, x, 1, true), s.num(8.0));
            let mu = s.div(sum, n);
            let square = s.mul(mu, mu);
            let squares = mean_square(s, x);
            let variance = s.sub(squares, square);
            let r = rsqrt(s, variance);
            let weighted = s.mul(r, w);
            let centred = s.sub(x, mu);
            let y = s.mul(centred, weighted);
            s.add(y, b)
        },
        // Two differences written twice.
        |s, x, w, b| {
            let mu = mean(s, x);
            let one = s.sub(x, mu);
            let other = s.sub(x, mu);
            let two = s.num(2.0);
            let square = s.bin(BinaryOp::Pow, other, two);
            let variance = mean(s, square);
            let r = rsqrt(s, variance);
            let y = s.mul(w, one);
            let y = s.mul(y, r);
            s.add(y, b)
        },
    ];
    spellings.into_iter().for_each(|spelling| becomes(&spelled(spelling), LAYER));
    becomes(
        &spelled(|s, x, _, _| {
            let mu = mean(s, x);
            let centred = s.sub(x, mu);
            let variance = mean_square(s, centred);
            let r = rsqrt(s, variance);
            s.mul(centred, r)
        }),
        "%0: f32[seq, 8] = input \"x\"\n%1: f32[8] = constant 1.0\n%2: f32[8] = constant 0.0\n%3: \
         f32[seq, 8] = layer_norm(%0, %1, %2) eps=0.001\noutput \"y\" = %3\n",
    );
}

#[test]
fn what_is_almost_a_layer_norm_is_none() {
    let spellings: [Spelling; 2] = [
        // The mean of something else is taken away.
        |s, x, w, b| {
            let square = s.mul(x, x);
            let mu = mean(s, square);
            let centred = s.sub(x, mu);
            let squares = mean_square(s, x);
            let mu_square = s.mul(mu, mu);
            let variance = s.sub(squares, mu_square);
            let r = rsqrt(s, variance);
            let y = s.mul(centred, r);
            let y = s.mul(y, w);
            s.add(y, b)
        },
        // The centred value has another reader.
        |s, x, w, _| {
            let mu = mean(s, x);
            let centred = s.sub(x, mu);
            let squares = mean_square(s, x);
            let mu_square = s.mul(mu, mu);
            let variance = s.sub(squares, mu_square);
            let r = rsqrt(s, variance);
            let y = s.mul(centred, r);
            let y = s.mul(y, w);
            s.add(y, centred)
        },
    ];
    spellings.into_iter().for_each(|spelling| stays(&spelled(spelling)));
}

const SOFTMAX: &str = "%0: f32[seq, 8] = input \"x\"\n%1: f32[seq, 8] = softmax(%0)\noutput \"y\" \
                       = %1\n";

#[test]
fn softmax() {
    let spellings: [Spelling; 3] = [
        |s, x, _, _| {
            let max = s.reduce(ReduceOp::Max, x, 1, true);
            let below = s.sub(x, max);
            let exp = s.un(UnaryOp::Exp, below);
            let sum = s.reduce(ReduceOp::Sum, exp, 1, true);
            s.div(exp, sum)
        },
        |s, x, _, _| {
            let exp = s.un(UnaryOp::Exp, x);
            let sum = s.reduce(ReduceOp::Sum, exp, 1, true);
            s.div(exp, sum)
        },
        |s, x, _, _| {
            let rows = Shape::new([Dim::symbol(Symbol::new("seq")), Dim::new(1)]);
            let max = s.reduce(ReduceOp::Max, x, 1, false);
            let max = s.op(Op::Reshape(rows.clone()), &[max]);
            let below = s.sub(x, max);
            let exp = s.un(UnaryOp::Exp, below);
            let sum = s.reduce(ReduceOp::Sum, exp, 1, false);
            let sum = s.op(Op::Reshape(rows), &[sum]);
            let inverse = s.un(UnaryOp::Reciprocal, sum);
            s.mul(inverse, exp)
        },
    ];
    spellings.into_iter().for_each(|spelling| becomes(&spelled(spelling), SOFTMAX));
}

#[test]
fn what_is_almost_a_softmax_stays() {
    let spellings: [Spelling; 3] = [
        // Along the other axis.
        |s, x, _, _| {
            let exp = s.un(UnaryOp::Exp, x);
            let sum = s.reduce(ReduceOp::Sum, exp, 0, true);
            s.div(exp, sum)
        },
        // The sum of something else.
        |s, x, _, _| {
            let exp = s.un(UnaryOp::Exp, x);
            let sum = s.reduce(ReduceOp::Sum, x, 1, true);
            s.div(exp, sum)
        },
        // The sum has another reader.
        |s, x, _, _| {
            let exp = s.un(UnaryOp::Exp, x);
            let sum = s.reduce(ReduceOp::Sum, exp, 1, true);
            let y = s.div(exp, sum);
            s.add(y, sum)
        },
    ];
    spellings.into_iter().for_each(|spelling| stays(&spelled(spelling)));
}
