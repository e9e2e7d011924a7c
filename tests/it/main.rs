//! The integration tests, in one binary.

mod quant_formats;
