//! Rows of x as whole numbers, for products of few rows: rounded by a launch, or as they were handed on.

use super::linear::quads;
use super::lowering::{Call, Lowering, TensorId, View};
use super::{Around, GivenCodes};
use crate::base::{ComputeMode, DType, Dim, Shape};
use crate::error::Result;
use crate::kernel::{AssetSpec, CodeOrder, catalogue, codes};

/// Threads of a workgroup of `round_codes`.
const ROUNDING_THREADS: u32 = 256;
/// Operations that round a number to 8 bits.
pub(super) const ROUNDING: f64 = 6.0;

/// x as it was handed on in an order, with the words of a row, those before its codes and before what they stand for: of the
/// first row, or of the first ones that lie together.
pub(super) fn given_codes(
    given: GivenCodes,
    order: CodeOrder,
    k: u64,
    norm: bool,
) -> (TensorId, Dim, [Dim; 2]) {
    let words = Dim::from(given.words + codes::factor_words(k, norm));
    let places = [given.at, given.words].map(|words| Dim::from(order.rows() * words));
    (given.codes, words, places)
}

/// x as `round_codes` writes it, with the words of a row, those before its codes and before what they stand for: of the first
/// row, or of the first ones that lie together.
pub(super) fn rounded(
    subgroup: bool,
    x: &View,
    ([m, k, x_stride], columns): ([&Dim; 3], u64),
    (order, around): (CodeOrder, Option<&Around>),
    out: &mut Lowering,
) -> Result<(TensorId, Dim, [Dim; 2])> {
    let blocks = k.floor_div(&Dim::from(ComputeMode::BLOCK));
    let before = order.words(columns);
    let words = Dim::from(before + codes::factor_words(columns, false));
    let together = Dim::from(order.rows());
    let rows = m.ceil_div(&together) * together.clone();
    let shape = Shape::new([rows, words.clone()]);
    let codes = out.temp(format!("{}.x", out.label), &shape, DType::U32)?;
    let ahead = around.map(|around| Around {
        norm: around.norm.clone(),
        prologue: around.prologue.clone(),
        ..Around::default()
    });
    let ahead = ahead.filter(|ahead| !ahead.is_empty());
    let normed = ahead.as_ref().is_some_and(|ahead| ahead.norm.is_some());
    let aligned = [&x.layout.offset, x_stride].iter().all(|d| d.is_multiple_of(4));
    let norm = ahead.iter().flat_map(|ahead| ahead.norm.iter().map(|(weight, _)| weight));
    let operands = ahead.iter().flat_map(|ahead| ahead.prologue.iter());
    let operands = operands.flat_map(|body| &body.inputs);
    let aligned = aligned && norm.chain(operands).all(quads);
    let threads = ROUNDING_THREADS.min(out.profile.max_threads_per_workgroup);
    let spec = AssetSpec::new("round_codes")
        .constant("WG", threads)
        .constant("GROUPS", order.groups)
        .constant("RUN", order.run)
        .constant("CHUNK", order.chunk);
    let spec = match order.planes {
        true if order.goes_along() => spec.define("planes"),
        true => spec.constant("APART", 1),
        false => spec,
    };
    let spec = if aligned { spec.define("vec4") } else { spec };
    let spec = if order.tiles { spec.define("tiles") } else { spec };
    let by_quads = subgroup && out.profile.subgroup_min >= catalogue::ROUND_THREADS;
    let spec = if by_quads { spec.define("subgroup") } else { spec };
    let grid = match normed {
        true => m.clone(),
        false if by_quads => {
            (m.clone() * blocks * Dim::from(catalogue::ROUND_THREADS)).ceil_div(&Dim::from(threads))
        }
        false => (m.clone() * blocks).ceil_div(&Dim::from(threads)),
    };
    let call = Call::new(spec)
        .dim("rows", m)?
        .dim("k", k)?
        .dim("x_offset", &x.layout.offset)?
        .dim("x_stride", x_stride)?
        .bind(x.tensor)
        .bind(codes.tensor)
        .grid(out.fold(grid));
    let call = match ahead {
        Some(ahead) => call.around(ahead.attach(false)?),
        None => call,
    };
    out.call(call)?;
    Ok((codes.tensor, words, [Dim::new(0), together * Dim::from(before)]))
}
