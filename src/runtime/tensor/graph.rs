//! Lowers recorded operations to a compiler graph and its cache key.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::Tensor;
use super::node::{Node, Recorded, Stored, reads_as_stored};
use crate::base::{DType, Format, Shape};
use crate::error::{Error, Result, broken_invariant};
use crate::ir::{self, Graph, NodeId, Op, OpClass};

/// A pending operation, as it was when the graph was traversed.
pub(super) struct Waiting {
    pub(super) node: Arc<Node>,
    pub(super) recorded: Arc<Recorded>,
    /// Whether its result is kept on the device.
    pub(super) wanted: bool,
}

/// Collects every pending operation that `roots` need, operands before readers. Marks the results
/// to keep: those of the roots, and expensive ones that have handles elsewhere.
///
/// # Errors
/// The error of the first tensor that has one.
pub(super) fn collect(roots: &[&Tensor]) -> Result<Vec<Waiting>> {
    let mut order: Vec<Waiting> = Vec::new();
    // Index of each node in `order`; `None` while its operands are visited.
    let mut seen: HashMap<*const Node, Option<usize>> = HashMap::new();
    let mut uses: Vec<usize> = Vec::new();
    let mut stack: Vec<(Arc<Node>, Arc<Recorded>, usize)> = Vec::new();
    for root in roots {
        if let Some(recorded) = root.node.recorded()?
            && seen.insert(Arc::as_ptr(&root.node), None).is_none()
        {
            stack.push((root.node.clone(), recorded, 0));
        }
        while let Some((node, recorded, next)) = stack.pop() {
            let Some(input) = recorded.inputs.get(next).cloned() else {
                seen.insert(Arc::as_ptr(&node), Some(order.len()));
                order.push(Waiting { node, recorded, wanted: false });
                uses.push(0);
                continue;
            };
            stack.push((node, recorded, next + 1));
            if !seen.contains_key(&Arc::as_ptr(&input))
                && let Some(recorded) = input.recorded()?
            {
                seen.insert(Arc::as_ptr(&input), None);
                stack.push((input, recorded, 0));
            }
        }
    }
    for waiting in &order {
        for input in &waiting.recorded.inputs {
            if let Some(Some(place)) = seen.get(&Arc::as_ptr(input)) {
                uses[*place] += 1;
            }
        }
    }
    for (waiting, uses) in order.iter_mut().zip(uses) {
        // `order` itself holds one handle.
        let spent = waiting.node.spent.load(Ordering::Relaxed);
        let elsewhere = Arc::strong_count(&waiting.node) > uses + spent + 1;
        let expensive = matches!(
            waiting.recorded.op.class(),
            OpClass::Anchor | OpClass::Reduction | OpClass::Special
        );
        let root = roots.iter().any(|root| Arc::ptr_eq(&root.node, &waiting.node));
        waiting.wanted = root || (elsewhere && expensive);
    }
    Ok(order)
}

/// Device memory that a graph reads.
pub(super) struct Leaf {
    pub(super) stored: Arc<Stored>,
    /// The storage format, if read as a weight.
    format: Option<Format>,
    shape: Shape,
    dtype: DType,
}

#[derive(Clone, Copy)]
enum Operand {
    Leaf(usize),
    Step(usize),
}

/// Pending operations as a graph that is independent of the particular tensors.
pub(super) struct Structure<'a> {
    waiting: &'a [Waiting],
    pub(super) leaves: Vec<Leaf>,
    operands: Vec<SmallVec<[Operand; 3]>>,
    /// Bits of the scalars in expressions, in step order.
    pub(super) scalars: Vec<u32>,
    /// Key of everything but the scalars: structures with equal keys have equal plans.
    pub(super) key: String,
}

/// Returns the bits of an operation that is a scalar in an expression, whose value may change
/// between runs; `None` for other operations.
fn scalar(waiting: &Waiting) -> Option<u32> {
    match &waiting.recorded.op {
        Op::Constant { words } if waiting.node.sizes.is_empty() => words.first().copied(),
        _ => None,
    }
}

impl<'a> Structure<'a> {
    /// Builds the structure of operations, which are in topological order.
    ///
    /// # Errors
    /// The error of an operand, or of the run that computes it.
    pub(super) fn new(waiting: &'a [Waiting]) -> Result<Structure<'a>> {
        let mut out = Structure {
            waiting,
            leaves: Vec::new(),
            operands: Vec::with_capacity(waiting.len()),
            scalars: Vec::new(),
            key: String::new(),
        };
        let places: HashMap<*const Node, usize> =
            waiting.iter().enumerate().map(|(i, w)| (Arc::as_ptr(&w.node), i)).collect();
        let mut known: HashMap<(*const Stored, *const Node, bool), usize> = HashMap::new();
        for step in waiting {
            let mut operands = SmallVec::new();
            for (i, input) in step.recorded.inputs.iter().enumerate() {
                operands.push(match places.get(&Arc::as_ptr(input)) {
                    Some(place) => Operand::Step(*place),
                    None => Operand::Leaf(out.leaf(&mut known, step, input, i)?),
                });
            }
            out.describe(step, &operands);
            out.operands.push(operands);
        }
        Ok(out)
    }

    fn leaf(
        &mut self,
        known: &mut HashMap<(*const Stored, *const Node, bool), usize>,
        step: &Waiting,
        input: &Arc<Node>,
        place: usize,
    ) -> Result<usize> {
        let stored = input.stored().map_err(|e| e.context(step.node.origin()))?;
        let Some(stored) = stored else {
            broken_invariant(format_args!("{} waits for what does not run", step.node.origin()));
        };
        if let Some(error) = stored.failure() {
            return Err(error.context(input.origin()));
        }
        let as_weight = stored.format.is_quantised()
            || reads_as_stored(&step.recorded.op, place, stored.format);
        let key = (Arc::as_ptr(&stored), Arc::as_ptr(input), as_weight);
        if let Some(leaf) = known.get(&key) {
            return Ok(*leaf);
        }
        let format = as_weight.then_some(stored.format);
        let shape = input.shape.clone();
        // Writing to a string does not fail.
        let _ = write!(self.key, "<{}{shape}{format:?}>", input.dtype);
        self.leaves.push(Leaf { stored, format, shape, dtype: input.dtype });
        known.insert(key, self.leaves.len() - 1);
        Ok(self.leaves.len() - 1)
    }

    /// Adds a step to the key.
    fn describe(&mut self, step: &Waiting, operands: &[Operand]) {
        if let Some(word) = scalar(step) {
            self.scalars.push(word);
            let _ = write!(self.key, "{}", step.node.dtype);
        } else {
            let _ = write!(self.key, "{:?}", step.recorded.op);
            if matches!(step.recorded.op, Op::Constant { .. }) {
                let _ = write!(self.key, "{}{}", step.node.dtype, step.node.shape);
            }
        }
        for operand in operands {
            let _ = match operand {
                Operand::Leaf(i) => write!(self.key, " x{i}"),
                Operand::Step(i) => write!(self.key, " %{i}"),
            };
        }
        self.key.push(if step.wanted { '!' } else { ';' });
    }

    /// Builds the graph with leaves `x0`, `x1` and so on, results `y0`, `y1` and so on and, if
    /// `open`, scalars as inputs `s0`, `s1` and so on.
    ///
    /// # Errors
    /// Invalid if a name is duplicate, which never occurs.
    pub(super) fn graph(&self, open: bool) -> Result<Graph> {
        let mut graph = Graph::new("tensors");
        let leaves: Vec<NodeId> = (self.leaves.iter().enumerate())
            .map(|(i, leaf)| match leaf.format {
                Some(format) => graph.weight(&format!("x{i}"), leaf.shape.clone(), format),
                None => graph.input(&format!("x{i}"), leaf.shape.clone(), leaf.dtype),
            })
            .collect();
        let mut steps: Vec<NodeId> = Vec::with_capacity(self.waiting.len());
        let mut scalars = 0;
        for (step, operands) in self.waiting.iter().zip(&self.operands) {
            let node = &step.node;
            if scalar(step).is_some() {
                scalars += 1;
                if open {
                    let name = format!("s{}", scalars - 1);
                    steps.push(graph.input(&name, node.shape.clone(), node.dtype));
                    continue;
                }
            }
            let inputs = operands
                .iter()
                .map(|operand| match operand {
                    Operand::Leaf(i) => leaves[*i],
                    Operand::Step(i) => steps[*i],
                })
                .collect();
            let label = match &step.recorded.op {
                Op::Constant { .. } => String::new(),
                _ => format!("{}:{}", node.at.file(), node.at.line()),
            };
            steps.push(graph.push(ir::Node {
                op: step.recorded.op.clone(),
                inputs,
                shape: node.shape.clone(),
                dtype: node.dtype,
                label,
            }));
        }
        let wanted = self.waiting.iter().zip(&steps).filter(|(step, _)| step.wanted);
        for (i, (_, id)) in wanted.enumerate() {
            graph.output(format!("y{i}"), *id)?;
        }
        Ok(graph)
    }

    /// Returns the results to keep, in the order of the graph's outputs.
    pub(super) fn wanted(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter().filter(|step| step.wanted)
    }
}

/// Returns the first `count` pending operations, and marks as wanted the results that later
/// operations read.
pub(super) fn cut(waiting: &mut [Waiting], count: usize) -> &mut [Waiting] {
    if waiting.len() <= count {
        return waiting;
    }
    let (first, rest) = waiting.split_at_mut(count);
    let places: HashMap<*const Node, usize> =
        first.iter().enumerate().map(|(i, w)| (Arc::as_ptr(&w.node), i)).collect();
    for input in rest.iter().flat_map(|later| &later.recorded.inputs) {
        if let Some(place) = places.get(&Arc::as_ptr(input)) {
            first[*place].wanted = true;
        }
    }
    first
}

/// Adds the origin of `node`, the last operation of the run, to an evaluation error.
pub(super) fn asked_by(error: Error, node: &Node) -> Error {
    error.context(format_args!("running {}", node.origin()))
}
