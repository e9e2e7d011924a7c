//! Catalogue rows of mixtures of experts and of recurrent layers.

use super::catalogue::Entry;
use super::params::UNARY_BINDINGS;
use super::spec::Access::{self, Read, ReadWrite};

const DELTA_PARAMS: &[&str] = &[
    "sequences",
    "tokens",
    "key_heads",
    "heads",
    "dk",
    "dv",
    "q_offset",
    "k_offset",
    "v_offset",
    "decay_offset",
    "beta_offset",
    "state_offset",
    "y_offset",
];
const DELTA_BINDINGS: &[(&str, Access)] = &[
    ("q", Read),
    ("k", Read),
    ("v", Read),
    ("decay", Read),
    ("beta", Read),
    ("state", Read),
    ("y", ReadWrite),
];
const EXPERT_PARAMS: &[&str] = &[
    "pairs",
    "share",
    "first",
    "count",
    "total",
    "n",
    "k",
    "x_offset",
    "x_stride",
    "ids_offset",
    "y_offset",
];
const EXPERT_BINDINGS: &[(&str, Access)] =
    &[("w", Read), ("x", Read), ("ids", Read), ("y", ReadWrite)];

pub(super) const EXPERT_MATVEC: Entry = Entry {
    name: "expert_matvec_*",
    doc: "y[p, r] = sum over c of w[ids[p], r, c] * x[p / share, c]; w is [count, n, k] packed, experts first .. first + \
          count of total, x [pairs / share, k], ids [pairs] i32, y [pairs, n]. Ids of other experts write nothing, ids \
          from total on zeros, if first is 0. A workgroup computes ROWS rows of w for one pair: grid x = \
          ceil(n / ROWS), y = pairs folded over y and z. On the CPU, rounded: rows of x are rounded as by matvec_int8_*.",
    params: EXPERT_PARAMS,
    bindings: EXPERT_BINDINGS,
    constants: &[("WG", 64), ("ROWS", 4)],
    defines: &["subgroup", "vec4"],
};

pub(super) const EXPERT_GROUPS: Entry = Entry {
    name: "expert_groups",
    doc: "Sorts pairs of a token and an expert by expert: order [pairs] u32, tiles [tiles, 4] u32 of (expert, first, end, \
          0): order[first .. end] are up to ROWS pairs of the expert. ids [pairs] i32; those from EXPERTS - 1 on are that \
          expert. tiles is at least ceil(pairs / ROWS) + EXPERTS; those past the last have no pairs. One workgroup.",
    params: &["pairs", "tiles", "ids_offset"],
    bindings: &[("ids", Read), ("order", ReadWrite), ("tiles", ReadWrite)],
    constants: &[("WG", 256), ("EXPERTS", 128), ("ROWS", 32)],
    defines: &[],
};

pub(super) const EXPERT_COOP: Entry = Entry {
    name: "expert_coop_*",
    doc: "y[p, r] = factors[p / share] * sum over c of w[ids[p], r, c] * x[p / share, c] on cooperative matrices, w rounded \
          to f16; w is [count, n, k] packed, experts first .. first + count of total; x f16 [m, k] and factors [m] from \
          quantize_to_f16; order and tiles from expert_groups of ROWS = 16 WI TI and EXPERTS = total + 1; y [pairs, n]. Tiles \
          of other experts write nothing, those of expert `total` zeros, if first is 0. Grid x = groups of 32 WJ TH rows of \
          w, y = tiles.",
    params: &["m", "n", "k", "share", "first", "count", "total", "y_offset"],
    bindings: &[
        ("w", Read),
        ("x", Read),
        ("factors", Read),
        ("order", Read),
        ("tiles", Read),
        ("y", ReadWrite),
    ],
    constants: &[("TI", 4), ("TH", 2), ("WI", 2), ("WJ", 2), ("SUB", 32)],
    defines: &[],
};

pub(super) const TAKE_ALONG: Entry = Entry {
    name: "take_along",
    doc: "y[r, j] = x[r, ids[r, j]] for elements of 4 bytes; x is [rows, cols], ids and y [rows, count]. An id outside \
          the row gives zero. One thread an element, groups of 256 folded over grid x and y.",
    params: &["rows", "cols", "count", "x_offset", "ids_offset", "y_offset"],
    bindings: &[("x", Read), ("ids", Read), ("y", ReadWrite)],
    constants: &[],
    defines: &[],
};

pub(super) const TOP_K: Entry = Entry {
    name: "top_k",
    doc: "y[r, j] = index of the j-th largest x[r, c], the lowest one of equals first, as u32; NaN is larger than any \
          number; x [rows, cols], y [rows, k], k at most cols. One workgroup a row, folded over grid x and y.",
    params: &["rows", "cols", "k", "x_offset", "x_stride", "y_offset"],
    bindings: UNARY_BINDINGS,
    constants: &[("WG", 128)],
    defines: &[],
};

pub(super) const INTEGER_REDUCE: Entry = Entry {
    name: "integer_reduce",
    doc: "y[o, i] = reduction over j of x[o, j, i] in words that wrap; x [outer, len, inner], y [outer, inner]. kind: 0 \
          sum, 1 product, 2 and 3 maximum and minimum of i32, 4 and 5 those of u32. Without elements the result is 0, 1, \
          or the least or largest number. One workgroup a result, folded over grid x and y.",
    params: &["outer", "len", "inner", "kind", "x_offset", "y_offset"],
    bindings: UNARY_BINDINGS,
    constants: &[("WG", 128)],
    defines: &[],
};

pub(super) const ARGSORT: Entry = Entry {
    name: "argsort",
    doc: "y[r, ..] = the columns of each run of `run` columns of x[r, ..] in the order of their elements, the lowest \
          column of equals first, as u32; NaN is larger than any number; x and y [rows, cols], run at most SIZE, which a \
          CPU ignores. order: 1 for descending, plus 2 for i32, 4 for u32. One workgroup a run, folded over grid x and y.",
    params: &["rows", "cols", "run", "order", "x_offset", "x_stride", "y_offset"],
    bindings: UNARY_BINDINGS,
    constants: &[("WG", 256), ("SIZE", 1024)],
    defines: &[],
};

pub(super) const ARGSORT_MERGE: Entry = Entry {
    name: "argsort_merge",
    doc: "y[r, ..] = ids[r, ..] with each pair of neighbouring runs of `run` columns merged; each run is in the order of \
          argsort, run is a multiple of 1024. One workgroup for 1024 columns of a row, folded over grid x and y.",
    params: &["rows", "cols", "run", "order", "x_offset", "x_stride", "ids_offset", "y_offset"],
    bindings: &[("x", Read), ("ids", Read), ("y", ReadWrite)],
    constants: &[("WG", 256)],
    defines: &[],
};

pub(super) const DELTA_RULE: Entry = Entry {
    name: "delta_rule",
    doc: "The gated delta rule, token by token for each sequence and head with a state S [dk, dv]: S = exp(decay) S, S \
          += k (beta (v - k S)), y = q S, key head = head % key_heads. q, k [sequences, tokens, key_heads, dk], v \
          [sequences, tokens, heads, dv], decay, beta [sequences, tokens, heads], state [sequences, heads, dk, dv]; y \
          [sequences, heads, tokens + dk, dv]: the results, then S. DK is dk; LANES threads of 64 share a column: grid x \
          = ceil(dv LANES / 64), y = sequences * heads folded over y and z.",
    params: DELTA_PARAMS,
    bindings: DELTA_BINDINGS,
    constants: &[("DK", 128), ("LANES", 4)],
    defines: &[],
};
