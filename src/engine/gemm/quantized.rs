//! Products with a weight matrix in its storage format: GEMV for few rows (decode), tiled GEMM for
//! many (prefill).
//!
//! Weights are dequantised in registers; x is optionally quantised inside the kernel. A weight
//! larger than one binding is split by rows into several launches.

use super::tiling::{columns, room_for_rows, rounded_bytes, upper_rows};
use crate::base::{ComputeMode, DType, Dim, Format, Shape};
use crate::engine::gemm::activation_quant::ROUNDING;
use crate::engine::gemm::int8_cost::int8_operations;
use crate::engine::gemm::operands::{
    after_rows, filled, groups, in_one_launch, layers_fit, pieces, sizes,
};
use crate::engine::gemm::prequantized::share_of_rounding_inside;
use crate::engine::knobs::Knob;
use crate::engine::lowering::{Call, Lowering, View};
use crate::engine::{
    Cost, Engine, EngineId, Fusion, OTHER_OPERATION, Peaks, Query, ReductionOrder,
};
use crate::error::{Error, Result};
use crate::ir::Op;
use crate::kernel::{AssetSpec, catalogue};
use crate::provider::{DeviceKind, GRANULE};

/// Estimated operations to dequantise one weight to float, on a CPU that does so before it
/// multiplies.
const UNPACKING: f64 = 8.0;
/// Threads per workgroup of `fake_quantize`.
const ROUNDING_THREADS: u32 = 64;

/// The kernel family: GEMV or tiled GEMM.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Family {
    MatVec,
    MatMul,
}

/// Where x of a product in `ComputeMode::Int8` is quantised.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Rounding {
    /// Not at all: the product is in `ComputeMode::F32`.
    None,
    /// Inside the kernel, which multiplies int8 (fused activation quantisation).
    Inside,
    /// By a separate kernel; floats are multiplied.
    Before,
}

/// Engine for one kernel of matrix products and one weight format.
pub(in crate::engine) struct Linear {
    pub(super) id: EngineId,
    pub(super) family: Family,
    pub(super) format: Format,
    pub(super) cpu: bool,
    pub(super) subgroup: bool,
    pub(super) rounding: Rounding,
}

impl Linear {
    /// Returns every engine of a weight format.
    pub(in crate::engine) fn all(format: Format) -> impl Iterator<Item = Linear> {
        use Family::{MatMul, MatVec};
        use Rounding::{Before, Inside, None};
        let engines = [
            (MatVec, None, false, false),
            (MatVec, None, true, false),
            (MatMul, None, false, false),
            (MatMul, None, true, false),
            (MatVec, None, false, true),
            (MatVec, Inside, false, false),
            (MatVec, Inside, true, false),
            (MatVec, Inside, false, true),
            (MatMul, Before, false, false),
            (MatMul, Before, true, false),
        ];
        let made = engines.into_iter().filter(move |e| e.1 == None || format.is_quantised());
        let made = made.filter(move |e| !(e.2 && format.is_kept()));
        made.map(move |(family, rounding, cpu, subgroup)| {
            let place = if cpu { "cpu" } else { "wgsl" };
            let name = match family {
                MatVec => "matvec",
                MatMul => "matmul",
            };
            let how = match rounding {
                None => "",
                Inside => "_int8",
                Before => "_rounded",
            };
            let tail = if subgroup { ".subgroup" } else { "" };
            let id = EngineId::new(format!("{place}.{name}{how}.{format}{tail}"));
            Linear { id, family, format, cpu, subgroup, rounding }
        })
    }

    /// Returns whether a workgroup keeps quantised rows in workgroup memory; with subgroups they
    /// are in registers.
    pub(super) fn holds_rows(&self) -> bool {
        self.rounding == Rounding::Inside && !self.cpu && !self.subgroup
    }

    /// Returns the number of rows of x that one pass over the weights multiplies.
    pub(super) fn rows_at_once(&self, query: &Query) -> u32 {
        let rows = match upper_rows(query) {
            // A driver may contract multiply-adds differently for one number of rows than for the
            // next.
            _ if query.deterministic => 1,
            0 | 1 => 1,
            2 => 2,
            3 | 4 => 4,
            _ => catalogue::MAX_MATVEC_ROWS,
        };
        if !self.holds_rows() {
            return rows;
        }
        // As many rows as fit workgroup memory; `applies` ensures that one fits.
        let room = room_for_rows(query) / rounded_bytes(query).max(1);
        rows.min(room.clamp(1, 64) as u32)
    }

    /// Returns the kernel, and the rows of w and of x per workgroup. `aligned` means that x can be
    /// read four elements at a time.
    fn spec(&self, query: &Query, aligned: bool) -> (AssetSpec, u32, u32) {
        let name = match (self.family, self.rounding) {
            (Family::MatVec, Rounding::Inside) => "matvec_int8_*",
            (Family::MatVec, _) => "matvec_*",
            (Family::MatMul, _) => "matmul_*",
        };
        let spec = AssetSpec::new(catalogue::family_name(name, self.format));
        if self.cpu {
            let spec = if query.deterministic { spec.define(catalogue::IN_ORDER) } else { spec };
            return (spec, 1, 1);
        }
        let spec = if aligned { spec.define("vec4") } else { spec };
        let [first, second, passes] = self.cut(query);
        match self.family {
            Family::MatVec => {
                let at_once = self.rows_at_once(query);
                let spec = spec.constant("WG", first).constant("ROWS", second);
                let spec = spec.constant("M", at_once);
                let spec = match self.rounding {
                    Rounding::Inside if self.subgroup => {
                        spec.constant("AHEAD", self.ahead(query, first, second))
                    }
                    _ if self.asks_ahead(query) => spec.define("ahead"),
                    _ => spec,
                };
                let spec = match self.holds_rows() {
                    true => spec.constant("PASSES", passes).constant("K", columns(query) as u32),
                    false => spec,
                };
                (if self.subgroup { spec.define("subgroup") } else { spec }, second, at_once)
            }
            Family::MatMul => (spec.constant("BM", first).constant("BN", second), second, first),
        }
    }
}

impl Linear {
    fn grid(&self, tiles: Dim, layers: Dim, out: &Lowering) -> [Dim; 3] {
        match self.family {
            Family::MatVec => {
                let [gx, gy, _] = out.fold(tiles);
                [gx, gy, layers]
            }
            Family::MatMul => [tiles, layers, Dim::new(1)],
        }
    }

    /// Returns x and its row stride, quantised by a separate kernel for [`Rounding::Before`].
    fn rounded(
        &self,
        x: &View,
        [m, k, x_stride]: [&Dim; 3],
        out: &mut Lowering,
    ) -> Result<(View, Dim)> {
        match self.rounding {
            Rounding::Before => Ok((rounded_before(x, [m, k, x_stride], out)?, k.clone())),
            _ => Ok((x.clone(), x_stride.clone())),
        }
    }

    /// Adds one launch of the product with its fusion.
    fn lower_around(
        &self,
        query: &Query,
        fusion: &Fusion,
        x: &View,
        [m, k, x_stride]: [&Dim; 3],
        out: &mut Lowering,
    ) -> Result<()> {
        let w = &query.operands[1];
        let n = query.upper(&w.shape[0])?;
        let aligned = [k, &x.layout.offset, x_stride].iter().all(|d| d.is_multiple_of(4));
        let aligned = aligned && fusion.norm.as_ref().is_none_or(|(g, _)| quads(g));
        let prologue = fusion.prologue.iter().flat_map(|body| &body.inputs);
        let aligned = aligned && prologue.clone().all(quads);
        let (spec, tile_n, tile_m) = self.spec(query, aligned);
        let tiles = groups(fusion, n, tile_n);
        let [.., in_turn] = self.cut(query);
        let tiles = tiles.ceil_div(&Dim::from(in_turn));
        let grid = self.grid(tiles, m.ceil_div(&Dim::from(tile_m)), out);
        out.call(
            Call::new(spec)
                .dim("m", m)?
                .dim("n", &Dim::from(n))?
                .dim("k", k)?
                .dim("x_offset", &x.layout.offset)?
                .dim("x_stride", x_stride)?
                .dim("y_offset", &query.output.layout.offset)?
                .dim("y_stride", &Dim::from(n))?
                .bind(w.tensor)
                .bind(x.tensor)
                .bind(query.output.tensor)
                .fusion(fusion.attach(true)?)
                .grid(grid),
        )
    }
}

/// Rounds `m` rows of x by a separate kernel and returns them, contiguous.
pub(in crate::engine) fn rounded_before(
    x: &View,
    [m, k, x_stride]: [&Dim; 3],
    out: &mut Lowering,
) -> Result<View> {
    let shape = Shape::new([m.clone(), k.clone()]);
    let rounded = out.temp(format!("{}.x", out.label), &shape, DType::F32)?;
    let blocks = m.clone() * k.floor_div(&Dim::from(ComputeMode::BLOCK));
    let grid = out.fold(blocks.ceil_div(&Dim::from(ROUNDING_THREADS)));
    out.call(
        Call::new(AssetSpec::new("fake_quantize").constant("WG", ROUNDING_THREADS))
            .dim("rows", m)?
            .dim("cols", k)?
            .dim("x_offset", &x.layout.offset)?
            .dim("x_stride", x_stride)?
            .dim("y_offset", &rounded.layout.offset)?
            .bind(x.tensor)
            .bind(rounded.tensor)
            .grid(grid),
    )?;
    Ok(rounded)
}

/// Returns whether four neighbours of the last dimension can be read in one access.
pub(in crate::engine) fn quads(view: &View) -> bool {
    let Some((last, outer)) = view.layout.strides.split_last() else { return false };
    let steps = if last.is(1) || last.is(0) { outer } else { return false };
    (last.is(0) || view.layout.offset.is_multiple_of(4))
        && steps.iter().all(|s| s.is_multiple_of(4))
}

impl Engine for Linear {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        let Op::Linear { mode } = query.op else { return Err(OTHER_OPERATION.into()) };
        if (*mode == ComputeMode::Int8) == (self.rounding == Rounding::None) {
            return Err(OTHER_OPERATION.into());
        }
        let [x, w] = query.operands else { return Err("linear needs two operands".into()) };
        // Each format has its own engines, for operands of f32; others are not candidates.
        if w.format != self.format || x.format != Format::F32 {
            return Err(OTHER_OPERATION.into());
        }
        if self.cpu == query.is_wgsl() {
            let takes = if query.is_wgsl() { "WGSL" } else { "Rust functions" };
            return Err(format!("the device takes {takes}"));
        }
        if self.subgroup && !query.profile.has_subgroups {
            return Err("the device has no subgroups".into());
        }
        if self.family == Family::MatVec && query.is_wgsl() {
            layers_fit(query, self.rows_at_once(query))?;
        }
        if self.holds_rows() {
            let (need, room) = (rounded_bytes(query), room_for_rows(query));
            if need > room {
                return Err(format!(
                    "a quantised row takes {need} bytes of the {room} of a workgroup"
                ));
            }
        }
        Ok(())
    }

    fn fuses(&self, query: &Query) -> Result<(), String> {
        let fusion = in_one_launch(query, self.format, 2)?;
        if self.family == Family::MatMul && fusion.norm.is_some() {
            return Err("tiles have no norm of their rows".into());
        }
        if self.rounding == Rounding::Before && (fusion.norm.is_some() || fusion.prologue.is_some())
        {
            return Err("quantisation must precede the product's read of its operand".into());
        }
        Ok(())
    }

    fn order(&self, query: &Query) -> Result<ReductionOrder, String> {
        let rank = if self.rounding == Rounding::Before { 2 } else { 0 };
        match (self.cpu, self.family) {
            // Rows and panels accumulate floats in the same order.
            (true, _) if self.rounding != Rounding::Inside => {
                Ok(ReductionOrder::new(rank, "by vectors"))
            }
            (true, _) => Ok(ReductionOrder::new(0, "by blocks of 32")),
            (false, Family::MatMul) => after_rows(query, ReductionOrder::new(5, "columns in turn")),
            (false, Family::MatVec) => {
                let [threads, ..] = self.cut(query);
                ReductionOrder::of_workgroup(query, "matvec", threads, self.subgroup)
                    .map(|order| order.after(rank))
            }
        }
    }

    fn knobs(&self, query: &Query) -> Vec<Knob> {
        match self.cpu {
            true => Vec::new(),
            false => self.knobs_of(query).into(),
        }
    }

    fn cost(&self, query: &Query) -> Cost {
        let Some((m, n, k)) = sizes(query) else { return Cost::default() };
        let weight = n * k * self.format.block_bytes() as f64 / self.format.block_len() as f64;
        let (before, after) = query.fusion.map_or((0.0, 0.0), |fusion| fusion.operations());
        let [first, second, in_turn] = self.cut(query).map(f64::from);
        let most = f64::from(catalogue::MAX_MATVEC_ROWS);
        // Passes over the weights, rows of x processed, times that a workgroup reads x.
        let (passes, rows, reads) = match self.family {
            Family::MatVec => ((m / most).ceil(), m, (n / second).ceil()),
            // A tile is computed whole, however few rows are used.
            Family::MatMul => {
                let tiles = (m / first).ceil();
                (tiles, tiles * first, (n / second).ceil())
            }
        };
        let measured = &query.profile.calibration;
        let mut cost = Cost {
            bytes: weight * passes + 4.0 * m * (n + k),
            flops: 2.0 * rows * n * k + after * m * n,
            dispatches: 1.0,
            efficiency: match (self.family, self.subgroup) {
                // Beyond one pass, arithmetic dominates; it is slower without tiles, slightly less
                // so with subgroups.
                (Family::MatVec, _) if m > most => 0.2 + if self.subgroup { 1e-3 } else { 0.0 },
                // Each thread quantises. For few weights that beats a separate launch
                // (`CodesLinear`).
                (Family::MatVec, true) if self.rounding == Rounding::Inside => {
                    match measured.gemv_inline_quant_share {
                        Some(_) if self.rounds_short_rows(query) => {
                            measured.gemv_inline_quant_short_share
                        }
                        Some(share) => share,
                        None => share_of_rounding_inside(self.format, query).unwrap_or(0.73),
                    }
                }
                (Family::MatVec, true) if self.format.is_quantised() => 0.5,
                (Family::MatVec, true) => 0.9, // for 525 MB there: no dequantisation
                (Family::MatVec, false) => 0.4,
                (Family::MatMul, _) if query.is_wgsl() => {
                    // On an H200, 128 rows reach 31 Tflop/s, and 32 rows a quarter of that.
                    let reach = if first < 64.0 { 0.26 } else { 0.4 };
                    reach * filled((m / first).ceil() * (n / second).ceil(), query)
                }
                (Family::MatMul, _) => 0.4,
            },
        };
        let before = before + if self.rounding == Rounding::None { 0.0 } else { ROUNDING };
        if self.rounding == Rounding::Before {
            cost.dispatches += 1.0;
            cost.bytes += 8.0 * m * k;
        }
        if self.family == Family::MatMul && query.profile.kind == DeviceKind::Discrete {
            // Each tile waits for its k steps in turn, however few tiles there are.
            let step = query.profile.calibration.tile_step_seconds;
            let waits = (k / 16.0).ceil() * step;
            let floor = Peaks::of(query.profile).floor(&cost);
            cost.efficiency = cost.efficiency.min(floor / waits);
        }
        if !self.cpu {
            // Every workgroup that reads x repeats the prologue.
            let times = if self.rounding == Rounding::Before { 1.0 } else { reads / in_turn };
            cost.flops += before * m * k * times;
            if self.rounding == Rounding::Inside {
                cost.flops -= rows * n * k;
                // Rows are quantised one after another; in workgroup memory, products also wait for
                // the first. That way, eight rows of small products took 11 to 48 us on an H200;
                // registers are assumed to behave the same.
                cost.dispatches += if self.subgroup { m.min(most) - 1.0 } else { m.min(most) };
            }
            return cost;
        }
        cost.bytes = weight + 4.0 * m * (n + k);
        let each = match self.rounding {
            Rounding::Inside => int8_operations(query.profile, m),
            _ => 2.0,
        };
        cost.flops = each * m * n * k + before * m * k + after * m * n;
        if before > 0.0 {
            // Written once, then read.
            cost.bytes += 8.0 * m * k;
        }
        if self.family == Family::MatMul {
            cost.flops += UNPACKING * n * k;
        }
        cost
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let [x, w] = query.operands else {
            return Err(Error::invalid(format!("{}: linear needs two operands", query.label)));
        };
        let (x, m, k, x_stride) = out.rows(x)?;
        let n = query.upper(&w.shape[0])?;
        let k_size = query.upper(&w.shape[1])?;
        let row_bytes = self.format.bytes(k_size).ok_or_else(|| {
            let len = self.format.block_len();
            Error::invalid(format!("{}: {k_size} columns are not blocks of {len}", query.label))
        })?;
        if let Some(fusion) = query.fusion.filter(|fusion| !fusion.is_empty()) {
            let (x, x_stride) = self.rounded(&x, [&m, &k, &x_stride], out)?;
            return self.lower_around(query, fusion, &x, [&m, &k, &x_stride], out);
        }
        let (x, x_stride) = self.rounded(&x, [&m, &k, &x_stride], out)?;
        let [.., in_turn] = self.cut(query);
        for (first, rows) in pieces(n, row_bytes, query)? {
            let y_offset = query.output.layout.offset.clone() + Dim::from(first);
            let aligned = [&k, &x.layout.offset, &x_stride].iter().all(|d| d.is_multiple_of(4));
            let (spec, tile_n, tile_m) = self.spec(query, aligned);
            let tiles = Dim::from(rows.div_ceil(u64::from(tile_n * in_turn)));
            let grid = self.grid(tiles, m.ceil_div(&Dim::from(tile_m)), out);
            let bytes = (rows * row_bytes).max(1).next_multiple_of(GRANULE);
            out.call(
                Call::new(spec)
                    .dim("m", &m)?
                    .dim("n", &Dim::from(rows))?
                    .dim("k", &k)?
                    .dim("x_offset", &x.layout.offset)?
                    .dim("x_stride", &x_stride)?
                    .dim("y_offset", &y_offset)?
                    .dim("y_stride", &Dim::from(n))?
                    .bind_part(w.tensor, first * row_bytes, bytes)
                    .bind(x.tensor)
                    .bind(query.output.tensor)
                    .grid(grid),
            )?;
        }
        Ok(())
    }
}

/// Returns whether a view is stored in a quantised format, or with elements that are not four bytes
/// wide.
pub(in crate::engine) fn is_packed(view: &View) -> bool {
    view.format.is_quantised() || view.format.block_bytes() != 4
}
