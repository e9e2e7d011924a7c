//! Products with a weight matrix for few rows, with the operand rounded to 8 bits by a step of its own.
//!
//! `round_codes` writes rows as whole numbers and what each 32 of them stand for, a norm and a prologue
//! included; `matvec_codes_*` multiplies them. Beside rounding in each workgroup (`matvec_int8_*`) that is a
//! step more and no work or wait in front of the products.

use super::knobs::{Knob, powers};
use super::linear::quads;
use super::lowering::{Call, Lowering, View};
use super::product::{groups, in_one_launch, layers_fit, pieces, sizes};
use super::{Around, Cost, Engine, EngineId, OTHER_OPERATION, Order, Query};
use crate::base::{ComputeMode, DType, Dim, Format, Shape};
use crate::error::{Error, Result};
use crate::ir::Op;
use crate::kernel::{AssetSpec, catalogue};
use crate::provider::GRANULE;

/// Threads of a workgroup of `round_codes`.
const ROUNDING_THREADS: u32 = 256;
/// Operations that round a number to 8 bits.
const ROUNDING: f64 = 6.0;
/// Most rows of w that one workgroup makes: each is a sum in registers.
const MOST_ROWS: u32 = 8;

/// `round_codes` and `matvec_codes_*` of one weight format.
pub(super) struct CodesLinear {
    id: EngineId,
    format: Format,
    subgroup: bool,
}

impl CodesLinear {
    /// The engines of a format, where it is a packed one.
    pub(super) fn all(format: Format) -> impl Iterator<Item = CodesLinear> {
        let made = [false, true].into_iter().filter(move |_| format.is_quantised());
        made.map(move |subgroup| {
            let tail = if subgroup { ".subgroup" } else { "" };
            let id = EngineId::new(format!("wgsl.matvec_codes.{format}{tail}"));
            CodesLinear { id, format, subgroup }
        })
    }

    /// Threads of a workgroup, and rows of w that it makes.
    fn knobs_of(&self, query: &Query) -> [Knob; 2] {
        let n = sizes(query).map_or(1.0, |(_, n, _)| n);
        // In deterministic mode n may not matter: products of one x may be made as one.
        let small = n <= 4096.0 || query.deterministic;
        // Measured on an H200: products of many rows want workgroups of one subgroup.
        let of_32 = [query.profile.subgroup_min, query.profile.subgroup_max] == [32, 32];
        let one = if self.subgroup && of_32 { 32 } else { 64 };
        let (threads, rows) = if small { (128, 2) } else { (one, 4) };
        let most = query.profile.max_threads_per_workgroup.min(256);
        let threads =
            Knob::new("threads", "threads of a workgroup", powers(32, most), threads.min(most));
        let each = threads.value(query.knobs).clamp(1, 256) * rows_at_once(query);
        let most = (catalogue::SUM_WORDS / each).clamp(1, MOST_ROWS);
        // A workgroup makes whole evaluations.
        let pairs = query.around.is_some_and(|a| a.segments.iter().any(|s| s.anchors == 2));
        let least = if pairs { 2 } else { 1 };
        let text = "rows of the weight that a workgroup makes";
        let most = most.max(least);
        [threads, Knob::new("rows", text, powers(least, most), rows.clamp(least, most))]
    }

    /// x as `round_codes` writes it, with the words of a row.
    fn rounded(
        &self,
        x: &View,
        [m, k, x_stride]: [&Dim; 3],
        around: Option<&Around>,
        out: &mut Lowering,
    ) -> Result<(View, Dim)> {
        let blocks = k.floor_div(&Dim::from(ComputeMode::BLOCK));
        let fours = blocks.ceil_div(&Dim::new(4)) * Dim::new(4);
        let words = blocks.clone() * Dim::new(8) + fours;
        let shape = Shape::new([m.clone(), words.clone()]);
        let codes = out.temp(format!("{}.x", out.label), &shape, DType::U32)?;
        let before = around.map(|around| Around {
            norm: around.norm.clone(),
            prologue: around.prologue.clone(),
            segments: Vec::new(),
        });
        let before = before.filter(|before| !before.is_empty());
        let normed = before.as_ref().is_some_and(|before| before.norm.is_some());
        let aligned = [&x.layout.offset, x_stride].iter().all(|d| d.is_multiple_of(4));
        let norm = before.iter().flat_map(|before| before.norm.iter().map(|(weight, _)| weight));
        let operands = before.iter().flat_map(|before| before.prologue.iter());
        let operands = operands.flat_map(|body| &body.inputs);
        let aligned = aligned && norm.chain(operands).all(quads);
        let threads = ROUNDING_THREADS.min(out.profile.max_threads_per_workgroup);
        let [groups, run, chunk] = order(self.format);
        let spec = AssetSpec::new("round_codes")
            .constant("WG", threads)
            .constant("GROUPS", groups)
            .constant("RUN", run)
            .constant("CHUNK", chunk);
        let spec = if aligned { spec.define("vec4") } else { spec };
        let together = self.subgroup && out.profile.subgroup_min >= catalogue::ROUND_THREADS;
        let spec = if together { spec.define("subgroup") } else { spec };
        let grid = match normed {
            true => m.clone(),
            false if together => (m.clone() * blocks * Dim::from(catalogue::ROUND_THREADS))
                .ceil_div(&Dim::from(threads)),
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
        let call = match before {
            Some(before) => call.around(before.attach(false)?),
            None => call,
        };
        out.call(call)?;
        Ok((codes, words))
    }
}

/// How a format's units meet the columns of x (`dequant_*`): groups of a unit, parts of four columns of a group, and
/// how many of those are neighbours.
fn order(format: Format) -> [u32; 3] {
    use Format as F;
    match format {
        F::Q4K | F::Q5K => [2, 4, 4],
        F::Q2K | F::Q3K | F::Q6K | F::TQ2_0 | F::I2S => [4, 2, 2],
        F::IQ4XS => [1, 4, 2],
        F::TQ1_0 => [1, 4, 4],
        _ => [1, 2, 1],
    }
}

/// Rows of x that one pass over the weights serves.
fn rows_at_once(query: &Query) -> u32 {
    match sizes(query).map_or(1, |(m, ..)| m as u64) {
        _ if query.deterministic => 1,
        0 | 1 => 1,
        2 => 2,
        3 | 4 => 4,
        _ => catalogue::MAX_MATVEC_ROWS,
    }
}

impl Engine for CodesLinear {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        if !matches!(query.op, Op::Linear { mode: ComputeMode::Int8 }) {
            return Err(OTHER_OPERATION.into());
        }
        let [_, w] = query.operands else { return Err("linear needs two operands".into()) };
        if w.format != self.format || !query.is_wgsl() {
            return Err(OTHER_OPERATION.into());
        }
        layers_fit(query, rows_at_once(query))?;
        match self.subgroup && !query.profile.has_subgroups {
            true => Err("the device has no subgroups".into()),
            false => Ok(()),
        }
    }

    fn fuses(&self, query: &Query) -> Result<(), String> {
        in_one_launch(query, self.format, 2).map(|_| ())
    }

    fn order(&self, query: &Query) -> Result<Order, String> {
        let [threads, _] = self.knobs_of(query).map(|knob| knob.value(query.knobs));
        let order = Order::of_workgroup(query, "matvec of codes", threads, self.subgroup);
        order.map(|order| order.after(2))
    }

    fn knobs(&self, query: &Query) -> Vec<Knob> {
        self.knobs_of(query).into()
    }

    fn cost(&self, query: &Query) -> Cost {
        let Some((m, n, k)) = sizes(query) else { return Cost::default() };
        let weight = n * k * self.format.block_bytes() as f64 / self.format.block_len() as f64;
        let (before, after) = query.around.map_or((0.0, 0.0), |around| around.operations());
        let passes = (m / f64::from(catalogue::MAX_MATVEC_ROWS)).ceil();
        Cost {
            bytes: weight * passes + m * (4.0 * n + 6.5 * k),
            flops: m * n * k + (before + ROUNDING) * m * k + after * m * n,
            dispatches: 2.0,
            efficiency: match self.subgroup {
                _ if passes > 1.0 => 0.2,
                true => 0.8,
                false => 0.6,
            },
        }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let [x, w] = query.operands else {
            return Err(Error::invalid(format!("{}: linear needs two operands", query.label)));
        };
        let (x, m, k, x_stride) = out.rows(x)?;
        let (n, columns) = (query.upper(&w.shape[0])?, query.upper(&w.shape[1])?);
        let around = query.around.filter(|around| !around.is_empty());
        let (codes, words) = self.rounded(&x, [&m, &k, &x_stride], around, out)?;
        let [threads, rows] = self.knobs_of(query).map(|knob| knob.value(query.knobs));
        let at_once = rows_at_once(query);
        let name = catalogue::family_name("matvec_codes_*", self.format);
        let spec = AssetSpec::new(name)
            .constant("WG", threads)
            .constant("ROWS", rows)
            .constant("M", at_once);
        let spec = if self.subgroup { spec.define("subgroup") } else { spec };
        let layers = m.ceil_div(&Dim::from(at_once));
        let product = |made: u64, groups: Dim, y_offset: &Dim, out: &Lowering| -> Result<Call> {
            let [gx, gy, _] = out.fold(groups);
            Ok(Call::new(spec.clone())
                .dim("m", &m)?
                .dim("n", &Dim::from(made))?
                .dim("k", &k)?
                .dim("x_offset", &codes.layout.offset)?
                .dim("x_stride", &words)?
                .dim("y_offset", y_offset)?
                .dim("y_stride", &Dim::from(n))?
                .grid([gx, gy, layers.clone()]))
        };
        let y_offset = &query.output.layout.offset;
        if let Some(around) = around {
            let after = Around { segments: around.segments.clone(), ..Around::default() };
            let call = product(n, groups(&after, n, rows), y_offset, out)?
                .bind(w.tensor)
                .bind(codes.tensor)
                .bind(query.output.tensor);
            let call = match after.is_empty() {
                true => call,
                false => call.around(after.attach(true)?),
            };
            return out.call(call);
        }
        let row_bytes = self.format.bytes(columns).ok_or_else(|| {
            let len = self.format.block_len();
            Error::invalid(format!("{}: {columns} columns are not blocks of {len}", query.label))
        })?;
        for (first, made) in pieces(n, row_bytes, query)? {
            let bytes = (made * row_bytes).max(1).next_multiple_of(GRANULE);
            let groups = Dim::from(made.div_ceil(u64::from(rows)));
            let call = product(made, groups, &(y_offset.clone() + Dim::from(first)), out)?
                .bind_part(w.tensor, first * row_bytes, bytes)
                .bind(codes.tensor)
                .bind(query.output.tensor);
            out.call(call)?;
        }
        Ok(())
    }
}
