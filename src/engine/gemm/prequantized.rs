//! Quantised GEMV with pre-quantised activations (W4A8 and similar, like llama.cpp's MMVQ), for few
//! rows.
//!
//! `quantize_activations` quantises rows of x to int8 with a scale per 32 columns, norm and
//! prologue included; `matvec_prequant_*` multiplies. Compared with quantisation in each workgroup
//! (`matvec_int8_*`), this takes one more launch, but no workgroup has to quantise before it
//! multiplies. If the previous kernel has a quant epilogue, the additional launch is not needed.
//! These kernels can have a quant epilogue too: a workgroup of several teams then computes 32
//! neighbouring results.

use crate::base::{ComputeMode, Format};
use crate::engine::gemm::activation_quant::{ROUNDING, given_codes, rounded};
use crate::engine::gemm::operands::{in_one_launch, layers_fit, of_few_rows, sizes};
use crate::engine::gemm::prequantized_launch::CodesProduct;
use crate::engine::knobs::{Knob, powers};
use crate::engine::lowering::Lowering;
use crate::engine::{
    Cost, Engine, EngineId, Fusion, OTHER_OPERATION, PreparedLayout, PreparedOperand, Query,
    ReductionOrder,
};
use crate::error::{Error, Result};
use crate::ir::Op;
use crate::kernel::{AssetSpec, CodeOrder, catalogue, prequant};
use crate::provider::DeviceProfile;

/// Maximum rows of w per workgroup, or per team; each needs an accumulator in registers.
const MOST_ROWS: u32 = 8;
/// Minimum columns of a row of x that is quantised beforehand.
pub(in crate::engine) const LONG_ROW: f64 = 2048.0;
/// Rows of w per team that reads x in planes; for ternary weights, per half of a subgroup.
const PLANE_ROWS: u32 = 4;
/// Maximum iterations over ternary weights that are in flight at once.
const MOST_IN_FLIGHT: u32 = 5;
/// Maximum threads per workgroup that consists of teams.
const MOST_TEAM_THREADS: u32 = 1024;
/// Define that selects the kernel variant for eight rows of x.
const SEVERAL: &str = "several";
const THREADS: &str = "threads of a workgroup";
const ROWS: &str = "rows of the weight that a workgroup computes";
const TURNS: &str = "maximum iterations over a row whose weights are prefetched";

/// Engine that launches `quantize_activations` and `matvec_prequant_*` for one weight format.
pub(in crate::engine) struct CodesLinear {
    id: EngineId,
    format: Format,
    subgroup: bool,
}

impl CodesLinear {
    /// Returns the engines of a weight format, if it is quantised.
    pub(in crate::engine) fn all(format: Format) -> impl Iterator<Item = CodesLinear> {
        let made = [false, true].into_iter().filter(move |_| format.is_quantised());
        made.map(move |subgroup| {
            let tail = if subgroup { ".subgroup" } else { "" };
            let id = EngineId::new(format!("wgsl.matvec_prequant.{format}{tail}"));
            CodesLinear { id, format, subgroup }
        })
    }

    /// Returns the knobs for the threads per workgroup and the rows of w that it computes.
    fn knobs_of(&self, query: &Query) -> [Knob; 2] {
        if self.takes_planes(query) {
            return self.knobs_of_planes(query);
        }
        if let Some(anchors) = quant_epilogue_anchors(query) {
            return self.knobs_of_teams(query, anchors);
        }
        let n = sizes(query).map_or(1.0, |(_, n, _)| n);
        // Deterministic mode: the choice may not depend on n, since products of one x may be
        // merged.
        let small = n <= 4096.0 || query.deterministic;
        // Measured on an H200: many rows are faster with workgroups of one subgroup.
        let of_32 = [query.profile.subgroup_min, query.profile.subgroup_max] == [32, 32];
        let one = if self.subgroup && of_32 { 32 } else { 64 };
        let (threads, rows) = if small { (128, 2) } else { (one, 4) };
        let (threads, rows) = of_few_rows(query.profile, (threads, rows), rows_at_once(query));
        let most = query.profile.max_threads_per_workgroup.min(256);
        let threads = Knob::new("threads", THREADS, powers(32, most), threads.min(most));
        let rows_at_once = rows_at_once(query);
        // A norm stored with the codes needs one more sum for each row of x.
        let norm = if query.given.is_some() { 1 } else { 0 };
        let each = threads.value(query.knobs).clamp(1, 256) * rows_at_once;
        let most = (catalogue::SUM_WORDS / each - norm).clamp(1, MOST_ROWS);
        // A workgroup computes whole evaluations.
        let pairs = query.fusion.is_some_and(|a| a.segments.iter().any(|s| s.anchors == 2));
        let least = if pairs { 2 } else { 1 };
        let most = most.max(least);
        [threads, Knob::new("rows", ROWS, powers(least, most), rows.clamp(least, most))]
    }

    /// Returns the same knobs with a quant epilogue, which covers 32 evaluations of `anchors`
    /// results each: the rows are split over teams.
    fn knobs_of_teams(&self, query: &Query, anchors: u32) -> [Knob; 2] {
        let rows = anchors * ComputeMode::BLOCK as u32;
        let team = team_threads(query);
        let most = query.profile.max_threads_per_workgroup.min(MOST_TEAM_THREADS);
        let most = most.min(rows * team);
        let least = (rows / MOST_ROWS * team).min(most);
        let n = sizes(query).map_or(1.0, |(_, n, _)| n);
        // Few rows are few workgroups: each takes all threads it can have.
        let wanted = if n <= 8192.0 { most } else { 2 * least };
        let threads = Knob::new("threads", THREADS, powers(least, most), wanted.clamp(least, most));
        [threads, Knob::new("rows", ROWS, [rows], rows)]
    }

    /// Returns the define of the kernel variant that reads rows of x in planes, if the device
    /// supports it.
    fn of_planes(&self, query: &Query) -> Option<&'static str> {
        if self.subgroup { of_planes(self.format, query) } else { None }
    }

    /// Returns the rows of w per team of the kernel variant that reads x in planes.
    fn plane_rows(&self) -> u32 {
        match self.format {
            // Never with several rows of x.
            Format::TQ2_0 => 2 * PLANE_ROWS,
            _ => PLANE_ROWS,
        }
    }

    fn takes_planes(&self, query: &Query) -> bool {
        self.of_planes(query).is_some()
    }

    /// Returns the same knobs for the kernel variant that reads x in planes: teams of `plane_rows`,
    /// with two or four subgroups if there are few rows. The thresholds are calibrated
    /// (`gemv_four_subgroups_above` and neighbouring fields).
    fn knobs_of_planes(&self, query: &Query) -> [Knob; 2] {
        if rows_at_once(query) > 1 {
            return self.knobs_of_several(query);
        }
        let (n, k) = sizes(query).map_or((1.0, 1.0), |(_, n, k)| (n, k));
        let epilogue_rows =
            quant_epilogue_anchors(query).map(|anchors| anchors * ComputeMode::BLOCK as u32);
        let few = self.format == Format::Q6Kx8 && n <= 2048.0;
        let rows = epilogue_rows.unwrap_or(if few { 8 } else { 32 });
        let (one, most) = (rows / self.plane_rows() * 32, query.profile.max_threads_per_workgroup);
        let most = most.min(MOST_TEAM_THREADS);
        let measured = &query.profile.calibration;
        let least = |columns: Option<u32>| columns.map_or(f64::INFINITY, f64::from);
        let long_q6 = least(measured.gemv_q6_four_subgroups_columns);
        let few_ternary = least(measured.gemv_ternary_four_subgroups_below);
        let more_than = f64::from(measured.gemv_four_subgroups_above);
        let wanted = match self.format {
            Format::Q6Kx8 if n <= 2048.0 && k >= long_q6 => 4 * one,
            Format::Q6Kx8 if n >= 4096.0 || k <= 2048.0 => one,
            _ if n >= 8192.0 => one,
            Format::TQ2_0 if n < few_ternary || k > 4096.0 => 4 * one,
            Format::Q4K | Format::Q5K | Format::Q4_0x8 if n <= 4096.0 && n > more_than => 4 * one,
            _ => 2 * one,
        };
        let threads = wanted.min(most);
        let values = powers(one.min(most), most.min(4 * one));
        let threads = Knob::new("threads", THREADS, values, threads);
        let most_rows = threads.value(query.knobs) / 32 * self.plane_rows();
        let rows = rows.min(most_rows);
        match epilogue_rows {
            Some(rows) => [threads, Knob::new("rows", ROWS, [rows], rows)],
            None => [threads, Knob::new("rows", ROWS, powers(8.min(most_rows), most_rows), rows)],
        }
    }

    /// Returns the same knobs for eight rows of x: the fewer rows w has, the more subgroups per
    /// team. Measured on an H100 through Vulkan with one, two and four subgroups, timestamps
    /// included: for Q6_K with 128,256 rows of 4,096 columns 283, 312 and 333 us; for Q4_K with
    /// 5,120 such rows 31, 31 and 28 us, with 4,096 rows of 14,336 columns 62, 44 and 47 us.
    fn knobs_of_several(&self, query: &Query) -> [Knob; 2] {
        let (n, k) = sizes(query).map_or((1.0, 1.0), |(_, n, k)| (n, k));
        let most = query.profile.max_threads_per_workgroup.min(MOST_TEAM_THREADS);
        let rows = Knob::new("rows", ROWS, powers(PLANE_ROWS, 32), 2 * PLANE_ROWS);
        let one = (rows.value(query.knobs) / PLANE_ROWS * 32).min(most);
        let subgroups = match n {
            65_536.0.. => 1,
            ..8192.0 if k <= 4096.0 => 4,
            _ => 2,
        };
        let threads = (one * subgroups).min(most);
        [Knob::new("threads", THREADS, powers(one, most.min(8 * one)), threads), rows]
    }

    /// Returns the knob for the iterations over ternary weights in flight, if the format is ternary
    /// and the kernel variant reads x in planes.
    fn turns(&self, query: &Query) -> Option<Knob> {
        let most = query.profile.calibration.gemv_ternary_in_flight.min(MOST_IN_FLIGHT);
        let knob = Knob::new("turns", TURNS, 1..=MOST_IN_FLIGHT, most);
        (self.format == Format::TQ2_0 && self.takes_planes(query)).then_some(knob)
    }

    /// Returns the number of iterations over `columns` columns that a team of `subgroups` subgroups
    /// unrolls.
    fn unroll(&self, query: &Query, columns: u64, subgroups: u32) -> u32 {
        let turns = |each: u64| (columns.div_ceil(each) as u32).div_ceil(subgroups.max(1));
        if let Some(knob) = self.turns(query) {
            let turns = turns(prequant::PLANE_COLUMNS / 2);
            // As few rounds as that takes, as even as possible.
            return turns.div_ceil(turns.div_ceil(knob.value(query.knobs).max(1)));
        }
        let measured = &query.profile.calibration;
        let (turns, most) = match self.format {
            Format::Q6Kx8 => (turns(2 * prequant::PLANE_COLUMNS), measured.gemv_unrolled_q6),
            _ => (turns(prequant::PLANE_COLUMNS), measured.gemv_unrolled),
        };
        if rows_at_once(query) == 1 && turns <= most { turns.max(1) } else { 1 }
    }

    /// Returns the order of the int8 values of x that matches the units of the format.
    fn order_of(&self, query: &Query) -> CodeOrder {
        CodeOrder { planes: self.takes_planes(query), ..order(self.format) }
    }
}

/// Returns the define of the kernel variant that reads rows of x in planes for four or eight rows
/// of w at a time, if the format has one: for one row of x, or for eight with units of two groups.
/// For Q4_K and Q5_K with one row of x, lanes share decoded block headers, since there is no second
/// row of x that could reuse them.
fn of_planes(format: Format, query: &Query) -> Option<&'static str> {
    let of_32 = [query.profile.subgroup_min, query.profile.subgroup_max] == [32, 32];
    let able = of_32 && !query.deterministic;
    let at_once = rows_at_once(query);
    match format {
        _ if !able => None,
        _ if at_once == catalogue::MAX_MATVEC_ROWS => {
            let order = order(format);
            ([order.groups, order.run, order.chunk] == [2, 4, 4]).then_some(SEVERAL)
        }
        _ if at_once > 1 => None,
        Format::Q4K | Format::Q5K => Some("headers"),
        Format::Q6Kx8 => Some("eights"),
        Format::Q4_0x8 | Format::Q8_0x8 => Some("blocks"),
        Format::TQ2_0 => Some("trits"),
        _ => None,
    }
}

/// Returns how the units of a format map to the columns of x (`dequant_*`).
fn order(format: Format) -> CodeOrder {
    use Format as F;
    let [groups, run, chunk] = match format {
        F::Q4K | F::Q5K | F::Q6Kx8 | F::Q8_0x8 | F::Q4_0x8 => [2, 4, 4],
        F::Q2K | F::Q3K | F::Q6K | F::TQ2_0 | F::I2S => [4, 2, 2],
        F::IQ4XS => [1, 4, 2],
        F::TQ1_0 => [1, 4, 4],
        _ => [1, 2, 1],
    };
    CodeOrder { groups, run, chunk, planes: false, tiles: false }
}

/// Returns whether a format has a kernel for int8 tensor cores (`mma`).
pub(in crate::engine) fn has_tiles(format: Format) -> bool {
    catalogue::find(&catalogue::family_name("matvec_mma_*", format)).is_some()
}

/// Returns whether a device has the int8 tensor core operation that those kernels use.
pub(in crate::engine) fn multiplies_tiles(profile: &DeviceProfile) -> bool {
    let lanes = [profile.subgroup_min, profile.subgroup_max] == [32, 32];
    profile.has_int8_mma && lanes
}

/// Returns the fraction of the device's speed that in-kernel quantisation (`matvec_int8_*`) reaches
/// for one long row. `None`, unless a kernel that reads the row in planes may be faster even with a
/// separate launch before it. Measured after a launch of 2 us, on an H200 through Vulkan with 4,096
/// x 4,096 weights: Q4_K 10.1 us, Q4_0x8 12.4, Q6_Kx8 13.5, TQ2_0 7.0, Q8_0x8 8.3. Q5_K is not
/// measured and treated as Q4_K.
pub(in crate::engine) fn share_of_rounding_inside(format: Format, query: &Query) -> Option<f64> {
    let long = sizes(query).is_some_and(|(_, _, k)| k >= LONG_ROW);
    let ahead = long && rows_at_once(query) == 1 && of_planes(format, query).is_some();
    ahead.then_some(if format == Format::Q8_0x8 { 0.55 } else { 0.24 })
}

/// Returns the number of columns per unit of a quantised format.
pub(in crate::engine) fn unit_columns(format: Format) -> u32 {
    let order = order(format);
    order.groups * order.run * 4
}

/// Returns the number of groups of neighbouring columns per unit.
pub(in crate::engine) fn unit_groups(format: Format) -> u32 {
    order(format).groups
}

/// Returns the number of product results per evaluation, if the query has a quant epilogue.
pub(in crate::engine) fn quant_epilogue_anchors(query: &Query) -> Option<u32> {
    let fusion = query.fusion.filter(|fusion| fusion.quant_epilogue.is_some())?;
    fusion.segments.first().map(|segment| segment.anchors)
}

/// Returns the number of threads of a team: one subgroup, or several small ones.
fn team_threads(query: &Query) -> u32 {
    query.profile.subgroup_max.max(32)
}

/// Returns the number of rows of x that one pass over the weights multiplies.
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

    fn supports_quant_epilogue(&self, query: &Query) -> Result<(), String> {
        let Some(anchors) = quant_epilogue_anchors(query).filter(|_| self.subgroup) else {
            return Err("rounds with subgroups, what one segment stores".into());
        };
        if rows_at_once(query) > 1 {
            // Measured on an H200: 32 rows of w for eight of x are too much for one workgroup.
            return Err("rounds one row of x".into());
        }
        if self.takes_planes(query) {
            let least = ComputeMode::BLOCK as u32 * anchors / self.plane_rows() * 32;
            return match least > query.profile.max_threads_per_workgroup {
                true => Err(format!("takes {least} threads a workgroup")),
                false => Ok(()),
            };
        }
        let least = ComputeMode::BLOCK as u32 * anchors / MOST_ROWS * team_threads(query);
        let most = query.profile.max_threads_per_workgroup.min(MOST_TEAM_THREADS);
        match least > most {
            true => Err(format!("takes {least} threads a workgroup, the device has {most}")),
            false => Ok(()),
        }
    }

    fn takes(&self, query: &Query) -> Option<PreparedLayout> {
        // Measured on an H200: a short row is faster to quantise in each workgroup
        // (`matvec_int8_*`).
        let long = sizes(query).is_some_and(|(_, _, k)| k >= LONG_ROW);
        let able = self.subgroup && !query.deterministic && (long || rows_at_once(query) > 1);
        able.then(|| PreparedLayout::Codes(self.order_of(query)))
    }

    fn fuses(&self, query: &Query) -> Result<(), String> {
        in_one_launch(query, self.format, 2).map(|_| ())
    }

    fn order(&self, query: &Query) -> Result<ReductionOrder, String> {
        let [threads, _] = self.knobs_of(query).map(|knob| knob.value(query.knobs));
        let order = ReductionOrder::of_workgroup(query, "matvec of codes", threads, self.subgroup);
        order.map(|order| order.after(2))
    }

    fn knobs(&self, query: &Query) -> Vec<Knob> {
        self.knobs_of(query).into_iter().chain(self.turns(query)).collect()
    }

    fn cost(&self, query: &Query) -> Cost {
        let Some((m, n, k)) = sizes(query) else { return Cost::default() };
        let weight = n * k * self.format.block_bytes() as f64 / self.format.block_len() as f64;
        let (before, after) = query.fusion.map_or((0.0, 0.0), |fusion| fusion.operations());
        let passes = (m / f64::from(catalogue::MAX_MATVEC_ROWS)).ceil();
        let (read, rounding, dispatches) = match query.given {
            Some(_) => (1.25, 0.0, 1.0),
            None => (6.5, before + ROUNDING, 2.0),
        };
        Cost {
            bytes: weight * passes + m * (4.0 * n + read * k),
            flops: m * n * k + rounding * m * k + after * m * n,
            dispatches,
            efficiency: match self.subgroup {
                _ if passes > 1.0 => 0.2,
                // Below the estimate of tiles, so that tiles win. Measured on an H200, 66 MB of
                // Q4_K: 52 us for eight rows of x, 22 for one.
                true if m > 2.0 && multiplies_tiles(query.profile) && has_tiles(self.format) => 0.5,
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
        let columns = query.upper(&w.shape[1])?;
        let fusion = query.fusion.filter(|fusion| !fusion.is_empty());
        let norm = fusion.and_then(|fusion| fusion.norm.as_ref());
        let (codes, words, places) = match query.given {
            Some(PreparedOperand::Codes(given)) => {
                given_codes(given, self.order_of(query), columns, norm.is_some())
            }
            _ => {
                let sizes = ([&m, &k, &x_stride], columns);
                rounded(self.subgroup, &x, sizes, (self.order_of(query), fusion), out)?
            }
        };
        let [threads, rows] = self.knobs_of(query).map(|knob| knob.value(query.knobs));
        let at_once = rows_at_once(query);
        let name = catalogue::family_name("matvec_prequant_*", self.format);
        let mut spec = AssetSpec::new(name).constant("WG", threads).constant("M", at_once);
        spec = match quant_epilogue_anchors(query) {
            _ if let Some(kernel) = self.of_planes(query) => {
                let spec = spec.constant("ROWS", self.plane_rows()).constant("SUB", 32);
                let teams = rows / self.plane_rows();
                let unroll = self.unroll(query, columns, threads / teams / 32);
                let spec = spec.constant("K", columns as u32).constant("UNROLL", unroll);
                spec.constant("TEAMS", teams).define(kernel)
            }
            Some(_) => {
                let teams = threads / team_threads(query);
                let least = query.profile.subgroup_min.clamp(4, 32);
                let spec = spec.constant("ROWS", rows / teams).constant("TEAMS", teams);
                spec.constant("SUB", least)
            }
            None => spec.constant("ROWS", rows),
        };
        if self.subgroup {
            spec = spec.define("subgroup");
        }
        let scaled = norm.filter(|_| query.given.is_some());
        if scaled.is_some() {
            spec = spec.define("scaled");
        }
        let after = fusion.map(|fusion| Fusion {
            segments: fusion.segments.clone(),
            quant_epilogue: fusion.quant_epilogue.clone(),
            ..Fusion::default()
        });
        let product = CodesProduct {
            spec,
            format: self.format,
            sizes: [m, k],
            codes,
            words,
            places,
            tile: [at_once, rows],
            eps: scaled.map_or(0.0, |(_, eps)| *eps),
        };
        product.lower(query, after, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_32_are_those_that_kernels_decode_whole() {
        for format in Format::ALL.into_iter().chain(Format::KEPT).filter(|f| f.is_quantised()) {
            assert_eq!(unit_columns(format) == 32, catalogue::has_units_of_32(format), "{format}");
        }
    }
}
