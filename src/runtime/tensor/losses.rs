//! Losses of training, averaged over all elements or rows.

use std::panic::Location;

use super::Tensor;
use crate::error::Error;

impl Tensor {
    /// Computes the mean squared difference from `target`.
    #[track_caller]
    pub fn mse_loss(&self, target: &Tensor) -> Tensor {
        self.composed("mse_loss", Location::caller(), |x| x.sub(target).square().mean(..))
    }

    /// Computes Huber's loss: half the squared difference up to `delta`, linear beyond.
    #[track_caller]
    pub fn huber_loss(&self, target: &Tensor, delta: f32) -> Tensor {
        self.composed("huber_loss", Location::caller(), |x| {
            let apart = x.sub(target).abs();
            let far = apart.sub(0.5 * delta).mul(delta);
            apart.le(delta).select(apart.square().mul(0.5), far).mean(..)
        })
    }

    /// Computes the binary cross-entropy of logits and targets in 0 to 1, without overflow.
    #[track_caller]
    pub fn binary_cross_entropy_with_logits(&self, target: &Tensor) -> Tensor {
        let at = Location::caller();
        self.composed("binary_cross_entropy_with_logits", at, |x| {
            x.softplus().sub(x.mul(target)).mean(..)
        })
    }

    /// Computes the mean negative log-likelihood of log-probabilities `[.., classes]` and target
    /// classes `[..]` (`i32` or `u32`).
    #[track_caller]
    pub fn nll_loss(&self, target: &Tensor) -> Tensor {
        let at = Location::caller();
        self.attempt("nll_loss", at, || {
            target.check()?;
            if self.rank() == 0 || target.shape() != &self.shape()[..self.rank() - 1] {
                let (a, b) = (self.dims(), target.dims());
                return Err(Error::invalid(format!("targets {b} do not fit the classes of {a}")));
            }
            let picked = self.take_along_axis(-1, &target.unsqueeze(-1));
            picked.check()?;
            Ok(picked.mean(..).neg())
        })
    }

    /// Computes the mean cross-entropy of logits `[.., classes]` and target classes `[..]` (`i32`
    /// or `u32`).
    #[track_caller]
    pub fn cross_entropy(&self, target: &Tensor) -> Tensor {
        let at = Location::caller();
        self.composed("cross_entropy", at, |x| x.log_softmax(-1).nll_loss(target))
    }
}
