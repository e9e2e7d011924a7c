//! The dialog of models: choose, estimate, load.

use std::path::{Path, PathBuf};
#[cfg(feature = "system")]
use std::sync::mpsc::{Receiver, Sender, channel};

use eframe::egui::{self, Context, Grid, Id, Key, Modal, RichText, TextEdit, Ui};

use crate::engine::{Estimate, Place, Source};
use crate::format;
use crate::look;
use crate::notice::Failure;
use crate::settings::Settings;
#[cfg(feature = "system")]
use crate::worker::choose_file;
use crate::worker::{Command, Loaded, Worker};

/// The dialog of models.
pub struct Models {
    open: bool,
    /// Text in the field for a path.
    path: String,
    /// The model that is estimated, and the estimate.
    estimate: Option<(Source, Option<Estimate>)>,
    /// Paths that the system's dialog sends.
    #[cfg(feature = "system")]
    chosen: (Sender<PathBuf>, Receiver<PathBuf>),
}

#[cfg_attr(
    not(feature = "system"),
    allow(clippy::derivable_impls, reason = "channels have no default")
)]
impl Default for Models {
    fn default() -> Models {
        Models {
            open: false,
            path: String::new(),
            estimate: None,
            #[cfg(feature = "system")]
            chosen: channel(),
        }
    }
}

/// Returns the place of a session that the settings ask for.
pub fn place(settings: &Settings) -> Place {
    Place { device: settings.device.clone(), exact: settings.exact, context: settings.context }
}

impl Models {
    /// Opens the dialog.
    pub fn show(&mut self) {
        self.open = true;
    }

    /// Returns whether an estimate is being made.
    pub fn is_estimating(&self) -> bool {
        matches!(&self.estimate, Some((_, None)))
    }

    /// Returns the estimate that is shown.
    pub fn estimate(&self) -> Option<&Estimate> {
        self.estimate.as_ref()?.1.as_ref()
    }

    /// Opens the dialog with the estimate of a file.
    pub fn open_file(&mut self, path: &Path, worker: &Worker, settings: &Settings) {
        self.estimate_of(Source::File(path.to_owned()), worker, settings);
    }

    fn estimate_of(&mut self, source: Source, worker: &Worker, settings: &Settings) {
        self.open = true;
        worker.send(Command::Estimate(source.clone(), place(settings)));
        self.estimate = Some((source, None));
    }

    /// Receives an estimate. A file that is no model closes the dialog, and its failure is returned.
    pub fn on_estimated(
        &mut self,
        source: &Source,
        estimate: Result<Estimate, Failure>,
    ) -> Option<Failure> {
        if self.estimate.as_ref().is_none_or(|(wanted, _)| wanted != source) {
            return None;
        }
        match estimate {
            Ok(estimate) => {
                self.estimate = Some((source.clone(), Some(estimate)));
                None
            }
            Err(failure) => {
                self.estimate = None;
                self.open = false;
                Some(failure)
            }
        }
    }

    /// Loads the model that was estimated; returns it.
    pub fn load(&mut self, worker: &Worker, settings: &Settings) -> Option<Source> {
        let (source, _) = self.estimate.take()?;
        self.open = false;
        worker.send(Command::Load(source.clone(), place(settings)));
        Some(source)
    }

    /// Draws the dialog if it is open. Returns the model whose loading begins.
    pub fn ui(
        &mut self,
        ctx: &Context,
        worker: &Worker,
        settings: &Settings,
        loaded: Option<&Loaded>,
    ) -> Option<Source> {
        #[cfg(feature = "system")]
        if let Ok(path) = self.chosen.1.try_recv() {
            self.open_file(&path, worker, settings);
        }
        if !self.open {
            return None;
        }
        let mut begun = None;
        let modal = Modal::new(Id::unique("models")).show(ctx, |ui| {
            ui.set_width(460.0_f32.min(ui.available_width()));
            ui.horizontal(|ui| {
                ui.heading("Models");
                ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
                    if look::quiet_button(ui, "Close").clicked() {
                        self.open = false;
                    }
                });
            });
            begun = self.list(ui, worker, settings, loaded);
            ui.add_space(8.0);
            ui.strong("Load another");
            ui.weak("Any GGUF file, or a folder of Hugging Face: choose it, drop it on the window, or write its path.");
            self.field(ui, worker, settings);
            if self.estimate.is_some() {
                begun = self.report(ui, worker, settings).or(begun.take());
            }
        });
        if modal.should_close() {
            self.open = false;
        }
        begun
    }

    fn list(
        &mut self,
        ui: &mut Ui,
        worker: &Worker,
        settings: &Settings,
        loaded: Option<&Loaded>,
    ) -> Option<Source> {
        let files = settings.recent.iter().cloned().map(Source::File);
        let all: Vec<Source> = std::iter::once(Source::Embedded).chain(files).collect();
        let mut begun = None;
        for source in all {
            let below = match &source {
                Source::Embedded => "Small and always there; for demos, not for facts".to_owned(),
                Source::File(path) => path.display().to_string(),
            };
            let current = loaded.is_some_and(|loaded| loaded.source == source);
            let text = format!("{}\n{below}", source.name());
            let button = egui::Button::selectable(current, text).wrap();
            let button = button.min_size(egui::vec2(ui.available_width(), 46.0));
            let row = ui.add(button.frame_when_inactive(true));
            if row.clicked() {
                match source {
                    // It fits everywhere.
                    Source::Embedded => {
                        self.open = false;
                        worker.send(Command::Load(Source::Embedded, place(settings)));
                        begun = Some(Source::Embedded);
                    }
                    file => self.estimate_of(file, worker, settings),
                }
            }
        }
        begun
    }

    fn field(&mut self, ui: &mut Ui, worker: &Worker, settings: &Settings) {
        ui.horizontal(|ui| {
            let field = TextEdit::singleline(&mut self.path).hint_text("/path/to/model.gguf");
            let field = ui.add(field.desired_width((ui.available_width() - 190.0).max(120.0)));
            let enter = field.lost_focus() && ui.input(|input| input.key_pressed(Key::Enter));
            if (ui.button("Check").clicked() || enter) && !self.path.trim().is_empty() {
                let path = PathBuf::from(self.path.trim());
                self.open_file(&path, worker, settings);
            }
            #[cfg(feature = "system")]
            if ui.button("Choose a file…").clicked() {
                choose_file(ui.ctx(), self.chosen.0.clone());
            }
        });
    }

    fn report(&mut self, ui: &mut Ui, worker: &Worker, settings: &Settings) -> Option<Source> {
        let palette = look::palette(ui);
        let frame = egui::Frame::new().fill(palette.sunken).corner_radius(12).inner_margin(14);
        ui.add_space(6.0);
        let load = frame.show(ui, |ui| {
            ui.set_min_width(ui.available_width());
            let Some((source, estimate)) = &self.estimate else { return false };
            ui.strong(source.name());
            let Some(estimate) = estimate else {
                ui.horizontal(|ui| {
                    ui.spinner();
                    ui.weak("Reading the head of the file");
                });
                return false;
            };
            rows(ui, estimate);
            match estimate.fits() {
                Some(true) => {
                    ui.label(RichText::new("It fits.").color(palette.good).strong());
                }
                Some(false) => {
                    let text = "It may not fit on this device.";
                    ui.label(RichText::new(text).color(palette.bad).strong());
                }
                None => {}
            }
            if !estimate.chats {
                ui.weak("It has no chat format, and continues a text.");
            }
            look::main_button(ui, true, "Load").clicked()
        });
        match load.inner {
            true => self.load(worker, settings),
            false => None,
        }
    }
}

fn rows(ui: &mut Ui, estimate: &Estimate) {
    let memory = match estimate.available {
        Some(bytes) => format::bytes(bytes),
        None => "not reported".into(),
    };
    let rows = [
        ("File", format::bytes(estimate.file)),
        ("Weights", format::bytes(estimate.weights)),
        (
            "Cache of the context",
            format!("{} for {} positions", format::bytes(estimate.cache), estimate.context),
        ),
        ("Working memory", format::bytes(estimate.arena)),
        ("Memory of the device", memory),
        ("Device", estimate.device.clone()),
    ];
    Grid::new("estimate").num_columns(2).spacing([24.0, 3.0]).show(ui, |ui| {
        for (name, value) in rows {
            ui.weak(name);
            ui.add(egui::Label::new(value).truncate());
            ui.end_row();
        }
    });
}
