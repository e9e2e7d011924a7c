//! f16 GEMM with an optional split-K: `matmul_f16_coop` or the vendor GEMM computes sums; then
//! `split_k_reduce` reduces the partial sums and applies row scales and the epilogue (like
//! CUTLASS's split-K with a separate reduction).
//!
//! The first kernel applies neither row scales nor the epilogue. On an H200 through wgpu, the
//! second launch takes 17 us for a residual of 512 x 4,096. Tiles with an epilogue of their own
//! took 50 us, since each waits for its loads.

use crate::base::{ComputeMode, DType, Dim, Format, Shape};
use crate::engine::attention::single_pass::units;
use crate::engine::gemm::coop::{CoopLinear, STEP};
use crate::engine::gemm::operands::{groups, sizes};
use crate::engine::gemm::quantized::quads;
use crate::engine::gemm::vendor;
use crate::engine::knobs::powers;
use crate::engine::lowering::{Call, Lowering, TensorId, View};
use crate::engine::{Fusion, Query};
use crate::error::Result;
use crate::kernel::{AssetSpec, OperandLayout};
use crate::provider::{DeviceProfile, GRANULE};

/// Minimum k steps per split; shorter ones end before their first loads have arrived.
const LEAST_STEPS: u64 = 16;
/// Minimum threads per workgroup of `quantize_to_f16`.
const ROUNDING_THREADS: u32 = 256;
/// Maximum columns per thread of `quantize_to_f16` before it gets more threads, so that all columns
/// stay in registers.
const ROUNDED_COLUMNS: u64 = 32;
/// Threads per workgroup of `split_k_reduce`; each computes two columns.
const SCALING_THREADS: u32 = 256;
/// Rows per workgroup of `split_k_reduce`.
pub(in crate::engine) const SPLIT_K_REDUCE: u32 = 4;
/// Maximum threads of a workgroup that computes a whole row.
const MOST_ROW_THREADS: u32 = 1024;
/// Maximum iterations per thread before a workgroup that computes a whole row gets more threads.
const ROW_TURNS: u64 = 8;
/// Maximum iterations per thread whose values fit the registers of the thread.
const MOST_ROW_TURNS: u64 = 32;

/// Split-K: the number of splits of k, and the k steps unrolled per iteration.
pub(in crate::engine) struct Parts {
    pub(in crate::engine) splits: u32,
    pub(in crate::engine) turn: u32,
}

impl Parts {
    /// Chooses the most splits with at most two workgroups per compute unit, which is the occupancy
    /// that workgroup memory and registers allow, and at least [`LEAST_STEPS`] steps per split.
    pub(in crate::engine) fn of(query: &Query) -> Parts {
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

/// Row scales: their tensor, first byte and number of bytes.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Factors {
    pub(in crate::engine) tensor: TensorId,
    pub(in crate::engine) offset: u64,
    pub(in crate::engine) bytes: u64,
}

/// Adds a launch that rounds x to f16; returns the result and the scales of its rows.
pub(in crate::engine) fn rounded(
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
    let mut spec = AssetSpec::new("quantize_to_f16")
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
        let ahead = Fusion { norm: norm.cloned(), ..Fusion::default() };
        call = call.fusion(ahead.attach(false)?);
    }
    out.call(call)?;
    let bytes = out.tensors[factors.tensor.index()].bytes;
    Ok((halves, Factors { tensor: factors.tensor, offset: 0, bytes }))
}

/// Returns a prepared f16 operand and the scales of its rows, which start after `factors` words.
pub(in crate::engine) fn given(
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

/// Both operands of a product in f16.
pub(in crate::engine) struct Halved {
    pub(in crate::engine) x: View,
    /// Scales of the rows of x.
    pub(in crate::engine) factors: Factors,
    pub(in crate::engine) w: View,
    pub(in crate::engine) n: u64,
    pub(in crate::engine) m: Dim,
    pub(in crate::engine) k: Dim,
}

impl Halved {
    /// Adds a launch of the vendor GEMM; returns its sums, a contiguous matrix.
    pub(in crate::engine) fn by_library(&self, out: &mut Lowering) -> Result<View> {
        let columns = Dim::from(self.n);
        let shape = Shape::new([Dim::new(1), self.m.clone(), columns.clone()]);
        let sums = out.temp(format!("{}.sums", out.label), &shape, DType::F32)?;
        vendor::halves([&self.x, &self.w, &sums], [&self.m, &columns, &self.k], out)?;
        Ok(sums)
    }

    /// Adds a launch of `matmul_f16_coop`; returns its sums: a matrix per split, padded to whole
    /// tiles.
    pub(in crate::engine) fn by_tiles(
        &self,
        query: &Query,
        plain: bool,
        out: &mut Lowering,
    ) -> Result<View> {
        let (tile, parts) = (CoopLinear::tile(query), Parts::of(query));
        let layers = self.m.ceil_div(&Dim::from(tile.rows));
        let tiles = self.n.div_ceil(u64::from(tile.columns));
        let width = Dim::from(tiles * u64::from(tile.columns));
        let splits = Dim::from(parts.splits);
        let rows = layers.clone() * Dim::from(tile.rows);
        let shape = Shape::new([splits.clone(), rows, width.clone()]);
        let sums = out.temp(format!("{}.sums", out.label), &shape, DType::F32)?;
        let mut spec = AssetSpec::new("matmul_f16_coop");
        for (name, value) in tile.constants {
            // The other kernel counts pairs of 16 columns (`TH`), this one single ones (`TJ`).
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

    /// Adds a launch that reduces the partial sums and applies row scales and the epilogue.
    pub(in crate::engine) fn finish(
        &self,
        sums: &View,
        query: &Query,
        out: &mut Lowering,
    ) -> Result<()> {
        let f16_columns = f16_columns(query);
        let (threads, rows) = match f16_columns {
            Some(columns) => (row_threads(query.profile, columns), 1),
            None => (SCALING_THREADS, SPLIT_K_REDUCE),
        };
        let columns = Dim::from(self.n);
        let [splits, height, width] = [0, 1, 2].map(|axis| &sums.shape[axis]);
        let spec = AssetSpec::new("split_k_reduce")
            .constant("WG", threads)
            .constant("ROWS", rows)
            .constant("SPLITS", query.upper(splits)? as u32);
        let spec = match f16_columns {
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
        if let Some(fusion) = query.fusion.filter(|fusion| !fusion.segments.is_empty()) {
            let fusion = &Fusion { norm: None, ..fusion.clone() };
            tiles = groups(fusion, self.n, 2 * threads);
            call = call.fusion(fusion.attach(true)?);
        }
        let grid = match f16_columns {
            Some(_) => out.fold(self.m.clone()),
            None => [tiles, self.m.ceil_div(&Dim::from(rows)), Dim::new(1)],
        };
        out.call(call.grid(grid))
    }
}

/// Returns the columns per output row, if the quant epilogue converts rows to f16.
fn f16_columns(query: &Query) -> Option<u64> {
    let epilogue = query.fusion?.quant_epilogue.as_ref()?;
    matches!(epilogue.form, OperandLayout::Halves(_)).then_some(epilogue.columns)
}

/// Returns the number of threads of a workgroup that computes a whole row.
fn row_threads(profile: &DeviceProfile, columns: u64) -> u32 {
    let most = profile.max_threads_per_workgroup.min(MOST_ROW_THREADS);
    let mut threads = powers(SCALING_THREADS.min(most), most);
    threads.find(|threads| columns <= u64::from(*threads) * ROW_TURNS).unwrap_or(most)
}

/// Checks that `split_k_reduce` can quantise its output for the next product.
///
/// # Errors
/// Returns the reason if it cannot.
pub(in crate::engine) fn supports_quant_epilogue(query: &Query) -> Result<(), String> {
    let Some(columns) = f16_columns(query) else {
        return Err("has no other epilogue than f16 output".into());
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
