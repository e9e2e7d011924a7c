//! The dialog of models: choose, estimate, load.

use std::path::{Path, PathBuf};

use eframe::egui::{self, Context, Grid, Id, Key, Modal, RichText, ScrollArea, TextEdit, Ui};
use warploom_models::download::HubOptions;

use crate::dialog::Chooser;
use crate::engine::{Estimate, Place, Source};
use crate::format;
use crate::hub::HubPanel;
use crate::look;
use crate::notice::{Failure, Notice};
use crate::settings::Settings;
use crate::worker::{Command, Loaded, Worker};

/// The dialog of models.
pub struct Models {
    open: bool,
    /// Text in the field for a path.
    path: String,
    /// The model that is estimated, and the estimate.
    estimate: Option<(Source, Option<Estimate>)>,
    hub: HubPanel,
    chooser: Chooser,
}

/// Returns the place of a session that the settings ask for.
pub fn place(settings: &Settings) -> Place {
    Place { device: settings.device.clone(), exact: settings.exact, context: settings.context }
}

impl Models {
    /// Creates the dialog; `None` is the hub of the environment.
    pub fn new(hub: Option<HubOptions>) -> Models {
        Models {
            open: false,
            path: String::new(),
            estimate: None,
            hub: HubPanel::new(hub),
            chooser: Chooser::default(),
        }
    }

    /// Returns the part about Hugging Face.
    pub fn hub(&mut self) -> &mut HubPanel {
        &mut self.hub
    }

    /// Receives what its threads report: estimates a model that has been downloaded.
    pub fn receive(
        &mut self,
        ctx: &Context,
        worker: &Worker,
        settings: &Settings,
        notice: &mut Notice,
    ) {
        match self.hub.receive(ctx) {
            None => {}
            Some(Ok(path)) => self.open_file(&path, worker, settings),
            Some(Err(failure)) => self.fail(failure, notice),
        }
    }

    /// Ends an estimate whose thread is gone.
    pub fn on_stopped(&mut self) {
        self.estimate.take_if(|(_, estimate)| estimate.is_none());
    }

    /// Opens the dialog.
    pub fn show(&mut self) {
        self.open = true;
    }

    /// Closes the dialog.
    pub fn hide(&mut self) {
        self.open = false;
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
        notice: &mut Notice,
    ) -> Option<Source> {
        if let Some(path) = self.chooser.chosen() {
            self.open_file(&path, worker, settings);
        }
        if !self.open {
            return None;
        }
        let mut begun = None;
        let frame = egui::Frame::popup(&ctx.global_style()).inner_margin(18);
        let modal = Modal::new(Id::unique("models")).frame(frame).show(ctx, |ui| {
            let room = ui.ctx().content_rect().size() - egui::vec2(64.0, 96.0);
            ui.set_width(540.0_f32.min(room.x));
            ui.horizontal(|ui| {
                ui.heading("Models");
                ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
                    if look::quiet_button(ui, "Close").clicked() {
                        self.open = false;
                    }
                });
            });
            // First, so that it is seen without scrolling.
            if self.estimate.is_some() {
                begun = self.report(ui, worker, settings);
            }
            let left = room.y - ui.min_rect().height();
            ScrollArea::vertical().max_height(left.max(160.0)).show(ui, |ui| {
                begun = begun.take().or(self.list(ui, worker, settings, loaded));
                ui.add_space(8.0);
                ui.strong("A file");
                ui.weak(
                    "A GGUF file, or a folder of Hugging Face: choose it, drop it on the window, \
                     or write its path.",
                );
                self.field(ui, worker, settings);
                ui.add_space(8.0);
                ui.strong("Hugging Face");
                match self.hub.ui(ui) {
                    None => {}
                    Some(Ok(path)) => self.open_file(&path, worker, settings),
                    Some(Err(failure)) => self.fail(failure, notice),
                }
            });
        });
        if modal.should_close() {
            self.open = false;
        }
        begun
    }

    /// Shows a failure. The dialog would cover it.
    fn fail(&mut self, failure: Failure, notice: &mut Notice) {
        self.open = false;
        notice.show(failure);
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
            let field = ui.add(field.desired_width((ui.available_width() - 230.0).max(120.0)));
            let enter = field.lost_focus() && ui.input(|input| input.key_pressed(Key::Enter));
            if (ui.button("Check").clicked() || enter) && !self.path.trim().is_empty() {
                let path = PathBuf::from(self.path.trim());
                self.open_file(&path, worker, settings);
            }
            self.chooser.button(ui, "Choose a file…", ("GGUF models", &["gguf"]));
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
