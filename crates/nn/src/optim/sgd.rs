//! Stochastic gradient descent.

use warploom::tensor::{Gradients, Var};
use warploom::{Result, Tensor};

use super::{Change, Optimizer, Slot};

/// Stochastic gradient descent, with PyTorch's momentum.
pub struct Sgd {
    slots: Vec<Slot<1>>,
    rate: f32,
    options: SgdOptions,
}

/// Options of [`Sgd`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SgdOptions {
    /// Factor of the velocity in each step; 0 for none.
    pub momentum: f32,
    /// Whether the momentum is Nesterov's.
    pub nesterov: bool,
    /// Factor of the value that is added to its gradient.
    pub weight_decay: f32,
}

impl Sgd {
    /// Creates an optimiser without momentum.
    pub fn new(vars: Vec<Var>, rate: f32) -> Sgd {
        Sgd::with_options(vars, rate, SgdOptions::default())
    }

    /// Creates an optimiser.
    pub fn with_options(vars: Vec<Var>, rate: f32, options: SgdOptions) -> Sgd {
        Sgd { slots: Slot::all(vars), rate, options }
    }
}

impl Optimizer for Sgd {
    fn update(&mut self, gradients: &Gradients) -> Result<Vec<Tensor>> {
        let (rate, options) = (self.rate, self.options);
        Slot::update(&mut self.slots, gradients, |_, value, gradient, [velocity]| {
            let gradient = match options.weight_decay {
                0.0 => gradient.clone(),
                decay => gradient + value * decay,
            };
            if options.momentum == 0.0 {
                return Change { value: value - gradient * rate, states: [velocity.clone()] };
            }
            // From zero, the first velocity is the gradient.
            let velocity = velocity * options.momentum + &gradient;
            let along = match options.nesterov {
                true => gradient + &velocity * options.momentum,
                false => velocity.clone(),
            };
            Change { value: value - along * rate, states: [velocity] }
        })
    }

    fn learning_rate(&self) -> f32 {
        self.rate
    }

    fn set_learning_rate(&mut self, rate: f32) {
        self.rate = rate;
    }
}
