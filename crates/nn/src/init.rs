//! Initial values of parameters.

use warploom::{Runtime, Tensor};

/// The initial values of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Init {
    /// The same number everywhere.
    Constant(f32),
    /// Evenly distributed from `-bound` to `bound`.
    Uniform {
        /// The bound.
        bound: f32,
    },
    /// Normally distributed around 0.
    Normal {
        /// The standard deviation.
        std: f32,
    },
}

impl Init {
    /// Returns PyTorch's default for the weight and bias of a layer with `inputs` inputs of each
    /// output (Kaiming's uniform distribution with `a = sqrt(5)`): a bound of `1 / sqrt(inputs)`.
    pub fn of_inputs(inputs: usize) -> Init {
        Init::Uniform { bound: 1.0 / (inputs.max(1) as f32).sqrt() }
    }

    /// Creates an `f32` tensor with such values.
    pub(crate) fn tensor(self, runtime: &Runtime, shape: &[usize], seed: u64) -> Tensor {
        match self {
            Init::Constant(value) => Tensor::full(runtime, shape, value),
            Init::Uniform { bound } => {
                Tensor::rand(runtime, shape, seed).affine(2.0 * bound, -bound)
            }
            Init::Normal { std } => Tensor::randn(runtime, shape, seed).mul(std),
        }
    }
}
