//! Lion.

use warploom::tensor::{Gradients, Var};
use warploom::{Result, Tensor};

use super::{Change, Optimizer, Slot};

/// Lion (Chen et al., 2023): steps by the sign of a momentum.
pub struct Lion {
    slots: Vec<Slot<1>>,
    rate: f32,
    options: LionOptions,
}

/// Options of [`Lion`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LionOptions {
    /// Weight of the momentum in the direction of a step.
    pub beta1: f32,
    /// Decay of the momentum.
    pub beta2: f32,
    /// Share of the value that is subtracted in each step, times the learning rate.
    pub weight_decay: f32,
}

impl Default for LionOptions {
    /// `beta1` 0.9, `beta2` 0.99, no weight decay.
    fn default() -> LionOptions {
        LionOptions { beta1: 0.9, beta2: 0.99, weight_decay: 0.0 }
    }
}

impl Lion {
    /// Creates an optimiser with the default options.
    pub fn new(vars: Vec<Var>, rate: f32) -> Lion {
        Lion::with_options(vars, rate, LionOptions::default())
    }

    /// Creates an optimiser.
    pub fn with_options(vars: Vec<Var>, rate: f32, options: LionOptions) -> Lion {
        Lion { slots: Slot::all(vars), rate, options }
    }
}

impl Optimizer for Lion {
    fn update(&mut self, gradients: &Gradients) -> Result<Vec<Tensor>> {
        let (rate, LionOptions { beta1, beta2, weight_decay }) = (self.rate, self.options);
        Slot::update(&mut self.slots, gradients, |_, value, gradient, [momentum]| {
            let direction = (momentum * beta1 + gradient * (1.0 - beta1)).sign();
            let momentum = momentum * beta2 + gradient * (1.0 - beta2);
            let along = match weight_decay {
                0.0 => direction,
                decay => direction + value * decay,
            };
            Change { value: value - along * rate, states: [momentum] }
        })
    }

    fn learning_rate(&self) -> f32 {
        self.rate
    }

    fn set_learning_rate(&mut self, rate: f32) {
        self.rate = rate;
    }
}
