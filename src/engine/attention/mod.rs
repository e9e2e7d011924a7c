//! Attention: one pass for prompts and short caches, flash decoding for long ones.
//!
//! `single_pass` runs a workgroup for each query and group of heads; `split_kv` splits keys and
//! values over workgroups and reduces the partial results in a second launch (flash decoding);
//! `split_kv_fused` reduces them in the same launch, by the last workgroup to finish; `subgroup`
//! keeps the online softmax in subgroups; `coop` uses tensor cores (flash attention for prefill).

pub(in crate::engine) mod coop;
pub(in crate::engine) mod single_pass;
pub(in crate::engine) mod split_kv;
pub(in crate::engine) mod split_kv_fused;
pub(in crate::engine) mod subgroup;
