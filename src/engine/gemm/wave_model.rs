//! Wave quantisation: the time of the tiles of a product of two computed matrices, and the tile
//! choice.
//!
//! A device runs tiles in waves. Each compute unit runs two at a time: one multiplies while the
//! other waits for memory. In the last wave, some compute units have one tile or none.

use crate::engine::Query;
use crate::engine::attention::single_pass::units;
use crate::engine::gemm::vendor;
use crate::provider::DeviceProfile;

/// Rows and columns of a tile of a product of two computed matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Tile {
    pub rows: u32,
    pub columns: u32,
}

impl Tile {
    /// Returns the number of tiles of a product with these sizes (batch, m, n, k).
    fn count(self, [batch, m, n, _]: [u64; 4]) -> f64 {
        let tiles = m.div_ceil(self.rows.into()) as f64 * n.div_ceil(self.columns.into()) as f64;
        batch as f64 * tiles
    }

    /// Returns the floating-point operations of the tiles of a product with these sizes.
    pub(in crate::engine) fn flops(self, sizes: [u64; 4]) -> f64 {
        self.count(sizes) * 2.0 * f64::from(self.rows) * f64::from(self.columns) * sizes[3] as f64
    }
}

/// Model of the time of a kernel's tiles by their size.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Waves {
    /// How much the kernel waits for loads of its tiles, from 0 to 1: a 128 x 128 tile reads `r <=
    /// 1` times as much per multiply-add as a smaller one, which reaches `r^reads` of its speed.
    pub reads: f64,
}

/// Rows and columns of the tiles that reach a kernel's full speed.
const WHOLE: f64 = 128.0;
/// Time of a single tile on a compute unit, relative to that of two.
const ALONE: f64 = 0.7;

impl Waves {
    /// Returns the floating-point operations that the device could do in the time of this product
    /// (batch, m, n, k): compute units without a tile wait for those with one more. Fitted to
    /// square products of 256 to 3,072 on an H200 through wgpu (`docs/performance/nvidia-h200.md`):
    /// of three tile sizes, the one with the shortest modelled time was the fastest, or within 1 %
    /// of it.
    pub(in crate::engine) fn flops(
        self,
        sizes: [u64; 4],
        tile: Tile,
        profile: &DeviceProfile,
    ) -> f64 {
        let [rows, columns] = [tile.rows, tile.columns].map(f64::from);
        let reach = 2.0 / (WHOLE / rows + WHOLE / columns);
        let tiles = tile.count(sizes);
        let each = (tiles / units(profile)).ceil();
        // A unit runs one larger tile at a time.
        let alone = if reach > 1.0 { 0.5 } else { ALONE };
        let pairs = (each / 2.0).floor() + alone * (each % 2.0);
        let waited = if tiles > 0.0 { 2.0 * pairs * units(profile) / tiles } else { 1.0 };
        tile.flops(sizes) * waited / reach.min(1.0).powf(self.reads)
    }

    /// Returns the default tile: of those that fit, the one with the shortest modelled time; if
    /// none fits, the smallest.
    pub(in crate::engine) fn usual(self, query: &Query, fits: impl Fn(Tile) -> bool) -> Tile {
        let sizes = vendor::sizes(query).unwrap_or([1; 4]);
        let tiles = [(128, 128), (128, 64), (64, 64)].map(|(rows, columns)| Tile { rows, columns });
        let time = |tile: &Tile| self.flops(sizes, *tile, query.profile);
        let fitting = tiles.into_iter().filter(|tile| fits(*tile));
        fitting.min_by(|a, b| time(a).total_cmp(&time(b))).unwrap_or(tiles[2])
    }
}
