//! Products of halves: sums by `matmul_halves` or by a vendor's library, then a launch of `scaled_rows`.
//!
//! What multiplies knows nothing of factors of rows and of what is done with products. On an H200 through wgpu
//! the launch behind it takes 17 us for a residual of 512 x 4,096, and tiles that did it themselves took 50 for their end,
//! each waiting for what it read.

use super::attention::units;
use super::knobs::powers;
use super::library;
use super::linear::quads;
use super::linear_coop::{CoopLinear, STEP};
use super::lowering::{Call, Lowering, TensorId, View};
use super::product::{groups, sizes};
use super::{Around, Query};
use crate::base::{ComputeMode, DType, Dim, Format, Shape};
use crate::error::Result;
use crate::kernel::{AssetSpec, HandForm};
use crate::provider::{DeviceProfile, GRANULE};

/// Fewest steps of a part of the columns: fewer are over before what they wait for at first has come.
const LEAST_STEPS: u64 = 16;
/// Threads of a workgroup of `round_half`, and columns for each of them up to which there are no more: all stay in
/// registers.
const ROUNDING_THREADS: u32 = 256;
const ROUNDED_COLUMNS: u64 = 32;
/// Threads of a workgroup of `scaled_rows`, each of two columns, and rows that it makes.
const SCALING_THREADS: u32 = 256;
pub(super) const SCALED_ROWS: u32 = 4;
/// Most threads of a workgroup that makes a whole row, turns of each up to which there are no more of them, and turns
/// that its registers have room for.
const MOST_ROW_THREADS: u32 = 1024;
const ROW_TURNS: u64 = 8;
const MOST_ROW_TURNS: u64 = 32;

/// How the columns are shared, and how many steps are written out in a turn.
pub(super) struct Parts {
    pub(super) splits: u32,
    pub(super) turn: u32,
}

impl Parts {
    /// As many parts as fill the device twice, which is what its memory for workgroups and registers hold, each of
    /// [`LEAST_STEPS`] steps at least.
    pub(super) fn of(query: &Query) -> Parts {
        let (m, n, k) = sizes(query).unwrap_or((1.0, 1.0, 1.0));
        let tile = CoopLinear::tile(query);
        let tiles = (m / f64::from(tile.rows)).ceil() * (n / f64::from(tile.columns)).ceil();
        let steps = k as u64 / STEP;
        let room = (2.0 * units(query.profile) / tiles) as u64;
        let fits = |splits: &u64| {
            *splits <= room && steps.is_multiple_of(*splits) && steps / splits >= LEAST_STEPS
        };
        let splits = [8, 4, 2].into_iter().find(fits).unwrap_or(1);
        let turn = [4, 2].into_iter().find(|turn| (steps / splits).is_multiple_of(*turn));
        Parts { splits: splits as u32, turn: turn.unwrap_or(1) as u32 }
    }
}

/// Factors of rows: where they lie, from which byte and how many.
#[derive(Clone, Copy)]
pub(super) struct Factors {
    pub(super) tensor: TensorId,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// x as halves, and the factors of its rows.
pub(super) fn rounded(
    x: &View,
    (mode, plain, norm): (ComputeMode, bool, Option<&(View, f32)>),
    [m, k, x_stride]: [&Dim; 3],
    columns: u64,
    out: &mut Lowering,
) -> Result<(View, Factors)> {
    let shape = Shape::new([m.clone(), k.clone()]);
    let halves = out.temp(format!("{}.x", out.label), &shape, DType::F16)?;
    let factors =
        out.temp(format!("{}.factors", out.label), &Shape::new([m.clone()]), DType::F32)?;
    let most = out.profile.max_threads_per_workgroup;
    let threads = powers(ROUNDING_THREADS.min(most), most)
        .find(|threads| columns <= u64::from(*threads) * ROUNDED_COLUMNS)
        .unwrap_or(most);
    let mut spec = AssetSpec::new("round_half")
        .constant("WG", threads)
        .constant("K", columns as u32)
        .define("subgroup");
    let aligned = [&x.layout.offset, x_stride].iter().all(|d| d.is_multiple_of(4));
    if aligned && norm.is_none_or(|(weight, _)| quads(weight)) {
        spec = spec.define("vec4");
    }
    if mode == ComputeMode::F16 {
        spec = spec.define("halves");
    }
    if plain {
        spec = spec.define("plain");
    }
    let grid = out.fold(m.clone());
    let mut call = Call::new(spec)
        .dim("rows", m)?
        .dim("k", k)?
        .dim("x_offset", &x.layout.offset)?
        .dim("x_stride", x_stride)?
        .bind(x.tensor)
        .bind(halves.tensor)
        .bind(factors.tensor)
        .grid(grid);
    if norm.is_some() {
        let ahead = Around { norm: norm.cloned(), ..Around::default() };
        call = call.around(ahead.attach(false)?);
    }
    out.call(call)?;
    let bytes = out.tensors[factors.tensor.index()].bytes;
    Ok((halves, Factors { tensor: factors.tensor, offset: 0, bytes }))
}

/// x as it was handed on, with factors behind so many words.
pub(super) fn given(
    (halves, factors): (TensorId, u64),
    [m, k]: [&Dim; 2],
    out: &Lowering,
) -> Result<(View, Factors)> {
    let shape = Shape::new([m.clone(), k.clone()]);
    let format = Format::Plain(DType::F16);
    let view = View::whole(halves, shape, DType::F16, format);
    let bytes = (4 * out.class.upper(m)?).next_multiple_of(GRANULE);
    Ok((view, Factors { tensor: halves, offset: 4 * factors, bytes }))
}

/// Operands as halves.
pub(super) struct Halved {
    pub(super) x: View,
    /// Of the rows of x.
    pub(super) factors: Factors,
    pub(super) w: View,
    pub(super) n: u64,
    pub(super) m: Dim,
    pub(super) k: Dim,
}

impl Halved {
    /// The sums by a library, without gaps.
    pub(super) fn by_library(&self, out: &mut Lowering) -> Result<View> {
        let columns = Dim::from(self.n);
        let shape = Shape::new([Dim::new(1), self.m.clone(), columns.clone()]);
        let sums = out.temp(format!("{}.sums", out.label), &shape, DType::F32)?;
        library::halves([&self.x, &self.w, &sums], [&self.m, &columns, &self.k], out)?;
        Ok(sums)
    }

    /// The sums by `matmul_halves`, with room for whole tiles, in parts.
    pub(super) fn by_tiles(&self, query: &Query, plain: bool, out: &mut Lowering) -> Result<View> {
        let (tile, parts) = (CoopLinear::tile(query), Parts::of(query));
        let layers = self.m.ceil_div(&Dim::from(tile.rows));
        let tiles = self.n.div_ceil(u64::from(tile.columns));
        let width = Dim::from(tiles * u64::from(tile.columns));
        let splits = Dim::from(parts.splits);
        let rows = layers.clone() * Dim::from(tile.rows);
        let shape = Shape::new([splits.clone(), rows, width.clone()]);
        let sums = out.temp(format!("{}.sums", out.label), &shape, DType::F32)?;
        let mut spec = AssetSpec::new("matmul_halves");
        for (name, value) in tile.constants {
            // A half of the columns there, all of them here.
            let (name, value) = if name == "TH" { ("TJ", 2 * value) } else { (name, value) };
            spec = spec.constant(name, value);
        }
        spec = spec.constant("STEPS", parts.turn).constant("SPLITS", parts.splits);
        if plain {
            spec = spec.define("plain");
        }
        out.call(
            Call::new(spec)
                .dim("m", &self.m)?
                .dim("n", &Dim::from(self.n))?
                .dim("k", &self.k)?
                .dim("y_stride", &width)?
                .bind(self.w.tensor)
                .bind(self.x.tensor)
                .bind(sums.tensor)
                .grid([Dim::from(tiles), layers, splits]),
        )?;
        Ok(sums)
    }

    /// The factors of rows, and what is done with products.
    pub(super) fn finish(&self, sums: &View, query: &Query, out: &mut Lowering) -> Result<()> {
        let handed = handed(query);
        let (threads, rows) = match handed {
            Some(columns) => (row_threads(query.profile, columns), 1),
            None => (SCALING_THREADS, SCALED_ROWS),
        };
        let columns = Dim::from(self.n);
        let [splits, height, width] = [0, 1, 2].map(|axis| &sums.shape[axis]);
        let spec = AssetSpec::new("scaled_rows")
            .constant("WG", threads)
            .constant("ROWS", rows)
            .constant("SPLITS", query.upper(splits)? as u32);
        let spec = match handed {
            Some(columns) => {
                let (min, max) = (query.profile.subgroup_min, query.profile.subgroup_max);
                spec.constant("K", columns as u32).constant("SUB", if min == max { min } else { 0 })
            }
            None => spec,
        };
        let mut call = Call::new(spec)
            .dim("m", &self.m)?
            .dim("n", &columns)?
            .dim("y_offset", &query.output.layout.offset)?
            .dim("y_stride", &columns)?
            .dim("sums_stride", width)?
            .dim("part_stride", &(height.clone() * width.clone()))?
            .bind(sums.tensor)
            .bind_part(self.factors.tensor, self.factors.offset, self.factors.bytes)
            .bind(query.output.tensor);
        let mut tiles = Dim::from(self.n.div_ceil(2 * u64::from(threads)));
        if let Some(around) = query.around.filter(|around| !around.segments.is_empty()) {
            let around = &Around { norm: None, ..around.clone() };
            tiles = groups(around, self.n, 2 * threads);
            call = call.around(around.attach(true)?);
        }
        let grid = match handed {
            Some(_) => out.fold(self.m.clone()),
            None => [tiles, self.m.ceil_div(&Dim::from(rows)), Dim::new(1)],
        };
        out.call(call.grid(grid))
    }
}

/// Columns of rows that are handed on as halves.
fn handed(query: &Query) -> Option<u64> {
    let hand = query.around?.hand_on.as_ref()?;
    matches!(hand.form, HandForm::Halves(_)).then_some(hand.columns)
}

/// Threads of a workgroup that makes a row.
fn row_threads(profile: &DeviceProfile, columns: u64) -> u32 {
    let most = profile.max_threads_per_workgroup.min(MOST_ROW_THREADS);
    let mut threads = powers(SCALING_THREADS.min(most), most);
    threads.find(|threads| columns <= u64::from(*threads) * ROW_TURNS).unwrap_or(most)
}

/// Whether `scaled_rows` hands on what it stores.
///
/// # Errors
/// The reason where it does not.
pub(super) fn hands_on(query: &Query) -> Result<(), String> {
    let Some(columns) = handed(query) else {
        return Err("hands nothing but halves on".into());
    };
    let profile = query.profile;
    if !profile.has_subgroups || u64::from(profile.subgroup_min) < ComputeMode::BLOCK {
        return Err("the device has no subgroups that round a block together".into());
    }
    let held = u64::from(row_threads(profile, columns)) * MOST_ROW_TURNS;
    match columns > held {
        true => Err(format!("{columns} columns, a workgroup has registers for {held}")),
        false => Ok(()),
    }
}
