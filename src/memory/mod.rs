//! Device memory: the placement of intermediates in shared buffers, and a buffer pool with a
//! budget.
//!
//! `lifetime`, `coloring` and `arena` are pure: they compute offsets from step numbers and sizes.
//! `pool` holds device buffers. This module does not depend on graphs or plans; a pass of `plan`
//! calls its functions.

pub mod arena;
mod coloring;
pub mod lifetime;
mod pool;

pub use pool::{Pool, PooledBuffer};
