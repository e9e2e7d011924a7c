//! A group as the tuner measures it: an owned copy of its query, independent of the graph.

use std::fmt::Write as _;

use crate::base::ShapeClass;
use crate::engine::{Body, Fusion, KnobValues, Query, TaskKey, TensorId, View};
use crate::ir::Op;
use crate::provider::DeviceProfile;

/// A group in isolation, with tensors numbered from 0.
#[derive(Clone)]
pub(super) struct Piece {
    pub(super) op: Op,
    pub(super) operands: Vec<View>,
    pub(super) output: View,
    pub(super) body: Option<Body>,
    pub(super) fused: usize,
    pub(super) fusion: Option<Fusion>,
    pub(super) class: ShapeClass,
    pub(super) profile: DeviceProfile,
    pub(super) f16_accumulate: bool,
    /// The id in the plan of each tensor of the piece.
    pub(super) known: Vec<TensorId>,
}

impl Piece {
    pub(super) fn of(query: &Query) -> Piece {
        let mut piece = Piece {
            op: query.op.clone(),
            operands: query.operands.to_vec(),
            output: query.output.clone(),
            body: query.body.cloned(),
            fused: query.fused,
            fusion: query.fusion.cloned(),
            class: query.class.clone(),
            profile: query.profile.clone(),
            f16_accumulate: query.f16_accumulate,
            known: Vec::new(),
        };
        let mut known: Vec<TensorId> = Vec::new();
        for view in piece.views_mut() {
            let at = known.iter().position(|id| *id == view.tensor).unwrap_or_else(|| {
                known.push(view.tensor);
                known.len() - 1
            });
            view.tensor = TensorId(at as u32);
        }
        piece.known = known;
        piece
    }

    /// Iterates over every view of the query, in a fixed order.
    fn views_mut(&mut self) -> impl Iterator<Item = &mut View> {
        fn of(body: &mut Body) -> impl Iterator<Item = &mut View> {
            body.inputs.iter_mut().chain(body.outputs.iter_mut().map(|(view, _)| view))
        }
        let fusion = self.fusion.iter_mut().flat_map(|fusion| {
            let norm = fusion.norm.iter_mut().map(|(view, _)| view);
            let segments = fusion.segments.iter_mut().map(|segment| &mut segment.body);
            norm.chain(fusion.prologue.iter_mut().chain(segments).flat_map(of))
        });
        let own = self.operands.iter_mut().chain([&mut self.output]);
        own.chain(self.body.iter_mut().flat_map(of)).chain(fusion)
    }

    /// Returns the key: a hash of everything that decides which engine is fastest, but of no name
    /// or position.
    pub(super) fn key(&self) -> TaskKey {
        let mut text = format!(
            "{:?}\n{:?}\n{:?}\n{:?}\n{}\n{:?}\n",
            self.op, self.operands, self.output, self.body, self.fused, self.fusion
        );
        let named = |name: &str| {
            text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
        };
        let ranges = self.class.ranges().iter().filter(|(symbol, ..)| named(symbol.as_str()));
        let ranges: Vec<String> = ranges
            .map(|(symbol, low, high)| match low == high {
                true => format!("{symbol}={low}"),
                // Rounded, so that contexts of similar length share a key.
                false => format!("{symbol}={low}..{}", high.next_power_of_two()),
            })
            .collect();
        let p = &self.profile;
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "{ranges:?}\n{:?} {} {} {} {} {} {} {} {} {} {} {}",
            p.kind,
            p.has_matrix_hw,
            p.has_subgroups,
            p.subgroup_min,
            p.subgroup_max,
            p.has_f16,
            p.compute_units,
            p.max_threads_per_workgroup,
            p.workgroup_memory_bytes,
            p.max_workgroups_per_dim,
            p.max_storage_buffers,
            p.max_binding_bytes,
        );
        // A measurement without the vendor's library is not valid for a device that has it.
        let product = matches!(self.op, Op::MatMul | Op::Linear { .. });
        if p.has_gemm_library && product {
            text.push_str(" library");
        }
        if self.f16_accumulate && matches!(self.op, Op::MatMul) {
            text.push_str(" half sums");
        }
        TaskKey::of(&text)
    }

    pub(super) fn query<'q>(&'q self, label: &'q str, knobs: &'q KnobValues) -> Query<'q> {
        Query {
            op: &self.op,
            label,
            operands: &self.operands,
            output: &self.output,
            body: self.body.as_ref(),
            fused: self.fused,
            fusion: self.fusion.as_ref(),
            profile: &self.profile,
            class: &self.class,
            knobs,
            deterministic: false,
            f16_accumulate: self.f16_accumulate,
            siblings: &[],
            past_kv_is_final: false,
            given: None,
        }
    }
}
