//! Shrinks a failing case.

use super::super::build::{Binding, Case};
use warploom_core::ir::{Graph, NodeId, Op, OpClass, live, rewrite, verify};
use warploom_core::reference::{self, Tensor};

/// Simplifies a case as long as `fails` holds for the result: keeps or drops one output, makes an
/// operand of an output the only output, or replaces an operation with an input that has its value
/// or with one of its operands.
///
/// The returned case fails too; it is the given one if no smaller one fails.
pub fn shrink(case: &Case, fails: &mut dyn FnMut(&Case) -> bool) -> Case {
    let mut best = case.clone();
    loop {
        let next = smaller(&best).into_iter().find_map(|make| {
            let case = make().filter(|case| size(case) < size(&best))?;
            fails(&case).then_some(case)
        });
        match next {
            Some(smaller) => best = smaller,
            None => return best,
        }
    }
}

/// Returns the measure of a case: number of operations, outputs and nodes.
fn size(case: &Case) -> (usize, usize, usize) {
    let nodes = case.graph.nodes();
    let operations = nodes.iter().filter(|node| node.op.class() != OpClass::Leaf).count();
    (operations, case.graph.outputs().len(), nodes.len())
}

type Make<'a> = Box<dyn Fn() -> Option<Case> + 'a>;

/// Returns constructors of smaller cases, largest reductions first.
fn smaller(case: &Case) -> Vec<Make<'_>> {
    let mut ways: Vec<Make<'_>> = Vec::new();
    if case.graph.outputs().len() > 1 {
        for name in case.graph.outputs().iter().map(|(name, _)| name) {
            ways.push(Box::new(move || with_outputs(case, &|other| other == name)));
        }
    }
    if !case.graph.outputs().is_empty() {
        for name in case.graph.outputs().iter().map(|(name, _)| name) {
            ways.push(Box::new(move || with_outputs(case, &|other| other != name)));
        }
    }
    for (_, output) in case.graph.outputs() {
        for operand in &case.graph.node(*output).inputs {
            if case.graph.node(*operand).op.class() != OpClass::Leaf {
                ways.push(Box::new(move || wanting(case, *operand)));
            }
        }
    }
    let computed: Vec<NodeId> = case
        .graph
        .ids()
        .rev()
        .filter(|id| case.graph.node(*id).op.class() != OpClass::Leaf)
        .collect();
    for id in computed.iter().copied() {
        ways.push(Box::new(move || as_input(case, id)));
    }
    for id in computed {
        let node = case.graph.node(id);
        for operand in &node.inputs {
            let from = case.graph.node(*operand);
            // A state that is overwritten later cannot replace a result.
            let same = (&from.shape, from.dtype) == (&node.shape, node.dtype);
            if same && !node.op.overwrites() {
                ways.push(Box::new(move || as_operand(case, id, *operand)));
            }
        }
    }
    ways
}

fn with_outputs(case: &Case, keep: &dyn Fn(&String) -> bool) -> Option<Case> {
    let mut graph = Graph::new(case.graph.name.clone());
    for node in case.graph.nodes() {
        graph.push(node.clone());
    }
    for (name, id) in case.graph.outputs().iter().filter(|(name, _)| keep(name)) {
        graph.output(name.clone(), *id).ok()?;
    }
    pruned(case, graph, None)
}

/// Makes a node the only output.
fn wanting(case: &Case, id: NodeId) -> Option<Case> {
    let mut graph = Graph::new(case.graph.name.clone());
    for node in case.graph.nodes() {
        graph.push(node.clone());
    }
    graph.output("inner", id).ok()?;
    pruned(case, graph, None)
}

/// Replaces a node with an input that holds its value. If the node writes rows to a state, these
/// rows become an output.
fn as_input(case: &Case, target: NodeId) -> Option<Case> {
    let tensors = case.tensors();
    let run = reference::eval(&case.graph, &case.symbols, &tensors).ok()?;
    let value = run.value(target).clone();
    let name = (0..).map(|i| format!("cut{i}")).find(|name| !case.bindings.contains_key(name))?;
    let mut part = None;
    let mut graph = rewrite(&case.graph, |new, id, node, inputs| {
        if id == target && node.op.overwrites() {
            part = inputs.get(1).copied();
        }
        Ok((id == target).then(|| new.input(&name, node.shape.clone(), node.dtype)))
    })
    .ok()?;
    // The rows written to a state become an output instead.
    if let Some(part) = part {
        graph.output(format!("part of {name}"), part).ok()?;
    }
    pruned(case, graph, Some((name, value)))
}

/// Replaces a node with one of its operands.
fn as_operand(case: &Case, target: NodeId, operand: NodeId) -> Option<Case> {
    let place = case.graph.node(target).inputs.iter().position(|input| *input == operand)?;
    let graph = rewrite(&case.graph, |_, id, _, inputs| Ok((id == target).then(|| inputs[place])));
    pruned(case, graph.ok()?, None)
}

/// Returns the case with this graph without its unused nodes, and with the binding `new`, or `None`
/// if the graph is invalid or nothing is left of it.
fn pruned(case: &Case, graph: Graph, new: Option<(String, Tensor)>) -> Option<Case> {
    let graph = live(&graph);
    verify(&graph).ok()?;
    if graph.nodes().is_empty() {
        return None;
    }
    let mut bindings = case.bindings.clone();
    bindings.extend(new.map(|(name, tensor)| (name, Binding { bytes: tensor.to_bytes(), tensor })));
    let named = |name: &String| {
        graph.nodes().iter().any(|node| match &node.op {
            Op::Input { name: n } | Op::Weight { name: n, .. } | Op::State { name: n } => n == name,
            Op::Merged { parts, .. } => parts.iter().any(|part| part.name == *name),
            _ => false,
        })
    };
    bindings.retain(|name, _| named(name));
    Some(Case { graph, bindings, ..case.clone() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{NamedBytes, Outcome, RandomLimits, random_case, run_case};
    use warploom_core::error::Result;
    use warploom_core::ir::{BinaryOp, ReduceOp, UnaryOp};

    /// Returns the results of an implementation with three wrong operations.
    fn wrong(case: &Case, tensors: &BTreeMap<String, Tensor>) -> Result<NamedBytes> {
        let graph = rewrite(&case.graph, |new, _, node, inputs| {
            let op = match &node.op {
                Op::Unary(UnaryOp::Tanh) => Op::Unary(UnaryOp::Erf),
                Op::Binary(BinaryOp::Sub) => Op::Binary(BinaryOp::Add),
                Op::Reduce { op: ReduceOp::Mean, axes, keep } => {
                    Op::Reduce { op: ReduceOp::Max, axes: axes.clone(), keep: *keep }
                }
                _ => return Ok(None),
            };
            new.add(op, inputs).map(Some)
        })?;
        let run = reference::eval(&graph, &case.symbols, tensors)?;
        let outputs = graph.outputs().iter().map(|(name, id)| (name, run.value(*id)));
        let all = outputs.chain(&run.states);
        Ok(all.map(|(name, value)| (name.clone(), value.to_bytes())).collect())
    }

    fn fails(case: &Case) -> bool {
        let tensors = case.tensors();
        matches!(run_case(case, &|_, _, _| wrong(case, &tensors)), Outcome::Fail(_))
    }

    #[test]
    fn a_planted_fault_is_found_in_three_nodes() {
        let mut found = 0;
        for seed in 0..120 {
            let case = random_case(seed, 0, &RandomLimits::default());
            if !fails(&case) {
                continue;
            }
            found += 1;
            let small = shrink(&case, &mut fails);
            assert!(fails(&small) && small.graph.nodes().len() <= 3, "{seed}:\n{}", small.graph);
            let guilty = small.graph.nodes().iter().any(|node| {
                matches!(
                    node.op,
                    Op::Unary(UnaryOp::Tanh)
                        | Op::Binary(BinaryOp::Sub)
                        | Op::Reduce { op: ReduceOp::Mean, .. }
                )
            });
            assert!(guilty, "{seed}:\n{}", small.graph);
        }
        assert!(found >= 40, "the fault shows in {found} graphs");
    }

    #[test]
    fn what_never_fails_is_left_alone() {
        let case = random_case(7, 0, &RandomLimits::default());
        let same = shrink(&case, &mut |_| false);
        assert_eq!(same.graph, case.graph);
    }
}
