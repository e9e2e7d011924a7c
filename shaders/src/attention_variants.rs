//! Catalogue rows of attention kernels with more bindings: spans of keys, sinks of heads.

use super::catalogue::Entry;
use super::params::*;
use super::spec::Access::{Read, ReadWrite};

pub(super) const ATTN_DECODE_SPANS: Entry = Entry {
    name: "attn_decode_spans",
    doc: "attn_decode over a table of keys that several sequences share: a key s is visible if first <= s < end and \
          (window is 0 or s + window >= end), (first, end) = spans[t]; spans [tokens, 2] i32. causal is ignored.",
    params: ATTN_CAPPED_SPANS_PARAMS,
    bindings: ATTN_SPANS_BINDINGS,
    constants: &[("WG", 64), ("HEAD_DIM", 64)],
    defines: &[F16_KV, "subgroup", "vec4"],
};

pub(super) const ATTN_SUBGROUP_SPANS: Entry = Entry {
    name: "attn_subgroup_spans",
    doc: "attn_subgroup with the visible keys of attn_decode_spans.",
    params: ATTN_SPANS_PARAMS,
    bindings: ATTN_SPANS_BINDINGS,
    constants: &[("WG", 128), ("HEAD_DIM", 64), ("AT_ONCE", 4)],
    defines: &[F16_KV, "subgroup"],
};

pub(super) const ATTN_SPLIT_KV_FUSED_SPANS: Entry = Entry {
    name: "attn_split_kv_fused_spans",
    doc: "attn_split_kv_fused with the visible keys of attn_decode_spans.",
    params: ATTN_SPLIT_KV_FUSED_SPANS_PARAMS,
    bindings: ATTN_SPLIT_KV_FUSED_SPANS_BINDINGS,
    constants: &[("WG", 128), ("HEAD_DIM", 64), ("HEADS", 2), ("AT_ONCE", 4)],
    defines: &[F16_KV, "subgroup"],
};

pub(super) const ATTN_SPLIT_KV_SPANS: Entry = Entry {
    name: "attn_split_kv_spans",
    doc: "attn_split_kv with the visible keys of attn_decode_spans.",
    params: ATTN_SPLIT_KV_SPANS_PARAMS,
    bindings: &[("q", Read), ("k", Read), ("v", Read), ("spans", Read), ("part", ReadWrite)],
    constants: &[("WG", 64), ("HEAD_DIM", 64), ("HEADS", 4)],
    defines: &[F16_KV, "vec4"],
};

pub(super) const ATTN_SPLIT_KV_REDUCE_SPANS: Entry = Entry {
    name: "attn_split_kv_reduce_spans",
    doc: "attn_split_kv_reduce for attn_split_kv_spans.",
    params: ATTN_SPLIT_KV_REDUCE_SPANS_PARAMS,
    bindings: &[("part", Read), ("spans", Read), ("y", ReadWrite)],
    constants: &[("WG", 64), ("HEAD_DIM", 64)],
    defines: &[],
};

pub(super) const ATTN_DECODE_SINKS: Entry = Entry {
    name: "attn_decode_sinks",
    doc: "attn_decode with a key of score sinks[h] that every token sees and that has no value; sinks [heads].",
    params: ATTN_SINKS_PARAMS,
    bindings: ATTN_SINKS_BINDINGS,
    constants: &[("WG", 64), ("HEAD_DIM", 64)],
    defines: &[F16_KV, "subgroup", "vec4"],
};

pub(super) const ATTN_DECODE_SPANS_SINKS: Entry = Entry {
    name: "attn_decode_spans_sinks",
    doc: "attn_decode_spans with the sinks of attn_decode_sinks.",
    params: ATTN_SPANS_SINKS_PARAMS,
    bindings: ATTN_SPANS_SINKS_BINDINGS,
    constants: &[("WG", 64), ("HEAD_DIM", 64)],
    defines: &[F16_KV, "subgroup", "vec4"],
};

pub(super) const ATTN_PREFILL_SINKS: Entry = Entry {
    name: "attn_prefill_sinks",
    doc: "attn_prefill with the sinks of attn_decode_sinks.",
    params: ATTN_SINKS_PARAMS,
    bindings: ATTN_SINKS_BINDINGS,
    constants: &[("HEAD_DIM", 64)],
    defines: &[F16_KV],
};
