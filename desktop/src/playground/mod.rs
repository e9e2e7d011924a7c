//! Kernel packs that are changed in place: checked as one types, and timed on devices.

mod bench;
mod editor;
mod highlight;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use eframe::egui::{self, Context, Layout, Panel, RichText, ScrollArea, Ui};
use warploom::Error;
use warploom_testkit::pack::{Outcome, Row};

use crate::format;
use crate::gallery::SceneName;
use crate::host::Host;
use crate::look;
use crate::notice::{Failure, Kind};
use crate::packs::{self, PackText, Texts};
use crate::worker::Devices;
use bench::Bench;
pub use bench::{Checked, Problem, Timed};

/// Time without a key after which the text is kept and checked.
const STILL: Duration = Duration::from_millis(250);
/// Longest time of the run of a changed pack before it is shown as a picture.
const LONGEST_TRIAL: Duration = Duration::from_secs(10);

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
    /// Folder in which changed packs are kept.
    folder: PathBuf,
    /// Names of the packs that are changed.
    kept: BTreeSet<String>,
    /// When the run began that decides whether a changed pack is shown as a picture.
    trial: Option<Instant>,
    /// Whether the user changed the text since it was kept.
    unkept: bool,
    /// What failed since the last frame.
    failure: Option<Failure>,
}

impl Playground {
    /// Creates the panel with the first pack. Changed packs are kept in a folder, each as a folder of
    /// its own.
    ///
    /// # Errors
    /// If the system starts no thread.
    pub fn new(ctx: Context, folder: PathBuf) -> std::io::Result<Playground> {
        let names = packs::ALL.iter().map(|pack| pack.name.to_owned());
        let kept = names.filter(|name| folder.join(name).exists()).collect();
        let (texts, failure) = texts_of(&packs::ALL[0], &folder);
        Ok(Playground {
            bench: Bench::start(ctx)?,
            texts,
            folder,
            kept,
            trial: None,
            unkept: false,
            failure,
            file: File::Shader,
            changed: Some(Instant::now()),
            number: 0,
            checked: None,
            timed: Vec::new(),
            running: false,
            device: None,
        })
    }

    /// Opens a pack of the program, with the changes that the user made to it; returns false if there
    /// is none with this name.
    pub fn open(&mut self, name: &str) -> bool {
        let pack = packs::ALL.iter().find(|pack| pack.name == name);
        if let Some(pack) = pack {
            self.keep();
            let (texts, failure) = texts_of(pack, &self.folder);
            self.failure = failure;
            self.show(texts);
        }
        pack.is_some()
    }

    fn show(&mut self, texts: Texts) {
        self.texts = texts;
        self.file = File::Shader;
        self.edited();
        self.checked = None;
    }

    /// Keeps the text on disk, if the user changed it.
    fn keep(&mut self) {
        if !std::mem::take(&mut self.unkept) {
            return;
        }
        match self.texts.keep(&self.folder) {
            Ok(true) => self.kept.insert(self.texts.name.clone()),
            Ok(false) => self.kept.remove(&self.texts.name),
            Err(error) => {
                self.failure = Some(error.into());
                false
            }
        };
    }

    /// Replaces the first occurrence of a text in the shader; returns false if there is none.
    pub fn replace(&mut self, old: &str, new: &str) -> bool {
        let found = self.texts.shader.1.contains(old);
        self.texts.shader.1 = self.texts.shader.1.replacen(old, new, 1);
        self.unkept = true;
        self.edited();
        found
    }

    fn edited(&mut self) {
        self.number += 1;
        self.trial = None;
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

    /// Shows the pack as a picture, after one run if it is changed: the picture computes on the device
    /// that draws the window, which a loop without an end would stop. Returns whether it is to be
    /// shown now.
    fn picture(&mut self, devices: Option<&Devices>) -> bool {
        let ids = devices.into_iter().flat_map(|found| &found.devices);
        let mut ids = ids.map(|device| device.profile.id());
        match ids.find(|id| id.starts_with("webgpu")) {
            Some(id) if self.is_changed() => {
                self.run(vec![id]);
                self.trial = Some(Instant::now());
                false
            }
            _ => true,
        }
    }

    /// Returns whether the run that [`Playground::picture`] began ended well.
    fn is_tried(&mut self) -> bool {
        let right = self.trial.is_some() && !self.running;
        if right {
            self.trial = None;
        }
        right && self.timed.iter().any(|timed| timed.result.is_ok())
    }

    /// Gives up a run. Its thread ends with the kernel.
    fn abandon(&mut self, ctx: &Context) {
        (self.running, self.trial) = (false, None);
        match Bench::start(ctx.clone()) {
            Ok(bench) => self.bench = bench,
            Err(e) => {
                self.failure = Some(Error::io("cannot start a thread", e).into());
            }
        }
    }

    /// Receives results, and keeps and checks a text that has been still for a while. Returns what
    /// failed.
    pub fn receive(&mut self, ctx: &Context) -> Option<Failure> {
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
        if let Some(begin) = self.trial {
            match LONGEST_TRIAL.checked_sub(begin.elapsed()) {
                Some(left) => ctx.request_repaint_after(left),
                None => {
                    let text = format!(
                        "{}: one run takes more than {} s, which would stop the window",
                        self.texts.name,
                        LONGEST_TRIAL.as_secs()
                    );
                    self.abandon(ctx);
                    self.failure = Some(Failure::new(Kind::Invalid, text));
                }
            }
        }
        if let Some(changed) = self.changed {
            // A run of the text before no longer counts.
            self.running = false;
            match STILL.checked_sub(changed.elapsed()) {
                Some(left) if !left.is_zero() => ctx.request_repaint_after(left),
                _ => {
                    self.changed = None;
                    self.keep();
                    self.bench.check(self.number, self.texts.clone());
                }
            }
        }
        self.failure.take()
    }

    /// Returns whether the text is not the program's own.
    pub fn is_changed(&self) -> bool {
        self.kept.contains(&self.texts.name)
    }

    /// Replaces the changed text by the program's own.
    pub fn undo(&mut self) {
        if let Some(pack) = packs::ALL.iter().find(|pack| pack.name == self.texts.name) {
            self.show(Texts::of(pack));
            self.unkept = true;
            self.keep();
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
        let mut show = self.choice(ui) && self.picture(devices);
        show |= self.is_tried();
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
                    let text = match self.kept.contains(pack.name) {
                        true => format!("{}, changed", pack.name),
                        false => pack.name.to_owned(),
                    };
                    if ui.selectable_label(pack.name == self.texts.name, text).clicked() {
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
            if self.is_changed() {
                let place = self.folder.join(&self.texts.name);
                let hint = format!("They are kept in {}", place.display());
                if look::quiet_button(ui, "Undo all changes").on_hover_text(hint).clicked() {
                    self.undo();
                }
            }
            if SceneName::of_pack(&self.texts.name).is_none() {
                return false;
            }
            let ready = self.checked().is_some_and(Checked::is_right) && !self.running;
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
                if ui.button("Stop").clicked() {
                    self.abandon(ui.ctx());
                }
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

/// Returns a pack with the changes that are kept in a folder, or as it is in the program if they
/// cannot be read.
fn texts_of(pack: &PackText, folder: &Path) -> (Texts, Option<Failure>) {
    match Texts::kept(pack, folder) {
        Ok(texts) => (texts, None),
        Err(error) => (Texts::of(pack), Some(error.into())),
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
