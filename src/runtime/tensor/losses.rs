//! Losses of training, averaged over all elements or rows.

use super::Tensor;
use super::place::here;
use crate::base::DType;
use crate::error::Error;

impl Tensor {
    /// Computes the mean squared difference from `target`.
    #[track_caller]
    pub fn mse_loss(&self, target: &Tensor) -> Tensor {
        self.composed("mse_loss", here(), |x| x.sub(target).square().mean(..))
    }

    /// Computes Huber's loss: half the squared difference up to `delta`, linear beyond.
    #[track_caller]
    pub fn huber_loss(&self, target: &Tensor, delta: f32) -> Tensor {
        self.composed("huber_loss", here(), |x| {
            let apart = x.sub(target).abs();
            let far = apart.sub(0.5 * delta).mul(delta);
            apart.le(delta).select(apart.square().mul(0.5), far).mean(..)
        })
    }

    /// Computes the binary cross-entropy of logits and targets in 0 to 1, without overflow.
    #[track_caller]
    pub fn binary_cross_entropy_with_logits(&self, target: &Tensor) -> Tensor {
        let at = here();
        self.composed("binary_cross_entropy_with_logits", at, |x| {
            x.softplus().sub(x.mul(target)).mean(..)
        })
    }

    /// Computes the mean negative log-likelihood of log-probabilities `[.., classes]` and target
    /// classes `[..]` (`i32` or `u32`).
    #[track_caller]
    pub fn nll_loss(&self, target: &Tensor) -> Tensor {
        let at = here();
        self.attempt("nll_loss", at, || {
            target.check()?;
            if self.sizes().is_empty() || target.sizes() != &self.sizes()[..self.sizes().len() - 1]
            {
                let (a, b) = (self.dims(), target.dims());
                return Err(Error::invalid(format!("targets {b} do not fit the classes of {a}")));
            }
            // Not a lookup: this way the logarithms stay in the kernel that adds them up.
            let classes = i32::try_from(self.sizes()[target.sizes().len()]).map_err(|_| {
                Error::invalid(format!("the classes of {} are over 2^31 - 1", self.dims()))
            })?;
            let all = Tensor::arange(self.runtime(), 0, classes, 1);
            let picked = target.cast(DType::I32).unsqueeze(-1).eq(all).select(self, 0.0);
            picked.check()?;
            Ok(picked.sum(-1).mean(..).neg())
        })
    }

    /// Computes the mean cross-entropy of logits `[.., classes]` and target classes `[..]` (`i32`
    /// or `u32`).
    #[track_caller]
    pub fn cross_entropy(&self, target: &Tensor) -> Tensor {
        let at = here();
        self.composed("cross_entropy", at, |x| x.log_softmax(-1).nll_loss(target))
    }
}
