//! Optimisers: new values of variables from their gradients.

mod adam;
mod lion;
mod muon;
mod sgd;

pub use adam::{Adam, AdamOptions};
pub use lion::{Lion, LionOptions};
pub use muon::{Muon, MuonOptions};
pub use sgd::{Sgd, SgdOptions};

use std::future::Future;

use warploom::tensor::{Gradients, Var};
use warploom::{Result, Tensor};

/// An algorithm that changes variables along their gradients.
pub trait Optimizer {
    /// Records a step: sets the variables, and returns what is to be evaluated, the new values and
    /// the optimiser's state. Variables without a gradient stay as they are.
    ///
    /// # Errors
    /// Deferred errors of gradients, or a gradient of another shape. Then nothing is changed.
    fn update(&mut self, gradients: &Gradients) -> Result<Vec<Tensor>>;

    /// Returns the learning rate.
    fn learning_rate(&self) -> f32;

    /// Sets the learning rate of the next steps; plans stay valid. See
    /// [`Schedule`](crate::Schedule).
    fn set_learning_rate(&mut self, rate: f32);

    /// Takes a step: [`Optimizer::update`], then one evaluation of the differentiated result, such
    /// as the loss, and all that is new.
    ///
    /// # Errors
    /// Those of [`Optimizer::update`]; any planning or device error.
    #[cfg(not(target_arch = "wasm32"))]
    fn step(&mut self, gradients: &Gradients) -> Result<()> {
        let new = self.update(gradients)?;
        let all: Vec<&Tensor> = new.iter().chain([gradients.result()]).collect();
        Tensor::eval(&all)
    }

    /// Async version of [`Optimizer::step`].
    ///
    /// # Errors
    /// Same as [`Optimizer::step`].
    fn step_async(&mut self, gradients: &Gradients) -> impl Future<Output = Result<()>> {
        async {
            let new = self.update(gradients)?;
            let all: Vec<&Tensor> = new.iter().chain([gradients.result()]).collect();
            Tensor::eval_async(&all).await
        }
    }
}

/// New values of one variable and of its state.
struct Change<const STATES: usize> {
    value: Tensor,
    states: [Tensor; STATES],
}

/// A variable with tensors of its shape, zeros at first.
struct Slot<const STATES: usize> {
    var: Var,
    states: [Tensor; STATES],
}

impl<const STATES: usize> Slot<STATES> {
    fn all(vars: Vec<Var>) -> Vec<Slot<STATES>> {
        let slot = |var: Var| {
            let zeros = var.value().detach().zeros_like();
            Slot { states: std::array::from_fn(|_| zeros.clone()), var }
        };
        vars.into_iter().map(slot).collect()
    }

    /// Applies `change` to each variable with a gradient: a function of the variable's index, its
    /// value, gradient and state. All changes are checked before the first is made.
    fn update(
        slots: &mut [Slot<STATES>],
        gradients: &Gradients,
        mut change: impl FnMut(usize, &Tensor, &Tensor, &[Tensor; STATES]) -> Change<STATES>,
    ) -> Result<Vec<Tensor>> {
        let mut changes = Vec::with_capacity(slots.len());
        for (i, slot) in slots.iter().enumerate() {
            let Some(gradient) = gradients.get(&slot.var) else { continue };
            let change = change(i, &slot.var.value().detach(), &gradient.detach(), &slot.states);
            change.value.check()?;
            change.states.iter().try_for_each(Tensor::check)?;
            changes.push((i, change));
        }
        let mut new = Vec::with_capacity(changes.len() * (1 + STATES));
        for (i, Change { value, states }) in changes {
            slots[i].var.set(&value)?;
            new.push(value);
            new.extend(states.iter().cloned());
            slots[i].states = states;
        }
        Ok(new)
    }
}
