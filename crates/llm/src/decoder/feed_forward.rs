//! The feed-forward network of a layer, or its mixture of experts.

use super::Builder;
use crate::config::{Activation, Experts, Gate};
use warploom::Result;
use warploom::graph::{BinaryOp, NodeId, Op, ReduceOp, UnaryOp};
use warploom_core::base::{ComputeMode, Dim, Shape};

impl Builder<'_> {
    /// Computes `down(activation(gate(h)) * up(h))`, `[s, d]`, from the operand `h`, `[s, d]`.
    pub(super) fn feed_forward(&mut self, layer: usize, h: NodeId) -> Result<NodeId> {
        if let Some(experts) = &self.config.experts {
            return self.mixture(layer, experts, h);
        }
        let (gate, up) = match self.architecture.merged {
            true => {
                let f = self.config.feed_forward;
                let both = self.linear(layer, "ffn_up", h)?; // [s, 2 f]
                (self.columns(both, 0, f)?, self.columns(both, f, f)?)
            }
            false => (self.linear(layer, "ffn_gate", h)?, self.linear(layer, "ffn_up", h)?),
        }; // [s, f]
        let gate = self.activation(layer, gate)?; // [s, f]
        let mut y = self.binary(layer, "ffn_gated", BinaryOp::Mul, gate, up)?; // [s, f]
        if self.architecture.sub_norms {
            y = self.norm(layer, "ffn_sub_norm", y)?;
        }
        self.linear(layer, "ffn_down", y)
    }

    fn activation(&mut self, layer: usize, x: NodeId) -> Result<NodeId> {
        let (name, op) = match self.architecture.activation {
            Activation::Silu => ("ffn_silu", UnaryOp::Silu),
            Activation::GeluTanh => ("ffn_gelu", UnaryOp::GeluTanh),
            Activation::ReluSquared => ("ffn_relu", UnaryOp::Relu),
        };
        let y = self.add(format!("blk.{layer}.{name}"), Op::Unary(op), &[x])?;
        match self.architecture.activation {
            Activation::ReluSquared => self.binary(layer, "ffn_squared", BinaryOp::Mul, y, y),
            Activation::Silu | Activation::GeluTanh => Ok(y),
        }
    }

    /// Computes the weighted sum of the chosen experts' networks, `[s, d]`, from the operand `h`,
    /// `[s, d]`; `a` experts compute a token.
    fn mixture(&mut self, layer: usize, experts: &Experts, h: NodeId) -> Result<NodeId> {
        let (ids, weights) = self.route(layer, experts, h)?; // [s, a]
        let s = self.tokens.clone();
        let rows = Shape::new([s.clone(), Dim::new(1), Dim::from(self.config.width)]);
        let rows = self.add("", Op::Reshape(rows), &[h])?; // [s, 1, d]
        let gate = self.of_experts(layer, "ffn_gate_exps", rows, ids)?; // [s, a, f]
        let up = self.of_experts(layer, "ffn_up_exps", rows, ids)?; // [s, a, f]
        let gate = self.activation(layer, gate)?;
        let y = self.binary(layer, "ffn_gated", BinaryOp::Mul, gate, up)?; // [s, a, f]
        let y = self.of_experts(layer, "ffn_down_exps", y, ids)?; // [s, a, d]
        let each = Shape::new([s, Dim::from(experts.active), Dim::new(1)]);
        let weights = self.add("", Op::Reshape(each), &[weights])?; // [s, a, 1]
        let y = self.binary(layer, "ffn_weighted", BinaryOp::Mul, y, weights)?;
        let sum = Op::Reduce { op: ReduceOp::Sum, axes: vec![1], keep: false };
        let y = self.add(format!("blk.{layer}.ffn_moe_out"), sum, &[y])?; // [s, d]
        match experts.shared_feed_forward {
            Some(_) => {
                let shared = self.shared_expert(layer, h)?; // [s, d]
                self.binary(layer, "ffn_out", BinaryOp::Add, y, shared)
            }
            None => Ok(y),
        }
    }

    /// Computes the network beside the experts, `[s, d]`, times its gate, `[s, 1]`.
    fn shared_expert(&mut self, layer: usize, h: NodeId) -> Result<NodeId> {
        let gate = self.linear(layer, "ffn_gate_shexp", h)?; // [s, f]
        let up = self.linear(layer, "ffn_up_shexp", h)?; // [s, f]
        let gate = self.activation(layer, gate)?;
        let y = self.binary(layer, "ffn_shexp_gated", BinaryOp::Mul, gate, up)?; // [s, f]
        let y = self.linear(layer, "ffn_down_shexp", y)?; // [s, d]
        let weight = self.weight(&format!("blk.{layer}.ffn_gate_inp_shexp.weight"))?; // [d]
        let each = self.binary(layer, "ffn_shexp_logit", BinaryOp::Mul, h, weight)?; // [s, d]
        let sum = Op::Reduce { op: ReduceOp::Sum, axes: vec![1], keep: true };
        let gate = self.add("", sum, &[each])?; // [s, 1]
        let name = format!("blk.{layer}.ffn_shexp_gate");
        let gate = self.add(name, Op::Unary(UnaryOp::Sigmoid), &[gate])?;
        self.binary(layer, "ffn_shexp_out", BinaryOp::Mul, y, gate)
    }

    /// Chooses the experts of each token: their ids and weights, `[s, a]` each.
    fn route(&mut self, layer: usize, experts: &Experts, h: NodeId) -> Result<(NodeId, NodeId)> {
        let name = |what: &str| format!("blk.{layer}.ffn_moe_{what}");
        let logits = self.linear(layer, "ffn_gate_inp", h)?; // [s, experts]
        let gate = match experts.gate {
            Gate::Softmax => Op::Softmax,
            Gate::Sigmoid => Op::Unary(UnaryOp::Sigmoid),
        };
        let all = self.add(name("probs"), gate, &[logits])?; // [s, experts]
        let ids = self.add(name("topk"), Op::TopK { k: experts.active }, &[all])?; // [s, a]
        let mut weights = self.add(name("weights"), Op::TakeAlong, &[all, ids])?; // [s, a]
        if experts.normalised {
            let sum = Op::Reduce { op: ReduceOp::Sum, axes: vec![1], keep: true };
            let sum = self.add(name("weights_sum"), sum, &[weights])?; // [s, 1]
            weights = self.binary(layer, "ffn_moe_norm", BinaryOp::Div, weights, sum)?;
        }
        Ok((ids, self.scaled(&name("scaled"), weights, experts.scale)?))
    }

    /// Multiplies rows `x` `[s, 1 or a, k]` by the matrices of the experts `ids` `[s, a]`, and adds
    /// their biases if there are any.
    fn of_experts(&mut self, layer: usize, name: &str, x: NodeId, ids: NodeId) -> Result<NodeId> {
        let name = format!("blk.{layer}.{name}");
        let weight = self.weight(&format!("{name}.weight"))?;
        let op = Op::ExpertLinear { mode: ComputeMode::F32 };
        let mut y = self.add(&name, op, &[x, weight, ids])?; // [s, a, n]
        if let Some(bias) = self.find_weight(&format!("{name}.bias")) {
            let each = self.add("", Op::Gather { axis: 0 }, &[bias, ids])?; // [s, a, n]
            y = self.add(format!("{name}.bias"), Op::Binary(BinaryOp::Add), &[y, each])?;
        }
        Ok(y)
    }
}
