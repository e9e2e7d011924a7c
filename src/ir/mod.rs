//! The graph of tensor operations.

pub mod scalar;
