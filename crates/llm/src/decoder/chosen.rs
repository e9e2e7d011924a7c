//! Tokens chosen on the device, which the next run reads without a host round trip.

use super::{Builder, CHOSEN, CacheShape, DecoderInput, DecoderOutput};
use warploom::Result;
use warploom::graph::{Graph, NodeId, Op};
use warploom_core::base::{DType, Dim, Shape};

/// The state of chosen tokens, and the slots of it that a run uses.
pub(super) struct Chosen {
    /// The state, `[sequences]` u32.
    pub(super) state: NodeId,
    at: At,
}

/// The slots of the state that a run reads and writes.
enum At {
    /// The slot of one sequence, by its index.
    Row(Dim),
    /// The slots of a batch of sequences, by their indices `[s]`.
    Slots(NodeId),
}

impl Chosen {
    /// Adds the state to the graph; `None` if the run neither chooses a token nor reads a chosen
    /// one.
    pub(super) fn new(
        graph: &mut Graph,
        cache: CacheShape,
        input: DecoderInput,
        output: DecoderOutput,
        base: &Dim,
        slots: Option<NodeId>,
    ) -> Option<Chosen> {
        if !output.is_token() && !input.is_run_ahead() {
            return None;
        }
        let state = graph.state(CHOSEN, Shape::new([cache.sequences]), DType::U32);
        let at = match slots {
            Some(slots) => At::Slots(slots),
            None => At::Row(base.floor_div(&Dim::from(cache.context))),
        };
        Some(Chosen { state, at })
    }

    /// Stores the chosen tokens in the state and returns them: `[1]`, or `[s]` for a batch.
    pub(super) fn keep(&self, b: &mut Builder<'_>, token: NodeId) -> Result<NodeId> {
        match &self.at {
            At::Row(at) => {
                let op = Op::Update { at: at.clone() };
                let state = b.add(CHOSEN, op, &[self.state, token])?; // [sequences]
                self.read(&mut b.graph, state)
            }
            // The stored state is not read again, which saves a step.
            At::Slots(slots) => {
                b.add(CHOSEN, Op::Scatter, &[self.state, token, *slots])?; // [sequences]
                Ok(token)
            }
        }
    }

    /// Reads the slots of `state` `[sequences]`: `[1]`, or `[s]` for a batch.
    pub(super) fn read(&self, graph: &mut Graph, state: NodeId) -> Result<NodeId> {
        match &self.at {
            At::Row(at) => {
                let op = Op::Slice { axis: 0, start: at.clone(), len: Dim::new(1), step: 1 };
                graph.add(op, &[state])
            }
            At::Slots(slots) => graph.add(Op::Gather { axis: 0 }, &[state, *slots]),
        }
    }
}
