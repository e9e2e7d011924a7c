//! The kernels of one token: a timeline, their engines, and the plan, from kernel to kernel.

mod details;
mod flow;
mod sources;
mod timeline;

use std::path::Path;

use eframe::egui::{self, Color32, Grid, RichText, ScrollArea, Sense, Ui, Vec2};

use crate::engine::Kernels;
use crate::format;
use crate::history;
use crate::host::Host;
use crate::look;
use crate::notice::Failure;
use crate::worker::Command;

/// The panel of kernels.
#[derive(Default)]
pub struct KernelsPanel {
    measured: Option<Kernels>,
    flow: flow::Flow,
    measuring: bool,
    /// Index of the step whose details are shown.
    step: Option<usize>,
    explain: bool,
    /// Which text of its kernel is shown.
    source: Option<sources::Language>,
    /// Where the trace was saved.
    saved: Option<String>,
    /// Whether every answer is followed by a measurement.
    live: bool,
}

impl KernelsPanel {
    /// Begins a measurement.
    pub fn measure(&mut self, host: &Host<'_>) {
        self.measuring = true;
        host.worker.send(Command::Kernels);
    }

    /// Begins a measurement after an answer, if they follow every answer.
    pub fn after_answer(&mut self, host: &Host<'_>) {
        if self.live && !self.measuring && host.loaded.is_some() {
            self.measure(host);
        }
    }

    /// Returns whether a measurement runs.
    pub fn is_measuring(&self) -> bool {
        self.measuring
    }

    /// Returns the last measurement.
    pub fn measured(&self) -> Option<&Kernels> {
        self.measured.as_ref()
    }

    /// Shows the details of a step; returns false if there is no such step.
    pub fn choose(&mut self, step: usize) -> bool {
        let steps = self.measured.as_ref().map_or(0, |kernels| kernels.report.steps.len());
        if step < steps {
            self.step = Some(step);
        }
        step < steps
    }

    /// Returns the step whose details are shown.
    pub fn step(&self) -> Option<usize> {
        self.step
    }

    /// Receives a measurement.
    pub fn on_kernels(&mut self, kernels: Result<Box<Kernels>, Failure>) -> Option<Failure> {
        self.measuring = false;
        self.saved = None;
        match kernels {
            Ok(kernels) => {
                // Of the same model, the plan is the same.
                self.step = self.step.filter(|step| *step < kernels.report.steps.len());
                self.flow = flow::Flow::of(&kernels.plan);
                self.measured = Some(*kernels);
                None
            }
            Err(failure) => Some(failure),
        }
    }

    /// Ends a measurement whose thread is gone, and forgets those of the model before.
    pub fn reset(&mut self) {
        *self = KernelsPanel { live: self.live, ..KernelsPanel::default() };
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
                ui.checkbox(&mut self.live, "After every answer");
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
            let chosen = timeline::ui(ui, kernels, self.step);
            let walked = details::ui(ui, kernels, &self.flow, self.step, &mut self.source);
            self.step = chosen.or(walked).or(self.step);
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

/// Returns the row of an engine, and its colour.
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
