//! An engine for each node.

use super::draft::{Draft, NodeChoice};
use crate::engine::{Query, View, choose as rank};
use crate::error::Result;
use crate::ir::OpClass;

pub(super) fn choose(draft: &mut Draft) -> Result<()> {
    let ids: Vec<_> = draft.graph.ids().collect();
    for id in ids {
        let node = draft.graph.node(id);
        match node.op.class() {
            OpClass::Leaf => continue,
            _ if draft.absorbed.contains(&id) => continue,
            OpClass::Alias if !draft.copies.contains(&id) => continue,
            OpClass::Alias => {
                let why = "strides cannot say this view".into();
                let label = draft.describe(id);
                let candidates = Vec::new();
                draft.choices.push(NodeChoice {
                    node: id,
                    label,
                    engine: None,
                    seconds: 0.0,
                    why,
                    candidates,
                });
                continue;
            }
            _ => {}
        }
        let label = draft.describe(id);
        let operands: Vec<View> =
            node.inputs.iter().map(|input| draft.views[input.index()].clone()).collect();
        let query = Query {
            op: &node.op,
            label: &label,
            operands: &operands,
            output: &draft.views[id.index()],
            profile: draft.profile,
            class: draft.class,
        };
        let options = draft.options;
        let engines = options.registry.engines().iter().map(|engine| engine.as_ref());
        let (_, choice) = rank(engines, options.heuristic, &options.preferred, &query)
            .map_err(|e| e.context(&label))?;
        draft.choices.push(NodeChoice {
            node: id,
            engine: Some(choice.engine),
            seconds: choice.seconds,
            why: choice.why,
            candidates: choice.candidates,
            label,
        });
    }
    Ok(())
}
