//! Products with a weight matrix on cooperative matrices, for many rows.
//!
//! Weights are halves there: beyond 65,504 infinite, below 2^-14 of fewer bits.
//!
//! `round_half` rounds the operand as the mode says and writes it as f16; `matmul_coop_*` multiplies it with
//! weights that it decodes to f16, with sums in f32. So beside what the mode rounds, both operands of a product
//! are good to 11 bits. `matmul_halves` multiplies it with weights that `half_weights_*` decoded into memory of
//! their own before, or that are halves as they are; `linear_halves` has both, and the same by a vendor's library.

use super::attention::units;
use super::heuristic::Peaks;
use super::knobs::{Knob, powers};
use super::library;
use super::linear_codes::unit_groups;
use super::linear_halves::{self, Factors, Halved, Parts, SCALED_ROWS};
use super::lowering::{Call, Lowering, View};
use super::product::{filled, groups, in_one_launch, layers_fit, pieces, sizes};
use super::{Around, Cost, Engine, EngineId, Given, Notes, OTHER_OPERATION, Order, Query, Taken};
use crate::base::{ComputeMode, DType, Dim, Format, Shape};
use crate::error::{Error, Result};
use crate::ir::Op;
use crate::kernel::{AssetSpec, HalvesForm, catalogue};
use crate::provider::GRANULE;

/// Columns of x that a tile takes at a time.
pub(super) const STEP: u64 = 32;
/// Most columns of `round_half` for each thread.
const MOST_ROUNDED: u64 = 64;
/// What matrix units multiply in the time of one product elsewhere.
pub(super) const MATRIX_UNITS: f64 = 6.0;
/// Operations that make a weight a half, as each tile does again.
const DECODING: f64 = 8.0;
/// Operations that round a number to 8 bits.
const ROUNDING: f64 = 6.0;
/// Share of what matrix units do that is left beside decoding in front of each step, and beside moves alone: 218
/// Tflop/s of 237 on an H200 at 512 rows.
const DECODES: f64 = 0.4;
const MOVES: f64 = 0.9;
/// Share of the speed of memory at which weights of two bytes are read as they are, beside 0.9 of products with a vector: one
/// row with 656 MB took 296 us by tiles, 342 by a library's call and 215 with a vector on an H100.
const READS: f64 = 0.6;
/// What a step of a tile takes by itself: 85 us for 128 of them there; with weights to decode in front of it 1.2 us each.
const STEP_SECONDS: f64 = 6.6e-7;
const DECODING_STEP_SECONDS: f64 = 1.2e-6;
/// What a tile of 128 x 128 then takes for what is done with its products: 35 us for a residual and 100 for a rotation
/// there, of all tiles as of one.
const LEAVING_SECONDS: f64 = 5e-5;
/// Most bytes of a weight as halves: memory that the whole plan keeps. Where the device says what it has, that is
/// at most one of so many parts.
const MOST_HALVES: u64 = 512 << 20;
const SHARE: u64 = 16;
/// Threads of a workgroup of `half_weights_*`, and neighbouring weights that each makes.
const HALVING: (u32, u64) = (256, 8);

/// What multiplies halves.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// `matmul_coop_*`, which decodes weights.
    Decoding,
    /// `matmul_halves`.
    Halves,
    /// A vendor's library.
    Library,
}

/// Products of halves with weights of one format.
pub(super) struct CoopLinear {
    id: EngineId,
    format: Format,
    way: Way,
}

/// How `matmul_coop_*` and `matmul_halves` are cut, in the order of the first's constants.
pub(super) struct Tile {
    pub(super) constants: [(&'static str, u32); 5],
    pub(super) rows: u32,
    pub(super) columns: u32,
}

impl Tile {
    /// Bytes of workgroup memory: rows of 40 halves, and whether there is work; where weights are decoded, also
    /// factors and what leaves of each subgroup.
    fn bytes(&self, way: Way) -> u64 {
        let [.., (_, wi), (_, wj), _] = self.constants;
        let tiles = 80 * u64::from(self.rows + self.columns) + 16;
        match way {
            Way::Decoding => tiles + 4 * u64::from(self.rows) + u64::from(wi * wj) * 16 * 36 * 4,
            _ => tiles,
        }
    }
}

impl CoopLinear {
    /// The engines of a format, where it is a packed one or of two bytes.
    pub(super) fn all(format: Format) -> impl Iterator<Item = CoopLinear> {
        let packed = format.is_quantised();
        let half = matches!(format, Format::Plain(dtype) if dtype.is_half());
        let made = [
            (Way::Decoding, "wgsl.matmul_coop", packed),
            (Way::Halves, "wgsl.matmul_halves", packed || half),
            (Way::Library, "cuda.cublaslt.halves", packed || half),
        ];
        made.into_iter().filter(|(.., is)| *is).map(move |(way, name, _)| CoopLinear {
            id: EngineId::new(format!("{name}.{format}")),
            format,
            way,
        })
    }

    /// Whether weights are made halves by a launch of their own.
    fn converts(&self) -> bool {
        self.way != Way::Decoding && self.format != Format::Plain(DType::F16)
    }

    /// Whether halves lie row after row, not in blocks of columns.
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

    pub(super) fn tile(query: &Query) -> Tile {
        let [rows, columns] = CoopLinear::knobs_of(query).map(|knob| knob.value(query.knobs));
        // Tiles of 16 of a subgroup, and subgroups: two of each where there are four.
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

    /// The weight as halves.
    fn halves(&self, w: &View, [n, k]: [u64; 2], out: &mut Lowering) -> Result<View> {
        let (n, k) = (Dim::from(n), Dim::from(k));
        let shape = Shape::new([n.clone(), k.clone()]);
        let halves = out.temp(format!("{}.w", out.label), &shape, DType::F16)?;
        let (threads, each) = HALVING;
        let name = catalogue::family_name("half_weights_*", self.format);
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

    /// What tiles on cooperative matrices ask of a device.
    pub(super) fn fits_tiles(query: &Query) -> Result<(), String> {
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

    /// The products by `matmul_coop_*`.
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
        if let Some(around) = query.around.filter(|around| !around.segments.is_empty()) {
            let around = &Around { norm: None, ..around.clone() };
            let tiles = groups(around, n, tile.columns);
            return out.call(
                product(n, y_offset)?
                    .bind(w.tensor)
                    .bind(halves.tensor)
                    .bind_part(factors, offset, each)
                    .bind(query.output.tensor)
                    .around(around.attach(true)?)
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
            Way::Library if profile.provider != "cuda" => return Err(OTHER_OPERATION.into()),
            Way::Library if !profile.has_gemm_library => {
                return Err("not here: cuBLASLt is missing".into());
            }
            // Without them halves are no faster than what they are made from.
            Way::Library if !profile.has_matrix_hw => {
                return Err("the device has no cooperative matrices".into());
            }
            Way::Library => {}
            _ => CoopLinear::fits_tiles(query)?,
        }
        let (m, n, k) = sizes(query).ok_or("the operand has no rows")?;
        // In one piece: neighbours in it are no neighbours in the weight.
        let most = profile.max_binding_bytes / GRANULE * GRANULE;
        let kept = match profile.memory_bytes {
            0 => most.min(MOST_HALVES),
            told => most.min(MOST_HALVES).min(told / SHARE),
        };
        if self.converts() && 2.0 * n * k > kept as f64 {
            return Err(format!("{n} x {k} weights as halves are more than {kept} bytes"));
        }
        let (k, room) = (k as u64, u64::from(profile.workgroup_memory_bytes));
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
        let tile = CoopLinear::tile(query);
        if self.way != Way::Decoding {
            // Whole tiles.
            let parts = f64::from(Parts::of(query).splits);
            let sums = 4.0 * parts * (m + f64::from(tile.rows)) * (n + f64::from(tile.columns));
            if sums > kept as f64 {
                return Err(format!("{m} x {n} sums are more than {kept} bytes"));
            }
            if 2.0 * n * k as f64 > most as f64 {
                return Err("the weight is larger than a binding".into());
            }
            layers_fit(query, SCALED_ROWS)?;
        }
        if self.way == Way::Library {
            return match [m, n, k as f64].iter().any(|size| *size > library::MOST as f64) {
                true => Err(format!("{m} x {n} x {k}, a call takes sizes of {}", library::MOST)),
                false => Ok(()),
            };
        }
        let need = tile.bytes(self.way);
        match need > room {
            true => Err(format!("a tile takes {need} bytes of the {room} a workgroup has")),
            false => Ok(()),
        }
    }

    fn notes(&self, query: &Query) -> Notes {
        let library = self.way == Way::Library;
        Notes {
            deterministic: true,
            sums: super::Sums::F32,
            needs_compiling: query.is_wgsl(),
            capturable: !library,
        }
    }

    fn fuses(&self, query: &Query) -> Result<(), String> {
        let around = in_one_launch(query, self.format, 3)?;
        match around.prologue.is_some() {
            true => Err("rounding comes before the product reads its operand".into()),
            false => Ok(()),
        }
    }

    fn hands_halves_on(&self, query: &Query) -> Result<(), String> {
        match self.way {
            Way::Decoding => Err("a tile has no whole rows".into()),
            _ => linear_halves::hands_on(query),
        }
    }

    fn takes(&self, query: &Query) -> Option<Taken> {
        let Op::Linear { mode } = query.op else { return None };
        let rounded = *mode == ComputeMode::Int8;
        Some(Taken::Halves(HalvesForm { rounded, plain: self.plain() }))
    }

    fn order(&self, _query: &Query) -> Result<Order, String> {
        Err("in which order matrix units add is not known".into())
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
        let (before, after) = query.around.map_or((0.0, 0.0), |around| around.operations());
        let tile = CoopLinear::tile(query);
        let tiles = (m / f64::from(tile.rows)).ceil();
        let across = (n / f64::from(tile.columns)).ceil();
        // What is handed on was rounded before.
        let (rounding, read) = match query.given {
            Some(_) => (0.0, 0.5),
            None => (ROUNDING + before, 2.0),
        };
        let around = rounding * m * k + after * m * n;
        let bytes = 4.0 * m * (n + read * k);
        // Tiles that follow each other share rows of the weight: it is read once. Launches before and behind the
        // product take their own time.
        let weights = if self.converts() { weight + 4.0 * n * k } else { weight / READS };
        let before = weights + bytes;
        let peaks = Peaks::of(query.profile);
        let moved = |bytes: f64| bytes * peaks.flops_per_s / peaks.bytes_per_s;
        let decoding = if self.converts() { DECODING * n * k } else { 0.0 };
        let products = 2.0 * n * k / MATRIX_UNITS * tiles * f64::from(tile.rows);
        let launches = if self.converts() { 3.0 } else { 2.0 };
        let launches = launches - if query.given.is_some() { 1.0 } else { 0.0 };
        match self.way {
            Way::Decoding => {
                let efficiency = DECODES * filled(tiles * across, query);
                let waits = DECODING_STEP_SECONDS * k / STEP as f64;
                let fused = query.around.is_some_and(|around| !around.segments.is_empty());
                let share = f64::from(tile.rows * tile.columns) / f64::from(128 * 128);
                let leaving = if fused { LEAVING_SECONDS * share } else { 0.0 };
                let seconds = |seconds: f64| seconds * peaks.flops_per_s * efficiency;
                let work = products + around + DECODING * tiles * n * k;
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
                let waits = STEP_SECONDS * steps * peaks.flops_per_s;
                let tiles = filled(tiles * across * splits, query);
                let sums = 4.0 * (splits + 1.0) * m * n;
                Cost {
                    bytes: before + sums,
                    flops: (products / MOVES / tiles).max(waits)
                        + around
                        + decoding
                        + moved(before + sums),
                    dispatches: launches + 1.0,
                    efficiency: 1.0,
                }
            }
            Way::Library => {
                let tiles = (m / library::TILE).ceil() * (n / library::TILE).ceil();
                let calls = 2.0 * m * n * k / library::HALVES / filled(tiles, query);
                let sums = 8.0 * m * n;
                Cost {
                    bytes: before + sums,
                    flops: calls + around + decoding + moved(before + sums),
                    dispatches: launches + 1.0 + library::CALL,
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
        let norm = query.around.and_then(|around| around.norm.as_ref());
        let (x, factors) = match query.given {
            Some(Given::Halves { halves, factors }) => {
                linear_halves::given((halves, factors), [&m, &k], out)?
            }
            _ => {
                let how = (*mode, self.plain(), norm);
                linear_halves::rounded(&x, how, [&m, &k, &x_stride], columns, out)?
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
