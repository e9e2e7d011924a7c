//! A gated short convolution: a layer whose state is its last operands. Letters as in `delta_net`.

use super::Builder;
use super::delta_net::CausalConv;
use warploom::Result;
use warploom::graph::{BinaryOp, NodeId, Op};
use warploom_core::base::Shape;

impl Builder<'_> {
    /// Computes `out(c * conv(b * x))` `[s, d]` from the operand `h`, `[s, d]`, of which one product makes
    /// `b`, `c` and `x`.
    pub(super) fn short_conv(
        &mut self,
        layer: usize,
        taps: usize,
        h: NodeId,
        positions: NodeId,
    ) -> Result<NodeId> {
        let d = self.config.width;
        let zero = self.graph.constant_i32(Shape::new([1u64]), &[0]);
        let first = self.add("", Op::Binary(BinaryOp::Eq), &[positions, zero])?; // [s]
        let all = self.linear(layer, "shortconv.in_proj", h)?; // [s, 3 d]
        let [b, c] = [self.columns(all, 0, d)?, self.columns(all, d, d)?];
        let x = self.columns(all, 2 * d, d)?;
        let x = self.binary(layer, "shortconv_in", BinaryOp::Mul, b, x)?; // [s, d]
        let conv = CausalConv { weight: "shortconv.conv", channels: d, taps };
        let y = self.causal_conv(layer, conv, x, first)?; // [b, r, d]
        let y = self.add("", Op::Reshape(Shape::new([self.tokens.clone(), d.into()])), &[y])?;
        let y = self.binary(layer, "shortconv_gated", BinaryOp::Mul, c, y)?;
        self.linear(layer, "shortconv.out_proj", y)
    }
}
