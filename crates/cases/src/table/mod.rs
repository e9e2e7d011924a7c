//! The table: every operation over the sizes and layouts at which kernels fail.
//!
//! Sizes are 0, 1, next to powers of two, and beyond the limit of a dispatch dimension; operands
//! have gaps, permuted axes or repeated elements; symbols are bound to several values. Other sizes
//! are small, so the reference computes the whole table in seconds.

mod argsort;
mod attention;
mod attention_f16;
mod chains;
mod conv;
mod delta;
mod elementwise;
mod experts;
mod f16;
mod f16_kv;
mod fused_quant;
mod greedy;
mod int8;
mod linear;
mod linear_f16;
mod matmul;
mod movement;
mod nan;
mod norm;
mod reduce;
mod rope;
mod sample;
mod state;
mod vendor_gemm;
mod views;

use super::build::Case;

/// More rows than the workgroups in one dispatch dimension (65,535).
const MANY: u64 = 70_000;

/// Returns every case, in a stable order.
pub fn cases() -> Vec<Case> {
    let mut table = Vec::new();
    elementwise::add(&mut table);
    views::add(&mut table);
    chains::add(&mut table);
    reduce::add(&mut table);
    nan::add(&mut table);
    greedy::add(&mut table);
    argsort::add(&mut table);
    sample::add(&mut table);
    linear::add(&mut table);
    int8::add(&mut table);
    experts::add(&mut table);
    delta::add(&mut table);
    fused_quant::add(&mut table);
    linear_f16::add(&mut table);
    matmul::add(&mut table);
    vendor_gemm::add(&mut table);
    conv::add(&mut table);
    norm::add(&mut table);
    rope::add(&mut table);
    attention::add(&mut table);
    attention_f16::add(&mut table);
    movement::add(&mut table);
    state::add(&mut table);
    f16::add(&mut table);
    f16_kv::add(&mut table);
    table
}
