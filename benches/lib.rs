//! Benchmarks of warploom; `README.md` says how to run them.
