//! Factors of queries that grow with their position, for texts beyond a model's first context.

use super::Builder;
use warploom::Result;
use warploom::graph::{BinaryOp, NodeId, Op, UnaryOp};
use warploom_core::base::{DType, Dim, Shape};

impl Builder<'_> {
    /// Computes the factor of the queries of each token, `1 + scale * log(1 + floor(position / length))`:
    /// `[s, 1, 1]`, or `None` if there is none.
    pub(super) fn tempered(&mut self, positions: NodeId) -> Result<Option<NodeId>> {
        let Some(temperature) = self.config.temperature else { return Ok(None) };
        let constant = |b: &mut Self, x: f32| b.graph.constant_f32(Shape::new([1u64]), &[x]);
        let (one, length) = (constant(self, 1.0), constant(self, temperature.length as f32));
        let x = self.add("query_position", Op::Cast(DType::F32), &[positions])?; // [s]
        let x = self.add("", Op::Binary(BinaryOp::Div), &[x, length])?;
        let x = self.add("", Op::Unary(UnaryOp::Floor), &[x])?;
        let x = self.add("", Op::Binary(BinaryOp::Add), &[x, one])?;
        let x = self.add("", Op::Unary(UnaryOp::Log), &[x])?;
        let x = self.scaled("", x, temperature.scale)?;
        let x = self.add("query_scale", Op::Binary(BinaryOp::Add), &[x, one])?; // [s]
        let each = Shape::new([self.tokens.clone(), Dim::new(1), Dim::new(1)]);
        self.add("", Op::Reshape(each), &[x]).map(Some)
    }
}
