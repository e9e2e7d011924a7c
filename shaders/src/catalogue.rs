//! The catalogue of built-in kernels: names, parameters, bindings and constants.
//!
//! All sizes, offsets and strides are in elements. A tensor `t` starts at `t_offset`; its last
//! dimension has stride 1 unless a stride is given. Parameters are 32-bit words in the listed
//! order: `f32` for [`F32_PARAMS`], else `u32`. A dispatch may launch more threads than needed:
//! kernels check indices. In a grid folded into x and y, the workgroup's index is
//! `wid.y * num_workgroups.x + wid.x`.
//!
//! Defines: `subgroup` needs subgroups (of at least 8 threads in the two `quantize_*` kernels).
//! `vec4` promises that `k` (`head_dim` of attention), offsets and strides of f32 inputs other than
//! small vectors are multiples of 4, and that bound ranges are multiples of 16 bytes.
//! Limits: `WG` is a power of two from 4 to 256; up to 1,024 in `matvec_prequant_*` with subgroups,
//! `matvec_mma_*`, `attn_subgroup`, `attn_split_kv_fused*` and `quantize_to_f16`. [`SUM_WORDS`],
//! [`TILE_SUM`] and [`MAX_HEAD_DIM`] bound the rest. A spec beyond them fails to compile.

use super::attention_variants::*;
use super::entry::shipped;
pub use super::entry::{has_units_of_32, reads_ahead, resident, subgroup_most, subgroup_needed};
pub use super::find::{family_formats, family_name, find};
pub use super::interface::interface;
use super::mixtures::{
    ARGSORT, ARGSORT_MERGE, DELTA_RULE, EXPERT_COOP, EXPERT_GROUPS, EXPERT_MATVEC, INTEGER_REDUCE,
    TAKE_ALONG, TOP_K,
};
use super::params::*;
pub use super::params::{
    BATCHED_TILE, F16_KV, F32_PARAMS, GATHER_COLUMNS, GATHER_GROUP, IN_ORDER, MAX_HEAD_DIM,
    MAX_MATVEC_ROWS, MAX_SPLIT_HEAD_DIM, MAX_SPLITS, POINT_GROUP, PREFILL_TOKENS, ROUND_THREADS,
    ROUNDED, SAMPLE_THREADS, SETTLED, SPREAD_SPLITS, SUM_WORDS, TILE_QUADS, TILE_SUM, TOKEN,
};
use super::spec::Access;

/// A kernel, or a family with one kernel per weight format.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Name of the kernel everywhere; `*` stands for a weight format.
    pub name: &'static str,
    /// What the kernel computes, on which shapes, and its grid; empty in a browser.
    pub doc: &'static str,
    /// Names of the words of the parameter block, in order.
    pub params: &'static [&'static str],
    /// Name and access of each storage buffer, in binding order.
    pub bindings: &'static [(&'static str, Access)],
    /// Constants that a spec may set, with their defaults; `WG` is the threads per workgroup.
    pub constants: &'static [(&'static str, u32)],
    /// Defines that a spec may set.
    pub defines: &'static [&'static str],
}

use Access::{Read, ReadWrite};

/// Returns the row of a reduction.
const fn reduction(name: &'static str) -> Entry {
    Entry {
        name,
        doc: REDUCE_DOC,
        params: REDUCE_PARAMS,
        bindings: UNARY_BINDINGS,
        constants: &[("WG", 128)],
        defines: &["subgroup"],
    }
}

/// All kernels.
pub static CATALOGUE: &[Entry] = &shipped::<{ ROWS.len() }>(ROWS);

const ROWS: &[Entry] = &[
    Entry {
        name: "matvec_*",
        doc: "y[i, r] = sum over c of w[r, c] * x[i, c], for few rows i; w is [n, k] packed, x [m, k], y [m, n]. A workgroup \
              computes ROWS rows of w for M rows of x: groups of w rows are folded over grid x and y, grid z is ceil(m / M). \
              ahead: the first weights are loaded before anything else is read.",
        params: LINEAR_PARAMS,
        bindings: LINEAR_BINDINGS,
        constants: &[("WG", 64), ("ROWS", 4), ("M", 1)],
        defines: &["subgroup", "vec4", "ahead"],
    },
    Entry {
        name: "matvec_int8_*",
        doc: "The product of matvec_* with rows of x rounded to 8 bits in blocks of 32 (base::ComputeMode::Int8), k at most \
              K, weights of packed formats. A workgroup quantises M rows of x and computes PASSES * ROWS rows of w: such \
              groups are folded over grid x and y, grid z is ceil(m / M). With subgroups, the weights of AHEAD iterations \
              over the columns are loaded at once.",
        params: LINEAR_PARAMS,
        bindings: LINEAR_BINDINGS,
        constants: &[("WG", 64), ("ROWS", 4), ("M", 1), ("PASSES", 1), ("K", 1024), ("AHEAD", 1)],
        defines: &["subgroup", "vec4"],
    },
    Entry {
        name: "quantize_activations",
        doc: "Rows of x [rows, k] rounded to 8 bits in blocks of 32 (base::ComputeMode::Int8): words of four values in the \
              order of a format's units (kernel::prequant), then ceil(k / 128) * 4 floats, the scale of each 32, then as \
              many, the scaled sum of each 32. One thread a block, with subgroups 8 lanes a block, with a norm a workgroup a \
              row; folded over grid x and y. tiles: eight rows interleaved, 16 words of every row for each 64 columns, then \
              for each 128 the floats of four even and four odd rows; k a multiple of 64, no planes.",
        params: &["rows", "k", "x_offset", "x_stride"],
        bindings: &[("x", Read), ("y", ReadWrite)],
        constants: &[("WG", 256), ("GROUPS", 1), ("RUN", 2), ("CHUNK", 1), ("APART", 0)],
        defines: &["subgroup", "vec4", "planes", "tiles"],
    },
    Entry {
        name: "matvec_prequant_*",
        doc: "The product of matvec_* with rows of x from quantize_activations or a quant epilogue (kernel::fusion), \
              x_stride words each; weights of packed formats. scaled: with the norm that was left out of them. TEAMS teams \
              of threads, none smaller than a subgroup, compute ROWS rows of w each; SUB is the smallest subgroup. headers \
              (q4_k, q5_k), eights (q6_kx8), trits (tq2_0), blocks (q4_0x8, q8_0x8): one row of x in planes of K columns, \
              four of w (trits: eight), subgroups of 32. several (those but tq2_0): eight rows of x in planes, four of w. \
              The grid: matvec_*'s.",
        params: PREQUANT_PARAMS,
        bindings: LINEAR_BINDINGS,
        constants: PREQUANT_CONSTANTS,
        defines: &["subgroup", "scaled", "headers", "eights", "trits", "blocks", "several"],
    },
    Entry {
        name: "matvec_mma_*",
        doc: "The product of matvec_prequant_* for 8 rows of x at a time, x quantised in tiles, k = K columns; scaled: with \
              the norm that was left out of them. TEAMS teams of threads compute 16 rows of w each: such groups are folded \
              over grid x and y, grid z is ceil(m / 8). Subgroups have 32 lanes.",
        params: PREQUANT_PARAMS,
        bindings: LINEAR_BINDINGS,
        constants: &[("WG", 128), ("TEAMS", 1), ("K", 2048)],
        defines: &["subgroup", "scaled"],
    },
    Entry {
        name: "fake_quantize",
        doc: "y[r, c] = x[r, c] rounded to 8 bits in blocks of 32 (base::ComputeMode::Int8); x [rows, cols] with a \
              row stride, y [rows, cols]. One thread for each block, workgroups folded over grid x and y.",
        params: &["rows", "cols", "x_offset", "x_stride", "y_offset"],
        bindings: &[("x", Read), ("y", ReadWrite)],
        constants: &[("WG", 64)],
        defines: &[],
    },
    Entry {
        name: "matmul_*",
        doc: "The same product for many rows i, by tiles through workgroup memory: BM x BN of y for \
              each workgroup, grid x = ceil(n / BN), y = ceil(m / BM).",
        params: LINEAR_PARAMS,
        bindings: LINEAR_BINDINGS,
        constants: &[("BM", 64), ("BN", 64)],
        defines: &["vec4"],
    },
    EXPERT_MATVEC,
    EXPERT_GROUPS,
    EXPERT_COOP,
    Entry {
        name: "quantize_to_f16",
        doc: "y[r, c] = x[r, c] rounded to 8 bits in blocks of 32 (base::ComputeMode::Int8), over factors[r], as f16; \
              factors[r] is a power of two, with a norm times its row scale; x [rows, k] with a row stride, y [k / 32, rows, \
              32], k a multiple of 32, at most K. halves: only rounded to f16 (base::ComputeMode::F16). plain: y is [rows, \
              k]. One workgroup a row, folded over grid x and y.",
        params: &["rows", "k", "x_offset", "x_stride"],
        bindings: &[("x", Read), ("y", ReadWrite), ("factors", ReadWrite)],
        constants: &[("WG", 256), ("K", 1024)],
        defines: &["halves", "plain", "subgroup", "vec4"],
    },
    Entry {
        name: "matmul_coop_*",
        doc: "y[i, r] = factors[i] * sum over c of w[r, c] * x[i, c] on cooperative matrices, w rounded to f16; w is [n, k] \
              packed, x f16 and factors [m] from quantize_to_f16 (x_stride is ignored), y [m, n]. A workgroup of WI x WJ \
              subgroups of SUB threads computes 16 WI TI x 32 WJ TH of y: grid x = groups of w rows, y = groups of x rows.",
        params: LINEAR_PARAMS,
        bindings: &[("w", Read), ("x", Read), ("factors", Read), ("y", ReadWrite)],
        constants: &[("TI", 4), ("TH", 2), ("WI", 2), ("WJ", 2), ("SUB", 32)],
        defines: &[],
    },
    Entry {
        name: "dequantize_to_f16_*",
        doc: "y[r, c] = w[r, c] as f16; w [n, k] packed or bf16, y [k / 32, n, 32], k a multiple of 32; plain: y is [n, k]. \
              A thread decodes 8, units: of each group of a unit, workgroups folded over grid x and y.",
        params: &["n", "k"],
        bindings: &[("w", Read), ("y", ReadWrite)],
        constants: &[("WG", 256)],
        defines: &["plain", "units"],
    },
    Entry {
        name: "matmul_f16_coop",
        doc: "y[i, r] = sum over c of w[r, c] * x[i, c] on cooperative matrices; w [n, k] f16 from dequantize_to_f16_*, \
              plain: row by row, x [m, k] f16 from quantize_to_f16, y f32 with room for complete tiles. WI x WJ subgroups of \
              SUB threads compute 16 WI TI x 16 WJ TJ of y: grid x = groups of w rows, y = groups of x rows, z = SPLITS, \
              parts of the columns, each with its own y. k is a multiple of 32 SPLITS STEPS.",
        params: &["m", "n", "k", "y_stride"],
        bindings: &[("w", Read), ("x", Read), ("y", ReadWrite)],
        constants: F16_CONSTANTS,
        defines: &["plain"],
    },
    Entry {
        name: "split_k_reduce",
        doc: "y[i, r] = factors[i] * sum over s of sums[s, i, r]; sums [SPLITS, m, n] with strides, factors [m], y [m, n]. A \
              workgroup computes 2 WG columns of ROWS rows: grid x = groups of columns, y = ceil(m / ROWS); with a quant \
              epilogue a row of K, folded (SUB: subgroup size, or 0).",
        params: &["m", "n", "y_offset", "y_stride", "sums_stride", "part_stride"],
        bindings: &[("sums", Read), ("factors", Read), ("y", ReadWrite)],
        constants: &[("WG", 256), ("ROWS", 4), ("SPLITS", 1), ("K", 1024), ("SUB", 0)],
        defines: &[],
    },
    Entry {
        name: "matmul_batched",
        doc: "y[b, i, j] = sum over c of a[b, i, c] * b[b, c, j], all strides free, y [batch, m, n] contiguous. 16 x 16 of y \
              a workgroup: grid x = ceil(n / 16), y = ceil(m / 16), z = batches or fewer, over which a workgroup strides.",
        params: BATCHED_PARAMS,
        bindings: BATCHED_BINDINGS,
        constants: &[],
        defines: &[],
    },
    Entry {
        name: "matmul_batched_tiled",
        doc: "The same for many rows and columns: 64 QM x 64 QN of y a workgroup, grid x = tiles along a row, y = down. \
              a_down, b_down: a column of a, of b, is contiguous in memory.",
        params: BATCHED_PARAMS,
        bindings: BATCHED_BINDINGS,
        constants: &[("QM", 2), ("QN", 2)],
        defines: &["a_down", "b_down"],
    },
    Entry {
        name: "matmul_batched_coop",
        doc: "The same for f16 on cooperative matrices, k a multiple of 32, other sizes of 4, y f32; f16_y: f16; \
              f16_accumulate also f16 sums. A workgroup computes 16 WI TI x 32 WJ TH of y, STEPS * 32 of k an iteration.",
        params: COOP_PARAMS,
        bindings: BATCHED_BINDINGS,
        constants: &[("TI", 4), ("TH", 2), ("WI", 2), ("WJ", 2), ("SUB", 32), ("STEPS", 1)],
        defines: &["f16_y", "f16_accumulate"],
    },
    Entry {
        name: "gather_rows_*",
        doc: "y[i, c] = table[ids[i], c]; table is [rows, cols] packed, y [count, cols]. An id outside \
              the table gives zeros. One workgroup for each (i, 256 columns): grid x = ceil(cols / 256), \
              y = count folded over y and z.",
        params: &["count", "rows", "cols", "ids_offset", "y_offset"],
        bindings: &[("table", Read), ("ids", Read), ("y", ReadWrite)],
        constants: &[],
        defines: &[],
    },
    Entry {
        name: "gather",
        doc: "y[o, j, i] = x[o, ids[j], i] for elements of 4 bytes; x is [outer, axis_len, inner], y \
              [outer, count, inner]. An id outside the axis gives zeros. One thread an element, groups of \
              256 folded over grid x and y.",
        params: &["outer", "axis_len", "inner", "count", "x_offset", "ids_offset", "y_offset"],
        bindings: &[("x", Read), ("ids", Read), ("y", ReadWrite)],
        constants: &[],
        defines: &[],
    },
    TAKE_ALONG,
    Entry {
        name: "scatter_rows",
        doc: "y[rows[i], c] = x[i, c] for words of 4 bytes; x [count, cols] with a row stride, rows [count] i32, y \
              [size, cols]. A row outside y is dropped. One workgroup for each (i, 256 columns): grid x = \
              ceil(cols / 256), y = count folded over y and z.",
        params: &["count", "size", "cols", "x_offset", "x_stride", "rows_offset", "y_offset"],
        bindings: &[("x", Read), ("rows", Read), ("y", ReadWrite)],
        constants: &[],
        defines: &[],
    },
    Entry {
        name: "index_add",
        doc: "y[n, c] = x[n, c] + the sum of source[i, c] over all i with ids[i] = n, in order; [rows, cols] and [count, \
              cols]. An id outside y is dropped. Grid x = ceil(cols / 256), y = rows folded over y and z.",
        params: &["rows", "cols", "count", "x_offset", "source_offset", "ids_offset", "y_offset"],
        bindings: &[("x", Read), ("source", Read), ("ids", Read), ("y", ReadWrite)],
        constants: &[],
        defines: &[],
    },
    Entry {
        name: "norm_rms",
        doc: "y[r, c] = x[r, c] / sqrt(mean over c of x^2 + eps) * weight[c]; y [rows, cols]. One workgroup a row, folded \
              over grid x and y.",
        params: &["rows", "cols", "x_offset", "x_stride", "w_offset", "y_offset", "eps"],
        bindings: &[("x", Read), ("weight", Read), ("y", ReadWrite)],
        constants: &[("WG", 128)],
        defines: &["subgroup"],
    },
    Entry {
        name: "norm_layer",
        doc: "y = (x - mean) / sqrt(variance + eps) * weight + bias over the last dimension; y [rows, \
              cols]. One workgroup for each row, folded over grid x and y.",
        params: &[
            "rows", "cols", "x_offset", "x_stride", "w_offset", "b_offset", "y_offset", "eps",
        ],
        bindings: &[("x", Read), ("weight", Read), ("bias", Read), ("y", ReadWrite)],
        constants: &[("WG", 128)],
        defines: &["subgroup"],
    },
    Entry {
        name: "softmax",
        doc: "y = exp(x - max) / sum over the last dimension; a row of -inf gives zeros. y [rows, cols]. One workgroup a \
              row, folded over grid x and y.",
        params: ROWS_PARAMS,
        bindings: UNARY_BINDINGS,
        constants: &[("WG", 128)],
        defines: &["subgroup"],
    },
    TOP_K,
    ARGSORT,
    ARGSORT_MERGE,
    INTEGER_REDUCE,
    Entry {
        name: "argmax",
        doc: "y[r] = index of the largest x[r, c], the lowest one of equals, as u32; NaN is larger than any number; token: \
              if the largest is not finite, the word of a sampling::NoToken. One workgroup a row, folded over grid x and y.",
        params: ROWS_PARAMS,
        bindings: UNARY_BINDINGS,
        constants: &[("WG", 256)],
        defines: &["subgroup", TOKEN],
    },
    Entry {
        name: "argmax_of",
        doc: "y[r] = index of the largest x[r, c], the lowest one of equals, among c = s * len + candidates[r, s], as u32: \
              reduces what argmax found in slices of len columns; token: as argmax. One workgroup a row, folded over grid x \
              and y.",
        params: &["rows", "slices", "len", "x_offset", "x_stride", "y_offset"],
        bindings: &[("x", Read), ("candidates", Read), ("y", ReadWrite)],
        constants: &[("WG", 64)],
        defines: &[TOKEN],
    },
    Entry {
        name: "sample",
        doc: "y[r] = an index drawn from the logits x[r, ..] as row r of draws says (sampling::SampleParams), as u32; \
              the word of a sampling::NoToken where none can be. x [rows, cols] with a row stride, draws [rows, 7], y [rows]. One \
              workgroup of 256 for each row, folded over grid x and y.",
        params: &["rows", "cols", "x_offset", "x_stride", "draws_offset", "y_offset"],
        bindings: &[("x", Read), ("draws", Read), ("y", ReadWrite)],
        constants: &[],
        defines: &[],
    },
    reduction("reduce_sum"),
    reduction("reduce_mean"),
    reduction("reduce_prod"),
    reduction("reduce_max"),
    reduction("reduce_min"),
    Entry {
        name: "rope_interleaved",
        doc: "Rotates pairs (2j, 2j+1) of the first rot_dim of each head by positions[t] * freqs[j] and \
              copies the rest; x [tokens, heads, head_dim] with strides, positions i32, y contiguous. One \
              thread a pair or a copied pair, groups of 64 folded over grid x and y.",
        params: ROPE_PARAMS,
        bindings: ROPE_BINDINGS,
        constants: &[],
        defines: &[],
    },
    Entry {
        name: "rope_half",
        doc: "The same for pairs (j, j + rot_dim / 2).",
        params: ROPE_PARAMS,
        bindings: ROPE_BINDINGS,
        constants: &[],
        defines: &[],
    },
    Entry {
        name: "attn_decode",
        doc: "y[t, h] = softmax over s of (q[t, h] . k[s, h / g] * scale) times v[s, h / g], g = heads / kv_heads; a key s \
              is visible if causal is 0 or s <= past + t, and window is 0 or s + window > past + t. A token without visible \
              keys gives zeros. A score s becomes soft_cap * tanh(s / soft_cap), unless soft_cap is 0. q [tokens, heads, \
              head_dim], k and v [kv_len, kv_heads, head_dim], all strided, y [tokens, heads, head_dim] contiguous; f16_kv: k and v are f16, two in a word. For few tokens: one workgroup a head \
              (grid x) and token (grid y), threads over keys, online softmax.",
        params: ATTN_CAPPED_PARAMS,
        bindings: ATTN_BINDINGS,
        constants: &[("WG", 64), ("HEAD_DIM", 64)],
        defines: &[F16_KV, "subgroup", "vec4"],
    },
    Entry {
        name: "attn_subgroup",
        doc: "attn_decode with lanes that share a key, subgroups of 32: q, k and v at multiples of 16 bytes, heads of 32, \
              64, 128 or (k and v of f16) 256 elements. AT_ONCE reads of keys are in flight in a subgroup. Grid: \
              attn_decode's.",
        params: ATTN_PARAMS,
        bindings: ATTN_BINDINGS,
        constants: &[("WG", 128), ("HEAD_DIM", 64), ("AT_ONCE", 4)],
        defines: &[F16_KV, "subgroup"],
    },
    Entry {
        name: "attn_prefill",
        doc: "The same for many tokens: one workgroup a head (grid x) and 64 tokens (grid y), tiles of keys and values in \
              workgroup memory, online softmax.",
        params: ATTN_CAPPED_PARAMS,
        bindings: ATTN_BINDINGS,
        constants: &[("HEAD_DIM", 64)],
        defines: &[F16_KV],
    },
    Entry {
        name: "attn_coop",
        doc: "The same on cooperative matrices: k and v are f16, HEAD_DIM is a multiple of 16 up to 128, offsets and strides \
              are multiples of 4. q is rounded to f16, each row scaled by a power of two, as are the weights exp(score - \
              largest), also in their sum. KEYS keys at a time, SUB threads in a subgroup.",
        params: ATTN_PARAMS,
        bindings: ATTN_BINDINGS,
        constants: &[("HEAD_DIM", 64), ("KEYS", 32), ("SUB", 32)],
        defines: &[],
    },
    Entry {
        name: "attn_split_kv_fused",
        doc: "attn_subgroup with the keys of a token split as by attn_split_kv, in one launch: partial results go to part, \
              which no other kernel reads, and the workgroup with the last ticket reduces them. Tickets are zero before and \
              after, one a token and workgroup of grid x: up to HEADS query heads of a kv head; grid y tokens, grid z \
              slices, at most 16. storageBarrier must order device memory.",
        params: ATTN_SPLIT_KV_FUSED_PARAMS,
        bindings: ATTN_SPLIT_KV_FUSED_BINDINGS,
        constants: &[("WG", 128), ("HEAD_DIM", 64), ("HEADS", 2), ("AT_ONCE", 4)],
        defines: &[F16_KV, SETTLED, "subgroup"],
    },
    Entry {
        name: "attn_split_kv",
        doc: "The first pass of the same for few tokens and many keys. The visible keys are split into at most `splits` \
              slices of a multiple of `granule` keys; for each slice s with keys part[t, h, s] = sum of w times v, w = \
              exp(score - m), m the largest score of the slice. part [tokens, heads, splits, head_dim], then pairs (m, sum \
              of w) [tokens, heads, splits, 2]. One workgroup for up to HEADS query heads of a kv head (grid x), a token \
              (grid y) and a slice (grid z).",
        params: ATTN_SPLIT_KV_PARAMS,
        bindings: &[("q", Read), ("k", Read), ("v", Read), ("part", ReadWrite)],
        constants: &[("WG", 64), ("HEAD_DIM", 64), ("HEADS", 4)],
        defines: &[F16_KV, "vec4"],
    },
    Entry {
        name: "attn_split_kv_reduce",
        doc: "The second pass: y[t, h] from the partial results of attn_split_kv, each slice weighted by exp(m - largest m) \
              over the sum of weights; splits is at most 64. y [tokens, heads, head_dim] contiguous. One workgroup a head \
              (grid x) and token (grid y).",
        params: ATTN_SPLIT_KV_REDUCE_PARAMS,
        bindings: &[("part", Read), ("y", ReadWrite)],
        constants: &[("WG", 64), ("HEAD_DIM", 64)],
        defines: &[],
    },
    ATTN_DECODE_SPANS,
    ATTN_SUBGROUP_SPANS,
    ATTN_SPLIT_KV_FUSED_SPANS,
    ATTN_SPLIT_KV_SPANS,
    ATTN_SPLIT_KV_REDUCE_SPANS,
    ATTN_DECODE_SINKS,
    ATTN_DECODE_SPANS_SINKS,
    ATTN_PREFILL_SINKS,
    DELTA_RULE,
    Entry {
        name: "conv2d",
        doc: "y[b, o, i, j] = sum over c, u, v of w[o, c, u, v] * x[b, group * in_c / groups + c, i * \
              stride_h - pad_top + u * dilation_h, ..]; x [batch, in_c, in_h, in_w], w [out_c, in_c / \
              groups, kernel_h, kernel_w], y [batch, out_c, out_h, out_w], zeros outside x. One thread an \
              output, groups of 64 folded over grid x and y.",
        params: CONV_PARAMS,
        bindings: &[("x", Read), ("w", Read), ("y", ReadWrite)],
        constants: &[],
        defines: &[],
    },
    Entry {
        name: "pool2d_max",
        doc: "Largest x under the window; a window entirely outside gives -inf (the lowest f32). One thread an output, \
              groups of 64 folded over grid x and y.",
        params: POOL_PARAMS,
        bindings: UNARY_BINDINGS,
        constants: &[],
        defines: &[],
    },
    Entry {
        name: "pool2d_avg",
        doc: "Mean of x under the window, over all positions of the kernel if count_pad is 1, over those inside x if it is \
              0. One thread an output, groups of 64 folded over grid x and y.",
        params: POOL_PARAMS,
        bindings: UNARY_BINDINGS,
        constants: &[],
        defines: &[],
    },
];
