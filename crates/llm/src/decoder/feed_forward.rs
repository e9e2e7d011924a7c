//! The feed-forward network of a layer, or its mixture of experts.

use super::Builder;
use crate::config::{Activation, Experts, Gate, SharedExpert};
use warploom::Result;
use warploom::graph::{BinaryOp, NodeId, Op, ReduceOp, UnaryOp};
use warploom_core::base::{ComputeMode, Dim, Shape};

impl Builder<'_> {
    /// Computes `down(activation(gate(h)) * up(h))`, `[s, d]`, from the operand `h`, `[s, d]`.
    pub(super) fn feed_forward(&mut self, layer: usize, h: NodeId) -> Result<NodeId> {
        match self.config.experts_of(layer) {
            Some(experts) if !experts.is_beside => return self.mixture(layer, experts, h),
            _ => {}
        }
        if !self.architecture.gated {
            let up = self.linear(layer, "ffn_up", h)?; // [s, f]
            let y = self.activated(layer, up)?; // [s, f]
            return self.linear(layer, "ffn_down", y);
        }
        let (gate, up) = match self.architecture.merged_gate {
            true => {
                let f = self.config.feed_forward_of(layer);
                let both = self.linear(layer, "ffn_up", h)?; // [s, 2 f]
                (self.columns(both, 0, f)?, self.columns(both, f, f)?)
            }
            false => (self.linear(layer, "ffn_gate", h)?, self.linear(layer, "ffn_up", h)?),
        }; // [s, f]
        let mut y = self.gated(layer, "ffn", gate, up)?; // [s, f]
        if self.architecture.sub_norms {
            y = self.norm(layer, "ffn_sub_norm", y)?;
        }
        self.linear(layer, "ffn_down", y)
    }

    /// Computes `activation(gate) * up`, element by element.
    fn gated(&mut self, layer: usize, name: &str, gate: NodeId, up: NodeId) -> Result<NodeId> {
        if self.architecture.activation == Activation::ClampedSwiglu {
            return self.clamped_swiglu(layer, name, gate, up);
        }
        let y = self.activated(layer, gate)?;
        self.binary(layer, &format!("{name}_gated"), BinaryOp::Mul, y, up)
    }

    /// Computes the activation function of `x`, element by element, unless it has two operands.
    pub(super) fn activated(&mut self, layer: usize, x: NodeId) -> Result<NodeId> {
        let (label, op) = match self.architecture.activation {
            Activation::Silu | Activation::ClampedSwiglu => ("ffn_silu", UnaryOp::Silu),
            Activation::GeluTanh => ("ffn_gelu", UnaryOp::GeluTanh),
            Activation::Gelu => ("ffn_gelu", UnaryOp::Gelu),
            Activation::ReluSquared => ("ffn_relu", UnaryOp::Relu),
        };
        let y = self.add(format!("blk.{layer}.{label}"), Op::Unary(op), &[x])?;
        match self.architecture.activation {
            Activation::ReluSquared => self.binary(layer, "ffn_squared", BinaryOp::Mul, y, y),
            _ => Ok(y),
        }
    }

    /// Computes [`Activation::ClampedSwiglu`] of `gate` times `up` plus 1.
    fn clamped_swiglu(
        &mut self,
        layer: usize,
        name: &str,
        gate: NodeId,
        up: NodeId,
    ) -> Result<NodeId> {
        let (most, slope) = (7.0, 1.702);
        let constant =
            |b: &mut Self, value: f32| b.graph.constant_f32(Shape::new([1u64]), &[value]);
        let (high, low, one) = (constant(self, most), constant(self, -most), constant(self, 1.0));
        let gate = self.binary(layer, "ffn_gate_clamped", BinaryOp::Min, gate, high)?;
        let up = self.binary(layer, "ffn_up_below", BinaryOp::Min, up, high)?;
        let up = self.binary(layer, "ffn_up_clamped", BinaryOp::Max, up, low)?;
        let steep = self.scaled(&format!("blk.{layer}.ffn_steep"), gate, slope)?;
        let label = format!("blk.{layer}.ffn_sigmoid");
        let sigmoid = self.add(label, Op::Unary(UnaryOp::Sigmoid), &[steep])?;
        let gate = self.binary(layer, "ffn_swish", BinaryOp::Mul, gate, sigmoid)?;
        let up = self.binary(layer, "ffn_up_more", BinaryOp::Add, up, one)?;
        self.binary(layer, &format!("{name}_gated"), BinaryOp::Mul, gate, up)
    }

    /// Computes the sum of the feed-forward network of `h` and of a mixture of experts of `x`, `[s, d]`
    /// each; `h` is `x` normalised. Both have norms of their own.
    pub(super) fn beside_experts(
        &mut self,
        layer: usize,
        experts: &Experts,
        x: NodeId,
        h: NodeId,
    ) -> Result<NodeId> {
        let name = |what: &str| format!("blk.{layer}.{what}");
        let dense = self.feed_forward(layer, h)?; // [s, d]
        let dense = self.norm(layer, "post_ffw_norm_1", dense)?;
        let scale = self.weight(&name("ffn_gate_inp.scale"))?; // [d]
        let eps = self.config.norm_epsilon;
        let r = self.add(name("ffn_router"), Op::RmsNorm { eps }, &[x, scale])?; // [s, d]
        let r =
            self.scaled(&name("ffn_router_scale"), r, (self.config.width as f32).sqrt().recip())?;
        let router = self.weight(&name("ffn_gate_inp.weight"))?; // [experts, d]
        let logits = self.add(name("ffn_gate_inp"), Op::linear(), &[r, router])?; // [s, experts]
        let (ids, weights) = self.chosen_of(layer, experts, logits)?; // [s, a]
        let factors = self.weight(&name("ffn_down_exps.scale"))?; // [experts]
        let factors = self.add("", Op::Gather { axis: 0 }, &[factors, ids])?; // [s, a]
        let weights = self.binary(layer, "ffn_moe_factors", BinaryOp::Mul, weights, factors)?;
        let h = self.norm(layer, "pre_ffw_norm_2", x)?; // [s, d]
        let rows = Shape::new([self.tokens.clone(), Dim::new(1), Dim::from(self.config.width)]);
        let rows = self.add("", Op::Reshape(rows), &[h])?; // [s, 1, d]
        let both = self.of_experts(layer, "ffn_gate_up_exps", rows, ids)?; // [s, a, 2 f]
        let f = experts.feed_forward;
        let part =
            |start: usize| Op::Slice { axis: 2, start: start.into(), len: f.into(), step: 1 };
        let [gate, up] = [self.add("", part(0), &[both])?, self.add("", part(f), &[both])?];
        let y = self.gated(layer, "ffn_exps", gate, up)?; // [s, a, f]
        let y = self.of_experts(layer, "ffn_down_exps", y, ids)?; // [s, a, d]
        let y = self.weighted_sum(layer, experts, y, weights)?; // [s, d]
        let y = self.norm(layer, "post_ffw_norm_2", y)?;
        self.binary(layer, "ffn_out", BinaryOp::Add, dense, y)
    }

    /// Sums the results `y` `[s, a, d]` of the experts of a token by their weights `[s, a]`: `[s, d]`.
    fn weighted_sum(
        &mut self,
        layer: usize,
        experts: &Experts,
        y: NodeId,
        weights: NodeId,
    ) -> Result<NodeId> {
        let each = Shape::new([self.tokens.clone(), Dim::from(experts.active), Dim::new(1)]);
        let weights = self.add("", Op::Reshape(each), &[weights])?; // [s, a, 1]
        let y = self.binary(layer, "ffn_weighted", BinaryOp::Mul, y, weights)?;
        let sum = Op::Reduce { op: ReduceOp::Sum, axes: vec![1], keep: false };
        self.add(format!("blk.{layer}.ffn_moe_out"), sum, &[y])
    }

    /// Computes the weighted sum of the chosen experts' networks, `[s, d]`, from the operand `h`,
    /// `[s, d]`; `a` experts compute a token.
    fn mixture(&mut self, layer: usize, experts: &Experts, h: NodeId) -> Result<NodeId> {
        let (ids, weights) = self.route(layer, experts, h)?; // [s, a]
        let rows = Shape::new([self.tokens.clone(), Dim::new(1), Dim::from(self.config.width)]);
        let rows = self.add("", Op::Reshape(rows), &[h])?; // [s, 1, d]
        let gate = self.of_experts(layer, "ffn_gate_exps", rows, ids)?; // [s, a, f]
        let up = self.of_experts(layer, "ffn_up_exps", rows, ids)?; // [s, a, f]
        let y = self.gated(layer, "ffn", gate, up)?; // [s, a, f]
        let y = self.of_experts(layer, "ffn_down_exps", y, ids)?; // [s, a, d]
        let y = self.weighted_sum(layer, experts, y, weights)?; // [s, d]
        match &experts.shared {
            Some(shared) => {
                let shared = self.shared_expert(layer, shared, h)?; // [s, d]
                self.binary(layer, "ffn_out", BinaryOp::Add, y, shared)
            }
            None => Ok(y),
        }
    }

    /// Computes the network beside the experts, `[s, d]`, times its gate, `[s, 1]`, if it has one.
    fn shared_expert(&mut self, layer: usize, shared: &SharedExpert, h: NodeId) -> Result<NodeId> {
        let gate = self.linear(layer, "ffn_gate_shexp", h)?; // [s, f]
        let up = self.linear(layer, "ffn_up_shexp", h)?; // [s, f]
        let y = self.gated(layer, "ffn_shexp", gate, up)?; // [s, f]
        let y = self.linear(layer, "ffn_down_shexp", y)?; // [s, d]
        if !shared.gated {
            return Ok(y);
        }
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
        let logits = self.linear(layer, "ffn_gate_inp", h)?; // [s, experts]
        self.chosen_of(layer, experts, logits)
    }

    /// Chooses the experts of each token by their logits `[s, experts]`: their ids and weights, `[s, a]`
    /// each.
    fn chosen_of(
        &mut self,
        layer: usize,
        experts: &Experts,
        logits: NodeId,
    ) -> Result<(NodeId, NodeId)> {
        let name = |what: &str| format!("blk.{layer}.ffn_moe_{what}");
        if experts.gate == Gate::Softmax && experts.normalised && !experts.has_selection_bias {
            // The shares of the chosen among all, divided by their sum, are their softmax alone:
            // three kernels instead of five.
            let ids = self.add(name("topk"), Op::TopK { k: experts.active }, &[logits])?; // [s, a]
            let chosen = self.add(name("logits"), Op::TakeAlong, &[logits, ids])?; // [s, a]
            let weights = self.add(name("weights"), Op::Softmax, &[chosen])?; // [s, a]
            return Ok((ids, self.scaled(&name("scaled"), weights, experts.scale)?));
        }
        let gate = match experts.gate {
            Gate::Softmax => Op::Softmax,
            Gate::Sigmoid => Op::Unary(UnaryOp::Sigmoid),
        };
        let all = self.add(name("probs"), gate, &[logits])?; // [s, experts]
        let keys = match experts.has_selection_bias {
            true => {
                let bias = self.weight(&format!("blk.{layer}.exp_probs_b.bias"))?; // [experts]
                self.binary(layer, "ffn_moe_keys", BinaryOp::Add, all, bias)?
            }
            false => all,
        }; // [s, experts]
        let ids = self.add(name("topk"), Op::TopK { k: experts.active }, &[keys])?; // [s, a]
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
