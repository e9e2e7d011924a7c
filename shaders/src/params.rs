//! Parameters and bindings shared by catalogue rows.

use super::spec::Access::{self, Read, ReadWrite};

/// Maximum number of rows of x per workgroup of a `matvec_*` (`M`); more rows need several layers
/// of grid z, or a `matmul_*`.
pub const MAX_MATVEC_ROWS: u32 = 8;
/// Upper bound on `WG * ROWS * M` of a `matvec_*` without subgroups, in words of workgroup memory.
/// A fused norm needs `WG * M` more.
pub const SUM_WORDS: u32 = 4096;
/// Number of neighbouring threads that round a block of columns together in `quantize_activations`.
pub const ROUND_THREADS: u32 = 8;
/// Upper bound on `BM + BN` of a `matmul_*`; each is a multiple of 16.
pub const TILE_SUM: u32 = 204;
/// Define of the attention kernels: keys and values are f16.
pub const F16_KV: &str = "f16_kv";
/// Define for a fixed reduction order: a result's bits depend only on its inputs. Only some CPU
/// kernels have it (products, attention, reductions); others keep the order for equal constants.
pub const IN_ORDER: &str = "in_order";
/// Define of `expert_matvec_*` on the CPU: rows of x are rounded to 8 bits.
pub const ROUNDED: &str = "rounded";
/// Define of the argmax kernels: the result is a token, or encodes why the logits yield none.
pub const TOKEN: &str = "token";
/// Parameters that hold the bits of an `f32`.
pub const F32_PARAMS: [&str; 3] = ["eps", "scale", "soft_cap"];
/// Largest `HEAD_DIM` of the attention kernels with one pass over the keys.
pub const MAX_HEAD_DIM: u32 = 512;
/// Largest `HEAD_DIM` of those that split the keys.
pub const MAX_SPLIT_HEAD_DIM: u32 = 256;
/// Maximum number of key slices in `attn_split_kv_fused`: the merging workgroup reads the results
/// of all slices at once.
pub const SPREAD_SPLITS: u32 = 16;
/// Define of `attn_split_kv_fused`: rows of keys and values before `past` are from earlier runs, so
/// they may be read before earlier launches complete.
pub const SETTLED: &str = "settled";
/// Maximum number of key slices that `attn_split_kv_reduce` merges.
pub const MAX_SPLITS: u32 = 64;
/// Tokens per workgroup of `attn_prefill` and `attn_coop`.
pub const PREFILL_TOKENS: u32 = 64;
/// Columns per workgroup of `gather_rows_*`, `scatter_rows` and `index_add`.
pub const GATHER_COLUMNS: u32 = 256;
/// Elements per workgroup of `gather` and `take_along`.
pub const GATHER_GROUP: u32 = 256;
/// Outputs (pairs, for `rope_*`) per workgroup of `rope_*`, `conv2d` and `pool2d_*`.
pub const POINT_GROUP: u32 = 64;
/// Threads per workgroup of `sample`; a workgroup computes one row.
pub const SAMPLE_THREADS: u32 = 256;
/// Rows and columns of y per workgroup of `matmul_batched`.
pub const BATCHED_TILE: u32 = 16;

/// Rows of y per unit of `QM`, and columns per unit of `QN`, in `matmul_batched_tiled`.
pub const TILE_QUADS: u32 = 64;

pub(super) const BATCHED_PARAMS: &[&str] = &[
    "batch",
    "m",
    "n",
    "k",
    "a_offset",
    "a_batch_stride",
    "a_row_stride",
    "a_col_stride",
    "b_offset",
    "b_batch_stride",
    "b_row_stride",
    "b_col_stride",
    "y_offset",
];
/// Parameters of products whose operands and result have contiguous rows.
pub(super) const COOP_PARAMS: &[&str] = &[
    "batch",
    "m",
    "n",
    "k",
    "a_offset",
    "a_batch_stride",
    "a_row_stride",
    "b_offset",
    "b_batch_stride",
    "b_row_stride",
    "y_offset",
    "y_batch_stride",
    "y_row_stride",
];
pub(super) const BATCHED_BINDINGS: &[(&str, Access)] =
    &[("a", Read), ("b", Read), ("y", ReadWrite)];
pub(super) const LINEAR_PARAMS: &[&str] =
    &["m", "n", "k", "x_offset", "x_stride", "y_offset", "y_stride"];
/// Parameters of products with quantised rows: `x_factors` is the offset of row 0's factors, `eps`
/// the norm's epsilon.
pub(super) const PREQUANT_PARAMS: &[&str] =
    &["m", "n", "k", "x_offset", "x_stride", "x_factors", "y_offset", "y_stride", "eps"];
pub(super) const PREQUANT_CONSTANTS: &[(&str, u32)] =
    &[("WG", 64), ("ROWS", 4), ("M", 1), ("TEAMS", 1), ("SUB", 4), ("K", 1024), ("UNROLL", 1)];
pub(super) const F16_CONSTANTS: &[(&str, u32)] =
    &[("TI", 4), ("TJ", 4), ("WI", 2), ("WJ", 2), ("SUB", 32), ("STEPS", 1), ("SPLITS", 1)];
pub(super) const LINEAR_BINDINGS: &[(&str, Access)] = &[("w", Read), ("x", Read), ("y", ReadWrite)];
pub(super) const ROWS_PARAMS: &[&str] = &["rows", "cols", "x_offset", "x_stride", "y_offset"];
pub(super) const UNARY_BINDINGS: &[(&str, Access)] = &[("x", Read), ("y", ReadWrite)];
pub(super) const REDUCE_PARAMS: &[&str] = &["outer", "len", "inner", "x_offset", "y_offset"];
pub(super) const ROPE_PARAMS: &[&str] = &[
    "tokens",
    "heads",
    "head_dim",
    "rot_dim",
    "x_offset",
    "x_token_stride",
    "x_head_stride",
    "pos_offset",
    "freq_offset",
    "y_offset",
];
pub(super) const ROPE_BINDINGS: &[(&str, Access)] =
    &[("x", Read), ("positions", Read), ("freqs", Read), ("y", ReadWrite)];

/// Lists the parameters of attention: sizes, token positions, extra words of `attn_split_kv`,
/// offsets and strides of q, k and v, and the rest.
macro_rules! attention_params {
    ($place:literal, [$($cut:literal),*], [$($rest:literal),*]) => {
        &[
            "tokens",
            "heads",
            "kv_heads",
            "head_dim",
            "kv_len",
            $place,
            "window",
            "causal",
            $($cut,)*
            "q_offset",
            "q_token_stride",
            "q_head_stride",
            "k_offset",
            "k_token_stride",
            "k_head_stride",
            "v_offset",
            "v_token_stride",
            "v_head_stride",
            $($rest,)*
        ]
    };
}

/// Lists the parameters of `attn_split_kv_reduce`.
macro_rules! combine_params {
    ($place:literal) => {
        &[
            "tokens", "heads", "head_dim", "kv_len", $place, "window", "causal", "splits",
            "granule", "y_offset",
        ]
    };
}

// `past`: tokens are consecutive from this key; `spans_offset`: each is at the end of its span.
pub(super) const ATTN_PARAMS: &[&str] = attention_params!("past", [], ["y_offset", "scale"]);
pub(super) const ATTN_SPANS_PARAMS: &[&str] =
    attention_params!("spans_offset", [], ["y_offset", "scale"]);
pub(super) const ATTN_CAPPED_PARAMS: &[&str] =
    attention_params!("past", [], ["y_offset", "scale", "soft_cap"]);
pub(super) const ATTN_CAPPED_SPANS_PARAMS: &[&str] =
    attention_params!("spans_offset", [], ["y_offset", "scale", "soft_cap"]);
pub(super) const ATTN_SINKS_PARAMS: &[&str] =
    attention_params!("past", [], ["y_offset", "scale", "soft_cap", "sinks_offset"]);
pub(super) const ATTN_SPANS_SINKS_PARAMS: &[&str] =
    attention_params!("spans_offset", [], ["y_offset", "scale", "soft_cap", "sinks_offset"]);
pub(super) const ATTN_SPLIT_KV_PARAMS: &[&str] =
    attention_params!("past", ["splits", "granule"], ["scale"]);
pub(super) const ATTN_SPLIT_KV_SPANS_PARAMS: &[&str] =
    attention_params!("spans_offset", ["splits", "granule"], ["scale"]);
pub(super) const ATTN_SPLIT_KV_REDUCE_PARAMS: &[&str] = combine_params!("past");
pub(super) const ATTN_SPLIT_KV_REDUCE_SPANS_PARAMS: &[&str] = combine_params!("spans_offset");
pub(super) const ATTN_SPLIT_KV_FUSED_PARAMS: &[&str] =
    attention_params!("past", ["splits", "granule"], ["y_offset", "scale"]);
pub(super) const ATTN_SPLIT_KV_FUSED_SPANS_PARAMS: &[&str] =
    attention_params!("spans_offset", ["splits", "granule"], ["y_offset", "scale"]);
pub(super) const ATTN_BINDINGS: &[(&str, Access)] =
    &[("q", Read), ("k", Read), ("v", Read), ("y", ReadWrite)];
pub(super) const ATTN_SPANS_BINDINGS: &[(&str, Access)] =
    &[("q", Read), ("k", Read), ("v", Read), ("spans", Read), ("y", ReadWrite)];
pub(super) const ATTN_SINKS_BINDINGS: &[(&str, Access)] =
    &[("q", Read), ("k", Read), ("v", Read), ("sinks", Read), ("y", ReadWrite)];
pub(super) const ATTN_SPANS_SINKS_BINDINGS: &[(&str, Access)] =
    &[("q", Read), ("k", Read), ("v", Read), ("spans", Read), ("sinks", Read), ("y", ReadWrite)];
// Scratch comes before the output, which is the last.
pub(super) const ATTN_SPLIT_KV_FUSED_BINDINGS: &[(&str, Access)] = &[
    ("q", Read),
    ("k", Read),
    ("v", Read),
    ("part", ReadWrite),
    ("tickets", ReadWrite),
    ("y", ReadWrite),
];
pub(super) const ATTN_SPLIT_KV_FUSED_SPANS_BINDINGS: &[(&str, Access)] = &[
    ("q", Read),
    ("k", Read),
    ("v", Read),
    ("part", ReadWrite),
    ("tickets", ReadWrite),
    ("spans", Read),
    ("y", ReadWrite),
];
pub(super) const CONV_PARAMS: &[&str] = &[
    "batch",
    "in_c",
    "in_h",
    "in_w",
    "out_c",
    "out_h",
    "out_w",
    "kernel_h",
    "kernel_w",
    "stride_h",
    "stride_w",
    "pad_top",
    "pad_left",
    "dilation_h",
    "dilation_w",
    "groups",
    "x_offset",
    "w_offset",
    "y_offset",
];
pub(super) const POOL_PARAMS: &[&str] = &[
    "batch",
    "channels",
    "in_h",
    "in_w",
    "out_h",
    "out_w",
    "kernel_h",
    "kernel_w",
    "stride_h",
    "stride_w",
    "pad_top",
    "pad_left",
    "dilation_h",
    "dilation_w",
    "count_pad",
    "x_offset",
    "y_offset",
];
pub(super) const REDUCE_DOC: &str = "y[o, i] = reduce over j of x[o, j, i]; x is [outer, len, inner]. \
    One workgroup for each (o, i), folded over grid x and y.";
