//! Loops: elementwise operations, reductions along rows, and copies, as generated kernels.
//!
//! The index space is that of the group. Dimensions that every tensor walks in one step are
//! merged, so that most kernels have one dimension and read without a division.

use super::body::{Body, Merged};
use super::knobs::{Knob, powers};
use super::lowering::{Lowering, View};
use super::{Cost, Engine, EngineId, OTHER_OPERATION, Order, Peaks, Query};
use crate::base::{Dim, ShapeClass};
use crate::codegen::{FUSED_WORKGROUP, MAX_HELD};
use crate::error::{Error, Result};
use crate::kernel::{Addressing, Schedule, Value};
use crate::provider::DeviceKind;

/// One generated kernel for a group without reductions.
pub(super) struct Elementwise {
    id: EngineId,
}

impl Elementwise {
    pub(super) fn new() -> Elementwise {
        Elementwise { id: EngineId::new("fused.elementwise") }
    }
}

/// The body of a query.
fn body<'q>(query: &'q Query) -> Result<&'q Body, String> {
    query.body.ok_or_else(|| OTHER_OPERATION.into())
}

/// Bytes and operations of a body.
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

    fn order(&self, _query: &Query) -> Result<Order, String> {
        Ok(Order::exact())
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
            return Err(Error::invalid(format!("{} is no loop", query.op.name())));
        };
        let width = match query.is_wgsl() {
            true => width(query.class, body).value(query.knobs),
            false => 1,
        };
        body.launch(out, Schedule::Elements { width })
    }
}

/// Neighbours that a thread makes: four where every operand allows it and there is work for a
/// workgroup of such threads.
fn width(class: &ShapeClass, body: &Body) -> Knob {
    const DOC: &str = "neighbouring elements that a thread makes";
    match wide(body, &body.merged(&[])) {
        false => Knob::new("width", DOC, [1], 1),
        true => {
            let most = class.upper(&body.space.elements()).unwrap_or(0);
            // Who makes neighbours of two bytes writes whole words.
            let halves = body.outputs.iter().any(|(view, _)| view.dtype.is_half());
            let usual = if halves || most >= u64::from(4 * FUSED_WORKGROUP) { 4 } else { 1 };
            Knob::new("width", DOC, [1, 4], usual)
        }
    }
}

/// A loop without knobs.
fn plain(body: &Body, out: &mut Lowering) -> Result<()> {
    let width = match out.profile.kind {
        DeviceKind::Cpu => 1,
        _ => width(out.class, body).default,
    };
    body.launch(out, Schedule::Elements { width })
}

/// Adds a copy of a view to another one of the same shape and type.
///
/// # Errors
/// Unsupported, where more than six dimensions do not merge.
pub fn copy(from: &View, to: &View, out: &mut Lowering) -> Result<()> {
    let mut body = Body::over(std::slice::from_ref(from), to);
    body.push(Value::Input(0));
    plain(&body, out)
}

/// Adds a conversion of a view to another one of the same shape; one of the types is `f32`.
///
/// # Errors
/// As [`copy`].
pub(super) fn convert(from: &View, to: &View, out: &mut Lowering) -> Result<()> {
    let mut body = Body::over(std::slice::from_ref(from), to);
    body.push(Value::Input(0));
    body.outputs[0].1 = body.push(Value::Cast(to.dtype, 0));
    plain(&body, out)
}

/// Fills a view with one number.
pub(super) fn fill(word: u32, to: &View, out: &mut Lowering) -> Result<()> {
    let mut body = Body::over(&[], to);
    body.push(Value::Constant(to.dtype, word));
    plain(&body, out)
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

/// Elements of a row that is short enough to stay in a cache.
const SHORT: f64 = 64.0;
/// Most elements of a row that a thread keeps in registers, unless more are asked for.
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
            Share::Thread if !query.is_wgsl() => Err("the device cuts rows its own way".into()),
            _ => Ok(()),
        }
    }

    fn fuses(&self, _query: &Query) -> Result<(), String> {
        Ok(())
    }

    fn order(&self, _query: &Query) -> Result<Order, String> {
        Err("how rows are shared depends on where they lie and how many there are".into())
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
            // Values go through tiles of memory, which kernels of one operation need not.
            cost.efficiency = 0.5;
            return cost;
        }
        let rows = query.upper(&body.rows()).unwrap_or(1).max(1) as f64;
        let len = query.upper(&body.row_len()).unwrap_or(1).max(1) as f64;
        let [threads, width, held] = self.cut(query, body).map(|knob| knob.value(query.knobs));
        // A row that is not held is read again behind each reduction, out of a cache if it is short.
        if held == 0 && len > SHORT {
            cost.bytes *= passes(body);
        }
        let software = query.profile.kind == DeviceKind::Software;
        let reach = match self.share {
            // One lane of a vector after another: what is near is in a cache.
            Share::Thread if software => 0.5,
            Share::Thread if coalesced(body) => 0.7,
            Share::Thread if len <= 8.0 => 0.5,
            Share::Thread => 0.1,
            // Every barrier stops all lanes and starts them again.
            Share::Group | Share::Subgroup if software => 0.15,
            // Neighbouring threads read elements that are not neighbours.
            Share::Group | Share::Subgroup if !along(body) => 0.1,
            Share::Group => 0.6,
            Share::Subgroup => 0.7,
        };
        let peaks = Peaks::of(query.profile);
        // What a thread reads at once is under way at once.
        cost.efficiency = reach * peaks.share(rows * f64::from(threads * width).min(len));
        if self.share == Share::Thread && !software {
            // A thread by itself waits for each of its elements in turn: some 40 ns.
            cost.dispatches += len * 0.02;
        }
        cost
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let Some(body) = query.body else {
            return Err(Error::invalid(format!("{} is no loop", query.op.name())));
        };
        let [threads, width, held] = self.cut(query, body).map(|knob| knob.value(query.knobs));
        let subgroup = self.share == Share::Subgroup;
        body.launch(out, Schedule::Rows { threads, held, width, subgroup })
    }
}

impl Rows {
    /// Threads, width and held elements; the last two follow from those before.
    fn cut(&self, query: &Query, body: &Body) -> [Knob; 3] {
        let len = query.upper(&body.row_len()).unwrap_or(1);
        let most = query.profile.max_threads_per_workgroup.min(FUSED_WORKGROUP);
        let threads = "threads that share a row";
        let threads = match self.share {
            Share::Thread => Knob::new("threads", threads, [1], 1),
            // At least four elements a thread, so that short rows share a workgroup. Where threads
            // have subgroups of their own, those that get nothing are waited for all the same: 576
            // elements on an H200 take 1.46 times as long with 256 threads as with 128.
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
        let neighbours = "neighbours that a thread reads at once";
        let each = len.div_ceil(u64::from(threads.value(query.knobs)));
        let width = match query.is_wgsl() && self.share != Share::Thread && quads(body) {
            true => Knob::new("width", neighbours, [1, 4], 4),
            false => Knob::new("width", neighbours, [1], 1),
        };
        let each = each.next_multiple_of(u64::from(width.value(query.knobs)));
        let held = "elements of a row that a thread keeps; 0: none, they are read again";
        let held = match u32::try_from(each) {
            Ok(each) if self.share != Share::Thread && each <= MAX_HELD => {
                Knob::new("held", held, [0, each], if each <= MOST_HELD { each } else { 0 })
            }
            _ => Knob::new("held", held, [0], 0),
        };
        [threads, width, held]
    }
}

/// Times that a body reads a row whose elements are not kept.
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

/// Whether neighbouring rows are neighbours in memory in what is read most.
fn coalesced(body: &Body) -> bool {
    let Some(lead) = body.space.rank().checked_sub(2) else { return false };
    let mut large = body.inputs.iter().filter(|view| !view.layout.strides[lead + 1].is(0));
    large.all(|view| view.layout.strides[lead].is(1))
}

/// Whether neighbours along a row are neighbours in memory in what is read most.
fn along(body: &Body) -> bool {
    let mut last = body.inputs.iter().filter_map(|view| view.layout.strides.last());
    last.all(|stride| stride.is(0) || stride.is(1))
}

/// Whether every operand is one that a kernel for four neighbours at a time takes.
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

/// Whether four neighbours of a row may be read at once, where it is read without strides.
fn quads(body: &Body) -> bool {
    let merged = body.merged(&[]);
    let kinds = merged.addressing(true, true);
    let mut flat = body.views().zip(&kinds).filter(|(_, kind)| **kind == Addressing::Flat);
    body.row_len().is_multiple_of(4) && flat.all(|(view, _)| view.layout.offset.is_multiple_of(4))
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
