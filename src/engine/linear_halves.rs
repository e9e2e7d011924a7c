//! Products of halves: sums by `matmul_halves` or by a vendor's library, then a launch of `scaled_rows`.
//!
//! What multiplies knows nothing of factors of rows and of what is done with products. On an H200 through wgpu
//! the launch behind it takes 17 us for a residual of 512 x 4,096, and tiles that did it themselves took 50 for their end,
//! each waiting for what it read.

use super::attention::units;
use super::library;
use super::linear_coop::{CoopLinear, STEP};
use super::lowering::{Call, Lowering, View};
use super::product::{groups, sizes};
use super::{Around, Query};
use crate::base::{DType, Dim, Shape};
use crate::error::Result;
use crate::kernel::AssetSpec;

/// Fewest steps of a part of the columns: fewer are over before what they wait for at first has come.
const LEAST_STEPS: u64 = 16;
/// Threads of a workgroup of `scaled_rows`, each of two columns, and rows that it makes.
const SCALING_THREADS: u32 = 256;
pub(super) const SCALED_ROWS: u32 = 4;

/// How the columns are shared, and how many steps are loaded in advance.
pub(super) struct Parts {
    pub(super) splits: u32,
    pub(super) depth: u32,
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
        let depth = if (steps / splits).is_multiple_of(2) { 2 } else { 1 };
        Parts { splits: splits as u32, depth }
    }
}

/// Operands as halves.
pub(super) struct Halved {
    /// Rows, with their factors.
    pub(super) x: (View, View),
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
        library::halves([&self.x.0, &self.w, &sums], [&self.m, &columns, &self.k], out)?;
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
        spec = spec.constant("DEPTH", parts.depth).constant("SPLITS", parts.splits);
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
                .bind(self.x.0.tensor)
                .bind(sums.tensor)
                .grid([Dim::from(tiles), layers, splits]),
        )?;
        Ok(sums)
    }

    /// The factors of rows, and what is done with products.
    pub(super) fn finish(&self, sums: &View, query: &Query, out: &mut Lowering) -> Result<()> {
        let (threads, rows) = (SCALING_THREADS, SCALED_ROWS);
        let columns = Dim::from(self.n);
        let [splits, height, width] = [0, 1, 2].map(|axis| &sums.shape[axis]);
        let spec = AssetSpec::new("scaled_rows")
            .constant("WG", threads)
            .constant("ROWS", rows)
            .constant("SPLITS", query.upper(splits)? as u32);
        let mut call = Call::new(spec)
            .dim("m", &self.m)?
            .dim("n", &columns)?
            .dim("y_offset", &query.output.layout.offset)?
            .dim("y_stride", &columns)?
            .dim("sums_stride", width)?
            .dim("part_stride", &(height.clone() * width.clone()))?
            .bind(sums.tensor)
            .bind(self.x.1.tensor)
            .bind(query.output.tensor);
        let mut tiles = Dim::from(self.n.div_ceil(2 * u64::from(threads)));
        if let Some(around) = query.around.filter(|around| !around.segments.is_empty()) {
            let around = &Around { norm: None, ..around.clone() };
            tiles = groups(around, self.n, 2 * threads);
            call = call.around(around.attach(true)?);
        }
        out.call(call.grid([tiles, self.m.ceil_div(&Dim::from(rows)), Dim::new(1)]))
    }
}
