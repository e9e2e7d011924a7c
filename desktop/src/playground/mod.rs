//! Kernel packs that are changed in place: checked as one types, and timed on devices.

mod bench;
mod editor;
mod highlight;

use std::time::{Duration, Instant};

use eframe::egui::{self, Context, Layout, Panel, RichText, ScrollArea, Ui};
use warploom_testkit::pack::{Outcome, Row};

use crate::format;
use crate::gallery::SceneName;
use crate::host::Host;
use crate::look;
use crate::packs::{self, Texts};
use crate::worker::Devices;
use bench::Bench;
pub use bench::{Checked, Problem, Timed};

/// Time without a key after which the text is checked.
const STILL: Duration = Duration::from_millis(250);

/// A file in the editor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum File {
    Shader,
    Manifest,
    Reference,
}

/// The panel of the playground.
pub struct Playground {
    bench: Bench,
    texts: Texts,
    file: File,
    /// When the text changed, if it has not been checked since.
    changed: Option<Instant>,
    /// Number of the text, which changes with it.
    number: u64,
    checked: Option<Checked>,
    timed: Vec<Timed>,
    running: bool,
    device: Option<String>,
}

impl Playground {
    /// Creates the panel with the first pack.
    ///
    /// # Errors
    /// If the system starts no thread.
    pub fn new(ctx: Context) -> std::io::Result<Playground> {
        Ok(Playground {
            bench: Bench::start(ctx)?,
            texts: Texts::of(&packs::ALL[0]),
            file: File::Shader,
            changed: Some(Instant::now()),
            number: 0,
            checked: None,
            timed: Vec::new(),
            running: false,
            device: None,
        })
    }

    /// Opens a pack of the program; returns false if there is none with this name.
    pub fn open(&mut self, name: &str) -> bool {
        let pack = packs::ALL.iter().find(|pack| pack.name == name);
        if let Some(pack) = pack {
            self.open_texts(Texts::of(pack));
        }
        pack.is_some()
    }

    /// Opens a pack with the changes that the user made to it.
    pub fn open_texts(&mut self, texts: Texts) {
        self.texts = texts;
        self.file = File::Shader;
        self.edited();
        self.checked = None;
    }

    /// Replaces the first occurrence of a text in the shader; returns false if there is none.
    pub fn replace(&mut self, old: &str, new: &str) -> bool {
        let found = self.texts.shader.1.contains(old);
        self.texts.shader.1 = self.texts.shader.1.replacen(old, new, 1);
        self.edited();
        found
    }

    fn edited(&mut self) {
        self.number += 1;
        self.changed = Some(Instant::now());
        self.timed.clear();
    }

    /// Returns whether a check or a run is not done yet.
    pub fn is_busy(&self) -> bool {
        self.changed.is_some() || self.running || self.checked().is_none()
    }

    /// Returns the check of the text as it is.
    pub fn checked(&self) -> Option<&Checked> {
        self.checked.as_ref().filter(|checked| checked.number == self.number)
    }

    /// Returns the times of the text as it is.
    pub fn timed(&self) -> &[Timed] {
        &self.timed
    }

    /// Runs the pack on devices, and times it.
    pub fn run(&mut self, devices: Vec<String>) {
        self.timed.clear();
        self.running = true;
        self.bench.run(self.number, self.texts.clone(), devices);
    }

    /// Receives results, and checks a text that has been still for a while.
    pub fn receive(&mut self, ctx: &Context) {
        while let Some(result) = self.bench.result() {
            match result {
                bench::Result::Checked(checked) if checked.number == self.number => {
                    self.checked = Some(checked);
                }
                bench::Result::Timed(number, timed) if number == self.number => {
                    self.timed.push(timed)
                }
                bench::Result::Ran(number) if number == self.number => self.running = false,
                // Of a text that has changed since.
                _ => {}
            }
        }
        if let Some(changed) = self.changed {
            // A run of the text before no longer counts.
            self.running = false;
            match STILL.checked_sub(changed.elapsed()) {
                Some(left) if !left.is_zero() => ctx.request_repaint_after(left),
                _ => {
                    self.changed = None;
                    self.bench.check(self.number, self.texts.clone());
                }
            }
        }
    }

    /// Returns the files in the editor.
    pub fn texts(&self) -> &Texts {
        &self.texts
    }

    /// Draws the panel. Returns whether the pack is to be shown as a picture.
    pub fn ui(&mut self, ui: &mut Ui, host: &Host<'_>, devices: Option<&Devices>) -> bool {
        look::title(
            ui,
            "Playground",
            "A kernel pack is a WGSL shader and a manifest. It is checked as you type: by the \
             compiler, and in an interpreter that finds races and bad indices.",
        );
        let show = self.choice(ui);
        let height = (ui.available_height() * 0.36).clamp(120.0, 300.0);
        Panel::bottom("results").resizable(true).default_size(height).show(ui, |ui| {
            self.results(ui, host, devices);
        });
        egui::CentralPanel::no_frame().show(ui, |ui| self.editor(ui));
        show
    }

    fn choice(&mut self, ui: &mut Ui) -> bool {
        let show = ui.horizontal_wrapped(|ui| {
            let mut chosen = None;
            let choice = egui::ComboBox::from_id_salt("pack").selected_text(&self.texts.name);
            let shown = choice.show_ui(ui, |ui| {
                for pack in packs::ALL {
                    if ui.selectable_label(pack.name == self.texts.name, pack.name).clicked() {
                        chosen = Some(pack.name);
                    }
                }
            });
            look::name(&shown.response, egui::Role::ComboBox, "Pack");
            if let Some(name) = chosen {
                self.open(name);
            }
            let shader = self.texts.shader.0.clone();
            let reference = self.texts.reference.as_ref().map(|(name, _)| name.clone());
            let files = [
                (File::Shader, Some(shader)),
                (File::Manifest, Some("pack.toml".into())),
                (File::Reference, reference),
            ];
            for (file, name) in files {
                if let Some(name) = name {
                    ui.selectable_value(&mut self.file, file, name);
                }
            }
            if look::quiet_button(ui, "Undo all changes").clicked() {
                let name = self.texts.name.clone();
                self.open(&name);
            }
            if SceneName::of_pack(&self.texts.name).is_none() {
                return false;
            }
            let ready = self.checked().is_some_and(Checked::is_right);
            let button = ui.add_enabled(ready, egui::Button::new("Show as a picture"));
            button.on_disabled_hover_text("Once it is checked and right").clicked()
        });
        ui.add_space(4.0);
        show.inner
    }

    fn results(&mut self, ui: &mut Ui, host: &Host<'_>, devices: Option<&Devices>) {
        ui.add_space(6.0);
        ui.horizontal_wrapped(|ui| {
            let all: Vec<String> = devices
                .map(|found| found.devices.iter().map(|device| device.profile.id()).collect())
                .unwrap_or_default();
            let first = host.loaded.map(|loaded| loaded.device.clone()).or(all.first().cloned());
            let device = self.device.clone().or(first).unwrap_or_else(|| "cpu:0".into());
            let ready = self.checked().is_some_and(Checked::is_right) && !self.running;
            let text = format!("Run on {device}");
            if look::main_button(ui, ready, &text).clicked() {
                self.run(vec![device.clone()]);
            }
            if ui.add_enabled(ready, egui::Button::new("Run on all devices")).clicked() {
                self.run(all.clone());
            }
            let choice = egui::ComboBox::from_id_salt("device").selected_text(&device);
            let shown = choice.show_ui(ui, |ui| {
                for id in all {
                    ui.selectable_value(&mut self.device, Some(id.clone()), id);
                }
            });
            look::name(&shown.response, egui::Role::ComboBox, "Device");
            if self.running {
                ui.spinner();
            }
            ui.with_layout(Layout::right_to_left(egui::Align::Center), |ui| self.verdict(ui));
        });
        ScrollArea::vertical().id_salt("rows").auto_shrink([false; 2]).show(ui, |ui| {
            for timed in &self.timed {
                time(ui, timed);
            }
            let Some(checked) = self.checked() else { return };
            if let Some(problem) = &checked.problem {
                let palette = look::palette(ui);
                let text = RichText::new(&problem.message).monospace().color(palette.bad);
                ui.add(egui::Label::new(text).wrap().selectable(true));
            }
            for row in &checked.rows {
                let text = RichText::new(line(row)).monospace();
                ui.add(egui::Label::new(text).wrap());
            }
        });
    }

    fn verdict(&self, ui: &mut Ui) {
        let palette = look::palette(ui);
        match self.checked() {
            None => {
                ui.weak("checking");
                ui.spinner();
            }
            Some(checked) if checked.is_right() => {
                ui.label(RichText::new("right").strong().color(palette.good));
            }
            Some(checked) => {
                let line = checked.problem.as_ref().and_then(|problem| problem.line);
                let text = line.map_or("wrong".into(), |line| format!("wrong, line {line}"));
                ui.label(RichText::new(text).strong().color(palette.bad));
            }
        }
    }
}

fn time(ui: &mut Ui, timed: &Timed) {
    let palette = look::palette(ui);
    let (text, color) = match &timed.result {
        Ok(timing) => {
            let rate = timing.bytes as f64 / timing.kernel_s.max(1e-12);
            let share = rate / (timing.copy_bandwidth as f64).max(1.0);
            let text = format!(
                "{:<10} right; {} a launch, {}B/s, {} of a copy's",
                timed.device,
                format::seconds(timing.kernel_s),
                format::count(rate),
                format::share(share)
            );
            (text, palette.good)
        }
        Err(why) => (format!("{:<10} {why}", timed.device), palette.bad),
    };
    let text = RichText::new(text).monospace().color(color);
    ui.add(egui::Label::new(text).wrap().selectable(true));
}

/// Returns the line of a checked case.
fn line(row: &Row) -> String {
    let outcome = match &row.outcome {
        Outcome::Right { elements, max_error } if *max_error > 0.0 => {
            format!("right: {elements} numbers, the largest error is {max_error:.2e}")
        }
        Outcome::Right { elements, .. } => format!("right: {elements} numbers"),
        Outcome::Wrong { what } => format!("wrong: {what}"),
        Outcome::Unsupported { why } => format!("not here: {why}"),
    };
    format!("{:<10} {:<12} {outcome}", row.case, row.place)
}
