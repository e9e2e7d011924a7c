//! Dropout.

use std::sync::atomic::{AtomicU64, Ordering};

use warploom::Tensor;

/// Zeroes elements at random during training, and scales the others so that the mean stays. Each
/// call draws again, by a seed that counts up.
#[derive(Debug)]
pub struct Dropout {
    probability: f32,
    next: AtomicU64,
}

impl Dropout {
    /// Creates a layer that zeroes an element with this probability, which is limited to 0..1.
    pub fn new(probability: f32, seed: u64) -> Dropout {
        Dropout { probability, next: AtomicU64::new(seed) }
    }

    /// Returns `x` with elements zeroed. Leave the call out when the network is used.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        if self.probability <= 0.0 {
            return x.clone();
        }
        x.dropout(self.probability, self.next.fetch_add(1, Ordering::Relaxed))
    }
}
