//! Normalisation along the last axis.

use warploom::tensor::Var;
use warploom::{Result, Tensor};

use crate::{Init, Params};

/// `x * rsqrt(mean(x^2) + eps) * weight`.
#[derive(Clone, Debug)]
pub struct RmsNorm {
    /// `[width]`.
    pub weight: Var,
    /// Added to the mean square.
    pub eps: f32,
}

impl RmsNorm {
    /// Creates a layer. Parameter: `weight`, of ones.
    ///
    /// # Errors
    /// Invalid if the parameter exists with another shape; a device error.
    pub fn new(params: &Params, width: usize, eps: f32) -> Result<RmsNorm> {
        Ok(RmsNorm { weight: params.var("weight", &[width], Init::Constant(1.0))?, eps })
    }

    /// Normalises the rows of `x`.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.rms_norm(&self.weight.value().cast(x.dtype()), self.eps)
    }
}

/// `(x - mean) * rsqrt(variance + eps) * weight + bias`.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    /// `[width]`.
    pub weight: Var,
    /// `[width]`.
    pub bias: Var,
    /// Added to the variance.
    pub eps: f32,
}

impl LayerNorm {
    /// Creates a layer. Parameters: `weight`, of ones, and `bias`, of zeros.
    ///
    /// # Errors
    /// Invalid if the parameters exist with other shapes; a device error.
    pub fn new(params: &Params, width: usize, eps: f32) -> Result<LayerNorm> {
        let weight = params.var("weight", &[width], Init::Constant(1.0))?;
        let bias = params.var("bias", &[width], Init::Constant(0.0))?;
        Ok(LayerNorm { weight, bias, eps })
    }

    /// Normalises the rows of `x`.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let of = |var: &Var| var.value().cast(x.dtype());
        x.layer_norm(&of(&self.weight), &of(&self.bias), self.eps)
    }
}
