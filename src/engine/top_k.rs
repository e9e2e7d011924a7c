//! The largest elements of rows, and elements of rows at their own indices: what routers need.

use super::lowering::{Call, Lowering, View};
use super::rows::row_sizes;
use super::{Cost, Engine, EngineId, OTHER_OPERATION, Peaks, Query, ReductionOrder, elementwise};
use crate::base::{DType, Dim};
use crate::error::{Error, Result};
use crate::ir::Op;
use crate::kernel::{AssetSpec, catalogue};

/// Engine for `top_k`.
pub(super) struct TopK {
    id: EngineId,
}

impl TopK {
    pub(super) fn new() -> TopK {
        TopK { id: EngineId::new("catalogue.top_k") }
    }
}

/// Threads of a workgroup, which searches one row: as many as there are columns, in whole powers.
fn threads(query: &Query) -> u32 {
    let (_, columns) = row_sizes(query);
    let most = query.profile.max_threads_per_workgroup.min(256);
    (columns as u32).clamp(32, 256).next_power_of_two().min(most)
}

impl Engine for TopK {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        match (query.op, query.operands) {
            (Op::TopK { .. }, [x]) if x.dtype == DType::F32 => Ok(()),
            (Op::TopK { .. }, [x]) => Err(format!("rows of {}", x.dtype)),
            _ => Err(OTHER_OPERATION.into()),
        }
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Ok(ReductionOrder::exact())
    }

    fn cost(&self, query: &Query) -> Cost {
        let Op::TopK { k } = query.op else { return Cost::default() };
        let (rows, columns) = row_sizes(query);
        // A GPU reads a row for each element that it finds.
        let rounds = if query.is_wgsl() { (*k).max(1) as f64 } else { 1.0 };
        let bytes = 4.0 * rows * (columns * rounds + *k as f64);
        let share = match query.is_wgsl() {
            true => Peaks::of(query.profile).share(rows * f64::from(threads(query))),
            false => 1.0,
        };
        Cost { bytes, flops: bytes, dispatches: 1.0, efficiency: 0.5 * share }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let Op::TopK { k } = query.op else {
            return Err(Error::invalid(format!("{} is not top_k", query.op.name())));
        };
        let (x, rows, cols, stride) = out.rows(&query.operands[0])?;
        let grid = out.fold(rows.clone());
        let spec = match query.is_wgsl() {
            true => AssetSpec::new("top_k").constant("WG", threads(query)),
            false => AssetSpec::new("top_k"),
        };
        out.call(
            Call::new(spec)
                .dim("rows", &rows)?
                .dim("cols", &cols)?
                .dim("k", &Dim::from(*k))?
                .dim("x_offset", &x.layout.offset)?
                .dim("x_stride", &stride)?
                .dim("y_offset", &query.output.layout.offset)?
                .bind(x.tensor)
                .bind(query.output.tensor)
                .grid(grid),
        )
    }
}

/// Engine for `take_along`.
pub(super) struct TakeAlong {
    id: EngineId,
}

impl TakeAlong {
    pub(super) fn new() -> TakeAlong {
        TakeAlong { id: EngineId::new("catalogue.take_along") }
    }
}

impl Engine for TakeAlong {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        match query.op {
            Op::TakeAlong => Ok(()),
            _ => Err(OTHER_OPERATION.into()),
        }
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Ok(ReductionOrder::exact())
    }

    fn cost(&self, query: &Query) -> Cost {
        let bytes = 12.0 * query.output_elements();
        Cost { bytes, flops: 0.0, dispatches: 1.0, efficiency: 0.3 }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let output = query.output;
        if !output.dtype.is_half() {
            return take(&query.operands[0], &query.operands[1], output, out);
        }
        // The kernel moves words of 4 bytes.
        let y = out.temp(format!("{}.f32", out.label), &output.shape, DType::F32)?;
        let x = &query.operands[0];
        let wide = out.temp(format!("{}.wide", out.label), &x.shape, DType::F32)?;
        elementwise::convert(x, &wide, out)?;
        take(&wide, &query.operands[1], &y, out)?;
        elementwise::convert(&y, output, out)
    }
}

fn take(x: &View, ids: &View, y: &View, out: &mut Lowering) -> Result<()> {
    let (x, ids) = (out.contiguous(x)?, out.contiguous(ids)?);
    let [lead @ .., cols] = x.shape.dims() else {
        return Err(Error::invalid(format!("{}: the operand has no axis", out.label)));
    };
    let rows = lead.iter().cloned().fold(Dim::new(1), |a, b| a * b);
    let count = &ids.shape[lead.len()];
    let elements = rows.clone() * count.clone();
    let grid = out.fold(elements.ceil_div(&Dim::from(catalogue::GATHER_GROUP)));
    out.call(
        Call::new(AssetSpec::new("take_along"))
            .dim("rows", &rows)?
            .dim("cols", cols)?
            .dim("count", count)?
            .dim("x_offset", &x.layout.offset)?
            .dim("ids_offset", &ids.layout.offset)?
            .dim("y_offset", &y.layout.offset)?
            .bind(x.tensor)
            .bind(ids.tensor)
            .bind(y.tensor)
            .grid(grid),
    )
}
