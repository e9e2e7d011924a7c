//! Layouts of quantised activations for GEMV (`quantize_activations`, `matvec_prequant_*`).

use serde::{Deserialize, Serialize};

/// Number of columns after which the plane layout repeats.
pub const PLANE_COLUMNS: u64 = 1024;
/// Number of words for [`PLANE_COLUMNS`] columns: the quantised values, and four words for each of
/// 32 lanes.
pub const PLANE_WORDS: u64 = PLANE_COLUMNS / 4 + 128;

/// Number of rows of x that tiles interleave.
pub const TILE_ROWS: u64 = 8;

/// The order in which the units of a weight's format (`dequant_*`) use the values of a quantised
/// row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CodeOrder {
    /// Number of groups in a unit.
    pub groups: u32,
    /// Number of parts in a group; a part is four columns, and its values are one word.
    pub run: u32,
    /// Number of parts of a group that are neighbours in the row.
    pub chunk: u32,
    /// Whether neighbouring units are interleaved (`prequant_layout`): 32 units of two groups of
    /// four neighbours, with per-lane factors after all values, or eight units of four groups of
    /// two.
    pub planes: bool,
    /// Whether eight rows and their factors are interleaved for `matvec_mma_*` (`prequant_layout`).
    pub tiles: bool,
}

impl CodeOrder {
    /// Returns the number of words for the values of `columns` columns, with any per-lane factors.
    /// `columns` is a multiple of 32.
    pub fn words(self, columns: u64) -> u64 {
        match self.goes_along() {
            true => columns.div_ceil(PLANE_COLUMNS) * PLANE_WORDS,
            false => columns / 4,
        }
    }

    /// Returns whether per-lane factors follow the values.
    pub fn goes_along(self) -> bool {
        self.planes && self.groups == 2
    }

    /// Returns whether kernels exist for units of this order.
    pub fn is_known(self) -> bool {
        let CodeOrder { groups, run, chunk, planes, tiles } = self;
        let known = matches!(groups, 1 | 2 | 4) && matches!(run, 2 | 4);
        let paired = matches!([groups, run, chunk], [2, 4, 4] | [4, 2, 2]);
        let tiled = [groups, run] == [2, 2] && !planes;
        let whole = chunk > 0 && run.is_multiple_of(chunk);
        known && whole && (paired || !planes) && (tiled || !tiles)
    }

    /// Returns the number of interleaved rows.
    pub fn rows(self) -> u64 {
        if self.tiles { TILE_ROWS } else { 1 }
    }
}

/// Returns the number of words that follow the values of a row of `columns` columns: for each 32
/// columns a scale, a scaled sum of values and, with a norm, a sum of squares. Each of the three
/// lists is padded to a multiple of four words.
pub fn factor_words(columns: u64, norm: bool) -> u64 {
    columns.div_ceil(128) * if norm { 12 } else { 8 }
}
