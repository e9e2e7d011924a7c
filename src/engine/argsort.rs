//! Sorting rows: the columns of each row in the order of their elements.

use super::lowering::{Call, Lowering, View};
use super::rows::row_sizes;
use super::{Cost, Engine, EngineId, OTHER_OPERATION, Peaks, Query, ReductionOrder, elementwise};
use crate::base::{DType, Dim};
use crate::error::{Error, Result};
use crate::ir::Op;
use crate::kernel::AssetSpec;

/// Columns that a workgroup sorts or merges; `TILE` of `argsort_merge`.
const TILE: u64 = 1024;
/// Fewest columns of a workgroup's run.
const LEAST: u64 = 64;
/// Threads per workgroup.
const THREADS: u32 = 256;

/// Engine for `argsort`: runs sorted in workgroup memory, merged in pairs. A CPU sorts whole rows.
pub(super) struct ArgSort {
    id: EngineId,
}

impl ArgSort {
    pub(super) fn new() -> ArgSort {
        ArgSort { id: EngineId::new("catalogue.argsort") }
    }
}

/// Returns the upper limit of the columns.
fn columns(query: &Query) -> u64 {
    row_sizes(query).1 as u64
}

/// Returns the number of merges after which runs of [`TILE`] columns are whole rows.
fn merges(columns: u64) -> u32 {
    columns.div_ceil(TILE).next_power_of_two().trailing_zeros()
}

/// Returns the word of the kernels that gives the direction and the type of the elements.
fn order_word(descending: bool, dtype: DType) -> u32 {
    let kind = match dtype {
        DType::I32 => 2,
        DType::U32 => 4,
        _ => 0,
    };
    kind | u32::from(descending)
}

impl Engine for ArgSort {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        match query.op {
            Op::ArgSort { .. } => Ok(()),
            _ => Err(OTHER_OPERATION.into()),
        }
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Ok(ReductionOrder::exact())
    }

    fn cost(&self, query: &Query) -> Cost {
        let (rows, columns) = row_sizes(query);
        let merges = if query.is_wgsl() { merges(columns as u64) } else { 0 };
        // Each merge reads elements by their columns, and reads and writes the columns.
        let bytes = rows * columns * (8.0 + 12.0 * f64::from(merges));
        let share = match query.is_wgsl() {
            true => Peaks::of(query.profile).share(rows * columns / 4.0),
            false => 1.0,
        };
        let flops = rows * columns * columns.max(2.0).log2();
        Cost { bytes, flops, dispatches: f64::from(1 + merges), efficiency: 0.3 * share }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let Op::ArgSort { descending } = query.op else {
            return Err(Error::invalid(format!("{} is not argsort", query.op.name())));
        };
        let x = &query.operands[0];
        let order = order_word(*descending, x.dtype);
        if !x.dtype.is_half() {
            return sort(query, x, order, out);
        }
        // The kernels read words of 4 bytes.
        let wide = out.temp(format!("{}.wide", out.label), &x.shape, DType::F32)?;
        elementwise::convert(x, &wide, out)?;
        sort(query, &wide, order, out)
    }
}

fn sort(query: &Query, x: &View, order: u32, out: &mut Lowering) -> Result<()> {
    let (x, rows, cols, stride) = out.rows(x)?;
    let output = query.output;
    let call = |spec: AssetSpec, run: Dim, to: &View| {
        Call::new(spec)
            .dim("rows", &rows)?
            .dim("cols", &cols)?
            .dim("run", &run)?
            .u32("order", order)
            .dim("x_offset", &x.layout.offset)?
            .dim("x_stride", &stride)?
            .dim("y_offset", &to.layout.offset)
    };
    if !query.is_wgsl() {
        let grid = out.fold(rows.clone());
        let whole = call(AssetSpec::new("argsort"), cols.clone(), output)?;
        return out.call(whole.bind(x.tensor).bind(output.tensor).grid(grid));
    }
    let most = columns(query);
    let merges = merges(most);
    // The last merge writes the result.
    let other = match merges {
        0 => output.clone(),
        _ => out.temp(format!("{}.runs", out.label), &output.shape, DType::U32)?,
    };
    let (mut from, mut to) =
        if merges.is_multiple_of(2) { (&other, output) } else { (output, &other) };
    let size = most.next_power_of_two().clamp(LEAST, TILE);
    let threads = THREADS.min(query.profile.max_threads_per_workgroup).min(size as u32 / 2);
    let spec = AssetSpec::new("argsort").constant("WG", threads).constant("SIZE", size as u32);
    let runs = rows.clone() * cols.ceil_div(&Dim::from(size));
    let grid = out.fold(runs);
    out.call(call(spec, Dim::from(size), to)?.bind(x.tensor).bind(to.tensor).grid(grid))?;
    let grid = out.fold(rows.clone() * cols.ceil_div(&Dim::from(TILE)));
    for merge in 0..merges {
        (from, to) = (to, from);
        let spec = AssetSpec::new("argsort_merge")
            .constant("WG", THREADS.min(query.profile.max_threads_per_workgroup));
        out.call(
            call(spec, Dim::from(TILE << merge), to)?
                .dim("ids_offset", &from.layout.offset)?
                .bind(x.tensor)
                .bind(from.tensor)
                .bind(to.tensor)
                .grid(grid.clone()),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_make_whole_rows_of_runs() {
        for (columns, want) in
            [(0, 0), (1, 0), (1024, 0), (1025, 1), (2048, 1), (2049, 2), (4096, 2), (1 << 20, 10)]
        {
            assert_eq!(merges(columns), want, "{columns}");
            assert!(TILE << want >= columns);
        }
    }
}
