//! Adds motifs, which are small groups of related operations, to random graphs.

use super::{Known, Maker};
use warploom_core::base::DType;
use warploom_core::ir::{BinaryOp, OpClass, UnaryOp};

/// Adds one motif, or nothing if the random choice does not fit.
pub(super) fn one(m: &mut Maker) {
    // An abandoned motif leaves its nodes, whose ranges are known.
    let _ = drawn(m);
}

fn drawn(m: &mut Maker) -> Option<Known> {
    match m.below(100) {
        0..24 => {
            let x = any(m)?;
            let length = 1 + m.below(7);
            Some(m.chain(x, length))
        }
        24..34 => {
            let x = m.float();
            let y = around(m, x, Maker::norm)?;
            residual(m, y)
        }
        34..42 => {
            let x = m.float();
            around(m, x, Maker::softmax)
        }
        42..52 => {
            let x = m.float();
            let y = around(m, x, |m, x| {
                let n = m.size();
                m.linear(x, n)
            })?;
            residual(m, y)
        }
        52..58 => gated(m),
        58..63 => {
            let x = m.float();
            around(m, x, Maker::matmul)
        }
        63..71 => {
            let x = m.float();
            around(m, x, Maker::any_reduction)
        }
        71..80 => {
            let x = any(m)?;
            m.any_view(x)
        }
        80..82 => {
            let x = m.float();
            m.masked(x)
        }
        82..84 => in_halves(m),
        84..87 => {
            let x = m.pick(|m, x| m.dtype(x) != DType::F32 || x.range.is_exact())?;
            m.through_integers(x)
        }
        87..89 => {
            if m.chance(25) {
                let x = m.float();
                return m.index_add(x);
            }
            let x = any(m)?;
            m.gather(x)
        }
        89..91 => {
            let x = any(m)?;
            m.concat(x)
        }
        91..93 => {
            let x = any(m)?;
            m.pad(x)
        }
        93..95 => {
            let x = m.float();
            m.update(x)
        }
        95 => m.conv().map(|y| m.chain(y, 2)),
        96 => m.pool(),
        97 => m.attention(),
        98 => {
            let x = m.float();
            m.argmax(x)
        }
        _ => Some(m.new_float(None)),
    }
}

fn any(m: &mut Maker) -> Option<Known> {
    m.pick(|_, _| true)
}

/// Adds a conversion to a 2-byte type, operations on the result, and sometimes the conversion back.
fn in_halves(m: &mut Maker) -> Option<Known> {
    let x = m.float();
    let x = m.half(x)?;
    let y = match m.below(5) {
        0 => m.any_reduction(x)?,
        1 => {
            let n = m.size();
            m.linear(x, n)?
        }
        2 => m.update(x)?,
        3 => m.any_view(x)?,
        _ => m.chain(x, 3),
    };
    if m.chance(50) { m.cast(DType::F32, y) } else { Some(y) }
}

/// Adds `inner`, with optional elementwise operations before and after it.
fn around(
    m: &mut Maker,
    x: Known,
    inner: impl Fn(&mut Maker, Known) -> Option<Known>,
) -> Option<Known> {
    let before = m.one_of(&[0, 0, 1, 2]);
    let x = m.chain(x, before);
    let x = m.tame(x);
    if m.dtype(x) != DType::F32 {
        return None;
    }
    let y = inner(m, x)?;
    let y = m.tame(y);
    let after = m.one_of(&[0, 0, 1, 2, 3]);
    Some(m.chain(y, after))
}

/// Adds an earlier result of the same shape to `y`, or by chance returns `y` as it is; `None` if no
/// such result exists.
fn residual(m: &mut Maker, y: Known) -> Option<Known> {
    let shape = m.b.shape(y.id);
    if !m.chance(60) || m.dtype(y) != DType::F32 {
        return Some(y);
    }
    let x = m.pick(|m, x| m.dtype(x) == DType::F32 && m.b.shape(x.id) == shape && x.id != y.id)?;
    let sum = m.binary(BinaryOp::Add, x, y)?;
    Some(m.tame(sum))
}

/// Adds `act(gate) * up`, where gate and up are two products of one operand or the two halves of
/// one product, and sometimes a product of the result.
fn gated(m: &mut Maker) -> Option<Known> {
    let x = m.float();
    let x = m.tame(x);
    let n = m.size();
    let (gate, up) = match m.chance(60) {
        true => {
            let k = m.last_number(x)?;
            let format = m.weight_format(k);
            let gate = m.linear_of(x, n, format)?;
            (gate, m.linear_of(x, n, format)?)
        }
        false => {
            let both = m.linear(x, 2 * n)?;
            m.halves(both)?
        }
    };
    let act = m.one_of(&[UnaryOp::Silu, UnaryOp::Gelu, UnaryOp::GeluTanh, UnaryOp::Relu]);
    let gate = m.tame(gate);
    let up = m.tame(up);
    let gate = m.unary(act, gate)?;
    let y = m.binary(BinaryOp::Mul, gate, up)?;
    let y = m.tame(y);
    if !m.chance(60) {
        return Some(y);
    }
    let n = m.last_number(x)?;
    let y = m.linear(y, n)?;
    let y = m.tame(y);
    let same = m.b.shape(x.id) == m.b.shape(y.id);
    let leaf = m.b.graph().node(x.id).op.class() == OpClass::Leaf;
    if same && (!leaf || m.chance(50)) { m.binary(BinaryOp::Add, x, y) } else { Some(y) }
}
