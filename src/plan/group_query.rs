//! A group as engines see it: builds the [`Query`] that `split`, `choose`, `fuse_quant`, `lower`
//! and the tuner pass to engines.

use super::Selector;
use super::builder::PlanBuilder;
use super::fusion::Group;
use super::kv_readiness;
use super::piece::Piece;
use crate::engine::{EngineId, KnobValues, Query, TaskKey, View};
use crate::error::{Error, Result};
use crate::ir::OpClass;

/// A group with its operands, from which a [`Query`] is made.
pub(super) struct GroupQuery<'b> {
    builder: &'b PlanBuilder<'b>,
    group: &'b Group,
    label: &'b str,
    operands: Vec<View>,
}

impl<'b> GroupQuery<'b> {
    pub(super) fn new(
        builder: &'b PlanBuilder<'b>,
        group: &'b Group,
        label: &'b str,
    ) -> GroupQuery<'b> {
        GroupQuery { builder, group, label, operands: operands(builder, group) }
    }

    /// Returns the operands of the group's root as engines read them.
    pub(super) fn operands(&self) -> &[View] {
        &self.operands
    }

    /// Returns the query, without knob values.
    pub(super) fn query(&self) -> Query<'_> {
        let (builder, group) = (self.builder, self.group);
        Query {
            op: &builder.graph.node(group.root).op,
            label: self.label,
            operands: &self.operands,
            output: &builder.views[group.root.index()],
            body: group.body.as_ref(),
            fused: group.nodes.len(),
            fusion: group.fused.as_ref().map(|fused| &fused.fusion),
            profile: builder.profile,
            class: builder.class,
            knobs: KnobValues::NONE,
            deterministic: builder.options.deterministic,
            f16_accumulate: builder.options.f16_accumulate,
            siblings: &[],
            past_kv_is_final: kv_readiness::rows_before(&builder.graph, group.root),
            given: group.given,
        }
    }

    /// Returns a copy of the query that is independent of the graph, as the tuner measures it.
    pub(super) fn piece(&self) -> Piece {
        Piece::of(&self.query())
    }

    /// Returns the key under which the tuner stores its choice.
    pub(super) fn key(&self) -> TaskKey {
        self.piece().key()
    }
}

/// Returns the operands of a group's root as engines read them: if a conversion is elided, its
/// source replaces the operand.
pub(super) fn operands(builder: &PlanBuilder, group: &Group) -> Vec<View> {
    let inputs = &builder.graph.node(group.root).inputs;
    let mut views: Vec<View> =
        inputs.iter().map(|input| builder.views[input.index()].clone()).collect();
    let read = group.fused.iter().flat_map(|fused| &fused.operands);
    for (view, read) in views.iter_mut().zip(read) {
        if let Some(read) = read {
            view.clone_from(read);
        }
    }
    views
}

/// Returns whether a group is a single view that strides cannot express, so that it is copied.
pub(super) fn is_copy(builder: &PlanBuilder, group: &Group) -> bool {
    builder.graph.node(group.root).op.class() == OpClass::Alias
}

/// Returns the engine that the caller forces for a node of the group, if any.
///
/// # Errors
/// Unsupported if several engines are forced for nodes of the group.
pub(super) fn forced<'o>(builder: &PlanBuilder<'o>, group: &Group) -> Result<Option<&'o EngineId>> {
    let options = builder.options;
    let mut found: Option<(&Selector, &EngineId)> = None;
    for (selector, id) in &options.force {
        if !group.nodes.iter().any(|node| selector.selects(&builder.graph, *node)) {
            continue;
        }
        match found {
            Some((other, first)) if first != id => {
                // Two forced engines cannot share a group; split it if possible.
                return Err(Error::unsupported(format!(
                    "engine {first} is forced for {other} and engine {id} for {selector}, which \
                     are one kernel"
                )));
            }
            _ => found = Some((selector, id)),
        }
    }
    Ok(found.map(|(_, id)| id))
}
