//! How long the tiles of a product of two computed matrices take, and which to take.
//!
//! A device takes tiles in waves: each of its units has room for two at a time, of which one multiplies while the other
//! waits for memory, and in the last wave units may have one or none.

use super::Query;
use super::attention::units;
use super::library;
use crate::provider::DeviceProfile;

/// Rows and columns of a tile of a product of two computed matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    pub rows: u32,
    pub columns: u32,
}

impl Tile {
    /// Tiles of a product of these sizes: batch, m, n, k.
    fn count(self, [batch, m, n, _]: [u64; 4]) -> f64 {
        let tiles = m.div_ceil(self.rows.into()) as f64 * n.div_ceil(self.columns.into()) as f64;
        batch as f64 * tiles
    }

    /// Floating-point operations of the tiles of a product of these sizes.
    pub(super) fn flops(self, sizes: [u64; 4]) -> f64 {
        self.count(sizes) * 2.0 * f64::from(self.rows) * f64::from(self.columns) * sizes[3] as f64
    }
}

/// How long the tiles of a kernel take, by their size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waves {
    /// How much a kernel waits for what its tiles read, 0 to 1: one of 128 x 128 reads `r <= 1` times as much for each
    /// product as a smaller one, which reaches `r^reads` of its speed.
    pub reads: f64,
}

/// Rows and columns of the tiles that reach a kernel's whole speed.
const WHOLE: f64 = 128.0;
/// Time of a tile that is alone on a unit, of that of two.
const ALONE: f64 = 0.7;

impl Waves {
    /// Floating-point operations that a device does in the time of a product of these sizes (batch, m, n, k): units
    /// without a tile wait for those that have one more. Fitted to square products of 256 to 3,072 on an H200
    /// through wgpu (`benches/README.md`): of three tiles that of the least time was the fastest, or within 1 % of it.
    pub(super) fn flops(self, sizes: [u64; 4], tile: Tile, profile: &DeviceProfile) -> f64 {
        let [rows, columns] = [tile.rows, tile.columns].map(f64::from);
        let reach = 2.0 / (WHOLE / rows + WHOLE / columns);
        let tiles = tile.count(sizes);
        let each = (tiles / units(profile)).ceil();
        // Of larger tiles a unit has one at a time.
        let alone = if reach > 1.0 { 0.5 } else { ALONE };
        let pairs = (each / 2.0).floor() + alone * (each % 2.0);
        let waited = if tiles > 0.0 { 2.0 * pairs * units(profile) / tiles } else { 1.0 };
        tile.flops(sizes) * waited / reach.min(1.0).powf(self.reads)
    }

    /// The tile where nothing is set: of those that fit the one of the least time, else the smallest.
    pub(super) fn usual(self, query: &Query, fits: impl Fn(Tile) -> bool) -> Tile {
        let sizes = library::sizes(query).unwrap_or([1; 4]);
        let tiles = [(128, 128), (128, 64), (64, 64)].map(|(rows, columns)| Tile { rows, columns });
        let time = |tile: &Tile| self.flops(sizes, *tile, query.profile);
        let fitting = tiles.into_iter().filter(|tile| fits(*tile));
        fitting.min_by(|a, b| time(a).total_cmp(&time(b))).unwrap_or(tiles[2])
    }
}
