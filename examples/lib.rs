//! Example programs for warploom, one per file of this folder. Run one with
//! `cargo run --example tensor`.
