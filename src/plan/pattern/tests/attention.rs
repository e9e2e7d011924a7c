use super::{Spell, after, agree, becomes, graph, stays};
use crate::base::{DType, Shape, Symbol, SymbolValues};
use crate::ir::{BinaryOp, Graph, NodeId, Op};

/// Adds q `[5, 6, 4]`, k and v `[7, 2, 4]`: tokens or keys, heads, head size.
fn operands(s: &mut Spell) -> [NodeId; 3] {
    [s.input("q", &[5, 6, 4]), s.input("k", &[7, 2, 4]), s.input("v", &[7, 2, 4])]
}

fn expand(s: &mut Spell, x: NodeId, dims: &[i64]) -> NodeId {
    s.op(Op::Expand(Shape::new(dims.iter().copied())), &[x])
}

/// Maps `[7, 2, 4]` to `[6, 7, 4]`: heads first, each three times.
fn repeated(s: &mut Spell, x: NodeId) -> NodeId {
    let x = s.transpose(x, &[1, 0, 2]);
    let x = s.reshape(x, &[2, 1, 7, 4]);
    let x = expand(s, x, &[2, 3, 7, 4]);
    s.reshape(x, &[6, 7, 4])
}

/// Adds the scores of six heads, `[6, 5, 7]`.
fn scores(s: &mut Spell, q: NodeId, k: NodeId) -> NodeId {
    let (q, k) = (s.transpose(q, &[1, 0, 2]), repeated(s, k));
    let k = s.transpose(k, &[0, 2, 1]);
    let scale = s.num(0.5);
    let scores = s.op(Op::MatMul, &[q, k]);
    s.mul(scores, scale)
}

/// Adds `softmax(scores) @ v`, with tokens first again.
fn applied(s: &mut Spell, scores: NodeId, v: NodeId) -> NodeId {
    let (weights, v) = (s.op(Op::Softmax, &[scores]), repeated(s, v));
    let y = s.op(Op::MatMul, &[weights, v]);
    s.transpose(y, &[1, 0, 2])
}

/// Adds a constant mask `[5, 7]`: 0 where a token sees a key, else `hidden`.
fn mask(s: &mut Spell, hidden: f32, sees: impl Fn(i32, i32) -> bool) -> NodeId {
    let at = |i: i32| if sees(i / 7, i % 7) { 0.0 } else { hidden };
    let values: Vec<f32> = (0..35).map(at).collect();
    s.g.constant_f32(Shape::new([5, 7]), &values)
}

fn want(how: &str) -> String {
    format!(
        "%0: f32[5, 6, 4] = input \"q\"\n%1: f32[7, 2, 4] = input \"k\"\n%2: f32[7, 2, 4] = input \
         \"v\"\n%3: f32[5, 6, 4] = attention(%0, %1, %2) scale=0.5{how}\noutput \"y\" = %3\n"
    )
}

#[test]
fn without_a_mask() {
    let repeated = graph(|s| {
        let [q, k, v] = operands(s);
        let scores = scores(s, q, k);
        applied(s, scores, v)
    });
    becomes(&repeated, &want(" past=0"));
    // The heads repeated while the keys come first; the scale on the queries, by division.
    let keys_first = graph(|s| {
        let [q, k, v] = operands(s);
        let two = s.num(2.0);
        let q = s.transpose(q, &[1, 0, 2]);
        let q = s.div(q, two);
        let [k, v] = [k, v].map(|x| {
            let x = s.reshape(x, &[7, 2, 1, 4]);
            let x = expand(s, x, &[7, 2, 3, 4]);
            s.reshape(x, &[7, 6, 4])
        });
        let k = s.transpose(k, &[1, 2, 0]);
        let v = s.transpose(v, &[1, 0, 2]);
        let scores = s.op(Op::MatMul, &[q, k]);
        let weights = s.op(Op::Softmax, &[scores]);
        let y = s.op(Op::MatMul, &[weights, v]);
        s.transpose(y, &[1, 0, 2])
    });
    becomes(&keys_first, &want(" past=0"));
}

/// Matches groups by broadcasting: queries `[2, 3, 5, 4]`, keys `[2, 1, 4, 7]`, under a batch of
/// one.
#[test]
fn groups_by_broadcasting() {
    let g = graph(|s| {
        let [q, k, v] = operands(s);
        let q = s.reshape(q, &[5, 2, 3, 4]);
        let q = s.transpose(q, &[1, 2, 0, 3]);
        let k = s.transpose(k, &[1, 2, 0]);
        let k = s.reshape(k, &[2, 1, 4, 7]);
        let v = s.transpose(v, &[1, 0, 2]);
        let v = s.reshape(v, &[2, 1, 7, 4]);
        let half = s.num(0.5);
        let scores = s.op(Op::MatMul, &[q, k]);
        let scores = s.mul(half, scores);
        let weights = s.op(Op::Softmax, &[scores]);
        let y = s.op(Op::MatMul, &[weights, v]);
        let y = s.transpose(y, &[2, 0, 1, 3]);
        s.reshape(y, &[5, 24])
    });
    let new = after(&g);
    let text = new.to_string();
    assert!(text.contains("attention(") && !text.contains("matmul"), "{text}");
    assert!(!text.contains("f32[7, 6, 4]") && !text.contains("expand"), "{text}");
    agree(&g, &new, &SymbolValues::new());
}

#[test]
fn masks_of_positions() {
    let added = |hidden: f32, sees: fn(i32, i32) -> bool| {
        graph(|s| {
            let [q, k, v] = operands(s);
            let scores = scores(s, q, k);
            let mask = mask(s, hidden, sees);
            let scores = s.add(mask, scores);
            applied(s, scores, v)
        })
    };
    let infinite = f32::NEG_INFINITY;
    becomes(&added(infinite, |t, j| j <= t + 2), &want(" causal past=2"));
    becomes(&added(-1e9, |t, j| j <= t + 2), &want(" causal past=2"));
    becomes(&added(f32::MIN, |t, j| j <= t + 2 && j > t), &want(" causal window=2 past=2"));
    becomes(&added(infinite, |_, _| true), &want(" past=0"));
    // Comparisons of indices, and a select instead of a sum.
    let chosen = graph(|s| {
        let [q, k, v] = operands(s);
        let scores = scores(s, q, k);
        let rows = s.g.constant_i32(Shape::new([5, 1]), &[2, 3, 4, 5, 6]);
        let keys = s.g.constant_i32(Shape::new([7]), &[0, 1, 2, 3, 4, 5, 6]);
        let later = s.bin(BinaryOp::Gt, keys, rows);
        let hidden = s.num(f64::NEG_INFINITY);
        let scores = s.op(Op::Select, &[later, hidden, scores]);
        applied(s, scores, v)
    });
    becomes(&chosen, &want(" causal past=2"));
}

#[test]
fn sizes_that_change_from_run_to_run() {
    let seq = Symbol::new("seq");
    let mut s = Spell { g: Graph::new("g") };
    let shape = Shape::new([seq.into(), crate::base::Dim::new(3), crate::base::Dim::new(4)]);
    let [q, k, v] = ["q", "k", "v"].map(|name| s.g.input(name, shape.clone(), DType::F32));
    let (q, v) = (s.transpose(q, &[1, 0, 2]), s.transpose(v, &[1, 0, 2]));
    let k = s.transpose(k, &[1, 2, 0]);
    let scores = s.op(Op::MatMul, &[q, k]);
    let weights = s.op(Op::Softmax, &[scores]);
    let y = s.op(Op::MatMul, &[weights, v]);
    let y = s.transpose(y, &[1, 0, 2]);
    s.g.output("y", y).unwrap();
    becomes(
        &s.g,
        "%0: f32[seq, 3, 4] = input \"q\"\n%1: f32[seq, 3, 4] = input \"k\"\n%2: f32[seq, 3, 4] = \
         input \"v\"\n%3: f32[seq, 3, 4] = attention(%0, %1, %2) scale=1.0 past=0\noutput \"y\" = \
         %3\n",
    );
}

#[test]
fn other_masks_and_shared_scores_stay() {
    let with = |spell: fn(&mut Spell, NodeId) -> NodeId| {
        graph(|s| {
            let [q, k, v] = operands(s);
            let scores = scores(s, q, k);
            let scores = spell(s, scores);
            applied(s, scores, v)
        })
    };
    // Keys hidden in the middle, a bias, a mask as input, one that hides a whole row.
    stays(&with(|s, x| {
        let mask = mask(s, f32::NEG_INFINITY, |t, j| j <= t + 2 && j != 1);
        s.add(x, mask)
    }));
    stays(&with(|s, x| {
        let mask = mask(s, -3.0, |t, j| j <= t + 2);
        s.add(x, mask)
    }));
    stays(&with(|s, x| {
        let mask = s.input("mask", &[5, 7]);
        s.add(x, mask)
    }));
    stays(&with(|s, x| {
        let mask = mask(s, f32::NEG_INFINITY, |t, j| j < t);
        s.add(x, mask)
    }));
    // The scores have another reader.
    stays(&graph(|s| {
        let [q, k, v] = operands(s);
        let scores = scores(s, q, k);
        s.g.output("scores", scores).unwrap();
        applied(s, scores, v)
    }));
}
