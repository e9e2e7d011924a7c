//! Device memory: how intermediates share buffers, and buffers kept for reuse under a budget.
//!
//! `lifetime`, `spread` and `arena` are pure: numbers in, offsets out. `pool` holds what a device gave.
//! Absent on purpose: graphs and plans; a plan's pass asks these with step numbers and sizes.

pub mod arena;
pub mod lifetime;
mod pool;
mod spread;

pub use pool::{Pool, PooledBuffer};
