//! Example programs of warploom, each a file of this folder: `cargo run --example tensor`.
