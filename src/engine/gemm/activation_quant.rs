//! Activation quantisation for GEMV: rows of x rounded to int8 with a scale for each block of
//! columns (like llama.cpp's `quantize_q8_1`).
//!
//! Either a launch of `quantize_activations` quantises the rows, or the previous kernel has done so
//! in its quant epilogue.

use crate::base::{ComputeMode, DType, Dim, Shape};
use crate::engine::gemm::quantized::quads;
use crate::engine::lowering::{Call, Lowering, TensorId, View};
use crate::engine::{Fusion, PreparedCodes};
use crate::error::Result;
use crate::kernel::{AssetSpec, CodeOrder, catalogue, prequant};

/// Threads per workgroup of `quantize_activations`.
const ROUNDING_THREADS: u32 = 256;
/// Estimated operations to round one value to 8 bits.
pub(in crate::engine) const ROUNDING: f64 = 6.0;

/// Locates the rows of x that an earlier quant epilogue has quantised in the given order. Returns
/// their tensor, the words per row, and the word offsets of the int8 values and of the scales. The
/// offsets are those of the first row, or of the first group of interleaved rows.
pub(in crate::engine) fn given_codes(
    given: PreparedCodes,
    order: CodeOrder,
    k: u64,
    norm: bool,
) -> (TensorId, Dim, [Dim; 2]) {
    let words = Dim::from(given.words + prequant::factor_words(k, norm));
    let places = [given.at, given.words].map(|words| Dim::from(order.rows() * words));
    (given.codes, words, places)
}

/// Adds a launch of `quantize_activations` on x. Returns the tensor of quantised rows, the words
/// per row, and the word offsets of the int8 values and of the scales. The offsets are those of the
/// first row, or of the first group of interleaved rows.
pub(in crate::engine) fn rounded(
    subgroup: bool,
    x: &View,
    ([m, k, x_stride], columns): ([&Dim; 3], u64),
    (order, fusion): (CodeOrder, Option<&Fusion>),
    out: &mut Lowering,
) -> Result<(TensorId, Dim, [Dim; 2])> {
    let blocks = k.floor_div(&Dim::from(ComputeMode::BLOCK));
    let before = order.words(columns);
    let words = Dim::from(before + prequant::factor_words(columns, false));
    let together = Dim::from(order.rows());
    let rows = m.ceil_div(&together) * together.clone();
    let shape = Shape::new([rows, words.clone()]);
    let codes = out.temp(format!("{}.x", out.label), &shape, DType::U32)?;
    let ahead = fusion.map(|fusion| Fusion {
        norm: fusion.norm.clone(),
        prologue: fusion.prologue.clone(),
        ..Fusion::default()
    });
    let ahead = ahead.filter(|ahead| !ahead.is_empty());
    let normed = ahead.as_ref().is_some_and(|ahead| ahead.norm.is_some());
    let aligned = [&x.layout.offset, x_stride].iter().all(|d| d.is_multiple_of(4));
    let norm = ahead.iter().flat_map(|ahead| ahead.norm.iter().map(|(weight, _)| weight));
    let operands = ahead.iter().flat_map(|ahead| ahead.prologue.iter());
    let operands = operands.flat_map(|body| &body.inputs);
    let aligned = aligned && norm.chain(operands).all(quads);
    let threads = ROUNDING_THREADS.min(out.profile.max_threads_per_workgroup);
    let spec = AssetSpec::new("quantize_activations")
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
        Some(ahead) => call.fusion(ahead.attach(false)?),
        None => call,
    };
    out.call(call)?;
    Ok((codes.tensor, words, [Dim::new(0), together * Dim::from(before)]))
}
