//! Limits of gradients.

use warploom::tensor::{Gradients, Var};
use warploom::{DType, Tensor};

/// Scales the gradients of the variables so that their norm, over all of them, is at most `limit`,
/// and returns that norm before, as a lazy tensor; `None` if none of them has a gradient.
pub fn clip_norm(gradients: &mut Gradients, vars: &[Var], limit: f32) -> Option<Tensor> {
    let squares = vars.iter().filter_map(|var| gradients.get(var));
    let squares = squares.map(|gradient| gradient.cast(DType::F32).square().sum(..));
    let norm = squares.reduce(|sum, square| sum + square)?.sqrt();
    // As in PyTorch, the small term keeps the quotient finite.
    let factor = (limit / (&norm + 1e-6)).minimum(1.0);
    for var in vars {
        if let Some(gradient) = gradients.get(var) {
            let clipped = gradient * factor.cast(gradient.dtype());
            gradients.insert(var, clipped);
        }
    }
    Some(norm)
}

/// Limits each element of the gradients of the variables to `-limit ..= limit`.
pub fn clip_value(gradients: &mut Gradients, vars: &[Var], limit: f32) {
    for var in vars {
        if let Some(gradient) = gradients.get(var) {
            let clipped = gradient.clamp(-limit, limit);
            gradients.insert(var, clipped);
        }
    }
}
