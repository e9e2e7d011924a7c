//! Tests of one vendor's interface, or of what only real GPUs have.

mod cuda;
mod cuda_products;
pub(crate) mod opencl;
mod peers;
mod sanitize;
