//! GEMM and GEMV: with weights in storage formats, of computed matrices, and by a vendor GEMM.
//!
//! `quantized` multiplies by weights in their storage format (GEMV for few rows, tiled GEMM for
//! many); `prequantized` reads activations that an earlier kernel has quantised (W4A8), and `mma`
//! does so with int8 tensor cores; `coop` uses tensor cores (cooperative matrices), `f16` adds
//! split-K; `experts` multiplies by matrices of chosen experts, `expert_tiles` with tensor cores;
//! `batched` and `batched_coop` multiply two computed matrices; `vendor` calls cuBLASLt.
//! `activation_quant` quantises activations, `prequantized_launch` launches the kernels that read
//! them, `tiling` chooses tiles, `wave_model` estimates wave quantisation, and `int8_cost` the cost
//! of int8 products. `operands` holds code that these modules share.

pub(in crate::engine) mod activation_quant;
pub(in crate::engine) mod batched;
pub(in crate::engine) mod batched_coop;
pub(in crate::engine) mod coop;
pub(in crate::engine) mod expert_tiles;
pub(in crate::engine) mod experts;
pub(in crate::engine) mod f16;
pub(in crate::engine) mod int8_cost;
pub(in crate::engine) mod mma;
pub(in crate::engine) mod operands;
pub(in crate::engine) mod prequantized;
pub(in crate::engine) mod prequantized_launch;
pub(in crate::engine) mod quantized;
pub(in crate::engine) mod tiling;
pub(in crate::engine) mod vendor;
pub(in crate::engine) mod wave_model;
