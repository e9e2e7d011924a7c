//! The gated delta rule, at sizes of several workgroups and of less than one.

use crate::build::{Build, Case};
use crate::compare::Tolerance;
use warploom_core::base::{Dim, Shape};
use warploom_core::ir::{NodeId, Op};
use warploom_core::reference::Data;

pub(super) fn add(table: &mut Vec<Case>) {
    // Sequences, tokens, key heads, heads, size of a key and of a value.
    for sizes in [
        [1, 1, 1, 1, 1, 1],
        [1, 5, 2, 4, 16, 16],
        [3, 1, 2, 2, 32, 8],
        [1, 9, 1, 3, 128, 128],
        [2, 4, 2, 6, 64, 40],
        [1, 3, 1, 1, 33, 65],
        [1, 2, 1, 2, 256, 4],
        [1, 0, 1, 2, 8, 4],
    ] {
        table.push(rule(&sizes.map(|n| n.to_string()).join("x"), sizes, None));
    }
    table.push(rule("clears", [2, 4, 1, 2, 16, 8], Some(f32::NAN)));
    table.push(symbol());
}

fn tolerance() -> Tolerance {
    Tolerance { atol: 2e-5, rtol: 1e-4, eps_count: 0.0, nmse: 1e-9 }
}

/// Adds keys of a length below 1, so that a state stays bounded.
fn keys(b: &mut Build, name: &str, shape: Shape, dk: u64) -> NodeId {
    let length = 1.0 / (dk as f32).sqrt();
    let values = b.random(name).shaped(b.count(&shape));
    b.input(name, shape, Data::F32(values.iter().map(|v| v.clamp(-1.0, 1.0) * length).collect()))
}

fn operands(
    b: &mut Build,
    tokens: Dim,
    [s, _, kh, h, dk, dv]: [u64; 6],
    held: Option<f32>,
) -> NodeId {
    let each = |rest: &[u64]| {
        Shape::new(
            [Dim::from(s), tokens.clone()].into_iter().chain(rest.iter().map(|n| Dim::from(*n))),
        )
    };
    let q = keys(b, "q", each(&[kh, dk]), dk);
    let k = keys(b, "k", each(&[kh, dk]), dk);
    let v = b.f32("v", each(&[h, dv]).dims().to_vec());
    // The exponential of such a decay is 0.
    let count = b.count(&each(&[h]));
    let decay = (0..count)
        .map(|i| if i % 7 == 0 || i < h as usize { -1e30 } else { -0.1 * (i % 5) as f32 });
    let decay = match held {
        Some(_) => decay.collect(),
        None => (0..count).map(|i| -0.05 * (i % 9) as f32).collect(),
    };
    let decay = b.input("decay", each(&[h]), Data::F32(decay));
    let beta =
        b.input("beta", each(&[h]), Data::F32((0..count).map(|i| (i % 4) as f32 * 0.25).collect()));
    let state = match held {
        None => b.f32("state", [s, h, dk, dv]),
        Some(value) => {
            let shape = Shape::new([s, h, dk, dv]);
            let values = vec![value; b.count(&shape)];
            b.input("state", shape, Data::F32(values))
        }
    };
    b.op(Op::DeltaRule, &[q, k, v, decay, beta, state])
}

fn rule(name: &str, sizes: [u64; 6], held: Option<f32>) -> Case {
    let mut b = Build::new(format!("delta_rule/{name}")).within(tolerance());
    let mut sizes = sizes;
    if held.is_some() {
        // The first decay of every head clears: one sequence, so that the first ones are.
        sizes[0] = 1;
    }
    let y = operands(&mut b, Dim::from(sizes[1]), sizes, held);
    b.done(y)
}

/// Builds a case with a number of tokens that varies, whose result is split as a layer does.
fn symbol() -> Case {
    let mut b = Build::new("delta_rule/symbol").within(tolerance());
    let s = b.symbol("seq", 6);
    let sizes = [1, 6, 2, 4, 32, 16];
    let y = operands(&mut b, s.clone(), sizes, None);
    let out = b.slice(y, 2, 0, s.clone(), 1);
    let out = b.transpose(out, &[0, 2, 1, 3]);
    let last = b.slice(y, 2, s, 32, 1);
    b.output("state", last);
    b.done(out)
}
