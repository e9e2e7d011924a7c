//! The catalogue kernels as Rust functions of the same names, one file for each family.
//!
//! Every function reads its parameters in the catalogue's order and checks all accesses against the
//! bindings before it computes anything. It never panics and never accesses memory outside its
//! bindings, whatever the parameters are. The grid is ignored: the parameters define all sizes.

#[cfg(any(not(target_arch = "wasm32"), feature = "interpret"))]
mod argsort;
mod attention;
mod conv;
mod delta;
mod experts;
mod gather;
mod matmul;
mod matvec;
mod norm;
mod pool2d;
mod quantize;
mod reduce;
mod rope;
mod sample;
mod segments;
mod softmax;
mod top_k;
mod visible_keys;

use super::call::Call;
use warploom_core::error::Result;

/// The function of a kernel.
pub(super) type KernelFn = fn(&Call<'_>) -> Result<()>;

/// Returns the function of a catalogue entry, by the entry's name (including its `*`).
pub(super) fn find(name: &str) -> Option<KernelFn> {
    Some(match name {
        "matvec_*" => matvec::matvec,
        "matvec_int8_*" => matvec::matvec_int8,
        "matmul_*" => matmul::matmul,
        "matmul_batched" => matmul::matmul_batched,
        "gather_rows_*" => gather::gather_rows,
        "gather" => gather::gather,
        "scatter_rows" => gather::scatter_rows,
        "index_add" => gather::index_add,
        "take_along" => gather::take_along,
        "top_k" => top_k::top_k,
        // Not in a browser's module for language models.
        #[cfg(any(not(target_arch = "wasm32"), feature = "interpret"))]
        "argsort" => argsort::argsort,
        #[cfg(any(not(target_arch = "wasm32"), feature = "interpret"))]
        "argsort_merge" => argsort::argsort_merge,
        "delta_rule" => delta::delta_rule,
        "expert_matvec_*" => experts::expert_matvec,
        "norm_rms" => norm::norm_rms,
        "norm_layer" => norm::norm_layer,
        "fake_quantize" => quantize::fake_quantize,
        "softmax" => softmax::softmax,
        "argmax" => softmax::argmax,
        "argmax_of" => softmax::argmax_of,
        "sample" => sample::sample,
        "reduce_sum" => reduce::reduce_sum,
        #[cfg(any(not(target_arch = "wasm32"), feature = "interpret"))]
        "integer_reduce" => reduce::integer_reduce,
        "reduce_mean" => reduce::reduce_mean,
        "reduce_prod" => reduce::reduce_prod,
        "reduce_max" => reduce::reduce_max,
        "reduce_min" => reduce::reduce_min,
        "rope_interleaved" => rope::rope_interleaved,
        "rope_half" => rope::rope_half,
        "attn_decode" | "attn_decode_spans" | "attn_decode_sinks" | "attn_decode_spans_sinks" => {
            attention::attn_decode
        }
        "attn_prefill" | "attn_prefill_sinks" => attention::attn_prefill,
        "attn_split_kv" | "attn_split_kv_spans" => attention::attn_split_kv,
        "attn_split_kv_reduce" | "attn_split_kv_reduce_spans" => attention::attn_split_kv_reduce,
        "conv2d" => conv::conv2d,
        "pool2d_max" => pool2d::pool2d_max,
        "pool2d_avg" => pool2d::pool2d_avg,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
