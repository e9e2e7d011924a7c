//! Neural networks over [`warploom::Tensor`]: named parameters, layers, optimisers, schedules of
//! the learning rate, and safetensors files.
//!
//! ```
//! use warploom::{Runtime, Tensor};
//! use warploom_nn::{Activation, Adam, Linear, Optimizer, Params};
//!
//! # fn main() -> warploom::Result<()> {
//! let runtime = Runtime::auto()?;
//! let params = Params::new(&runtime, 1);
//! let first = Linear::new(&params.at("first"), 2, 16)?;
//! let second = Linear::new(&params.at("second"), 16, 1)?;
//! let mut adam = Adam::new(params.vars(), 0.01);
//!
//! // The exclusive or of two inputs.
//! let x = Tensor::from_vec(&runtime, vec![0.0_f32, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0], [4, 2]);
//! let target = Tensor::from_vec(&runtime, vec![0.0_f32, 1.0, 1.0, 0.0], [4, 1]);
//! let mut last = f32::INFINITY;
//! for _ in 0..300 {
//!     let guess = second.forward(&Activation::Tanh.forward(&first.forward(&x)));
//!     let gradients = guess.binary_cross_entropy_with_logits(&target).backward()?;
//!     adam.step(&gradients)?;
//!     last = gradients.result().item()?;
//! }
//! assert!(last < 0.1, "{last}");
//! # Ok(())
//! # }
//! ```
//!
//! Nothing of a step runs before [`Optimizer::step`], which evaluates the loss, its gradients and
//! the new parameters as one graph, with one plan for all steps.
//!
//! **Mixed precision.** Parameters stay in `f32`; a network casts them, and its input, to `f16` or
//! `bf16`, and their gradients come back in `f32`. [`LossScale`] keeps small gradients in `f16`
//! from becoming zero.

mod clip;
mod init;
mod layers;
mod loss_scale;
mod optim;
mod params;
mod schedule;

pub use clip::{clip_norm, clip_value};
pub use init::Init;
pub use layers::{
    Activation, Conv2dLayer, Dropout, Embedding, LayerNorm, Linear, Lstm, LstmState,
    MultiHeadAttention, RmsNorm,
};
pub use loss_scale::LossScale;
pub use optim::{
    Adam, AdamOptions, Lion, LionOptions, Muon, MuonOptions, Optimizer, Sgd, SgdOptions,
};
pub use params::Params;
pub use schedule::Schedule;
