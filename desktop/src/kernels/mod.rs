//! The kernels of one token: a timeline, their engines, and the plan.

use std::path::Path;

use eframe::egui::{
    self, Align2, Color32, FontId, Grid, Pos2, Rect, RichText, ScrollArea, Sense, Stroke, Ui, Vec2,
};
use warploom::plan::StepReport;

use crate::engine::Kernels;
use crate::format;
use crate::history;
use crate::host::Host;
use crate::look;
use crate::notice::Failure;
use crate::worker::Command;

/// Height of a row of the timeline, in points.
const ROW: f32 = 19.0;
/// Rows of the timeline; later engines share the last one.
const ROWS: usize = 8;

/// The panel of kernels.
#[derive(Default)]
pub struct KernelsPanel {
    measured: Option<Kernels>,
    measuring: bool,
    /// Index of the step whose details are shown.
    step: Option<usize>,
    explain: bool,
    /// Where the trace was saved.
    saved: Option<String>,
}

impl KernelsPanel {
    /// Begins a measurement.
    pub fn measure(&mut self, host: &Host<'_>) {
        self.measuring = true;
        host.worker.send(Command::Kernels);
    }

    /// Returns whether a measurement runs.
    pub fn is_measuring(&self) -> bool {
        self.measuring
    }

    /// Returns the last measurement.
    pub fn measured(&self) -> Option<&Kernels> {
        self.measured.as_ref()
    }

    /// Receives a measurement.
    pub fn on_kernels(&mut self, kernels: Result<Box<Kernels>, Failure>) -> Option<Failure> {
        self.measuring = false;
        self.step = None;
        self.saved = None;
        match kernels {
            Ok(kernels) => {
                self.measured = Some(*kernels);
                None
            }
            Err(failure) => Some(failure),
        }
    }

    /// Ends a measurement whose thread is gone, and forgets those of the model before.
    pub fn reset(&mut self) {
        *self = KernelsPanel::default();
    }

    /// Draws the panel; `folder` is where traces are saved.
    pub fn ui(&mut self, ui: &mut Ui, host: &mut Host<'_>, folder: &Path) {
        ScrollArea::vertical().auto_shrink([false; 2]).show(ui, |ui| {
            look::title(
                ui,
                "Kernels of a token",
                "Each kernel that computes one token in the middle of the context, timed on the \
                 device.",
            );
            ui.horizontal(|ui| {
                let ready = host.loaded.is_some() && !host.busy;
                let text = if self.measured.is_some() { "Measure again" } else { "Measure" };
                if look::main_button(ui, ready, text).clicked() {
                    self.measure(host);
                }
                if self.measuring {
                    ui.spinner();
                    ui.weak("measuring, which takes some seconds");
                }
                if let Some(kernels) = &self.measured
                    && ui.button("Save for Perfetto").clicked()
                {
                    let path = folder.join("trace.json");
                    match history::write(&path, &kernels.trace) {
                        Ok(()) => self.saved = Some(format!("saved as {}", path.display())),
                        Err(error) => host.notice.show(error.into()),
                    }
                }
            });
            if let Some(saved) = &self.saved {
                ui.weak(saved);
            }
            let Some(kernels) = &self.measured else { return };
            ui.add_space(4.0);
            summary(ui, kernels);
            ui.add_space(6.0);
            if let Some(step) = timeline(ui, kernels, self.step) {
                self.step = Some(step);
            }
            details(ui, kernels, self.step);
            ui.add_space(8.0);
            engines(ui, kernels);
            ui.add_space(10.0);
            ui.checkbox(&mut self.explain, "The whole plan, as `warploom explain` prints it");
            if self.explain {
                ScrollArea::horizontal().id_salt("explain").show(ui, |ui| {
                    let text = RichText::new(&kernels.explain).monospace().size(12.0);
                    ui.add(egui::Label::new(text).extend().selectable(true));
                });
            }
        });
    }
}

fn color(kernels: &Kernels, engine: &str) -> (usize, Color32) {
    let at = kernels.report.engines.iter().position(|other| other.engine == engine).unwrap_or(0);
    (at, look::SERIES[at % look::SERIES.len()])
}

fn summary(ui: &mut Ui, kernels: &Kernels) {
    let Some(analysis) = &kernels.report.analysis else { return };
    let steps: f64 = analysis.steps.iter().map(|step| step.median).sum();
    let rows = [
        ("A whole run", format::seconds(analysis.run.median)),
        ("All kernels", format::seconds(steps)),
        ("Host", format::seconds(analysis.host.median)),
        ("Launches", analysis.dispatches.to_string()),
        ("Submits and waits", format!("{} and {}", analysis.submits, analysis.waits)),
        ("Copy bandwidth", format!("{}/s", format::bytes(analysis.bandwidth))),
    ];
    look::card(ui, |ui| {
        ui.weak(format!(
            "{} on {}, after {} tokens; {} runs, {}",
            kernels.report.graph,
            kernels.report.device.name,
            kernels.past,
            analysis.runs,
            analysis.clock.describe()
        ));
        ui.horizontal_wrapped(|ui| {
            for (name, value) in rows {
                ui.vertical(|ui| {
                    ui.label(RichText::new(value).strong().size(17.0));
                    ui.small(RichText::new(name).weak());
                });
                ui.add_space(14.0);
            }
        });
    });
}

/// Draws the steps over time, a row for each engine. Returns the step that was clicked.
fn timeline(ui: &mut Ui, kernels: &Kernels, shown: Option<usize>) -> Option<usize> {
    let Some(analysis) = &kernels.report.analysis else { return None };
    let steps = &kernels.report.steps;
    let begin = analysis.spans.iter().map(|span| span.0).fold(f64::INFINITY, f64::min);
    let end = analysis.spans.iter().map(|span| span.1).fold(0.0, f64::max);
    if end <= begin || analysis.spans.len() != steps.len() {
        return None;
    }
    let rows = kernels.report.engines.len().clamp(1, ROWS);
    let size = Vec2::new(ui.available_width(), ROW * rows as f32 + 18.0);
    let (response, painter) = ui.allocate_painter(size, Sense::click());
    let palette = look::palette(ui);
    let area = response.rect;
    painter.rect_filled(area, 8.0, palette.sunken);
    let x = |at: f64| area.left() + ((at - begin) / (end - begin)) as f32 * area.width();
    let (pointer, mut hit) = (response.hover_pos(), None);
    for (i, (span, step)) in analysis.spans.iter().zip(steps).enumerate() {
        let (row, color) = color(kernels, &step.engine);
        let top = area.top() + ROW * row.min(rows - 1) as f32 + 2.0;
        let right = x(span.1).max(x(span.0) + 1.0);
        let rect = Rect::from_min_max(Pos2::new(x(span.0), top), Pos2::new(right, top + ROW - 4.0));
        painter.rect_filled(rect, 2.0, color);
        if shown == Some(i) {
            painter.rect_stroke(
                rect,
                2.0,
                Stroke::new(2.0, palette.text),
                egui::StrokeKind::Outside,
            );
        }
        if pointer.is_some_and(|pointer| rect.expand2(Vec2::new(1.0, 2.0)).contains(pointer)) {
            hit = Some(i);
        }
    }
    let font = FontId::proportional(11.0);
    let corner = [
        (area.left_bottom() + Vec2::new(6.0, -2.0), Align2::LEFT_BOTTOM, "0".to_owned()),
        (
            area.right_bottom() + Vec2::new(-6.0, -2.0),
            Align2::RIGHT_BOTTOM,
            format::seconds(end - begin),
        ),
    ];
    for (at, align, text) in corner {
        painter.text(at, align, text, font.clone(), palette.faint);
    }
    if let Some(i) = hit {
        let time = steps[i].measured.as_ref().map_or(0.0, |measured| measured.median);
        let text = format!("{} · {} · {}", steps[i].engine, steps[i].label, format::seconds(time));
        response.clone().on_hover_text_at_pointer(text);
    }
    hit.filter(|_| response.clicked())
}

fn details(ui: &mut Ui, kernels: &Kernels, shown: Option<usize>) {
    let Some(step) = shown.and_then(|i| kernels.report.steps.get(i)) else {
        ui.weak("Click a kernel for its details.");
        return;
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
        let choices = kernels.report.choices.iter();
        if let Some(choice) = choices.into_iter().find(|choice| choice.label == step.label) {
            ui.add(egui::Label::new(RichText::new(&choice.why).weak()).wrap());
        }
    });
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

fn engines(ui: &mut Ui, kernels: &Kernels) {
    ui.strong("Engines");
    let heads = ["", "Engine", "Kernels", "Time", "Share", "Bandwidth", "Arithmetic", "Of a copy"];
    Grid::new("engines").num_columns(heads.len()).striped(true).spacing([18.0, 4.0]).show(
        ui,
        |ui| {
            for head in heads {
                ui.weak(head);
            }
            ui.end_row();
            for engine in &kernels.report.engines {
                let (_, color) = color(kernels, &engine.engine);
                let (dot, _) = ui.allocate_exact_size(Vec2::splat(12.0), Sense::hover());
                ui.painter().circle_filled(dot.center(), 5.0, color);
                ui.label(&engine.engine);
                ui.label(engine.steps.to_string());
                ui.label(format::seconds(engine.seconds));
                ui.label(format::share(engine.share));
                ui.label(format!("{}/s", format::bytes(engine.bytes_per_s as u64)));
                ui.label(format!("{}flop/s", format::count(engine.flops_per_s)));
                ui.label(format::share(engine.roof));
                ui.end_row();
            }
        },
    );
}
