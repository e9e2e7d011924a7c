//! Argmax of long rows in two stages, with each row split over workgroups.
//!
//! `argmax` finds the maximum of each slice of a row; `argmax_of` then picks the best of these
//! candidates.

use super::lowering::{Call, Lowering};
use super::rows::row_sizes;
use super::{Cost, Engine, EngineId, OTHER_OPERATION, Peaks, Query, ReductionOrder};
use crate::base::{DType, Dim, Shape};
use crate::error::{Error, Result};
use crate::ir::Op;
use crate::kernel::AssetSpec;
use crate::kernel::catalogue::TOKEN;

/// Maximum number of slices per row; a power of two.
const MOST_SLICES: u64 = 64;
/// Minimum number of columns per slice.
const LEAST_COLUMNS: u64 = 256;
/// Threads per workgroup of `argmax`.
const THREADS: u32 = 256;

/// Engine that launches `argmax` on the slices of each row, then `argmax_of` on the candidates.
pub(super) struct SplitArgMax {
    id: EngineId,
}

impl SplitArgMax {
    pub(super) fn new() -> SplitArgMax {
        SplitArgMax { id: EngineId::new("wgsl.argmax_split") }
    }
}

/// Returns the number of slices per row and of columns per slice. Returns `None` if the row length
/// varies within the shape class or does not divide into slices of at least [`LEAST_COLUMNS`].
fn cut(query: &Query) -> Option<(u64, u64)> {
    let columns = query.operands.first()?.shape.dims().last()?.as_const()?;
    let columns = u64::try_from(columns).ok()?;
    let mut slices = MOST_SLICES;
    while slices > 1 && (!columns.is_multiple_of(slices) || columns / slices < LEAST_COLUMNS) {
        slices /= 2;
    }
    (slices > 1).then(|| (slices, columns / slices))
}

impl Engine for SplitArgMax {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        if !matches!(query.op, Op::ArgMax | Op::Greedy) {
            return Err(OTHER_OPERATION.into());
        }
        if !query.is_wgsl() {
            return Err("the device reads rows in its own way".into());
        }
        let [x] = query.operands else { return Err("argmax needs one operand".into()) };
        if x.dtype != DType::F32 || !x.is_contiguous() {
            return Err("the operand is not f32 without gaps".into());
        }
        match cut(query) {
            Some(_) => Ok(()),
            None => Err(format!(
                "its rows do not divide into slices of {LEAST_COLUMNS} or more columns"
            )),
        }
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Ok(ReductionOrder::exact())
    }

    fn cost(&self, query: &Query) -> Cost {
        let bytes = query.total_bytes();
        let (rows, _) = row_sizes(query);
        let slices = cut(query).map_or(1, |(slices, _)| slices) as f64;
        let share = Peaks::of(query.profile).share(rows * slices * f64::from(THREADS));
        Cost { bytes, flops: bytes, dispatches: 2.0, efficiency: 0.5 * share }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let (slices, columns) = cut(query)
            .ok_or_else(|| Error::invalid(format!("{}: its rows cannot be split", query.label)))?;
        let (x, rows, _, stride) = out.rows(&query.operands[0])?;
        let parts = rows.clone() * Dim::from(slices);
        let shape = Shape::new([parts.clone()]);
        let candidates = out.temp(format!("{}.candidates", out.label), &shape, DType::U32)?;
        let threads = THREADS.min(query.profile.max_threads_per_workgroup);
        let mut spec = AssetSpec::new("argmax").constant("WG", threads);
        if query.profile.has_subgroups {
            spec = spec.define("subgroup");
        }
        let grid = out.fold(parts.clone());
        out.call(
            Call::new(spec)
                .dim("rows", &parts)?
                .dim("cols", &Dim::from(columns))?
                .dim("x_offset", &x.layout.offset)?
                .dim("x_stride", &Dim::from(columns))?
                .dim("y_offset", &candidates.layout.offset)?
                .bind(x.tensor)
                .bind(candidates.tensor)
                .grid(grid),
        )?;
        let grid = out.fold(rows.clone());
        // Both operations have the same candidates: a non-finite value ranks above any finite one.
        let mut last = AssetSpec::new("argmax_of");
        if matches!(query.op, Op::Greedy) {
            last = last.define(TOKEN);
        }
        out.call(
            Call::new(last)
                .dim("rows", &rows)?
                .dim("slices", &Dim::from(slices))?
                .dim("len", &Dim::from(columns))?
                .dim("x_offset", &x.layout.offset)?
                .dim("x_stride", &stride)?
                .dim("y_offset", &query.output.layout.offset)?
                .bind(x.tensor)
                .bind(candidates.tensor)
                .bind(query.output.tensor)
                .grid(grid),
        )
    }
}
