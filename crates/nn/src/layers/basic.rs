//! Linear layer, embedding, convolution and activations.

use warploom::graph::Conv2d;
use warploom::tensor::Var;
use warploom::{Result, Tensor};

use crate::{Init, Params};

/// `y = x @ weight^T + bias`.
#[derive(Clone, Debug)]
pub struct Linear {
    /// `[outputs, inputs]`.
    pub weight: Var,
    /// `[outputs]`.
    pub bias: Option<Var>,
}

impl Linear {
    /// Creates a layer with a bias. Parameters: `weight` and `bias`, with PyTorch's initial values.
    ///
    /// # Errors
    /// Invalid if the parameters exist with other shapes; a device error.
    pub fn new(params: &Params, inputs: usize, outputs: usize) -> Result<Linear> {
        let bias = params.var("bias", &[outputs], Init::of_inputs(inputs))?;
        Ok(Linear { bias: Some(bias), ..Linear::without_bias(params, inputs, outputs)? })
    }

    /// Same as [`Linear::new`], without a bias.
    ///
    /// # Errors
    /// Same as [`Linear::new`].
    pub fn without_bias(params: &Params, inputs: usize, outputs: usize) -> Result<Linear> {
        let weight = params.var("weight", &[outputs, inputs], Init::of_inputs(inputs))?;
        Ok(Linear { weight, bias: None })
    }

    /// Maps `[.., inputs]` to `[.., outputs]`, in the type of `x`.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let y = x.linear(&self.weight.value().cast(x.dtype()));
        match &self.bias {
            Some(bias) => y + bias.value().cast(x.dtype()),
            None => y,
        }
    }
}

/// A table of rows that are looked up by id.
#[derive(Clone, Debug)]
pub struct Embedding {
    /// `[count, width]`.
    pub weight: Var,
}

impl Embedding {
    /// Creates a table. Parameter: `weight`, normally distributed.
    ///
    /// # Errors
    /// Invalid if the parameter exists with another shape; a device error.
    pub fn new(params: &Params, count: usize, width: usize) -> Result<Embedding> {
        let weight = params.var("weight", &[count, width], Init::Normal { std: 1.0 })?;
        Ok(Embedding { weight })
    }

    /// Maps ids `[..]` (`i32` or `u32`) to rows `[.., width]`.
    #[track_caller]
    pub fn forward(&self, ids: &Tensor) -> Tensor {
        self.weight.value().gather(0, ids)
    }
}

/// A 2-D convolution of `[batch, in_channels, height, width]`.
#[derive(Clone, Debug)]
pub struct Conv2dLayer {
    /// `[out_channels, in_channels / groups, kernel height, kernel width]`.
    pub weight: Var,
    /// `[out_channels]`.
    pub bias: Var,
    /// Strides, padding, dilation and groups.
    pub geometry: Conv2d,
}

impl Conv2dLayer {
    /// Creates a layer with a square kernel. Parameters: `weight` and `bias`.
    ///
    /// # Errors
    /// Invalid if the parameters exist with other shapes; a device error.
    pub fn new(
        params: &Params,
        in_channels: usize,
        out_channels: usize,
        kernel: usize,
        geometry: Conv2d,
    ) -> Result<Conv2dLayer> {
        let per_group = in_channels / (geometry.groups.max(1) as usize);
        let init = Init::of_inputs(per_group * kernel * kernel);
        let weight = params.var("weight", &[out_channels, per_group, kernel, kernel], init)?;
        let bias = params.var("bias", &[out_channels], init)?;
        Ok(Conv2dLayer { weight, bias, geometry })
    }

    /// Convolves images, in the type of `x`.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let y = x.conv2d(&self.weight.value().cast(x.dtype()), self.geometry);
        y + self.bias.value().cast(x.dtype()).reshape([-1, 1, 1])
    }
}

/// An elementwise function between layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// [`Tensor::relu`].
    Relu,
    /// [`Tensor::gelu`].
    Gelu,
    /// [`Tensor::gelu_tanh`].
    GeluTanh,
    /// [`Tensor::silu`].
    Silu,
    /// [`Tensor::tanh`].
    Tanh,
    /// [`Tensor::sigmoid`].
    Sigmoid,
}

impl Activation {
    /// Applies the function to each element.
    #[track_caller]
    pub fn forward(self, x: &Tensor) -> Tensor {
        match self {
            Activation::Relu => x.relu(),
            Activation::Gelu => x.gelu(),
            Activation::GeluTanh => x.gelu_tanh(),
            Activation::Silu => x.silu(),
            Activation::Tanh => x.tanh(),
            Activation::Sigmoid => x.sigmoid(),
        }
    }
}
