//! Reductions over any axes, of operands viewed as `[outer, len, inner]`.

use super::knobs::{Knob, powers};
use super::lowering::{Call, Lowering, View};
use super::{Cost, Engine, EngineId, OTHER_OPERATION, Peaks, Query, ReductionOrder};
use crate::base::{DType, Dim};
use crate::error::Result;
use crate::ir::{Op, ReduceOp};
use crate::kernel::AssetSpec;
use crate::kernel::catalogue::IN_ORDER;
use crate::provider::DeviceKind;

/// Engine for the kernels `reduce_*`.
pub(super) struct Reduce {
    id: EngineId,
    subgroup: bool,
}

impl Reduce {
    pub(super) fn new(subgroup: bool) -> Reduce {
        let tail = if subgroup { ".subgroup" } else { "" };
        Reduce { id: EngineId::new(format!("catalogue.reduce{tail}")), subgroup }
    }
}

impl Engine for Reduce {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        if !matches!(query.op, Op::Reduce { .. }) {
            return Err(OTHER_OPERATION.into());
        }
        if self.subgroup && !(query.is_wgsl() && query.profile.has_subgroups) {
            return Err("the device has no subgroups".into());
        }
        match query.operands.iter().all(|v| v.dtype == DType::F32) {
            true => Ok(()),
            false => Err("the operand is not f32".into()),
        }
    }

    fn order(&self, query: &Query) -> Result<ReductionOrder, String> {
        let threads = threads(query).value(query.knobs);
        ReductionOrder::of_workgroup(query, "reduce", threads, self.subgroup)
    }

    fn knobs(&self, query: &Query) -> Vec<Knob> {
        if query.is_wgsl() { vec![threads(query)] } else { Vec::new() }
    }

    fn cost(&self, query: &Query) -> Cost {
        let bytes = query.total_bytes();
        let mut cost = Cost { bytes, flops: bytes / 4.0, dispatches: 1.0, efficiency: 0.6 };
        let (Op::Reduce { axes, .. }, [x]) = (query.op, query.operands) else { return cost };
        if !query.is_wgsl() {
            return cost;
        }
        let upper = |dim: &Dim| query.upper(dim).unwrap_or(1).max(1) as f64;
        let threads = f64::from(threads(query).value(query.knobs));
        let len: f64 = axes.iter().map(|axis| upper(&x.shape[*axis])).product();
        let last = axes.last().is_some_and(|axis| axis + 1 == x.shape.rank());
        let reach = match (query.profile.kind, last, self.subgroup) {
            (DeviceKind::Software, ..) => 0.15,
            // Neighbouring threads read elements that are not neighbours (uncoalesced).
            (_, false, _) => 0.1,
            (_, true, true) => 0.6,
            (_, true, false) => 0.5,
        };
        let busy = Peaks::of(query.profile).share(query.output_elements() * threads);
        cost.efficiency = reach * (len / threads).min(1.0) * busy;
        cost
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let Op::Reduce { op, axes, .. } = query.op else {
            return Err(crate::Error::invalid(format!("{} is not a reduction", query.op.name())));
        };
        let Parts { x, outer, len, inner } = parts(&query.operands[0], axes, out)?;
        let mut spec = AssetSpec::new(match op {
            ReduceOp::Sum => "reduce_sum",
            ReduceOp::Mean => "reduce_mean",
            ReduceOp::Prod => "reduce_prod",
            ReduceOp::Max => "reduce_max",
            ReduceOp::Min => "reduce_min",
        });
        if self.subgroup {
            spec = spec.define("subgroup");
        }
        if query.is_wgsl() {
            spec = spec.constant("WG", threads(query).value(query.knobs));
        } else if query.deterministic {
            spec = spec.define(IN_ORDER);
        }
        let grid = out.fold(outer.clone() * inner.clone());
        out.call(
            Call::new(spec)
                .dim("outer", &outer)?
                .dim("len", &len)?
                .dim("inner", &inner)?
                .dim("x_offset", &x.layout.offset)?
                .dim("y_offset", &query.output.layout.offset)?
                .bind(x.tensor)
                .bind(query.output.tensor)
                .grid(grid),
        )
    }
}

/// Engine for reductions of integers.
pub(super) struct IntegerReduce {
    id: EngineId,
}

impl IntegerReduce {
    pub(super) fn new() -> IntegerReduce {
        IntegerReduce { id: EngineId::new("catalogue.integer_reduce") }
    }
}

impl Engine for IntegerReduce {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        match (query.op, query.operands) {
            (Op::Reduce { .. }, [x]) if matches!(x.dtype, DType::I32 | DType::U32) => Ok(()),
            (Op::Reduce { .. }, _) => Err("the operand is not i32 or u32".into()),
            _ => Err(OTHER_OPERATION.into()),
        }
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Ok(ReductionOrder::exact())
    }

    fn cost(&self, query: &Query) -> Cost {
        let bytes = query.total_bytes();
        Cost { bytes, flops: bytes / 4.0, dispatches: 1.0, efficiency: 0.3 }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let Op::Reduce { op, axes, .. } = query.op else {
            return Err(crate::Error::invalid(format!("{} is not a reduction", query.op.name())));
        };
        let Parts { x, outer, len, inner } = parts(&query.operands[0], axes, out)?;
        // The words for u32 follow those for i32.
        let unsigned = if x.dtype == DType::U32 { 2 } else { 0 };
        let kind = match op {
            ReduceOp::Sum => 0,
            ReduceOp::Prod => 1,
            ReduceOp::Max => 2 + unsigned,
            ReduceOp::Min => 3 + unsigned,
            ReduceOp::Mean => {
                return Err(crate::Error::invalid(format!("{}: a mean of integers", query.label)));
            }
        };
        let mut spec = AssetSpec::new("integer_reduce");
        if query.is_wgsl() {
            spec = spec.constant("WG", threads(query).value(query.knobs));
        }
        let grid = out.fold(outer.clone() * inner.clone());
        out.call(
            Call::new(spec)
                .dim("outer", &outer)?
                .dim("len", &len)?
                .dim("inner", &inner)?
                .u32("kind", kind)
                .dim("x_offset", &x.layout.offset)?
                .dim("y_offset", &query.output.layout.offset)?
                .bind(x.tensor)
                .bind(query.output.tensor)
                .grid(grid),
        )
    }
}

/// An operand as `[outer, len, inner]`, of which `len` is reduced.
struct Parts {
    x: View,
    outer: Dim,
    len: Dim,
    inner: Dim,
}

fn parts(x: &View, axes: &[usize], out: &mut Lowering) -> Result<Parts> {
    let (x, axes) = reduced_together(x, axes);
    let x = out.contiguous(&x)?;
    let product = |dims: &[Dim]| dims.iter().cloned().fold(Dim::new(1), |a, b| a * b);
    let dims = x.shape.dims();
    let outer = product(&dims[..axes.start]);
    let len = product(&dims[axes.clone()]);
    let inner = product(&dims[axes.end..]);
    Ok(Parts { x, outer, len, inner })
}

fn threads(query: &Query) -> Knob {
    let most = query.profile.max_threads_per_workgroup.min(256);
    Knob::new("threads", "threads of a workgroup, which computes one result", powers(32, most), 128)
}

/// Returns the view with the reduced axes adjacent (moved last unless they already are), and their
/// range.
fn reduced_together(view: &View, axes: &[usize]) -> (View, std::ops::Range<usize>) {
    let first = axes.first().copied().unwrap_or(0);
    if axes.iter().enumerate().all(|(i, axis)| *axis == first + i) {
        return (view.clone(), first..first + axes.len());
    }
    let rank = view.shape.rank();
    let kept = (0..rank).filter(|axis| !axes.contains(axis));
    let order: Vec<usize> = kept.chain(axes.iter().copied()).collect();
    let mut moved = view.clone();
    moved.shape = order.iter().map(|axis| view.shape[*axis].clone()).collect();
    moved.layout.strides = order.iter().map(|axis| view.layout.strides[*axis].clone()).collect();
    (moved, rank - axes.len()..rank)
}
