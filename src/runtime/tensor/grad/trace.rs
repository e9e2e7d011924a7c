//! How a tensor was computed from variables.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use smallvec::SmallVec;

use super::rules::{self, Call};
use crate::base::DType;
use crate::error::Result;
use crate::ir::Op;
use crate::runtime::tensor::place::as_part_of;
use crate::runtime::tensor::{Place, Tensor};

thread_local! {
    static PAUSED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `record` without traces: what it computes from variables on this thread cannot be
/// differentiated, and keeps nothing for it. For inference with the layers of a training.
pub fn no_grad<T>(record: impl FnOnce() -> T) -> T {
    /// Restores the state, also if `record` panics.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            PAUSED.set(self.0);
        }
    }
    let _restore = Restore(PAUSED.replace(true));
    record()
}

/// A variable, or an operation on tensors of which at least one has a trace.
pub(in crate::runtime::tensor) struct Trace {
    source: Source,
}

enum Source {
    /// A variable, by its number.
    Variable(u64),
    Step(Box<Step>),
}

struct Step {
    op: Op,
    name: &'static str,
    at: Place,
    inputs: SmallVec<[Tensor; 3]>,
    /// Whether its gradient has been recorded: then it needs its inputs no more.
    is_spent: AtomicBool,
}

impl Trace {
    pub(super) fn variable() -> Trace {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Trace { source: Source::Variable(NEXT.fetch_add(1, Ordering::Relaxed)) }
    }

    /// Returns the trace of an operation; `None` if it does not depend on a variable.
    pub(in crate::runtime::tensor) fn of(
        op: &Op,
        name: &'static str,
        at: Place,
        dtype: DType,
        inputs: &[&Tensor],
    ) -> Option<Arc<Trace>> {
        let depends = inputs.iter().any(|input| input.trace.is_some());
        if !depends || !dtype.is_float() || PAUSED.get() {
            return None;
        }
        let inputs = inputs.iter().copied().cloned().collect();
        let is_spent = AtomicBool::new(false);
        let step = Step { op: op.clone(), name, at, inputs, is_spent };
        Some(Arc::new(Trace { source: Source::Step(Box::new(step)) }))
    }

    /// Returns the trace of a variable's value; `None` inside of [`no_grad`].
    pub(super) fn of_variable(variable: &Arc<Trace>) -> Option<Arc<Trace>> {
        (!PAUSED.get()).then(|| variable.clone())
    }

    /// Returns the number of a variable; `None` for an operation.
    pub(super) fn variable_number(&self) -> Option<u64> {
        match self.source {
            Source::Variable(number) => Some(number),
            Source::Step(_) => None,
        }
    }

    pub(super) fn inputs(&self) -> &[Tensor] {
        match &self.source {
            Source::Variable(_) => &[],
            Source::Step(step) => &step.inputs,
        }
    }

    /// Returns the gradients of the inputs for which `wants` is true, from that of the output.
    /// Operations are recorded at the source location of this one.
    ///
    /// # Errors
    /// Invalid, naming the operation, if it has no gradient.
    pub(super) fn pull_back(
        &self,
        output: &Tensor,
        gradient: &Tensor,
        wants: &[bool],
        again: bool,
    ) -> Result<rules::Parts> {
        let Source::Step(step) = &self.source else { return Ok(rules::Parts::new()) };
        let plain = |tensor: &Tensor| if again { tensor.clone() } else { tensor.detach() };
        let inputs: SmallVec<[Tensor; 3]> = step.inputs.iter().map(plain).collect();
        let output = plain(output);
        let call = Call { op: &step.op, inputs: &inputs, output: &output, gradient, wants };
        let parts = as_part_of(step.at, || rules::pull_back(&call))
            .map_err(|error| error.context(format_args!("{} at {}", step.name, step.at)))?;
        if !again && !step.is_spent.swap(true, Ordering::Relaxed) {
            for input in &step.inputs {
                input.node.spent.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(parts)
    }
}

impl Drop for Step {
    /// Drops exclusively owned inputs iteratively, so a chain of any length needs no stack.
    fn drop(&mut self) {
        let mut left: Vec<Tensor> = self.released();
        while let Some(Tensor { node, trace }) = left.pop() {
            drop(node);
            if let Some(Trace { source: Source::Step(mut step) }) = trace.and_then(Arc::into_inner)
            {
                left.extend(step.released());
            }
        }
    }
}

impl Step {
    /// Takes the inputs out.
    fn released(&mut self) -> Vec<Tensor> {
        let inputs: Vec<Tensor> = self.inputs.drain(..).collect();
        if *self.is_spent.get_mut() {
            for input in &inputs {
                input.node.spent.fetch_sub(1, Ordering::Relaxed);
            }
        }
        inputs
    }
}

/// Returns every tensor with a trace on which `root` depends, and `root`, operands before what
/// reads them.
pub(super) fn operands_first(root: &Tensor) -> Vec<(Tensor, Arc<Trace>)> {
    let mut order = Vec::new();
    let mut seen: HashSet<*const Trace> = HashSet::new();
    let mut stack: Vec<(Tensor, Arc<Trace>, usize)> = Vec::new();
    let mut visit = |tensor: &Tensor, stack: &mut Vec<(Tensor, Arc<Trace>, usize)>| {
        if let Some(trace) = &tensor.trace
            && seen.insert(Arc::as_ptr(trace))
        {
            stack.push((tensor.clone(), trace.clone(), 0));
        }
    };
    visit(root, &mut stack);
    while let Some((tensor, trace, next)) = stack.pop() {
        let Some(input) = trace.inputs().get(next).cloned() else {
            order.push((tensor, trace));
            continue;
        };
        stack.push((tensor, trace, next + 1));
        visit(&input, &mut stack);
    }
    order
}
