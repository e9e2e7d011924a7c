//! Muon.

use warploom::tensor::{Gradients, Var};
use warploom::{DType, Result, Tensor};

use super::{Change, Optimizer, Slot};

/// Muon (Jordan et al., 2024): steps by the momentum of a matrix with all its singular values near
/// one. For the matrices inside of a network; other parameters belong to [`Adam`](super::Adam).
/// Variables that are not of rank 2 are stepped by their momentum as it is.
pub struct Muon {
    slots: Vec<Slot<1>>,
    rate: f32,
    options: MuonOptions,
}

/// Options of [`Muon`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MuonOptions {
    /// Factor of the momentum in each step.
    pub momentum: f32,
    /// Whether the momentum is Nesterov's.
    pub nesterov: bool,
    /// Share of the value that is subtracted in each step, times the learning rate.
    pub weight_decay: f32,
    /// Number of Newton-Schulz iterations.
    pub iterations: u32,
}

impl Default for MuonOptions {
    /// Momentum 0.95, Nesterov's, no weight decay, 5 iterations.
    fn default() -> MuonOptions {
        MuonOptions { momentum: 0.95, nesterov: true, weight_decay: 0.0, iterations: 5 }
    }
}

impl Muon {
    /// Creates an optimiser with the default options.
    pub fn new(vars: Vec<Var>, rate: f32) -> Muon {
        Muon::with_options(vars, rate, MuonOptions::default())
    }

    /// Creates an optimiser.
    pub fn with_options(vars: Vec<Var>, rate: f32, options: MuonOptions) -> Muon {
        Muon { slots: Slot::all(vars), rate, options }
    }
}

/// Returns a matrix with the singular vectors of `x` and singular values near one, by the
/// quintic Newton-Schulz iteration.
fn orthogonal(x: &Tensor, iterations: u32) -> Tensor {
    let Ok(&[rows, columns]) = x.try_shape() else { return x.clone() };
    let wide = x.cast(DType::F32);
    // The smaller product is the one of the shorter rows.
    let is_tall = rows > columns;
    let wide = if is_tall { wide.t() } else { wide };
    let mut y = &wide / (wide.square().sum(..).sqrt() + 1e-7);
    for _ in 0..iterations {
        let a = y.matmul(y.t());
        let b = &a * -4.7750 + a.matmul(&a) * 2.0315;
        y = &y * 3.4445 + b.matmul(&y);
    }
    let y = if is_tall { y.t() } else { y };
    // Updates of matrices of all shapes have the same size of an element.
    (y * (rows as f32 / columns.max(1) as f32).max(1.0).sqrt()).cast(x.dtype())
}

impl Optimizer for Muon {
    fn update(&mut self, gradients: &Gradients) -> Result<Vec<Tensor>> {
        let (rate, options) = (self.rate, self.options);
        Slot::update(&mut self.slots, gradients, |_, value, gradient, [momentum]| {
            let momentum = momentum * options.momentum + gradient;
            let direction = match options.nesterov {
                true => gradient + &momentum * options.momentum,
                false => momentum.clone(),
            };
            let direction = match value.try_shape().map_or(0, <[usize]>::len) {
                2 => orthogonal(&direction, options.iterations),
                _ => direction,
            };
            let along = match options.weight_decay {
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
