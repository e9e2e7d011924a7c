//! Layouts of quantised activations for GEMV (`quantize_activations`, `matvec_prequant_*`).

use serde::{Deserialize, Serialize};

/// Columns per step of the plane layout.
pub const PLANE_COLUMNS: u64 = 1024;
/// Words per step of the plane layout: codes, and four words for each of 32 lanes.
pub const PLANE_WORDS: u64 = PLANE_COLUMNS / 4 + 128;

/// Interleaved rows of x for tiles.
pub const TILE_ROWS: u64 = 8;

/// The order in which the units of a weight's format (`dequant_*`) use the codes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CodeOrder {
    /// Groups per unit.
    pub groups: u32,
    /// Parts of four columns per group.
    pub run: u32,
    /// How many of those are neighbours.
    pub chunk: u32,
    /// Whether neighbouring units are interleaved (`prequant_layout`): 32 of two groups of four
    /// neighbours, with per-lane factors after all codes, or eight of four groups of two.
    pub planes: bool,
    /// Whether eight rows and their factors are interleaved for `matvec_mma_*` (`prequant_layout`).
    pub tiles: bool,
}

impl CodeOrder {
    /// Words of the codes of `columns`, a multiple of 32.
    pub fn words(self, columns: u64) -> u64 {
        match self.goes_along() {
            true => columns.div_ceil(PLANE_COLUMNS) * PLANE_WORDS,
            false => columns / 4,
        }
    }

    /// Whether per-lane factors follow the codes.
    pub fn goes_along(self) -> bool {
        self.planes && self.groups == 2
    }

    /// Whether kernels exist for such units.
    pub fn is_known(self) -> bool {
        let CodeOrder { groups, run, chunk, planes, tiles } = self;
        let known = matches!(groups, 1 | 2 | 4) && matches!(run, 2 | 4);
        let paired = matches!([groups, run, chunk], [2, 4, 4] | [4, 2, 2]);
        let tiled = [groups, run] == [2, 2] && !planes;
        let whole = chunk > 0 && run.is_multiple_of(chunk);
        known && whole && (paired || !planes) && (tiled || !tiles)
    }

    /// Number of interleaved rows.
    pub fn rows(self) -> u64 {
        if self.tiles { TILE_ROWS } else { 1 }
    }
}

/// Words of a row of `columns` after its codes: scales of each 32 columns, their scaled sums of
/// codes and, with a norm, sums of squares, each padded to a multiple of four.
pub fn factor_words(columns: u64, norm: bool) -> u64 {
    columns.div_ceil(128) * if norm { 12 } else { 8 }
}
