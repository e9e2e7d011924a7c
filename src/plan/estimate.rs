//! Estimated traffic and arithmetic of each step, filled in once an engine has lowered the group.

use super::builder::PlanBuilder;
use crate::engine::{Cost, Estimate, View};

/// Fraction of a device's peak bandwidth that a copy reaches.
const COPY_EFFICIENCY: f64 = 0.8;

/// Distributes the cost of one group over its steps, which start at index `first`, in proportion to
/// the bytes that they bind. Without a cost, the steps are estimated as copies of what they bind.
pub(super) fn note(
    builder: &mut PlanBuilder,
    first: usize,
    operands: &[View],
    output: &View,
    cost: Option<Cost>,
) {
    let PlanBuilder { steps, tensors, profile, options, .. } = builder;
    let new = &mut steps[first..];
    let bound: Vec<f64> = new
        .iter()
        .map(|step| {
            let bytes = step.bindings.iter().map(|binding| {
                let all = tensors[binding.tensor.index()].bytes - binding.offset;
                binding.bytes.unwrap_or(all) as f64
            });
            bytes.sum()
        })
        .collect();
    let total: f64 = bound.iter().sum::<f64>().max(1.0);
    let whole = cost.unwrap_or(Cost {
        bytes: bound.iter().sum(),
        flops: 0.0,
        dispatches: new.len() as f64,
        efficiency: COPY_EFFICIENCY,
    });
    let shapes = shapes(operands, output);
    for (step, bound) in new.iter_mut().zip(bound) {
        let share = bound / total;
        let cost = Cost {
            bytes: whole.bytes * share,
            flops: whole.flops * share,
            dispatches: 1.0,
            efficiency: whole.efficiency,
        };
        let seconds = options.heuristic.seconds(profile, &cost);
        step.estimate = Estimate { shapes: shapes.clone(), cost, seconds };
    }
}

/// Formats operands and result, for example as `f32[1, 576] q4_k[1536, 576] -> f32[1, 1536]`.
pub(super) fn shapes(operands: &[View], output: &View) -> String {
    let one = |view: &View| format!("{}{}", view.format, view.shape);
    let operands: Vec<String> = operands.iter().map(one).collect();
    format!("{} -> {}", operands.join(" "), one(output))
}
