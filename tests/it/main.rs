//! The integration tests, in one binary.

mod gguf_bad;
mod gguf_exercise;
mod gguf_files;
mod gguf_fuzz;
mod gguf_mutate;
mod gguf_writer;
mod quant_formats;
