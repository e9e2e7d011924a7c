//! Products of two computed tensors, batched, with free strides.

use super::lowering::{Call, Lowering, View};
use super::{Cost, Engine, EngineId, OTHER_OPERATION, Order, Query};
use crate::base::{Dim, Format, Shape};
use crate::error::Result;
use crate::ir::Op;
use crate::kernel::AssetSpec;
use crate::kernel::catalogue::{BATCHED_TILE, IN_ORDER};

/// `matmul_batched`.
pub(super) struct MatMul {
    id: EngineId,
}

impl MatMul {
    pub(super) fn new() -> MatMul {
        MatMul { id: EngineId::new("catalogue.matmul_batched") }
    }
}

impl Engine for MatMul {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        if !matches!(query.op, Op::MatMul) {
            return Err(OTHER_OPERATION.into());
        }
        match query.operands.iter().all(|v| v.format == Format::F32) {
            true => Ok(()),
            false => Err("the operands are not f32".into()),
        }
    }

    fn fuses(&self, query: &Query) -> Result<(), String> {
        query.only_a_segment(0)
    }

    fn order(&self, _query: &Query) -> Result<Order, String> {
        Ok(Order::new(0, "columns in turn"))
    }

    fn cost(&self, query: &Query) -> Cost {
        let k = query.operands.first().and_then(|a| a.shape.dims().last().cloned());
        let k = k.and_then(|k| query.upper(&k).ok()).unwrap_or(1) as f64;
        let flops = 2.0 * k * query.output_elements();
        Cost { bytes: query.total_bytes(), flops, dispatches: 1.0, efficiency: 0.2 }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let rank = query.output.shape.rank();
        let lead: Shape = query.output.shape.dims()[..rank - 2].iter().cloned().collect();
        let (a, a_batch) = batched(&query.operands[0], &lead, out)?;
        let (b, b_batch) = batched(&query.operands[1], &lead, out)?;
        let (m, n) = (&query.output.shape[rank - 2], &query.output.shape[rank - 1]);
        let k = a.shape[a.shape.rank() - 1].clone();
        let [a_row, a_col] = last_two(&a);
        let [b_row, b_col] = last_two(&b);
        let batch = lead.elements();
        let most = Dim::from(query.profile.max_workgroups_per_dim);
        let tiles = |d: &Dim| d.ceil_div(&Dim::from(BATCHED_TILE));
        let spec = AssetSpec::new("matmul_batched");
        let in_order = query.deterministic && !query.is_wgsl();
        out.call(
            Call::new(if in_order { spec.define(IN_ORDER) } else { spec })
                .dim("batch", &batch)?
                .dim("m", m)?
                .dim("n", n)?
                .dim("k", &k)?
                .dim("a_offset", &a.layout.offset)?
                .dim("a_batch_stride", &a_batch)?
                .dim("a_row_stride", &a_row)?
                .dim("a_col_stride", &a_col)?
                .dim("b_offset", &b.layout.offset)?
                .dim("b_batch_stride", &b_batch)?
                .dim("b_row_stride", &b_row)?
                .dim("b_col_stride", &b_col)?
                .dim("y_offset", &query.output.layout.offset)?
                .bind(a.tensor)
                .bind(b.tensor)
                .bind(query.output.tensor)
                .around_query(query)?
                .grid([tiles(n), tiles(m), batch.minimum(&most)]),
        )
    }
}

pub(super) fn last_two(view: &View) -> [Dim; 2] {
    let rank = view.shape.rank();
    [view.layout.strides[rank - 2].clone(), view.layout.strides[rank - 1].clone()]
}

/// The operand with one stride from matrix to matrix, copied where its leading dimensions do not
/// lie at one distance after broadcasting to `lead`.
pub(super) fn batched(view: &View, lead: &Shape, out: &mut Lowering) -> Result<(View, Dim)> {
    let rank = view.shape.rank();
    let to: Shape = lead.dims().iter().chain(&view.shape.dims()[rank - 2..]).cloned().collect();
    let mut full = view.clone();
    full.layout = view.layout.broadcast(&view.shape, &to);
    full.shape = to;
    if let Some(stride) = one_distance(&full, lead.rank()) {
        return Ok((full, stride));
    }
    let copy = out.contiguous(&full)?;
    let matrix =
        copy.shape[copy.shape.rank() - 2].clone() * copy.shape[copy.shape.rank() - 1].clone();
    Ok((copy, matrix))
}

fn one_distance(view: &View, lead: usize) -> Option<Dim> {
    let (mut count, mut stride) = (Dim::new(1), None::<Dim>);
    for axis in (0..lead).rev() {
        if view.shape[axis].is(1) {
            continue;
        }
        match &stride {
            None => stride = Some(view.layout.strides[axis].clone()),
            Some(s) if view.layout.strides[axis] == s.clone() * count.clone() => {}
            Some(_) => return None,
        }
        count = count * view.shape[axis].clone();
    }
    Some(stride.unwrap_or(Dim::new(0)))
}
