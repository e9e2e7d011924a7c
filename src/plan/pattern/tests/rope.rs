use super::{Spell, becomes, graph, stays};
use crate::base::{DType, Shape};
use crate::ir::{Graph, NodeId, Op, UnaryOp};

/// Adds angles `[5, 4]` of positions `p` `[5]` and frequencies `f` `[4]`.
fn angles(s: &mut Spell) -> NodeId {
    let p = s.g.input("p", Shape::new([5]), DType::I32);
    let f = s.input("f", &[4]);
    let p = s.op(Op::Cast(DType::F32), &[p]);
    let (p, f) = (s.reshape(p, &[5, 1]), s.reshape(f, &[1, 4]));
    s.op(Op::MatMul, &[p, f])
}

fn last(s: &mut Spell, parts: &[NodeId]) -> NodeId {
    let axis = s.g.node(parts[0]).shape.rank() - 1;
    s.op(Op::Concat { axis }, parts)
}

/// Adds `cos` and `sin` of the angles repeated side by side: `[5, 8]`, reshaped to `dims`.
fn wide_tables(s: &mut Spell, dims: &[i64]) -> [NodeId; 2] {
    let angles = angles(s);
    let twice = last(s, &[angles, angles]);
    [UnaryOp::Cos, UnaryOp::Sin].map(|f| {
        let table = s.un(f, twice);
        s.reshape(table, dims)
    })
}

/// Adds `x * cos + rotate_half(x) * sin`.
fn half(s: &mut Spell, x: NodeId, [cos, sin]: [NodeId; 2]) -> NodeId {
    let axis = s.g.node(x).shape.rank() - 1;
    let (a, b) = (s.slice(x, axis, 0, 4, 1), s.slice(x, axis, 4, 4, 1));
    let minus = s.un(UnaryOp::Neg, b);
    let turned = last(s, &[minus, a]);
    let (straight, crossed) = (s.mul(x, cos), s.mul(sin, turned));
    s.add(straight, crossed)
}

/// Adds the two rotated parts of every pair: `[x1 * cos - x2 * sin, x2 * cos + x1 * sin]`.
fn parts(s: &mut Spell, x1: NodeId, x2: NodeId, [cos, sin]: [NodeId; 2]) -> [NodeId; 2] {
    let (a, b) = (s.mul(x1, cos), s.mul(x2, sin));
    let (c, d) = (s.mul(x1, sin), s.mul(x2, cos));
    [s.sub(a, b), s.add(c, d)]
}

fn narrow_tables(s: &mut Spell, dims: &[i64]) -> [NodeId; 2] {
    let angles = angles(s);
    [UnaryOp::Cos, UnaryOp::Sin].map(|f| {
        let table = s.un(f, angles);
        s.reshape(table, dims)
    })
}

fn want(pairs: &str) -> String {
    format!(
        "%0: f32[5, 3, 8] = input \"x\"\n%1: i32[5] = input \"p\"\n%2: f32[4] = input \
         \"f\"\n%3: f32[5, 3, 8] = rope(%0, %1, %2) {pairs} rot_dim=8\noutput \"y\" = %3\n"
    )
}

#[test]
fn halves() {
    let rotated = graph(|s| {
        let x = s.input("x", &[5, 3, 8]);
        let tables = wide_tables(s, &[5, 1, 8]);
        half(s, x, tables)
    });
    becomes(&rotated, &want("Half"));
    let apart = graph(|s| {
        let x = s.input("x", &[5, 3, 8]);
        let (a, b) = (s.slice(x, 2, 0, 4, 1), s.slice(x, 2, 4, 4, 1));
        let tables = narrow_tables(s, &[5, 1, 4]);
        let parts = parts(s, a, b, tables);
        last(s, &parts)
    });
    becomes(&apart, &want("Half"));
    // Heads first, as in most exported models.
    let heads_first = graph(|s| {
        let x = s.input("x", &[5, 3, 8]);
        let x = s.transpose(x, &[1, 0, 2]);
        let x = s.reshape(x, &[1, 3, 5, 8]);
        let tables = wide_tables(s, &[1, 1, 5, 8]);
        let y = half(s, x, tables);
        let y = s.reshape(y, &[3, 5, 8]);
        s.transpose(y, &[1, 0, 2])
    });
    let text = super::after(&heads_first).to_string();
    assert!(text.contains("rope(") && !text.contains("concat"), "{text}");
    super::agree(&heads_first, &super::after(&heads_first), &Default::default());
}

#[test]
fn neighbours() {
    let strided = graph(|s| {
        let x = s.input("x", &[5, 3, 8]);
        let (a, b) = (s.slice(x, 2, 0, 4, 2), s.slice(x, 2, 1, 4, 2));
        let tables = narrow_tables(s, &[5, 1, 4]);
        let parts = parts(s, a, b, tables).map(|part| s.reshape(part, &[5, 3, 4, 1]));
        let y = last(s, &parts);
        s.reshape(y, &[5, 3, 8])
    });
    becomes(&strided, &want("Interleaved"));
    let columns = graph(|s| {
        let x = s.input("x", &[5, 3, 8]);
        let pairs = s.reshape(x, &[5, 3, 4, 2]);
        let (a, b) = (s.slice(pairs, 3, 0, 1, 1), s.slice(pairs, 3, 1, 1, 1));
        let tables = narrow_tables(s, &[5, 1, 4, 1]);
        let parts = parts(s, a, b, tables);
        let y = last(s, &parts);
        s.reshape(y, &[5, 3, 8])
    });
    becomes(&columns, &want("Interleaved"));
}

#[test]
fn a_part_of_a_head() {
    let g = graph(|s| {
        let x = s.input("x", &[5, 3, 10]);
        let (head, rest) = (s.slice(x, 2, 0, 8, 1), s.slice(x, 2, 8, 2, 1));
        let tables = wide_tables(s, &[5, 1, 8]);
        let y = half(s, head, tables);
        last(s, &[y, rest])
    });
    becomes(
        &g,
        "%0: f32[5, 3, 10] = input \"x\"\n%1: i32[5] = input \"p\"\n%2: f32[4] = input \"f\"\n%3: \
         f32[5, 3, 10] = rope(%0, %1, %2) Half rot_dim=8\noutput \"y\" = %3\n",
    );
}

#[test]
fn two_operands_share_their_tables() {
    let g = graph(|s| {
        let (q, k) = (s.input("q", &[5, 3, 8]), s.input("k", &[5, 1, 8]));
        let tables = wide_tables(s, &[5, 1, 8]);
        let (q, k) = (half(s, q, tables), half(s, k, tables));
        s.mul(q, k)
    });
    let text = super::after(&g).to_string();
    assert!(text.matches("rope(").count() == 2 && !text.contains("cos"), "{text}");
    super::agree(&g, &super::after(&g), &Default::default());
}

#[test]
fn what_is_almost_a_rotation_stays() {
    let miss: [fn(&mut Spell) -> NodeId; 3] = [
        // The sign is on the other half.
        |s| {
            let x = s.input("x", &[5, 3, 8]);
            let [cos, sin] = wide_tables(s, &[5, 1, 8]);
            let (a, b) = (s.slice(x, 2, 0, 4, 1), s.slice(x, 2, 4, 4, 1));
            let minus = s.un(UnaryOp::Neg, a);
            let turned = last(s, &[b, minus]);
            let (straight, crossed) = (s.mul(x, cos), s.mul(sin, turned));
            s.add(straight, crossed)
        },
        // The tables are inputs and may hold anything.
        |s| {
            let x = s.input("x", &[5, 3, 8]);
            let tables = ["cos", "sin"].map(|name| s.input(name, &[5, 1, 8]));
            half(s, x, tables)
        },
        // Sine and cosine the wrong way round.
        |s| {
            let x = s.input("x", &[5, 3, 8]);
            let [cos, sin] = wide_tables(s, &[5, 1, 8]);
            half(s, x, [sin, cos])
        },
    ];
    let graphs: Vec<Graph> = miss.into_iter().map(graph).collect();
    graphs.iter().for_each(stays);
}
