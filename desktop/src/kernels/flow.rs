//! The plan as a graph to walk: what a kernel reads, and what reads its results.

use std::collections::{BTreeSet, HashMap};

use eframe::egui::{self, Pos2, Rect, RichText, Stroke, Ui, Vec2};
use warploom::engine::TensorRole;
use warploom::kernel::Access;
use warploom::plan::Plan;

use crate::format;
use crate::look;

/// Most kernels that are shown on a side.
const MOST: usize = 6;
/// Height of a kernel, in points.
const BOX: f32 = 28.0;

/// What a kernel reads, and what reads its results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Neighbours {
    /// The kernels that wrote what it reads.
    before: BTreeSet<usize>,
    /// Weights, states and inputs that it reads, with their bytes.
    others: Vec<(String, u64)>,
    /// The kernels that read what it wrote.
    after: BTreeSet<usize>,
}

/// The neighbours of each kernel of a plan.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow(Vec<Neighbours>);

impl Flow {
    /// Finds the neighbours of each kernel.
    pub(super) fn of(plan: &Plan) -> Flow {
        let mut all = vec![Neighbours::default(); plan.steps.len()];
        let mut writers = HashMap::new();
        for (at, step) in plan.steps.iter().enumerate() {
            for binding in step.bindings.iter().filter(|b| b.access == Access::Read) {
                let tensor = &plan.tensors[binding.tensor.index()];
                if let Some(&writer) = writers.get(&binding.tensor) {
                    all[at].before.insert(writer);
                    let writer: &mut Neighbours = &mut all[writer];
                    writer.after.insert(at);
                } else if let Some(name) = name(&tensor.role) {
                    all[at].others.push((name, tensor.bytes));
                }
            }
            // After all of its reads.
            let written = step.bindings.iter().filter(|b| b.access == Access::ReadWrite);
            writers.extend(written.map(|binding| (binding.tensor, at)));
        }
        Flow(all)
    }
}

/// Returns the name of a tensor that is there before the run.
fn name(role: &TensorRole) -> Option<String> {
    match role {
        TensorRole::Weight(name) | TensorRole::State(name) | TensorRole::Input(name) => {
            Some(name.clone())
        }
        TensorRole::Merged(names) => Some(names.join(" + ")),
        TensorRole::Constant(_) => Some("a constant".to_owned()),
        TensorRole::Intermediate | TensorRole::Counters => None,
    }
}

/// Draws a step between what it reads and what reads it. Returns the step that was clicked.
pub(super) fn ui(ui: &mut Ui, flow: &Flow, plan: &Plan, at: usize) -> Option<usize> {
    let (step, here) = (plan.steps.get(at)?, flow.0.get(at)?);
    let mut walked = None;
    ui.horizontal(|ui| {
        if ui.add_enabled(at > 0, egui::Button::new("Previous")).clicked() {
            walked = Some(at - 1);
        }
        if ui.add_enabled(at + 1 < plan.steps.len(), egui::Button::new("Next")).clicked() {
            walked = Some(at + 1);
        }
        ui.weak(format!("step {} of {}", at + 1, plan.steps.len()));
    });
    let others = usize::from(!here.others.is_empty());
    let rows = (here.before.len().min(MOST) + others).max(here.after.len().min(MOST)).max(1);
    let size = Vec2::new(ui.available_width(), rows as f32 * (BOX + 4.0));
    let (area, _) = ui.allocate_exact_size(size, egui::Sense::hover());
    let palette = look::palette(ui);
    let width = (area.width() / 3.0 - 24.0).max(60.0);
    let middle = Rect::from_center_size(area.center(), Vec2::new(width, BOX));
    let place = |x: f32, row: usize, of: usize| {
        let top = area.center().y - of as f32 * (BOX + 4.0) / 2.0 + row as f32 * (BOX + 4.0);
        Rect::from_min_size(Pos2::new(x, top + 2.0), Vec2::new(width, BOX))
    };
    let line = Stroke::new(1.5, palette.line);
    let left = here.before.len().min(MOST) + others;
    // The last ones are the nearest.
    for (row, step) in here.before.iter().rev().take(MOST).enumerate() {
        let rect = place(area.left(), row, left);
        ui.painter().line_segment([rect.right_center(), middle.left_center()], line);
        walked = neighbour(ui, plan, *step, rect).or(walked);
    }
    if others > 0 {
        let rect = place(area.left(), left - 1, left);
        ui.painter().line_segment([rect.right_center(), middle.left_center()], line);
        memory(ui, &here.others, rect);
    }
    for (row, step) in here.after.iter().take(MOST).enumerate() {
        let rect = place(area.right() - width, row, here.after.len().min(MOST));
        ui.painter().line_segment([middle.right_center(), rect.left_center()], line);
        walked = neighbour(ui, plan, *step, rect).or(walked);
    }
    let text = RichText::new(step.kernel.name()).strong().color(palette.on_accent);
    ui.put(
        middle,
        egui::Button::new(text).fill(palette.accent).truncate().sense(egui::Sense::hover()),
    );
    let hidden = here.after.len().saturating_sub(MOST) + here.before.len().saturating_sub(MOST);
    if hidden > 0 {
        ui.small(RichText::new(format!("and {hidden} more")).weak());
    }
    walked
}

/// Draws a kernel before or after. Returns it if it was clicked.
fn neighbour(ui: &mut Ui, plan: &Plan, at: usize, rect: Rect) -> Option<usize> {
    let step = &plan.steps[at];
    let text = format!("{at}: {}", step.kernel.name());
    let button = ui.put(rect, egui::Button::new(text).truncate());
    let clicked = button.on_hover_text(format!("{} by {}", step.label, step.engine)).clicked();
    clicked.then_some(at)
}

/// Draws the weights, states and inputs that a kernel reads.
fn memory(ui: &mut Ui, others: &[(String, u64)], rect: Rect) {
    let bytes = others.iter().map(|other| other.1).sum();
    let text = match others {
        [(name, bytes)] => format!("{name} · {}", format::bytes(*bytes)),
        all => format!("{} tensors · {}", all.len(), format::bytes(bytes)),
    };
    let all: Vec<String> =
        others.iter().map(|(name, bytes)| format!("{name}: {}", format::bytes(*bytes))).collect();
    let label = egui::Label::new(RichText::new(text).weak()).truncate();
    ui.put(rect, label).on_hover_text(all.join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use warploom::Runtime;
    use warploom_llm::{CacheShape, DecoderInput, DecoderOutput, Model, Session, classes};

    fn plan() -> Plan {
        let model = Model::embedded().unwrap();
        let runtime = Runtime::builder().device("cpu").build().unwrap();
        let profile = runtime.device().profile();
        let dtype = Session::default_cache(Session::default_mode(profile));
        let shape = CacheShape::new(1, 64, dtype);
        let graph = model
            .graph_on(profile.kind, shape, DecoderInput::Tokens, DecoderOutput::Greedy)
            .unwrap();
        let class = classes(64).into_iter().next().unwrap();
        Plan::new(&graph, &class, profile, &runtime.plan_options()).unwrap()
    }

    #[test]
    fn the_last_kernel_is_reached_from_the_first_by_walking() {
        let plan = plan();
        let Flow(all) = Flow::of(&plan);
        let mut reached = BTreeSet::from([0]);
        for (at, here) in all.iter().enumerate() {
            assert!(here.before.iter().all(|step| *step < at), "{at}: {here:?}");
            assert!(
                here.before.iter().all(|step| all[*step].after.contains(&at)),
                "{at}: {here:?}"
            );
            assert!(!here.before.is_empty() || !here.others.is_empty(), "{at}: {here:?}");
            if reached.contains(&at) {
                reached.extend(&here.after);
            }
        }
        let last = all.len() - 1;
        assert!(reached.contains(&last) && all[last].after.is_empty(), "{reached:?}");
        // A product reads its weight.
        let weights = all.iter().flat_map(|here| &here.others);
        assert!(weights.into_iter().any(|(name, bytes)| name.contains("weight") && *bytes > 0));
    }
}
