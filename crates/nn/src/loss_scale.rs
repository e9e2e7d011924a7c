//! Loss scaling of mixed precision in `f16`.

use warploom::tensor::{Gradients, Var};
use warploom::{DType, Result, Tensor};

/// A factor of the loss that keeps small gradients in `f16` from becoming zero. It halves when a
/// gradient overflows and doubles after `patience` steps without, as PyTorch's `GradScaler`.
///
/// ```
/// # use warploom::{DType, Runtime, Tensor};
/// # use warploom_nn::{Init, LossScale, Optimizer, Params, Sgd};
/// # fn main() -> warploom::Result<()> {
/// # let runtime = Runtime::auto()?;
/// # let params = Params::new(&runtime, 1);
/// # let w = params.var("w", &[4], Init::Constant(1.0))?;
/// # let mut optimizer = Sgd::new(params.vars(), 0.1);
/// let mut scale = LossScale::new().with_factor(1024.0);
/// let loss = w.value().cast(DType::F16).square().sum(..);
/// let mut gradients = scale.scaled(&loss).backward()?;
/// if scale.unscale(&mut gradients, &params.vars())? {
///     optimizer.step(&gradients)?;
/// }
/// assert_eq!(w.value().to_vec::<f32>()?, [0.8; 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LossScale {
    factor: f32,
    patience: u32,
    finite: u32,
}

impl Default for LossScale {
    fn default() -> LossScale {
        LossScale { factor: 32768.0, patience: 2000, finite: 0 }
    }
}

impl LossScale {
    /// Creates a scale with the factor 32,768 and a patience of 2,000 steps.
    pub fn new() -> LossScale {
        LossScale::default()
    }

    /// Replaces the factor.
    #[must_use]
    pub fn with_factor(self, factor: f32) -> LossScale {
        LossScale { factor, ..self }
    }

    /// Replaces the number of steps without overflow after which the factor doubles.
    #[must_use]
    pub fn with_patience(self, patience: u32) -> LossScale {
        LossScale { patience, ..self }
    }

    /// Returns the factor.
    pub fn factor(&self) -> f32 {
        self.factor
    }

    /// Returns the loss in `f32` times the factor, which is to be differentiated.
    pub fn scaled(&self, loss: &Tensor) -> Tensor {
        loss.cast(DType::F32) * self.factor
    }

    /// Divides the gradients of the variables by the factor, and returns whether all are finite. If
    /// not, the factor is halved and the step must be left out. Runs the step and waits for it.
    ///
    /// # Errors
    /// Any error of computing the gradients.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn unscale(&mut self, gradients: &mut Gradients, vars: &[Var]) -> Result<bool> {
        let Some(finite) = self.divide(gradients, vars) else { return Ok(true) };
        let mut all: Vec<&Tensor> = vars.iter().filter_map(|var| gradients.get(var)).collect();
        all.extend([&finite, gradients.result()]);
        Tensor::eval(&all)?;
        let is_finite = finite.item::<bool>()?;
        self.adjust(is_finite);
        Ok(is_finite)
    }

    /// Async version of [`LossScale::unscale`].
    ///
    /// # Errors
    /// Any error of computing the gradients.
    pub async fn unscale_async(&mut self, gradients: &mut Gradients, vars: &[Var]) -> Result<bool> {
        let Some(finite) = self.divide(gradients, vars) else { return Ok(true) };
        let mut all: Vec<&Tensor> = vars.iter().filter_map(|var| gradients.get(var)).collect();
        all.extend([&finite, gradients.result()]);
        Tensor::eval_async(&all).await?;
        let is_finite = finite.item_async::<bool>().await?;
        self.adjust(is_finite);
        Ok(is_finite)
    }

    /// Divides the gradients, and returns whether all are finite; `None` if there are none.
    fn divide(&self, gradients: &mut Gradients, vars: &[Var]) -> Option<Tensor> {
        let mut finite: Option<Tensor> = None;
        for var in vars {
            let Some(gradient) = gradients.get(var) else { continue };
            let gradient = gradient / self.factor;
            let all = gradient.is_finite().all(..);
            finite = Some(match finite {
                Some(finite) => finite.logical_and(all),
                None => all,
            });
            gradients.insert(var, gradient);
        }
        finite
    }

    fn adjust(&mut self, is_finite: bool) {
        if !is_finite {
            self.factor = (self.factor / 2.0).max(f32::MIN_POSITIVE);
            self.finite = 0;
            return;
        }
        self.finite += 1;
        if self.finite >= self.patience {
            self.factor = (self.factor * 2.0).min(f32::MAX / 2.0);
            self.finite = 0;
        }
    }
}
