//! Adam and AdamW.

use warploom::tensor::{Gradients, Var};
use warploom::{Result, Tensor};

use super::{Change, Optimizer, Slot};

/// Adam (Kingma and Ba, 2015); with a weight decay it is AdamW (Loshchilov and Hutter, 2019).
pub struct Adam {
    slots: Vec<Slot<2>>,
    rate: f32,
    options: AdamOptions,
    steps: i32,
}

/// Options of [`Adam`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamOptions {
    /// Decay of the mean of gradients.
    pub beta1: f32,
    /// Decay of the mean of squared gradients.
    pub beta2: f32,
    /// Added to the root of the mean square.
    pub eps: f32,
    /// Share of the value that is subtracted in each step, times the learning rate.
    pub weight_decay: f32,
}

impl Default for AdamOptions {
    /// `beta1` 0.9, `beta2` 0.999, `eps` 1e-8, no weight decay.
    fn default() -> AdamOptions {
        AdamOptions { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0 }
    }
}

impl Adam {
    /// Creates Adam with the default options.
    pub fn new(vars: Vec<Var>, rate: f32) -> Adam {
        Adam::with_options(vars, rate, AdamOptions::default())
    }

    /// Creates AdamW with the default options and a weight decay, for which PyTorch takes 0.01.
    pub fn adamw(vars: Vec<Var>, rate: f32, weight_decay: f32) -> Adam {
        Adam::with_options(vars, rate, AdamOptions { weight_decay, ..AdamOptions::default() })
    }

    /// Creates an optimiser.
    pub fn with_options(vars: Vec<Var>, rate: f32, options: AdamOptions) -> Adam {
        Adam { slots: Slot::all(vars), rate, options, steps: 0 }
    }
}

impl Optimizer for Adam {
    fn update(&mut self, gradients: &Gradients) -> Result<Vec<Tensor>> {
        let steps = self.steps.saturating_add(1);
        let AdamOptions { beta1, beta2, eps, weight_decay } = self.options;
        // Numbers that change are one tensor each for all variables: a plan has them as one input.
        let step_size = self.rate / (1.0 - beta1.powi(steps));
        let root = (1.0 - beta2.powi(steps)).sqrt();
        let kept = 1.0 - self.rate * weight_decay;
        let mut shared: Option<[Tensor; 3]> = None;
        let new =
            Slot::update(&mut self.slots, gradients, |_, value, gradient, [mean, square]| {
                let shared = shared.get_or_insert_with(|| {
                    [step_size, root, kept].map(|number| Tensor::full(value.runtime(), (), number))
                });
                let [step_size, root, kept] = shared.each_ref().map(|n| n.cast(value.dtype()));
                let mean = mean * beta1 + gradient * (1.0 - beta1);
                let square = square * beta2 + gradient.square() * (1.0 - beta2);
                let along = &mean / (square.sqrt() / root + eps);
                let value = if weight_decay == 0.0 { value.clone() } else { value * kept };
                Change { value: value - along * step_size, states: [mean, square] }
            })?;
        self.steps = steps;
        Ok(new)
    }

    fn learning_rate(&self) -> f32 {
        self.rate
    }

    fn set_learning_rate(&mut self, rate: f32) {
        self.rate = rate;
    }
}
