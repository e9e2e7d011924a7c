//! The details of a kernel: figures, why its engine won, its neighbours in the plan, its text.

use eframe::egui::{self, Grid, RichText, ScrollArea, Ui};
use warploom::engine::Verdict;
use warploom::plan::{NodeChoice, StepReport};

use super::flow::{self, Flow};
use super::sources::{self, Language};
use crate::engine::Kernels;
use crate::format;
use crate::look;

/// Height of the text of a kernel, in points.
const TEXT: f32 = 320.0;

/// Draws the details of a step. Returns the step that the user walked to.
pub(super) fn ui(
    ui: &mut Ui,
    kernels: &Kernels,
    flow: &Flow,
    shown: Option<usize>,
    source: &mut Option<Language>,
) -> Option<usize> {
    let Some((at, step)) = shown.and_then(|at| Some((at, kernels.report.steps.get(at)?))) else {
        ui.weak("Click a kernel for its engine, its neighbours and its text.");
        return None;
    };
    look::card(ui, |ui| {
        ui.strong(format!("Step {}: {}", step.number, step.label));
        Grid::new("step").num_columns(2).spacing([20.0, 3.0]).show(ui, |ui| {
            for (name, value) in facts(step) {
                ui.weak(name);
                ui.add(egui::Label::new(value).wrap());
                ui.end_row();
            }
        });
        let mut choices = kernels.report.choices.iter();
        if let Some(choice) = choices.find(|choice| choice.label == step.label) {
            candidates(ui, choice);
        }
        ui.add_space(4.0);
        let walked = flow::ui(ui, flow, &kernels.plan, at);
        ui.add_space(4.0);
        text(ui, kernels, at, source);
        walked
    })
}

/// Draws why the engine was chosen, and what the others would have cost.
fn candidates(ui: &mut Ui, choice: &NodeChoice) {
    ui.add(egui::Label::new(RichText::new(&choice.why).weak()).wrap());
    if choice.candidates.len() < 2 {
        return;
    }
    let heading = format!("{} engines were considered", choice.candidates.len());
    egui::CollapsingHeader::new(heading).id_salt("candidates").show(ui, |ui| {
        for candidate in &choice.candidates {
            let text = match &candidate.verdict {
                Verdict::Seconds(seconds) => {
                    format!("{}: {} estimated", candidate.engine, format::seconds(*seconds))
                }
                Verdict::Refused(why) => format!("{}: {why}", candidate.engine),
            };
            ui.add(egui::Label::new(text).wrap());
        }
    });
}

/// Draws the text of the step's kernel in the language that is chosen.
fn text(ui: &mut Ui, kernels: &Kernels, at: usize, source: &mut Option<Language>) {
    ui.horizontal(|ui| {
        for language in Language::ALL {
            let chosen = *source == Some(language);
            let button = egui::Button::selectable(chosen, language.title());
            if ui.add(button.frame_when_inactive(true)).clicked() {
                *source = (!chosen).then_some(language);
            }
        }
    });
    let (Some(language), Some(step)) = (*source, kernels.plan.steps.get(at)) else { return };
    let palette = look::palette(ui);
    match sources::text(&step.kernel, language) {
        Ok(text) => {
            let frame = egui::Frame::new().fill(palette.sunken).corner_radius(8).inner_margin(10);
            frame.show(ui, |ui| {
                let scroll = ScrollArea::both().id_salt(("source", at, language.title()));
                scroll.max_height(TEXT).auto_shrink([false, true]).show(ui, |ui| {
                    let text = RichText::new(text).monospace().size(12.0);
                    ui.add(egui::Label::new(text).extend().selectable(true));
                });
            });
        }
        Err(why) => {
            ui.add(egui::Label::new(RichText::new(why).color(palette.bad)).wrap());
        }
    }
}

fn facts(step: &StepReport) -> Vec<(&'static str, String)> {
    let [x, y, z] = step.workgroups;
    let mut facts = vec![
        ("Engine", step.engine.clone()),
        ("Kernel", step.kernel.clone()),
        ("Tensors", step.shapes.clone()),
        ("Workgroups", format!("{x} × {y} × {z}")),
        ("Reads and writes", format::bytes(step.bytes as u64)),
        ("Estimate", format::seconds(step.seconds)),
    ];
    if let Some(measured) = &step.measured {
        let (min, max) = (format::seconds(measured.min), format::seconds(measured.max));
        facts.push(("Measured", format!("{} ({min} to {max})", format::seconds(measured.median))));
        let bandwidth = format::bytes(measured.bytes_per_s as u64);
        facts.push((
            "Bandwidth",
            format!("{bandwidth}/s, {} of a copy's", format::share(measured.roof)),
        ));
    }
    facts
}
