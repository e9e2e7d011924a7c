//! Pointwise and row-reduction fusion: elementwise operations, reductions along rows, and copies,
//! as generated kernels.
//!
//! The index space is that of the group's body. Dimensions that every tensor traverses with a
//! single stride are merged, so most kernels have one dimension and need no division.

use super::body::{Body, Merged};
use super::knobs::{Knob, powers};
use super::lowering::{Lowering, View};
use super::{Cost, Engine, EngineId, OTHER_OPERATION, Peaks, Query, ReductionOrder};
use crate::base::{Dim, ShapeClass};
use crate::codegen::{FUSED_WORKGROUP, MAX_HELD};
use crate::error::{Error, Result};
use crate::kernel::{Addressing, Schedule, Value};
use crate::provider::DeviceKind;

/// Engine that executes a group without reductions as one generated kernel.
pub(super) struct Elementwise {
    id: EngineId,
}

impl Elementwise {
    pub(super) fn new() -> Elementwise {
        Elementwise { id: EngineId::new("fused.elementwise") }
    }
}

/// Returns the body of a query, or the reason why the engines of this module do not apply.
fn body<'q>(query: &'q Query) -> Result<&'q Body, String> {
    query.body.ok_or_else(|| OTHER_OPERATION.into())
}

/// Estimates the cost of a body from its bytes and operations.
fn work(query: &Query, body: &Body) -> Cost {
    let upper = |d: &Dim| query.upper(d).unwrap_or(1) as f64;
    let elements: f64 = body.space.dims().iter().map(upper).product();
    let bytes = body.views().map(|view| {
        let walked = view.shape.dims().iter().zip(&view.layout.strides);
        let distinct: f64 = walked.filter(|(_, s)| !s.is(0)).map(|(d, _)| upper(d)).product();
        view.dtype.bytes() as f64 * distinct
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

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Ok(ReductionOrder::exact())
    }

    fn cost(&self, query: &Query) -> Cost {
        query.body.map_or_else(Cost::default, |body| work(query, body))
    }

    fn knobs(&self, query: &Query) -> Vec<Knob> {
        match query.body {
            Some(body) if query.is_wgsl() => vec![width(query.class, body)],
            _ => Vec::new(),
        }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let Some(body) = query.body else {
            return Err(Error::invalid(format!("{} is not a loop", query.op.name())));
        };
        let width = match query.is_wgsl() {
            true => width(query.class, body).value(query.knobs),
            false => 1,
        };
        body.launch(out, Schedule::Elements { width })
    }
}

/// Returns the knob for neighbouring elements per thread. The default is four if every operand
/// allows it, and if an output has two-byte elements or there is enough work to fill a workgroup;
/// else it is one.
fn width(class: &ShapeClass, body: &Body) -> Knob {
    const DOC: &str = "neighbouring elements that a thread computes";
    match wide(body, &body.merged(&[])) {
        false => Knob::new("width", DOC, [1], 1),
        true => {
            let most = class.upper(&body.space.elements()).unwrap_or(0);
            // Two-byte outputs need pairs, so that whole words are written.
            let halves = body.outputs.iter().any(|(view, _)| view.dtype.is_half());
            let usual = if halves || most >= u64::from(4 * FUSED_WORKGROUP) { 4 } else { 1 };
            Knob::new("width", DOC, [1, 4], usual)
        }
    }
}

/// Adds a launch of the body as a generated kernel with default knobs.
fn plain(body: &Body, out: &mut Lowering) -> Result<()> {
    let width = match out.profile.kind {
        DeviceKind::Cpu => 1,
        _ => width(out.class, body).default,
    };
    body.launch(out, Schedule::Elements { width })
}

/// Adds a launch that copies `from` to `to`, a view of the same shape and type.
///
/// # Errors
/// Unsupported if more than six dimensions remain after merging.
pub fn copy(from: &View, to: &View, out: &mut Lowering) -> Result<()> {
    let mut body = Body::over(std::slice::from_ref(from), to);
    body.push(Value::Input(0));
    plain(&body, out)
}

/// Adds a launch that converts `from` to the type of `to`, a view of the same shape. One of the two
/// types is `f32`.
///
/// # Errors
/// Same as [`copy`].
pub(super) fn convert(from: &View, to: &View, out: &mut Lowering) -> Result<()> {
    let mut body = Body::over(std::slice::from_ref(from), to);
    body.push(Value::Input(0));
    body.outputs[0].1 = body.push(Value::Cast(to.dtype, 0));
    plain(&body, out)
}

/// Adds a launch that fills a view with the constant whose bits are `word`.
pub(super) fn fill(word: u32, to: &View, out: &mut Lowering) -> Result<()> {
    let mut body = Body::over(&[], to);
    body.push(Value::Constant(to.dtype, word));
    plain(&body, out)
}

/// How a group's rows are distributed over threads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    /// One thread per row.
    Thread,
    /// One workgroup, or a part of one, per row.
    Group,
    /// One workgroup, or a part of one, per row, with subgroup reductions.
    Subgroup,
}

/// Engine that executes a group with reductions along rows as one generated kernel.
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

/// Maximum elements of a row that is assumed to stay in cache.
const SHORT: f64 = 64.0;
/// Maximum elements of a row that a thread keeps in registers by default.
const MOST_HELD: u32 = 32;

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
            Share::Thread if !query.is_wgsl() => {
                Err("the device splits rows in its own way".into())
            }
            _ => Ok(()),
        }
    }

    fn fuses(&self, _query: &Query) -> Result<(), String> {
        Ok(())
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Err("the split of rows depends on their position and number".into())
    }

    fn knobs(&self, query: &Query) -> Vec<Knob> {
        match query.body {
            Some(body) if query.is_wgsl() => self.cut(query, body).into(),
            _ => Vec::new(),
        }
    }

    fn cost(&self, query: &Query) -> Cost {
        let Some(body) = query.body else { return Cost::default() };
        let mut cost = work(query, body);
        if !query.is_wgsl() {
            // Values go through workgroup memory, unlike in kernels of one operation.
            cost.efficiency = 0.5;
            return cost;
        }
        let rows = query.upper(&body.rows()).unwrap_or(1).max(1) as f64;
        let len = query.upper(&body.row_len()).unwrap_or(1).max(1) as f64;
        let [threads, width, held] = self.cut(query, body).map(|knob| knob.value(query.knobs));
        // A row not held in registers is read again for each reduction, from cache if it is short.
        if held == 0 && len > SHORT {
            cost.bytes *= passes(body);
        }
        let software = query.profile.kind == DeviceKind::Software;
        let reach = match self.share {
            // Lanes run in turn: neighbouring elements are in cache.
            Share::Thread if software => 0.5,
            Share::Thread if coalesced(body) => 0.7,
            Share::Thread if len <= 8.0 => 0.5,
            Share::Thread => 0.1,
            // Every barrier stops and restarts all lanes.
            Share::Group | Share::Subgroup if software => 0.15,
            // Neighbouring threads read elements that are not neighbours (uncoalesced).
            Share::Group | Share::Subgroup if !along(body) => 0.1,
            Share::Group => 0.6,
            Share::Subgroup => 0.7,
        };
        let peaks = Peaks::of(query.profile);
        // One access of a thread puts that many elements in flight.
        cost.efficiency = reach * peaks.share(rows * f64::from(threads * width).min(len));
        if self.share == Share::Thread && !software {
            // A single thread waits for each element in turn: some 40 ns.
            cost.dispatches += len * 0.02;
        }
        cost
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let Some(body) = query.body else {
            return Err(Error::invalid(format!("{} is not a loop", query.op.name())));
        };
        let [threads, width, held] = self.cut(query, body).map(|knob| knob.value(query.knobs));
        let subgroup = self.share == Share::Subgroup;
        body.launch(out, Schedule::Rows { threads, held, width, subgroup })
    }
}

impl Rows {
    /// Returns the knobs `threads`, `width` and `held`, in this order. The allowed values of each
    /// depend on the previous ones.
    fn cut(&self, query: &Query, body: &Body) -> [Knob; 3] {
        let len = query.upper(&body.row_len()).unwrap_or(1);
        let most = query.profile.max_threads_per_workgroup.min(FUSED_WORKGROUP);
        let threads = "threads that share a row";
        let threads = match self.share {
            Share::Thread => Knob::new("threads", threads, [1], 1),
            // At least four elements per thread, so that short rows share a workgroup. With
            // subgroups, idle threads still cost: 576 elements on an H200 take 1.46 times as long
            // with 256 threads as with 128.
            _ => {
                let quads = len.div_ceil(4);
                let usual = match query.profile.kind {
                    DeviceKind::Discrete if quads > 1 => 1 << quads.ilog2(),
                    _ => quads.next_power_of_two(),
                };
                let usual = usual.clamp(4, u64::from(most)) as u32;
                Knob::new("threads", threads, powers(4, most), usual)
            }
        };
        let neighbours = "neighbouring elements that a thread reads at once";
        let each = len.div_ceil(u64::from(threads.value(query.knobs)));
        let width = match query.is_wgsl() && self.share != Share::Thread && quads(body) {
            true => Knob::new("width", neighbours, [1, 4], 4),
            false => Knob::new("width", neighbours, [1], 1),
        };
        let each = each.next_multiple_of(u64::from(width.value(query.knobs)));
        let held = "elements of a row kept in registers of a thread; 0: none, they are read again";
        let held = match u32::try_from(each) {
            Ok(each) if self.share != Share::Thread && each <= MAX_HELD => {
                Knob::new("held", held, [0, each], if each <= MOST_HELD { each } else { 0 })
            }
            _ => Knob::new("held", held, [0], 0),
        };
        [threads, width, held]
    }
}

/// Returns the number of times that a body reads a row whose elements are not kept in registers.
fn passes(body: &Body) -> f64 {
    let mut after: Vec<u32> = Vec::with_capacity(body.values.len());
    for value in &body.values {
        let own = u32::from(matches!(value, Value::Reduce(..)));
        let most = value.operands().filter_map(|v| after.get(v as usize)).max();
        after.push(most.copied().unwrap_or(0) + own);
    }
    let wide = |view: &View| view.layout.strides.last().is_some_and(|stride| !stride.is(0));
    let again = body.outputs.iter().any(|(view, _)| wide(view));
    f64::from(after.iter().max().copied().unwrap_or(0) + u32::from(again))
}

/// Returns whether neighbouring rows are adjacent in memory in every input that varies along a row.
fn coalesced(body: &Body) -> bool {
    let Some(lead) = body.space.rank().checked_sub(2) else { return false };
    let mut large = body.inputs.iter().filter(|view| !view.layout.strides[lead + 1].is(0));
    large.all(|view| view.layout.strides[lead].is(1))
}

/// Returns whether neighbours along a row are adjacent in memory, or the same element, in every
/// input.
fn along(body: &Body) -> bool {
    let mut last = body.inputs.iter().filter_map(|view| view.layout.strides.last());
    last.all(|stride| stride.is(0) || stride.is(1))
}

/// Returns whether every operand supports four neighbouring elements per thread.
fn wide(body: &Body, merged: &Merged) -> bool {
    let count = merged.sizes.iter().cloned().fold(Dim::new(1), |a, b| a * b);
    let last = merged.sizes.last().cloned().unwrap_or_else(|| Dim::new(1));
    let kinds = merged.addressing(true, false);
    let mut operands = body.views().zip(&merged.strides).zip(&kinds);
    let written = body.inputs.len();
    count.is_multiple_of(4)
        && kinds[written..].iter().all(|kind| *kind == Addressing::Flat)
        && operands.all(|((view, strides), kind)| match kind {
            Addressing::Flat => view.layout.offset.is_multiple_of(4),
            Addressing::Single => true,
            Addressing::Strided | Addressing::Row => {
                strides.last().is_some_and(|s| s.is(0)) && last.is_multiple_of(4)
            }
        })
}

/// Returns whether four neighbours of a row can be read in one access, in every operand that is
/// addressed without strides.
fn quads(body: &Body) -> bool {
    let merged = body.merged(&[]);
    let kinds = merged.addressing(true, true);
    let mut flat = body.views().zip(&kinds).filter(|(_, kind)| **kind == Addressing::Flat);
    body.row_len().is_multiple_of(4) && flat.all(|(view, _)| view.layout.offset.is_multiple_of(4))
}

/// Returns the part of a view from `start`, `len` elements long, along `axis`.
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
