//! Benchmarks of warploom; `README.md` describes how to run them.
