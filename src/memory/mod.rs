//! Device memory: how intermediates share buffers, and a pool of reusable buffers under a budget.
//!
//! `lifetime`, `coloring` and `arena` are pure: numbers in, offsets out. `pool` holds device
//! buffers. Absent on purpose: graphs and plans; a pass of `plan` calls these with step numbers and
//! sizes.

pub mod arena;
mod coloring;
pub mod lifetime;
mod pool;

pub use pool::{Pool, PooledBuffer};
