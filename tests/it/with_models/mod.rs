//! Tests of real models, on every device.

mod greedy;
mod layers;
pub(crate) mod logits;
mod perplexity;
