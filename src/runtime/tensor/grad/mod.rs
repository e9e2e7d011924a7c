//! Gradients: reverse-mode automatic differentiation of tensors.
//!
//! ```
//! use warploom::{Runtime, Tensor};
//! use warploom::tensor::Var;
//!
//! # fn main() -> warploom::Result<()> {
//! let runtime = Runtime::auto()?;
//! let w = Var::new(&Tensor::from_vec(&runtime, vec![1.0_f32, -2.0, 3.0], [3]));
//! let loss = w.value().square().sum(..); // 1 + 4 + 9
//! let gradients = loss.backward()?;
//! let gradient = gradients.get(&w).unwrap();
//! assert_eq!(gradient.to_vec::<f32>()?, [2.0, -4.0, 6.0]);
//! // One step of gradient descent.
//! w.set(&(w.value() - gradient * 0.1))?;
//! assert_eq!(w.value().to_vec::<f32>()?, [0.8, -1.6, 2.4]);
//! # Ok(())
//! # }
//! ```
//!
//! **Variables.** A [`Var`] holds a tensor that is to be differentiated with respect to, such as a
//! weight. What is computed from [`Var::value`] remembers its operations (a trace);
//! [`Tensor::detach`] and [`no_grad`] leave it out.
//!
//! **Laziness.** [`Tensor::backward`] and [`Tensor::grad`] only record operations, as any method
//! of a tensor does. If the loss, its gradients and the new weights are evaluated together
//! ([`Tensor::eval`]), they are one graph: kernels fuse over the borders of the passes, the plan is
//! found again in the next step, and each provider computes it, also in a browser.
//!
//! **What is kept.** A loss that is evaluated before it is differentiated keeps its matrix
//! products, convolutions, reductions and lookups on the device, and elementwise operations are
//! computed again. If the loss is differentiated first, intermediates are kept only while the graph
//! runs.
//!
//! **Where a function has no derivative**: at ties `max` and `min` divide the gradient evenly among
//! the equal elements, as do `maximum` and `minimum` between both sides; `relu` and `abs` have the
//! derivative 0 at 0; a mean pool counts what it averaged, and a max pool takes the first maximum.
//! `floor`, `ceil`, `round`, comparisons and `argmax` have the gradient 0. A kernel of a pack has
//! none: differentiating it is an error that names it.

mod rules;
mod trace;
mod var;

use std::collections::HashMap;
use std::sync::Arc;

pub(super) use trace::Trace;
pub use trace::no_grad;
pub use var::{Gradients, Var};

use super::place::{as_part_of, here};
use super::{Place, Tensor};
use crate::error::{Error, Result};

impl Tensor {
    /// Returns the gradients of this tensor, a scalar or one element, with respect to all variables
    /// from which it was computed. See [`grad`](self).
    ///
    /// # Errors
    /// The tensor's deferred error; invalid if it has not exactly one element, was not computed
    /// from a variable, or depends on one through an operation without a gradient.
    #[track_caller]
    pub fn backward(&self) -> Result<Gradients> {
        let at = here();
        self.check()?;
        if self.count() != 1 {
            return Err(failed("backward", at, format!("{} is not one element", self.dims())));
        }
        self.backward_at("backward", &self.ones_like(), at)
    }

    /// Same as [`Tensor::backward`] for a tensor of any shape: the gradients of
    /// `sum(self * seed)`. The seed has the tensor's shape and type.
    ///
    /// # Errors
    /// Same as [`Tensor::backward`], and those of the seed.
    #[track_caller]
    pub fn backward_with(&self, seed: &Tensor) -> Result<Gradients> {
        let at = here();
        self.check()?;
        seed.check()?;
        if seed.sizes() != self.sizes() || seed.dtype() != self.dtype() {
            let (a, b) = (self.dtype(), seed.dtype());
            let what = format!("the seed {b}{} is not {a}{}", seed.dims(), self.dims());
            return Err(failed("backward_with", at, what));
        }
        self.backward_at("backward_with", &seed.detach(), at)
    }

    /// Returns the gradients of this tensor, a scalar or one element, with respect to tensors from
    /// which it was computed: values of variables, or intermediate results. The gradients can be
    /// differentiated again. A tensor on which this one does not depend has a gradient of zeros.
    ///
    /// ```
    /// # use warploom::{Runtime, Tensor, tensor::Var};
    /// # fn main() -> warploom::Result<()> {
    /// let runtime = Runtime::auto()?;
    /// let x = Var::new(&Tensor::scalar(&runtime, 2.0_f32)).value();
    /// let y = &x * &x * &x;
    /// let dy = &y.grad(&[&x])?[0]; // 3 x^2
    /// let ddy = &dy.grad(&[&x])?[0]; // 6 x
    /// assert_eq!((dy.item::<f32>()?, ddy.item::<f32>()?), (12.0, 12.0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Tensor::backward`]; invalid if one of `inputs` was not computed from a variable.
    #[track_caller]
    pub fn grad(&self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let at = here();
        self.check()?;
        if self.count() != 1 {
            return Err(failed("grad", at, format!("{} is not one element", self.dims())));
        }
        let mut targets = Vec::with_capacity(inputs.len());
        for (i, input) in inputs.iter().enumerate() {
            input.check()?;
            let trace = input.trace.as_ref().ok_or_else(|| {
                failed("grad", at, format!("input {i} was not computed from a variable"))
            })?;
            targets.push(Arc::as_ptr(trace));
        }
        let wanted = |trace: &Trace| targets.contains(&std::ptr::from_ref(trace));
        let found = as_part_of(at, || pull(self, &self.ones_like(), &wanted, true))
            .map_err(|error| error.context(format_args!("grad at {at}")))?;
        let of = |(input, target): (&&Tensor, &*const Trace)| {
            let mut found = found.iter().filter(|(trace, _)| Arc::as_ptr(trace) == *target);
            found.next().map_or_else(|| input.zeros_like(), |(_, gradient)| gradient.clone())
        };
        Ok(inputs.iter().zip(&targets).map(of).collect())
    }

    /// Returns the same tensor without its trace: gradients end here.
    #[must_use]
    pub fn detach(&self) -> Tensor {
        Tensor { node: self.node.clone(), trace: None }
    }

    /// Returns whether the tensor was computed from a [`Var`], so that it can be differentiated.
    pub fn is_traced(&self) -> bool {
        self.trace.is_some()
    }

    fn backward_at(&self, name: &'static str, seed: &Tensor, at: Place) -> Result<Gradients> {
        if self.trace.is_none() {
            return Err(failed(name, at, "it was not computed from a variable".to_owned()));
        }
        let found =
            as_part_of(at, || pull(self, seed, &|trace| trace.variable_number().is_some(), false))
                .map_err(|error| error.context(format_args!("{name} at {at}")))?;
        Ok(Gradients::new(self.detach(), found))
    }
}

fn failed(name: &str, at: Place, what: String) -> Error {
    Error::invalid(what).context(format_args!("{name} at {at}"))
}

/// Returns the traces for which `wanted` is true, with their gradients. With `again` these can be
/// differentiated themselves.
fn pull(
    root: &Tensor,
    seed: &Tensor,
    wanted: &dyn Fn(&Trace) -> bool,
    again: bool,
) -> Result<Vec<(Arc<Trace>, Tensor)>> {
    let mut found = Vec::new();
    let Some(first) = &root.trace else { return Ok(found) };
    let order = trace::operands_first(root);
    // Whether a path leads to what is wanted.
    let mut leads: HashMap<*const Trace, bool> = HashMap::with_capacity(order.len());
    for (_, trace) in &order {
        let leads_there = wanted(trace)
            || trace
                .inputs()
                .iter()
                .filter_map(|input| input.trace.as_ref())
                .any(|input| leads.get(&Arc::as_ptr(input)).copied().unwrap_or(false));
        leads.insert(Arc::as_ptr(trace), leads_there);
    }
    let mut sums: HashMap<*const Trace, Tensor> = HashMap::with_capacity(order.len());
    sums.insert(Arc::as_ptr(first), seed.clone());
    for (output, trace) in order.iter().rev() {
        let pointer = Arc::as_ptr(trace);
        let Some(gradient) = sums.remove(&pointer) else { continue };
        if wanted(trace) {
            found.push((trace.clone(), gradient.clone()));
        }
        let needed = |input: &Tensor| {
            let trace = input.trace.as_ref();
            trace.is_some_and(|trace| leads.get(&Arc::as_ptr(trace)).copied().unwrap_or(false))
        };
        let wants: Vec<bool> = trace.inputs().iter().map(needed).collect();
        if !wants.contains(&true) {
            continue;
        }
        let parts = trace.pull_back(output, &gradient, &wants, again)?;
        for (input, part) in trace.inputs().iter().zip(parts) {
            let (Some(input), Some(part)) = (&input.trace, part) else { continue };
            part.check()?;
            sums.entry(Arc::as_ptr(input)).and_modify(|sum| *sum = sum.add(&part)).or_insert(part);
        }
    }
    Ok(found)
}
