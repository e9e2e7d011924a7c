//! Long short-term memory.

use warploom::tensor::Var;
use warploom::{Result, Tensor};

use crate::{Init, Params};

/// A layer of long short-term memory (LSTM).
#[derive(Clone, Debug)]
pub struct Lstm {
    input_weight: Var,
    hidden_weight: Var,
    input_bias: Var,
    hidden_bias: Var,
    width: usize,
}

/// The state between the steps of a sequence.
#[derive(Clone, Debug)]
pub struct LstmState {
    /// The output of the last step: `[batch, width]`.
    pub hidden: Tensor,
    /// The cell: `[batch, width]`.
    pub cell: Tensor,
}

impl Lstm {
    /// Creates a layer. Parameters, with PyTorch's names, layout (gates: input, forget, cell,
    /// output) and initial values: `weight_ih_l0`, `weight_hh_l0`, `bias_ih_l0`, `bias_hh_l0`.
    ///
    /// # Errors
    /// Invalid if the parameters exist with other shapes; a device error.
    pub fn new(params: &Params, inputs: usize, width: usize) -> Result<Lstm> {
        let init = Init::of_inputs(width);
        Ok(Lstm {
            input_weight: params.var("weight_ih_l0", &[4 * width, inputs], init)?,
            hidden_weight: params.var("weight_hh_l0", &[4 * width, width], init)?,
            input_bias: params.var("bias_ih_l0", &[4 * width], init)?,
            hidden_bias: params.var("bias_hh_l0", &[4 * width], init)?,
            width,
        })
    }

    /// Returns a state of zeros.
    pub fn zero_state(&self, batch: usize) -> LstmState {
        let weight = self.input_weight.value();
        let zeros = Tensor::zeros(weight.runtime(), [batch, self.width]).cast(weight.dtype());
        LstmState { hidden: zeros.clone(), cell: zeros }
    }

    /// Computes one step: inputs `[batch, inputs]` and a state to the next state.
    #[track_caller]
    pub fn step(&self, x: &Tensor, state: &LstmState) -> LstmState {
        let gates = x.linear(&self.input_weight.value())
            + self.input_bias.value()
            + state.hidden.linear(&self.hidden_weight.value())
            + self.hidden_bias.value();
        let gate = |i: usize| gates.narrow(-1, i * self.width..(i + 1) * self.width);
        let kept = gate(1).sigmoid() * &state.cell;
        let cell = kept + gate(0).sigmoid() * gate(2).tanh();
        LstmState { hidden: gate(3).sigmoid() * cell.tanh(), cell }
    }

    /// Computes a sequence `[steps, batch, inputs]`, and returns the outputs `[steps, batch, width]`
    /// and the last state.
    ///
    /// # Errors
    /// Invalid if the sequence has no steps; the deferred error of `x`. Other errors are deferred.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, state: &LstmState) -> Result<(Tensor, LstmState)> {
        let mut state = state.clone();
        let mut outputs = Vec::new();
        for i in 0..x.try_shape()?.first().copied().unwrap_or(0) {
            state = self.step(&x.index(0, i as isize), &state);
            outputs.push(state.hidden.clone());
        }
        Ok((Tensor::stack_all(&outputs, 0)?, state))
    }
}
