//! Row kernels along the last axis, with one workgroup per row: norms, softmax, argmax.

use super::knobs::{Knob, powers};
use super::lowering::{Call, Lowering};
use super::{Cost, Engine, EngineId, OTHER_OPERATION, Peaks, Query, ReductionOrder};
use crate::base::{DType, Dim};
use crate::error::Result;
use crate::ir::Op;
use crate::kernel::AssetSpec;
use crate::kernel::catalogue::TOKEN;
use crate::provider::DeviceKind;

/// Engine for one of the row kernels.
pub(super) struct Rows {
    id: EngineId,
    kernel: &'static str,
    subgroup: bool,
}

impl Rows {
    /// Returns an engine for every row kernel, with and without subgroups.
    pub(super) fn all() -> impl Iterator<Item = Rows> {
        ["norm_rms", "norm_layer", "softmax", "argmax"].into_iter().flat_map(|kernel| {
            [true, false].map(|subgroup| {
                let tail = if subgroup { ".subgroup" } else { "" };
                Rows { id: EngineId::new(format!("catalogue.{kernel}{tail}")), kernel, subgroup }
            })
        })
    }
}

impl Engine for Rows {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        let kernel = match query.op {
            Op::RmsNorm { .. } => "norm_rms",
            Op::LayerNorm { .. } => "norm_layer",
            Op::Softmax => "softmax",
            Op::ArgMax | Op::Greedy => "argmax",
            _ => return Err(OTHER_OPERATION.into()),
        };
        if kernel != self.kernel {
            return Err(OTHER_OPERATION.into());
        }
        if self.subgroup && !(query.is_wgsl() && query.profile.has_subgroups) {
            return Err("the device has no subgroups".into());
        }
        match query.operands.iter().all(|v| v.dtype == DType::F32) {
            true => Ok(()),
            false => Err("the operands are not f32".into()),
        }
    }

    fn order(&self, query: &Query) -> Result<ReductionOrder, String> {
        match query.op {
            Op::ArgMax | Op::Greedy => Ok(ReductionOrder::exact()),
            _ => {
                let threads = threads(query).value(query.knobs);
                ReductionOrder::of_workgroup(query, self.kernel, threads, self.subgroup)
            }
        }
    }

    fn knobs(&self, query: &Query) -> Vec<Knob> {
        if query.is_wgsl() { vec![threads(query)] } else { Vec::new() }
    }

    fn cost(&self, query: &Query) -> Cost {
        let bytes = query.total_bytes();
        let mut cost = Cost { bytes, flops: bytes, dispatches: 1.0, efficiency: 0.6 };
        if query.is_wgsl() {
            let peaks = Peaks::of(query.profile);
            let (rows, len) = row_sizes(query);
            let threads = f64::from(threads(query).value(query.knobs));
            let reach = match (query.profile.kind, self.subgroup) {
                (DeviceKind::Software, _) => 0.15,
                (_, true) => 0.6,
                (_, false) => 0.5,
            };
            // Threads beyond the end of a row are idle, and rows are read again for each reduction.
            cost.efficiency = reach * (len / threads).min(1.0) * peaks.share(rows * threads);
            cost.bytes *= match self.kernel {
                "norm_layer" | "softmax" => 3.0,
                "norm_rms" => 2.0,
                _ => 1.0,
            };
        }
        cost
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let (x, rows, cols, stride) = out.rows(&query.operands[0])?;
        let mut spec = AssetSpec::new(self.kernel);
        if self.subgroup {
            spec = spec.define("subgroup");
        }
        if matches!(query.op, Op::Greedy) {
            spec = spec.define(TOKEN);
        }
        if query.is_wgsl() {
            spec = spec.constant("WG", threads(query).value(query.knobs));
        }
        let mut call = Call::new(spec)
            .dim("rows", &rows)?
            .dim("cols", &cols)?
            .dim("x_offset", &x.layout.offset)?
            .dim("x_stride", &stride)?
            .dim("y_offset", &query.output.layout.offset)?
            .bind(x.tensor);
        if let Op::RmsNorm { eps } | Op::LayerNorm { eps } = query.op {
            call = call.f32("eps", *eps);
            for (name, operand) in ["w_offset", "b_offset"].iter().zip(&query.operands[1..]) {
                let operand = out.contiguous(operand)?;
                call = call.dim(name, &operand.layout.offset)?.bind(operand.tensor);
            }
        }
        let grid = out.fold(rows);
        out.call(call.bind(query.output.tensor).grid(grid))
    }
}

/// Returns the number of rows and the row length of the first operand, at the upper ends of the
/// shape class.
pub(super) fn row_sizes(query: &Query) -> (f64, f64) {
    let Some((len, lead)) = query.operands.first().and_then(|x| x.shape.dims().split_last()) else {
        return (1.0, 1.0);
    };
    let upper = |dim: &Dim| query.upper(dim).unwrap_or(1).max(1) as f64;
    (lead.iter().map(upper).product(), upper(len))
}

/// Returns the knob for the threads per workgroup.
fn threads(query: &Query) -> Knob {
    let (_, columns) = row_sizes(query);
    let most = query.profile.max_threads_per_workgroup.min(256);
    // Measured on an H200: 5.0 us with 256 against 7.8 us with 128, for one row of 4,096. In
    // deterministic mode the upper end of a class may not matter.
    let exact = matches!(query.op, Op::ArgMax | Op::Greedy);
    let usual = if columns >= 1024.0 || query.deterministic || exact { 256 } else { 128 };
    let doc = "threads of a workgroup, which computes one row";
    Knob::new("threads", doc, powers(32, most), usual.min(most))
}
