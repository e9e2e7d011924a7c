//! RMSNorm and LayerNorm.

use super::MANY;
use crate::build::{Build, Case};
use crate::compare::Tolerance;
use warploom_core::base::{Dim, Format, Shape};
use warploom_core::ir::{NodeId, Op};
use warploom_core::reference::Data;

const CLOSE: Tolerance = Tolerance { atol: 1e-5, rtol: 1e-5, eps_count: 0.0, nmse: 1e-7 };

/// Adds RMSNorm or, if `layer` is set, LayerNorm of x `[.., n]`, with new weights.
fn norm(b: &mut Build, layer: bool, eps: f32, x: NodeId, n: u64) -> NodeId {
    let w = b.weight("w", &[n], Format::F32);
    if layer {
        let bias = b.weight("b", &[n], Format::F32);
        b.op(Op::LayerNorm { eps }, &[x, w, bias])
    } else {
        b.op(Op::RmsNorm { eps }, &[x, w])
    }
}

pub(super) fn add(table: &mut Vec<Case>) {
    for (family, layer) in [("rms_norm", false), ("layer_norm", true)] {
        for (rows, n) in [(1, 576), (3, 1), (5, 3), (2, 31), (7, 33), (3, 129), (2, 2049), (0, 8)] {
            // A row of one element has variance 0, so only eps remains.
            let eps = if n == 1 { 0.1 } else { 1e-5 };
            let mut b = Build::new(format!("{family}/{rows}x{n}")).within(CLOSE);
            let x = b.f32("x", [rows, n]);
            let y = norm(&mut b, layer, eps, x, n);
            table.push(b.done(y));
        }
        let mut b = Build::new(format!("{family}/rank4")).within(CLOSE);
        let x = b.f32("x", [2, 3, 2, 40]);
        let y = norm(&mut b, layer, 1e-6, x, 40);
        table.push(b.done(y));
        let mut b = Build::new(format!("{family}/many_rows")).within(CLOSE);
        let x = b.f32("x", [MANY, 2]);
        let y = norm(&mut b, layer, 0.1, x, 2);
        table.push(b.done(y));
        let mut b = Build::new(format!("{family}/columns")).within(CLOSE);
        let x = b.f32("x", [33, 5]);
        let x = b.transpose(x, &[1, 0]);
        let y = norm(&mut b, layer, 1e-5, x, 33);
        table.push(b.done(y));
        let mut b = Build::new(format!("{family}/last_row")).within(CLOSE);
        let x = b.f32("x", [9, 64]);
        let x = b.slice(x, 0, 8, 1, 1);
        let y = norm(&mut b, layer, 1e-5, x, 64);
        table.push(b.done(y));
        for (name, value) in [("zeros", 0.0), ("tiny", 1e-4)] {
            let mut b = Build::new(format!("{family}/{name}")).within(CLOSE).note("eps matters");
            let values = vec![value, -value, value * 2.0, value];
            let x = b.input("x", Shape::new([1, 4]), Data::F32(values));
            let y = norm(&mut b, layer, 1e-5, x, 4);
            table.push(b.done(y));
        }
        for seq in [1, 4] {
            let mut b = Build::new(format!("{family}/symbol/seq{seq}")).within(CLOSE);
            let seq = b.symbol("seq", seq);
            let x = b.f32("x", [seq, Dim::new(48)]);
            let y = norm(&mut b, layer, 1e-5, x, 48);
            table.push(b.done(y));
        }
    }
    offset(table);
    // Norm of each head, as some models apply to queries and keys.
    let mut b = Build::new("rms_norm/heads").within(CLOSE);
    let x = b.f32("x", [5, 96]);
    let x = b.op(Op::Reshape(Shape::new([5, 3, 32])), &[x]);
    let y = norm(&mut b, false, 1e-6, x, 32);
    table.push(b.done(y));
}

/// Adds a case with a mean much larger than the deviation: a difference of squares would cancel.
fn offset(table: &mut Vec<Case>) {
    let loose = Tolerance { atol: 2e-3, rtol: 1e-3, eps_count: 0.0, nmse: 1e-6 };
    let mut b = Build::new("layer_norm/offset").within(loose).note("mean 1000, deviation 1");
    let values = b.random("x").shaped(3 * 200).iter().map(|v| v + 1000.0).collect();
    let x = b.input("x", Shape::new([3, 200]), Data::F32(values));
    let y = norm(&mut b, true, 1e-5, x, 200);
    table.push(b.done(y));
}
