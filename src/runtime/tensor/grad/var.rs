//! Variables, and gradients with respect to them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Trace;
use crate::error::{Error, Result};
use crate::runtime::tensor::Tensor;
use crate::runtime::tensor::place::here;

/// A tensor that changes during training, with respect to which results are differentiated.
///
/// A clone is another handle to the same variable.
#[derive(Clone)]
pub struct Var {
    inner: Arc<Inner>,
}

struct Inner {
    trace: Arc<Trace>,
    /// Without a trace.
    value: Mutex<Tensor>,
}

impl Var {
    /// Creates a variable with the value of a tensor. A tensor that is not of floats makes a
    /// variable whose value has a deferred error.
    #[track_caller]
    pub fn new(value: &Tensor) -> Var {
        let at = here();
        let value = value.attempt("Var::new", at, || match value.dtype().is_float() {
            true => Ok(value.detach()),
            false => Err(Error::invalid(format!(
                "elements of {} have no gradient: cast to a float",
                value.dtype()
            ))),
        });
        let value = Mutex::new(value);
        Var { inner: Arc::new(Inner { trace: Arc::new(Trace::variable()), value }) }
    }

    fn lock(&self) -> MutexGuard<'_, Tensor> {
        // Only whole tensors are stored, so a poisoned lock is safe.
        self.inner.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the value, from which computations are traced. It stays what it is if the variable
    /// is set later.
    pub fn value(&self) -> Tensor {
        let value = self.lock().clone();
        let traced = Trace::of_variable(&self.inner.trace).filter(|_| !value.node.is_failed());
        Tensor { trace: traced, ..value }
    }

    /// Replaces the value by a tensor of the same shape and type, which need not have been
    /// evaluated.
    ///
    /// # Errors
    /// The tensor's deferred error; invalid if its shape or type is another. The variable keeps its
    /// value.
    #[track_caller]
    pub fn set(&self, value: &Tensor) -> Result<()> {
        let at = here();
        value.check()?;
        let mut own = self.lock();
        if value.sizes() != own.sizes() || value.dtype() != own.dtype() {
            let what = format!(
                "a variable of {}{} cannot be set to {}{}",
                own.dtype(),
                own.dims(),
                value.dtype(),
                value.dims()
            );
            return Err(Error::invalid(what).context(format_args!("Var::set at {at}")));
        }
        let before = std::mem::replace(&mut *own, value.detach());
        drop(own);
        // Dropped after the lock is released: it may own a long chain.
        drop(before);
        Ok(())
    }

    /// Returns the sizes, outermost first.
    pub fn shape(&self) -> Vec<usize> {
        self.lock().sizes().to_vec()
    }

    /// Returns whether both are handles to one variable.
    pub fn is(&self, other: &Var) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl std::fmt::Debug for Var {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Var").field(&*self.lock()).finish()
    }
}

/// The gradients of a result with respect to variables, from [`Tensor::backward`]. They are lazy
/// tensors, computed when they are read or evaluated.
#[derive(Clone, Debug)]
pub struct Gradients {
    result: Tensor,
    by_variable: HashMap<u64, Tensor>,
}

impl Gradients {
    pub(super) fn new(result: Tensor, found: Vec<(Arc<Trace>, Tensor)>) -> Gradients {
        let number =
            |(trace, tensor): (Arc<Trace>, Tensor)| Some((trace.variable_number()?, tensor));
        Gradients { result, by_variable: found.into_iter().filter_map(number).collect() }
    }

    /// Returns the gradient of a variable, with its shape and type; `None` if the result does not
    /// depend on it, or only through operations whose gradient is 0 everywhere.
    pub fn get(&self, var: &Var) -> Option<&Tensor> {
        self.by_variable.get(&var.inner.trace.variable_number()?)
    }

    /// Replaces the gradient of a variable, such as by a clipped one.
    pub fn insert(&mut self, var: &Var, gradient: Tensor) {
        if let Some(number) = var.inner.trace.variable_number() {
            self.by_variable.insert(number, gradient);
        }
    }

    /// Returns what was differentiated, such as the loss. Evaluated together with the gradients it
    /// costs no second pass.
    pub fn result(&self) -> &Tensor {
        &self.result
    }
}
