//! How rows of x lie that are rounded for products of few rows (`round_codes`, `matvec_codes_*`).

use serde::{Deserialize, Serialize};

/// Columns of a step of planes.
pub const PLANE_COLUMNS: u64 = 1024;
/// Words of a step of planes: codes, and four words for each of 32 lanes.
pub const PLANE_WORDS: u64 = PLANE_COLUMNS / 4 + 128;

/// Rows of x that lie together for tiles.
pub const TILE_ROWS: u64 = 8;

/// The order in which the units of a weight's format (`dequant_*`) meet the codes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CodeOrder {
    /// Groups of a unit.
    pub groups: u32,
    /// Parts of four columns of a group.
    pub run: u32,
    /// How many of those are neighbours.
    pub chunk: u32,
    /// Whether neighbouring units lie part by part (`codes_place`): 32 of two groups of four neighbours, with what each
    /// lane wants of them behind all codes, or eight of four groups of two.
    pub planes: bool,
    /// Whether eight rows lie together, with what goes along, as `matvec_tiles_*` meets them (`codes_place`).
    pub tiles: bool,
}

impl CodeOrder {
    /// Words of the codes of so many columns, a multiple of 32.
    pub fn words(self, columns: u64) -> u64 {
        match self.goes_along() {
            true => columns.div_ceil(PLANE_COLUMNS) * PLANE_WORDS,
            false => columns / 4,
        }
    }

    /// Whether what each lane wants lies behind all codes.
    pub fn goes_along(self) -> bool {
        self.planes && self.groups == 2
    }

    /// Whether units like that exist.
    pub fn is_known(self) -> bool {
        let CodeOrder { groups, run, chunk, planes, tiles } = self;
        let known = matches!(groups, 1 | 2 | 4) && matches!(run, 2 | 4);
        let paired = matches!([groups, run, chunk], [2, 4, 4] | [4, 2, 2]);
        let tiled = [groups, run] == [2, 2] && !planes;
        let whole = chunk > 0 && run.is_multiple_of(chunk);
        known && whole && (paired || !planes) && (tiled || !tiles)
    }

    /// Rows that lie together.
    pub fn rows(self) -> u64 {
        if self.tiles { TILE_ROWS } else { 1 }
    }
}

/// Words of a row of `columns` behind its codes: what codes of each 32 columns stand for, what they add up to, and with
/// a norm the sum of their squares, each filled up to whole fours.
pub fn factor_words(columns: u64, norm: bool) -> u64 {
    columns.div_ceil(128) * if norm { 12 } else { 8 }
}
