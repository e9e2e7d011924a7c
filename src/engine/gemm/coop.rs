//! GEMM with a weight matrix on tensor cores (cooperative matrices), for many rows (prefill).
//!
//! Weights are converted to f16: values beyond 65,504 become infinite, and values below 2^-14 lose
//! precision. `quantize_to_f16` rounds x as the compute mode requires and writes f16.
//! `matmul_coop_*` dequantises the weight inside its main loop (like Marlin) and accumulates in
//! f32, so both operands have 11 significant bits, apart from the rounding of the compute mode.
//! `matmul_f16_coop` multiplies weights that are f16 already or that `dequantize_to_f16_*`
//! dequantised beforehand; the module `f16` launches it, or the vendor GEMM instead.

use crate::base::{ComputeMode, DType, Dim, Format, Shape};
use crate::engine::attention::single_pass::units;
use crate::engine::gemm::f16::{self, Factors, Halved, Parts, SPLIT_K_REDUCE};
use crate::engine::gemm::operands::{filled, groups, in_one_launch, layers_fit, pieces, sizes};
use crate::engine::gemm::prequantized::unit_groups;
use crate::engine::gemm::vendor;
use crate::engine::heuristic::Peaks;
use crate::engine::knobs::{Knob, powers};
use crate::engine::lowering::{Call, Lowering, View};
use crate::engine::{
    Cost, Engine, EngineId, Fusion, Notes, OTHER_OPERATION, PreparedLayout, PreparedOperand, Query,
    ReductionOrder,
};
use crate::error::{Error, Result};
use crate::ir::Op;
use crate::kernel::{AssetSpec, F16Layout, catalogue};
use crate::provider::GRANULE;

/// Columns of x per step of a tile (the k extent).
pub(in crate::engine) const STEP: u64 = 32;
/// Maximum columns per thread of `quantize_to_f16`.
const MOST_ROUNDED: u64 = 64;
/// Speed of tensor cores relative to ordinary multiply-adds.
pub(in crate::engine) const MATRIX_UNITS: f64 = 6.0;
/// Estimated operations to dequantise one weight to f16; each tile repeats them.
pub(super) const DECODING: f64 = 8.0;
/// Estimated operations to round one value to 8 bits.
pub(super) const ROUNDING: f64 = 6.0;
/// Fraction of the speed of tensor cores that remains if each step dequantises weights.
pub(super) const DECODES: f64 = 0.4;
/// Fraction of the speed of tensor cores that remains if steps only load operands: 218 of 237
/// Tflop/s on an H200 with 512 rows.
const MOVES: f64 = 0.9;
/// Fraction of the memory bandwidth that tiles reach when they read two-byte weights directly; GEMV
/// reaches 0.9. Measured on an H100 with one row and 656 MB of weights: 296 us by tiles, 342 us by
/// cuBLASLt, 215 us by GEMV.
const READS: f64 = 0.6;
/// Maximum bytes of the f16 copy of a weight; its memory is reserved for the lifetime of the plan.
const MOST_F16: u64 = 512 << 20;
/// If the device reports its memory, the f16 copy of a weight takes at most that memory divided by
/// this.
const SHARE: u64 = 16;
/// Threads per workgroup of `dequantize_to_f16_*`, and neighbouring weights per thread.
const HALVING: (u32, u64) = (256, 8);

/// The kernel that multiplies f16 operands.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Way {
    /// `matmul_coop_*`, which dequantises weights in its main loop.
    Decoding,
    /// `matmul_f16_coop`, which reads weights in f16.
    Halves,
    /// The vendor GEMM, cuBLASLt.
    Library,
}

/// A tensor-core GEMM engine for one weight format.
pub(in crate::engine) struct CoopLinear {
    id: EngineId,
    format: Format,
    way: Way,
}

/// Tiling of `matmul_coop_*` and `matmul_f16_coop`, with the constants in the order of the former.
pub(in crate::engine) struct Tile {
    pub(in crate::engine) constants: [(&'static str, u32); 5],
    pub(in crate::engine) rows: u32,
    pub(in crate::engine) columns: u32,
}

impl Tile {
    /// Returns the tiling of a workgroup that computes these rows of x and rows of w.
    pub(super) fn of([rows, columns]: [u32; 2], query: &Query) -> Tile {
        // Tiles of 16 rows per subgroup, and subgroups: two of each if there are four tiles.
        let (ti, wi) = match rows {
            0..=16 => (1, 1),
            17..=32 => (2, 1),
            33..=64 => (2, 2),
            _ => (4, 2),
        };
        let (th, wj) = match columns {
            0..=32 => (1, 1),
            33..=64 => (1, 2),
            _ if wi == 1 => (1, 4),
            _ => (2, 2),
        };
        let sub = query.profile.subgroup_max;
        let constants = [("TI", ti), ("TH", th), ("WI", wi), ("WJ", wj), ("SUB", sub)];
        Tile { constants, rows: 16 * ti * wi, columns: 32 * th * wj }
    }

    /// Returns the size in bytes of a tile's workgroup memory: operand rows padded to 40 f16, and a
    /// flag for whether there is work; with in-loop dequantisation, also the row scales and the
    /// output staging of each subgroup.
    pub(super) fn bytes(&self, way: Way) -> u64 {
        let [.., (_, wi), (_, wj), _] = self.constants;
        let tiles = 80 * u64::from(self.rows + self.columns) + 16;
        match way {
            Way::Decoding => tiles + 4 * u64::from(self.rows) + u64::from(wi * wj) * 16 * 36 * 4,
            _ => tiles,
        }
    }
}

impl CoopLinear {
    /// Returns the engines of a weight format, if it is quantised or has two-byte elements.
    pub(in crate::engine) fn all(format: Format) -> impl Iterator<Item = CoopLinear> {
        let packed = format.is_quantised();
        let half = matches!(format, Format::Plain(dtype) if dtype.is_half());
        let made = [
            (Way::Decoding, "wgsl.matmul_coop", packed),
            (Way::Halves, "wgsl.matmul_f16_coop", packed || half),
            (Way::Library, "cuda.cublaslt.f16", packed || half),
        ];
        made.into_iter().filter(|(.., is)| *is).map(move |(way, name, _)| CoopLinear {
            id: EngineId::new(format!("{name}.{format}")),
            format,
            way,
        })
    }

    /// Returns whether a separate launch dequantises weights to f16.
    fn converts(&self) -> bool {
        self.way != Way::Decoding && self.format != Format::Plain(DType::F16)
    }

    /// Returns whether f16 weights are stored row by row, not in blocks of columns.
    fn plain(&self) -> bool {
        self.way == Way::Library
    }

    fn knobs_of(query: &Query) -> [Knob; 2] {
        let (m, n, _) = sizes(query).unwrap_or((1.0, 1.0, 1.0));
        let fits = |rows: u32, columns: u32| {
            (m / f64::from(rows)).ceil() * (n / f64::from(columns)).ceil() >= units(query.profile)
        };
        let (rows, columns) = match m as u64 {
            0..=16 => (16, 64),
            17..=32 => (32, 64),
            33..=64 => (64, 64),
            _ if fits(128, 128) => (128, 128),
            _ => (128, 64),
        };
        [
            Knob::new("tile_m", "rows of x of a tile", powers(16, 128), rows),
            Knob::new("tile_n", "rows of the weight of a tile", powers(32, 128), columns),
        ]
    }

    pub(in crate::engine) fn tile(query: &Query) -> Tile {
        Tile::of(CoopLinear::knobs_of(query).map(|knob| knob.value(query.knobs)), query)
    }

    /// Adds a launch that dequantises the weight to f16, and returns the result.
    fn halves(&self, w: &View, [n, k]: [u64; 2], out: &mut Lowering) -> Result<View> {
        let (n, k) = (Dim::from(n), Dim::from(k));
        let shape = Shape::new([n.clone(), k.clone()]);
        let halves = out.temp(format!("{}.w", out.label), &shape, DType::F16)?;
        let (threads, each) = HALVING;
        let name = catalogue::family_name("dequantize_to_f16_*", self.format);
        let spec = AssetSpec::new(name).constant("WG", threads);
        let spec = if self.plain() { spec.define("plain") } else { spec };
        let (spec, each) = match catalogue::has_units_of_32(self.format) {
            true => (spec.define("units"), each * u64::from(unit_groups(self.format))),
            false => (spec, each),
        };
        let work = (n.clone() * k.clone()).ceil_div(&Dim::from(u64::from(threads) * each));
        let grid = out.fold(work);
        out.call(
            Call::new(spec)
                .dim("n", &n)?
                .dim("k", &k)?
                .bind(w.tensor)
                .bind(halves.tensor)
                .grid(grid),
        )?;
        Ok(halves)
    }

    /// Checks that a device meets the requirements of tensor-core tiles.
    pub(in crate::engine) fn fits_tiles(query: &Query) -> Result<(), String> {
        let profile = query.profile;
        if !profile.has_matrix_hw {
            return Err("the device has no cooperative matrices".into());
        }
        let (min, max) = (profile.subgroup_min, profile.subgroup_max);
        if min != max || ![32, 64].contains(&max) || 4 * max > profile.max_threads_per_workgroup {
            return Err(format!("subgroups of {min} to {max} threads, they must be 32 or 64"));
        }
        Ok(())
    }

    /// Checks that a device can round rows of `k` columns to f16 for tiles.
    pub(super) fn fits_rounding(query: &Query, k: u64) -> Result<(), String> {
        let profile = query.profile;
        if !k.is_multiple_of(STEP) || k == 0 {
            return Err(format!("{k} columns, it takes {STEP} at a time"));
        }
        let held = u64::from(profile.max_threads_per_workgroup) * MOST_ROUNDED;
        if k > held {
            return Err(format!("{k} columns, rounding has registers for {held}"));
        }
        if !profile.has_subgroups || profile.subgroup_min < catalogue::ROUND_THREADS {
            return Err("the device has no subgroups that round a block together".into());
        }
        Ok(())
    }

    /// Adds the launches of `matmul_coop_*`.
    fn decoding(&self, query: &Query, halved: Halved, out: &mut Lowering) -> Result<()> {
        let Halved { x: halves, factors, w, n, m, k } = halved;
        let Factors { tensor: factors, offset, bytes: each } = factors;
        let tile = CoopLinear::tile(query);
        let name = catalogue::family_name("matmul_coop_*", self.format);
        let spec = tile
            .constants
            .iter()
            .fold(AssetSpec::new(name), |spec, (name, value)| spec.constant(*name, *value));
        let product = |rows: u64, y_offset: &Dim| -> Result<Call> {
            Call::new(spec.clone())
                .dim("m", &m)?
                .dim("n", &Dim::from(rows))?
                .dim("k", &k)?
                .dim("x_offset", &halves.layout.offset)?
                .dim("x_stride", &k)?
                .dim("y_offset", y_offset)?
                .dim("y_stride", &Dim::from(n))
        };
        let layers = m.ceil_div(&Dim::from(tile.rows));
        let y_offset = &query.output.layout.offset;
        if let Some(fusion) = query.fusion.filter(|fusion| !fusion.segments.is_empty()) {
            let fusion = &Fusion { norm: None, ..fusion.clone() };
            let tiles = groups(fusion, n, tile.columns);
            return out.call(
                product(n, y_offset)?
                    .bind(w.tensor)
                    .bind(halves.tensor)
                    .bind_part(factors, offset, each)
                    .bind(query.output.tensor)
                    .fusion(fusion.attach(true)?)
                    .grid([tiles, layers, Dim::new(1)]),
            );
        }
        let columns = query.upper(&k)?;
        let row_bytes = self.format.bytes(columns).ok_or_else(|| {
            let len = self.format.block_len();
            Error::invalid(format!("{}: {columns} columns are not blocks of {len}", query.label))
        })?;
        for (first, rows) in pieces(n, row_bytes, query)? {
            let bytes = (rows * row_bytes).max(1).next_multiple_of(GRANULE);
            let tiles = Dim::from(rows.div_ceil(u64::from(tile.columns)));
            out.call(
                product(rows, &(y_offset.clone() + Dim::from(first)))?
                    .bind_part(w.tensor, first * row_bytes, bytes)
                    .bind(halves.tensor)
                    .bind_part(factors, offset, each)
                    .bind(query.output.tensor)
                    .grid([tiles, layers.clone(), Dim::new(1)]),
            )?;
        }
        Ok(())
    }
}

impl Engine for CoopLinear {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        let Op::Linear { mode } = query.op else { return Err(OTHER_OPERATION.into()) };
        let [x, w] = query.operands else { return Err("linear needs two operands".into()) };
        let formats = w.format == self.format && x.format == Format::F32;
        if *mode == ComputeMode::F32 || !formats || !query.is_wgsl() {
            return Err(OTHER_OPERATION.into());
        }
        let profile = query.profile;
        match self.way {
            Way::Library if !profile.supports_gemm_library => return Err(OTHER_OPERATION.into()),
            Way::Library if !profile.has_gemm_library => {
                return Err("not here: cuBLASLt is missing".into());
            }
            // Without tensor cores, f16 is no faster than the original format.
            Way::Library if !profile.has_matrix_hw => {
                return Err("the device has no cooperative matrices".into());
            }
            Way::Library => {}
            _ => CoopLinear::fits_tiles(query)?,
        }
        let (m, n, k) = sizes(query).ok_or("the operand has no rows")?;
        // One binding only: neighbours in the f16 copy are not neighbours in the weight.
        let most = profile.max_binding_bytes / GRANULE * GRANULE;
        let kept = match profile.memory_bytes {
            0 => most.min(MOST_F16),
            reported => most.min(MOST_F16).min(reported / SHARE),
        };
        if self.converts() && 2.0 * n * k > kept as f64 {
            return Err(format!("{n} x {k} weights as f16 are more than {kept} bytes"));
        }
        CoopLinear::fits_rounding(query, k as u64)?;
        let tile = CoopLinear::tile(query);
        if self.way != Way::Decoding {
            // Tiles are computed whole.
            let parts = f64::from(Parts::of(query).splits);
            let sums = 4.0 * parts * (m + f64::from(tile.rows)) * (n + f64::from(tile.columns));
            if sums > kept as f64 {
                return Err(format!("{m} x {n} sums are more than {kept} bytes"));
            }
            if 2.0 * n * k > most as f64 {
                return Err("the weight is larger than a binding".into());
            }
            layers_fit(query, SPLIT_K_REDUCE)?;
        }
        if self.way == Way::Library {
            return match [m, n, k].iter().any(|size| *size > vendor::MOST as f64) {
                true => Err(format!("{m} x {n} x {k}, a call takes sizes of {}", vendor::MOST)),
                false => Ok(()),
            };
        }
        let (need, room) = (tile.bytes(self.way), u64::from(profile.workgroup_memory_bytes));
        match need > room {
            true => Err(format!("a tile takes {need} bytes of the {room} a workgroup has")),
            false => Ok(()),
        }
    }

    fn notes(&self, query: &Query) -> Notes {
        let library = self.way == Way::Library;
        Notes {
            deterministic: true,
            sums: crate::engine::Sums::F32,
            needs_compiling: query.is_wgsl(),
            capturable: !library,
        }
    }

    fn fuses(&self, query: &Query) -> Result<(), String> {
        let fusion = in_one_launch(query, self.format, 3)?;
        match fusion.prologue.is_some() {
            true => Err("quantisation must precede the product's read of its operand".into()),
            false => Ok(()),
        }
    }

    fn f16_quant_epilogue(&self, query: &Query) -> Result<(), String> {
        match self.way {
            Way::Decoding => Err("a tile has no whole rows".into()),
            _ => f16::supports_quant_epilogue(query),
        }
    }

    fn takes(&self, query: &Query) -> Option<PreparedLayout> {
        let Op::Linear { mode } = query.op else { return None };
        let rounded = *mode == ComputeMode::Int8;
        Some(PreparedLayout::Halves(F16Layout { rounded, plain: self.plain() }))
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Err("the summation order of tensor cores is unknown".into())
    }

    fn knobs(&self, query: &Query) -> Vec<Knob> {
        match self.way {
            Way::Library => Vec::new(),
            _ => CoopLinear::knobs_of(query).into(),
        }
    }

    fn cost(&self, query: &Query) -> Cost {
        let Some((m, n, k)) = sizes(query) else { return Cost::default() };
        let weight = n * k * self.format.block_bytes() as f64 / self.format.block_len() as f64;
        let (before, after) = query.fusion.map_or((0.0, 0.0), |fusion| fusion.operations());
        let tile = CoopLinear::tile(query);
        let tiles = (m / f64::from(tile.rows)).ceil();
        let across = (n / f64::from(tile.columns)).ceil();
        // A prepared operand is already rounded.
        let (rounding, read) = match query.given {
            Some(_) => (0.0, 0.5),
            None => (ROUNDING + before, 2.0),
        };
        let fusion = rounding * m * k + after * m * n;
        let bytes = 4.0 * m * (n + read * k);
        // Consecutive tiles share rows of the weight, so it is read once from memory. The launches
        // before and after the product are counted separately.
        let weights = if self.converts() { weight + 4.0 * n * k } else { weight / READS };
        let before = weights + bytes;
        let (peaks, measured) = (Peaks::of(query.profile), &query.profile.calibration);
        let moved = |bytes: f64| bytes * peaks.flops_per_s / peaks.bytes_per_s;
        let decoding = if self.converts() { DECODING * n * k } else { 0.0 };
        let products = 2.0 * n * k / MATRIX_UNITS * tiles * f64::from(tile.rows);
        let launches = if self.converts() { 3.0 } else { 2.0 };
        let launches = launches - if query.given.is_some() { 1.0 } else { 0.0 };
        match self.way {
            Way::Decoding => {
                let efficiency = DECODES * filled(tiles * across, query);
                let waits = measured.coop_dequant_step_seconds * k / STEP as f64;
                let fused = query.fusion.is_some_and(|fusion| !fusion.segments.is_empty());
                let share = f64::from(tile.rows * tile.columns) / f64::from(128 * 128);
                let leaving = if fused { measured.coop_epilogue_seconds * share } else { 0.0 };
                let seconds = |seconds: f64| seconds * peaks.flops_per_s * efficiency;
                let work = products + fusion + DECODING * tiles * n * k;
                Cost {
                    bytes: bytes + weight * tiles,
                    flops: work.max(seconds(waits)) + seconds(leaving),
                    dispatches: 2.0,
                    efficiency,
                }
            }
            Way::Halves => {
                let parts = Parts::of(query);
                let splits = f64::from(parts.splits);
                let steps = k / STEP as f64 / splits;
                let waits = measured.coop_step_seconds * steps * peaks.flops_per_s;
                let tiles = filled(tiles * across * splits, query);
                let sums = 4.0 * (splits + 1.0) * m * n;
                Cost {
                    bytes: before + sums,
                    flops: (products / MOVES / tiles).max(waits)
                        + fusion
                        + decoding
                        + moved(before + sums),
                    dispatches: launches + 1.0,
                    efficiency: 1.0,
                }
            }
            Way::Library => {
                let tiles = (m / vendor::TILE).ceil() * (n / vendor::TILE).ceil();
                let calls = 2.0 * m * n * k / vendor::HALVES / filled(tiles, query);
                let sums = 8.0 * m * n;
                Cost {
                    bytes: before + sums,
                    flops: calls + fusion + decoding + moved(before + sums),
                    dispatches: launches + 1.0 + vendor::CALL,
                    efficiency: 1.0,
                }
            }
        }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let ([x, w], Op::Linear { mode }) = (query.operands, query.op) else {
            return Err(Error::invalid(format!("{}: linear needs two operands", query.label)));
        };
        let (x, m, k, x_stride) = out.rows(x)?;
        let (n, columns) = (query.upper(&w.shape[0])?, query.upper(&w.shape[1])?);
        let norm = query.fusion.and_then(|fusion| fusion.norm.as_ref());
        let (x, factors) = match query.given {
            Some(PreparedOperand::Halves { halves, factors }) => {
                f16::given((halves, factors), [&m, &k], out)?
            }
            _ => {
                let how = (*mode, self.plain(), norm);
                f16::rounded(&x, how, [&m, &k, &x_stride], columns, out)?
            }
        };
        let w = match self.converts() {
            true => self.halves(w, [n, columns], out)?,
            false => w.clone(),
        };
        let halved = Halved { x, factors, w, n, m, k };
        let sums = match self.way {
            Way::Decoding => return self.decoding(query, halved, out),
            Way::Halves => halved.by_tiles(query, !self.converts(), out)?,
            Way::Library => halved.by_library(out)?,
        };
        halved.finish(&sums, query, out)
    }
}
