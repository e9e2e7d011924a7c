//! Loops: elementwise operations, reductions along rows, and copies, as generated kernels.
//!
//! The index space is that of the group. Dimensions that every tensor walks in one step are
//! merged, so that most kernels have one dimension and read without a division.

use super::body::{Body, Merged};
use super::lowering::{Lowering, View};
use super::{Cost, Engine, EngineId, OTHER_OPERATION, Query};
use crate::base::{DType, Dim};
use crate::codegen::{FUSED_WORKGROUP, group_work};
use crate::error::{Error, Result};
use crate::kernel::{Addressing, FusedExpr, Schedule, Value};

/// One generated kernel for a group without reductions.
pub(super) struct Elementwise {
    id: EngineId,
}

impl Elementwise {
    pub(super) fn new() -> Elementwise {
        Elementwise { id: EngineId::new("fused.elementwise") }
    }
}

/// The body of a query, where generated kernels can touch everything that it touches.
fn body<'q>(query: &'q Query) -> Result<&'q Body, String> {
    let body = query.body.ok_or(OTHER_OPERATION)?;
    match body.views().find(|view| !addressable(view.dtype)) {
        Some(view) => Err(format!("{} elements have two bytes", view.dtype)),
        None => Ok(body),
    }
}

/// Bytes and operations of a body.
fn work(query: &Query, body: &Body) -> Cost {
    let upper = |d: &Dim| query.upper(d).unwrap_or(1) as f64;
    let elements: f64 = body.space.dims().iter().map(upper).product();
    let bytes = body.views().map(|view| {
        let walked = view.shape.dims().iter().zip(&view.layout.strides);
        let distinct: f64 = walked.filter(|(_, s)| !s.is(0)).map(|(d, _)| upper(d)).product();
        4.0 * distinct
    });
    let flops = elements * body.values.len() as f64;
    Cost { bytes: bytes.sum(), flops, dispatches: 1.0, efficiency: 0.8 }
}

impl Engine for Elementwise {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        match body(query)?.has_reductions() {
            true => Err(OTHER_OPERATION.into()),
            false => Ok(()),
        }
    }

    fn fuses(&self, _query: &Query) -> Result<(), String> {
        Ok(())
    }

    fn cost(&self, query: &Query) -> Cost {
        query.body.map_or_else(Cost::default, |body| work(query, body))
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        match query.body {
            Some(body) => body.launch(out, elements),
            None => Err(Error::invalid(format!("{} is no loop", query.op.name()))),
        }
    }
}

/// One element a thread, or four neighbours where every operand allows it.
fn elements(expr: &FusedExpr, merged: &Merged) -> (Schedule, Dim) {
    let count = merged.sizes.iter().cloned().fold(Dim::new(1), |a, b| a * b);
    let _ = expr;
    let schedule = Schedule::Elements { width: 1 };
    (schedule, count.ceil_div(&Dim::from(group_work(&schedule))))
}

/// Adds a copy of a view to another one of the same shape and type.
///
/// # Errors
/// Unsupported, where more than six dimensions do not merge.
pub fn copy(from: &View, to: &View, out: &mut Lowering) -> Result<()> {
    let mut body = Body::over(std::slice::from_ref(from), to);
    body.push(Value::Input(0));
    body.launch(out, elements)
}

/// Fills a view with one number.
pub(super) fn fill(word: u32, to: &View, out: &mut Lowering) -> Result<()> {
    let mut body = Body::over(&[], to);
    body.push(Value::Constant(to.dtype, word));
    body.launch(out, elements)
}

/// How a group's rows are shared among threads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    /// A thread a row.
    Thread,
    /// A workgroup, or a part of one, a row.
    Group,
    /// The same, summing by subgroups.
    Subgroup,
}

/// One generated kernel for a group with reductions along rows.
pub(super) struct Rows {
    id: EngineId,
    share: Share,
}

impl Rows {
    pub(super) fn all() -> [Rows; 3] {
        let new = |name, share| Rows { id: EngineId::new(name), share };
        [
            new("fused.rows.thread", Share::Thread),
            new("fused.rows", Share::Group),
            new("fused.rows.subgroup", Share::Subgroup),
        ]
    }
}

/// Most elements of a row that a thread keeps in registers.
const MOST_HELD: u64 = 32;

impl Engine for Rows {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        if !body(query)?.has_reductions() {
            return Err(OTHER_OPERATION.into());
        }
        match self.share {
            Share::Subgroup if !(query.is_wgsl() && query.profile.has_subgroups) => {
                Err("the device has no subgroups".into())
            }
            Share::Thread if !query.is_wgsl() => Err("the device cuts rows its own way".into()),
            _ => Ok(()),
        }
    }

    fn fuses(&self, _query: &Query) -> Result<(), String> {
        Ok(())
    }

    fn cost(&self, query: &Query) -> Cost {
        let Some(body) = query.body else { return Cost::default() };
        let mut cost = work(query, body);
        let rows = query.upper(&body.rows()).unwrap_or(1).max(1) as f64;
        let len = query.upper(&body.row_len()).unwrap_or(1).max(1) as f64;
        // Threads that have work at the same time, against those that keep a device busy.
        let wanted = f64::from(query.profile.compute_units.max(1)) * 512.0;
        let (threads, reach) = match self.share {
            Share::Thread if coalesced(body) => (rows, 0.7),
            Share::Thread => (rows, if len <= 8.0 { 0.5 } else { 0.1 }),
            Share::Group => (rows * len.min(256.0), if len < 64.0 { 0.2 } else { 0.6 }),
            Share::Subgroup => (rows * len.min(256.0), if len < 64.0 { 0.2 } else { 0.7 }),
        };
        cost.efficiency = if query.is_wgsl() { reach * (threads / wanted).min(1.0) } else { 0.6 };
        // A thread by itself waits for each of its elements in turn.
        let serial = if self.share == Share::Thread { len } else { (len / 256.0).ceil() };
        cost.dispatches += if query.is_wgsl() { serial * 0.02 } else { 0.0 };
        cost
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let Some(body) = query.body else {
            return Err(Error::invalid(format!("{} is no loop", query.op.name())));
        };
        let len = query.upper(&body.row_len())?;
        let most = query.profile.max_threads_per_workgroup.min(FUSED_WORKGROUP);
        let threads = match self.share {
            Share::Thread => 1,
            // At least four elements a thread, so that short rows share a workgroup.
            _ => len.div_ceil(4).next_power_of_two().clamp(4, u64::from(most)) as u32,
        };
        let each = len.div_ceil(u64::from(threads));
        let held = if threads > 1 && each <= MOST_HELD { each as u32 } else { 0 };
        let subgroup = self.share == Share::Subgroup;
        let rows = body.rows();
        body.launch(out, |_, _| {
            let schedule = Schedule::Rows { threads, held, width: 1, subgroup };
            (schedule, rows.ceil_div(&Dim::from(group_work(&schedule))))
        })
    }
}

/// Whether neighbouring rows are neighbours in memory in what is read most.
fn coalesced(body: &Body) -> bool {
    let Some(lead) = body.space.rank().checked_sub(2) else { return false };
    let mut large = body.inputs.iter().filter(|view| !view.layout.strides[lead + 1].is(0));
    large.all(|view| view.layout.strides[lead].is(1))
}

/// Whether every operand is one that a kernel for four neighbours at a time takes.
#[allow(dead_code, reason = "asked once kernels of width 4 are printed")]
fn wide(expr: &FusedExpr, body: &Body, merged: &Merged) -> bool {
    let count = merged.sizes.iter().cloned().fold(Dim::new(1), |a, b| a * b);
    let last = merged.sizes.last().cloned().unwrap_or_else(|| Dim::new(1));
    let views = body.views().zip(&merged.strides);
    count.is_multiple_of(4)
        && expr.operands().zip(views).all(|(operand, (view, strides))| match operand.addressing {
            Addressing::Flat => view.layout.offset.is_multiple_of(4),
            Addressing::Single => true,
            Addressing::Strided => {
                strides.last().is_some_and(|s| s.is(0)) && last.is_multiple_of(4)
            }
        })
}

/// The part of a view along one axis.
pub(super) fn part(view: &View, axis: usize, start: &Dim, len: &Dim) -> View {
    let mut part = view.clone();
    part.shape = view
        .shape
        .dims()
        .iter()
        .enumerate()
        .map(|(i, d)| if i == axis { len.clone() } else { d.clone() })
        .collect();
    part.layout.offset =
        view.layout.offset.clone() + view.layout.strides[axis].clone() * start.clone();
    part
}

/// Whether generated kernels can touch this type.
pub(super) fn addressable(dtype: DType) -> bool {
    dtype.bytes() == 4
}
