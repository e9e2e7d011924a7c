//! Tiling of GEMM and GEMV: threads and rows per workgroup, tile sizes, prefetch distance.

use super::quantized::{Family, Linear, Rounding};
use crate::base::Format;
use crate::engine::Query;
use crate::engine::attention::single_pass::units;
use crate::engine::gemm::operands::{of_few_rows, sizes, tile_rows};
use crate::engine::gemm::prequantized::{LONG_ROW, unit_columns};
use crate::engine::knobs::{Knob, powers};
use crate::kernel::catalogue;
use crate::provider::DeviceKind;

/// Maximum rows of w per workgroup of `matvec_*`; each needs an accumulator in registers.
const MOST_ROWS: u32 = 8;
/// Maximum rows or columns of a tile.
const MOST_TILE: u32 = 128;
/// Maximum words of accumulators per workgroup that also keeps quantised rows; a norm takes at most
/// half as many again.
const ROUNDED_SUM_WORDS: u32 = 2048;
/// Maximum groups of rows of w per workgroup, which quantises x once for all of them.
const MOST_PASSES: u32 = 16;
/// Columns of the shortest unit, which has two words of weights.
const SHORT_UNIT: u32 = 8;
/// Maximum words of weights that a thread has in flight. Measured on an H200 through CUDA with
/// Qwen2.5-0.5B: 2,249 tokens/s, against 2,023 with half as many words.
const AHEAD_WORDS: u32 = 64;
/// Maximum iterations in flight; each also keeps its part of x in registers.
const MOST_TURNS: u32 = 8;
/// Workgroups that a compute unit runs at once (occupancy).
const WAVES: u64 = 4;

impl Linear {
    /// Returns whether GEMV for one row is tiled for overlapping launches, so that it loads weights
    /// while the previous kernel still runs. Measured on an H200 through CUDA, in tokens/s with and
    /// without: Llama-3.2-1B in F16 1,158 and 1,119, Qwen2.5-0.5B in Q4_0 2,290 and 1,983,
    /// SmolLM2-135M in Q4_1 2,400 and 2,234. Through Vulkan it was 5 to 10 % slower.
    pub(in crate::engine) fn asks_ahead(&self, query: &Query) -> bool {
        let measured = match self.rounding {
            Rounding::Inside => unit_columns(self.format) == SHORT_UNIT,
            _ => !self.format.is_quantised(),
        };
        let one = self.subgroup && upper_rows(query) == 1;
        measured && one && !query.deterministic && query.profile.has_launch_overlap
    }

    /// Returns whether a workgroup quantises a single, short row of x for Q8_0x2 weights.
    pub(in crate::engine) fn rounds_short_rows(&self, query: &Query) -> bool {
        self.format == Format::Q8_0x2
            && (columns(query) as f64) < LONG_ROW
            && upper_rows(query) == 1
    }

    /// Returns the number of iterations whose weights a thread prefetches while it quantises x, at
    /// `threads` threads and `rows` rows of w per workgroup.
    pub(in crate::engine) fn ahead(&self, query: &Query, threads: u32, rows: u32) -> u32 {
        let alone = self.rows_at_once(query) == 1;
        if !alone || query.profile.kind == DeviceKind::Software {
            return 1;
        }
        let unit = unit_columns(self.format);
        let turns = (columns(query).div_ceil(u64::from(unit)) as u32).div_ceil(threads).max(1);
        let words = if unit == SHORT_UNIT { 2 } else { 8 };
        let most = (AHEAD_WORDS / (rows * words)).clamp(1, MOST_TURNS);
        // As few rounds as that takes, as even as possible.
        turns.div_ceil(turns.div_ceil(most))
    }

    /// Returns the threads, rows of w and passes of a workgroup; for tiled GEMM, the rows and
    /// columns of a tile, and 1.
    pub(in crate::engine) fn cut(&self, query: &Query) -> [u32; 3] {
        self.knobs_of(query).map(|knob| knob.value(query.knobs))
    }

    pub(in crate::engine) fn knobs_of(&self, query: &Query) -> [Knob; 3] {
        let m = upper_rows(query);
        let n = query.operands.get(1).and_then(|w| query.upper(&w.shape[0]).ok()).unwrap_or(1);
        // Both products of an evaluation belong to one thread and one workgroup.
        let pairs = query.fusion.is_some_and(|a| a.segments.iter().any(|s| s.anchors == 2));
        if self.family == Family::MatMul {
            let tiles = |most: u32| (1..=most.min(MOST_TILE) / 16).map(|i| 16 * i);
            let rows = tile_rows(query.profile, m, n);
            let rows = Knob::new("tile_m", "rows of x of a tile", tiles(MOST_TILE), rows);
            let left = catalogue::TILE_SUM - rows.value(query.knobs).min(MOST_TILE);
            let wide = tiles(left).filter(|columns| !pairs || columns % 32 == 0);
            let columns = Knob::new("tile_n", "rows of the weight of a tile", wide, 64);
            return [rows, columns, Knob::new("passes", "always one", [1], 1)];
        }
        // Measured on an H200: few rows need more threads each, many rows fewer. Deterministic
        // mode: the choice may not depend on n, since products of one x may be merged.
        let small = n <= 4096 || query.deterministic;
        // Tuned on an H200 through Vulkan: saves 6 % of the time of `down` of Qwen2.5-0.5B in Q4_0,
        // and 7 % of that of SmolLM2-135M in Q4_1. With two evaluations per workgroup for gate and
        // up, the latter generates 1,452 tokens/s instead of 1,430.
        let short = self.rounding == Rounding::Inside
            && unit_columns(self.format) == SHORT_UNIT
            && self.subgroup
            && m == 1
            && !query.deterministic;
        let few = short && columns(query) > n;
        let (threads, rows) = match (self.asks_ahead(query), self.rounding) {
            (true, Rounding::Inside) => (128, if small { 4 } else { 8 }),
            (true, _) => (if small { 256 } else { 128 }, 4),
            _ if few => (256, 2),
            _ if small && pairs && short && n > 2048 => (128, 4),
            _ if small => (128, 2),
            _ => (64, 4),
        };
        let (threads, rows) = of_few_rows(query.profile, (threads, rows), self.rows_at_once(query));
        let most = query.profile.max_threads_per_workgroup.min(256);
        let threads =
            Knob::new("threads", "threads of a workgroup", powers(32, most), threads.min(most));
        let each = threads.value(query.knobs).clamp(1, 256) * self.rows_at_once(query).max(1);
        let words = if self.holds_rows() { ROUNDED_SUM_WORDS } else { catalogue::SUM_WORDS };
        let most = (words / each).clamp(1, MOST_ROWS);
        let rows = Knob::new(
            "rows",
            "rows of the weight that a workgroup computes",
            powers(if pairs { 2 } else { 1 }, most),
            rows.min(most),
        );
        let most = if self.holds_rows() { MOST_PASSES } else { 1 };
        // Not more workgroups than the device runs at once.
        let groups = n.div_ceil(u64::from(rows.value(query.knobs).max(1)));
        let wanted = groups / (WAVES * units(query.profile) as u64);
        let wanted = wanted.clamp(1, u64::from(most)) as u32;
        let passes = "groups of rows that a workgroup computes";
        let passes = Knob::new("passes", passes, powers(1, most), wanted.next_power_of_two());
        [threads, rows, passes]
    }
}

/// Returns the columns of x.
pub(in crate::engine) fn columns(query: &Query) -> u64 {
    query.operands.get(1).and_then(|w| query.upper(&w.shape[1]).ok()).unwrap_or(0)
}

/// Returns the size in bytes of a quantised row of x in workgroup memory: one byte per column, and
/// a scale and a maximum of four bytes each per 32 columns.
pub(in crate::engine) fn rounded_bytes(query: &Query) -> u64 {
    columns(query) + columns(query) / 4
}

/// Returns the size in bytes of the workgroup memory that remains for quantised rows after the
/// accumulators of every thread and of the norm.
pub(in crate::engine) fn room_for_rows(query: &Query) -> u64 {
    let sums = 6 * u64::from(ROUNDED_SUM_WORDS);
    u64::from(query.profile.workgroup_memory_bytes).saturating_sub(sums)
}

/// Returns the rows of x at the upper end of the shape class.
pub(in crate::engine) fn upper_rows(query: &Query) -> u64 {
    sizes(query).map_or(1, |(m, ..)| m as u64)
}
