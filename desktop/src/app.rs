//! The window: gives the worker's events to the panels, and draws them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use eframe::egui::{
    self, CentralPanel, Context, Frame, Key, KeyboardShortcut, Margin, Modifiers, Panel, Ui,
};
use eframe::egui_wgpu::RenderState;
use warploom::Error;
use warploom_models::download::HubOptions;

use crate::chat::Chat;
use crate::compare::ComparePanel;
use crate::devices::DevicesPanel;
use crate::engine::Source;
use crate::frames::Frames;
use crate::gallery::{self, Gallery};
use crate::history::Store;
use crate::host::Host;
use crate::kernels::KernelsPanel;
use crate::look;
use crate::models::{Models, place};
use crate::notice::{Failure, Kind, Notice};
use crate::panel::PanelName;
use crate::playground::Playground;
use crate::prefs;
use crate::script::Script;
use crate::serve::ServePanel;
use crate::settings::Settings;
use crate::worker::{Command, Loaded, Worker};

/// How the window is opened.
#[derive(Debug, Default)]
pub struct Options {
    /// The model to load; `None` is the last one.
    pub model: Option<PathBuf>,
    /// Id of the device; `None` is that of the settings.
    pub device: Option<String>,
    /// Folder of conversations and settings; `None` is in the user's data folder.
    pub folder: Option<PathBuf>,
    /// The hub of models; `None` is that of the environment.
    pub hub: Option<HubOptions>,
    /// When the program started, for the time until its first frame.
    pub started: Option<Instant>,
    /// Steps to run.
    pub script: Option<Script>,
    /// Receives the reason if the script fails.
    pub failed: Arc<Mutex<Option<String>>>,
}

/// The window.
pub struct App {
    pub(crate) worker: Worker,
    folder: PathBuf,
    pub(crate) settings: Settings,
    /// The settings on disk.
    saved: Settings,
    pub(crate) panel: PanelName,
    pub(crate) notice: Notice,
    pub(crate) frames: Frames,
    pub(crate) loaded: Option<Loaded>,
    /// The model that is being loaded, with the bytes uploaded so far and all.
    pub(crate) loading: Option<(Source, u64, u64)>,
    /// Whether the embedded model is loaded in the place of one that did not load.
    pub(crate) fell_back: bool,
    pub(crate) models: Models,
    pub(crate) chat: Chat,
    pub(crate) devices: DevicesPanel,
    pub(crate) compare: ComparePanel,
    pub(crate) kernels: KernelsPanel,
    pub(crate) playground: Playground,
    /// Without a graphics device there are no pictures.
    pub(crate) gallery: Option<Gallery>,
    pub(crate) serve: ServePanel,
    pub(crate) drive: crate::drive::Drive,
}

/// Returns the folder of conversations and settings.
///
/// # Errors
/// Invalid if the user has no home folder.
fn data_folder() -> Result<PathBuf, Error> {
    use etcetera::BaseStrategy;
    let strategy = etcetera::choose_base_strategy()
        .map_err(|e| Error::invalid(format!("{e}: name a folder with --folder")))?;
    Ok(strategy.data_dir().join("warploom").join("desktop"))
}

/// Reads the settings of a folder; those that cannot be read are set aside.
fn settings_of(folder: &Path, notice: &mut Notice) -> Settings {
    let path = folder.join("settings.json");
    Settings::load(&path).unwrap_or_else(|error| {
        let mut failure = Failure::from(error);
        failure.kind = Kind::Settings;
        failure.message += &match Settings::set_aside(&path) {
            Ok(aside) => format!("\nIt was renamed to {}", aside.display()),
            Err(error) => format!("\n{error}"),
        };
        notice.show(failure);
        Settings::default()
    })
}

impl App {
    /// Opens the window's contents, and begins to load the model.
    ///
    /// # Errors
    /// If the user has no data folder and none is given, or if no thread starts.
    pub fn new(
        ctx: &Context,
        graphics: Option<&RenderState>,
        options: Options,
    ) -> Result<App, Error> {
        let ctx = ctx.clone();
        look::install(&ctx);
        let folder = options.folder.map_or_else(data_folder, Ok)?;
        let mut notice = Notice::default();
        let mut settings = settings_of(&folder, &mut notice);
        let saved = settings.clone();
        if options.device.is_some() {
            settings.device = options.device;
        }
        let (chat, failure) = Chat::new(Store::new(folder.join("conversations")));
        failure.into_iter().for_each(|failure| notice.show(failure));
        let no_thread = |e| Error::io("cannot start a thread", e);
        let gallery = graphics.map(|state| Gallery::new(state, ctx.clone())).transpose();
        let gallery = gallery.map_err(no_thread)?;
        let playground = Playground::new(ctx.clone(), folder.join("packs")).map_err(no_thread)?;
        let worker = Worker::start(ctx).map_err(no_thread)?;
        worker.send(Command::Detect);
        let model = options.model.or_else(|| settings.model.clone());
        let source = model.map_or(Source::Embedded, Source::File);
        worker.send(Command::Load(source.clone(), place(&settings)));
        Ok(App {
            worker,
            folder,
            settings,
            saved,
            panel: PanelName::Chat,
            notice,
            frames: Frames::since(options.started),
            loaded: None,
            loading: Some((source, 0, 0)),
            fell_back: false,
            models: Models::new(options.hub),
            chat,
            devices: DevicesPanel::default(),
            compare: ComparePanel::default(),
            kernels: KernelsPanel::default(),
            playground,
            gallery,
            serve: ServePanel::default(),
            drive: crate::drive::Drive::new(options.script, options.failed),
        })
    }

    /// Returns whether the worker has a command that is not done yet.
    pub fn is_busy(&self) -> bool {
        self.loading.is_some()
            || self.chat.is_answering()
            || self.kernels.is_measuring()
            || self.compare.is_running()
            || self.serve.is_changing()
            || self.models.is_estimating()
            || self.devices.found().is_none()
    }

    /// Returns whether a script drives the window.
    pub fn is_driven(&self) -> bool {
        self.drive.is_running()
    }

    /// Returns the message of the window.
    pub fn notice(&self) -> &Notice {
        &self.notice
    }

    /// Returns the panel of conversations.
    pub fn chat(&self) -> &Chat {
        &self.chat
    }

    /// Returns the panel of devices.
    pub fn devices(&self) -> &DevicesPanel {
        &self.devices
    }

    /// Returns the dialog of models.
    pub fn models(&mut self) -> &mut Models {
        &mut self.models
    }

    /// Returns the panel that compares devices.
    pub fn compare(&mut self) -> &mut ComparePanel {
        &mut self.compare
    }

    /// Returns the panel of kernels.
    pub fn kernels(&self) -> &KernelsPanel {
        &self.kernels
    }

    /// Returns the panel of kernels, to choose one.
    pub fn kernels_mut(&mut self) -> &mut KernelsPanel {
        &mut self.kernels
    }

    /// Returns the playground.
    pub fn playground(&mut self) -> &mut Playground {
        &mut self.playground
    }

    /// Returns the pictures, if there is a graphics device.
    pub fn gallery(&mut self) -> Option<&mut Gallery> {
        self.gallery.as_mut()
    }

    /// Returns the panel of the server.
    pub fn serve(&self) -> &ServePanel {
        &self.serve
    }

    /// Returns the model that is loaded.
    pub fn loaded(&self) -> Option<&Loaded> {
        self.loaded.as_ref()
    }

    /// Returns the settings.
    pub fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// Shows a panel.
    pub fn show(&mut self, panel: PanelName) {
        self.panel = panel;
    }

    /// Calls `work` with the panels and what they use.
    pub(crate) fn with<R>(&mut self, work: impl FnOnce(&mut Panels<'_>, &mut Host<'_>) -> R) -> R {
        let busy = self.is_busy();
        let mut host = Host {
            worker: &self.worker,
            settings: &mut self.settings,
            frames: &mut self.frames,
            notice: &mut self.notice,
            loaded: self.loaded.as_ref(),
            busy,
        };
        let mut panels = Panels {
            chat: &mut self.chat,
            devices: &mut self.devices,
            compare: &mut self.compare,
            kernels: &mut self.kernels,
            playground: &mut self.playground,
            gallery: self.gallery.as_mut(),
            serve: &mut self.serve,
            folder: &self.folder,
        };
        work(&mut panels, &mut host)
    }

    /// Begins to load a model.
    pub(crate) fn begin_loading(&mut self, source: Source) {
        self.notice.clear();
        self.fell_back = false;
        self.loading = Some((source, 0, 0));
    }

    /// Opens a file: shows a picture in its panel, or the estimate of a model in its dialog.
    pub fn open_file(&mut self, path: &Path) {
        self.notice.clear();
        if let Some(gallery) = &mut self.gallery
            && gallery::is_picture(path)
        {
            gallery.show_photo(path);
            self.panel = PanelName::Pictures;
            return;
        }
        self.models.open_file(path, &self.worker, &self.settings);
    }

    fn keys(&mut self, ctx: &Context) {
        const DIGITS: [Key; 9] = [
            Key::Num1,
            Key::Num2,
            Key::Num3,
            Key::Num4,
            Key::Num5,
            Key::Num6,
            Key::Num7,
            Key::Num8,
            Key::Num9,
        ];
        let pressed = |key| {
            let shortcut = KeyboardShortcut::new(Modifiers::COMMAND, key);
            ctx.input_mut(|input| input.consume_shortcut(&shortcut))
        };
        for (panel, key) in self.panels().zip(DIGITS) {
            if pressed(key) {
                self.panel = panel;
            }
        }
        if pressed(Key::N) {
            self.panel = PanelName::Chat;
            self.chat.begin();
        }
        if pressed(Key::O) {
            self.models.show();
        }
        let dropped =
            ctx.input(|input| input.raw.dropped_files.first().map(|file| file.path().to_owned()));
        if let Some(path) = dropped {
            self.open_file(&path);
        }
    }

    /// Applies and saves what changed in the settings.
    fn apply(&mut self, ctx: &Context) {
        ctx.set_theme(egui::ThemePreference::from(self.settings.theme));
        if ctx.zoom_factor() != self.settings.scale {
            ctx.set_zoom_factor(self.settings.scale);
        }
        // Not while a value is dragged, or at each key.
        let still = ctx.input(|input| !input.pointer.any_down());
        if self.settings != self.saved && still {
            self.saved = self.settings.clone();
            if let Err(error) = self.settings.save(&self.folder.join("settings.json")) {
                self.notice.show(error.into());
            }
        }
    }

    /// Returns the panels that the window has.
    pub(crate) fn panels(&self) -> impl Iterator<Item = PanelName> + use<> {
        let pictures = self.gallery.is_some();
        PanelName::ALL.into_iter().filter(move |panel| pictures || *panel != PanelName::Pictures)
    }

    fn body(&mut self, ui: &mut Ui) {
        let panel = self.panel;
        let margin = match panel {
            PanelName::Chat => Margin::ZERO,
            _ => Margin::symmetric(22, 10),
        };
        let frame = Frame::new().inner_margin(margin);
        let shown = CentralPanel::no_frame().frame(frame).show(ui, |ui| {
            self.with(|panels, host| {
                match panel {
                    PanelName::Chat => panels.chat.ui(ui, host),
                    PanelName::Devices => {
                        if panels.devices.ui(ui, host) {
                            let loaded = host.loaded.map(|loaded| loaded.source.clone());
                            return Next::Loading(loaded.unwrap_or(Source::Embedded));
                        }
                    }
                    PanelName::Compare => panels.compare.ui(ui, host, panels.devices.found()),
                    PanelName::Kernels => panels.kernels.ui(ui, host, panels.folder),
                    PanelName::Playground => {
                        let show = panels.playground.ui(ui, host, panels.devices.found());
                        if let (true, Some(gallery)) = (show, &mut panels.gallery) {
                            gallery.show_pack(panels.playground.texts().clone());
                            return Next::Panel(PanelName::Pictures);
                        }
                    }
                    PanelName::Pictures => {
                        let Some(gallery) = &mut panels.gallery else { return Next::Stay };
                        let (failure, opened) = gallery.ui(ui);
                        failure.into_iter().for_each(|failure| host.notice.show(failure));
                        if let Some(texts) = opened {
                            // With the changes that the user made to it.
                            panels.playground.open(&texts.name);
                            return Next::Panel(PanelName::Playground);
                        }
                    }
                    PanelName::Server => panels.serve.ui(ui, host),
                    PanelName::Settings => prefs::ui(ui, host, panels.folder),
                }
                Next::Stay
            })
        });
        match shown.inner {
            Next::Stay => {}
            Next::Panel(panel) => self.panel = panel,
            Next::Loading(source) => self.begin_loading(source),
        }
    }
}

/// What follows from a panel.
enum Next {
    Stay,
    /// Another panel is shown.
    Panel(PanelName),
    /// A model is being loaded.
    Loading(Source),
}

/// The panels, for calls that need one and what it uses.
pub(crate) struct Panels<'a> {
    pub(crate) chat: &'a mut Chat,
    pub(crate) devices: &'a mut DevicesPanel,
    pub(crate) compare: &'a mut ComparePanel,
    pub(crate) kernels: &'a mut KernelsPanel,
    playground: &'a mut Playground,
    gallery: Option<&'a mut Gallery>,
    pub(crate) serve: &'a mut ServePanel,
    folder: &'a Path,
}

impl App {
    /// Receives events, and runs the steps of a script, before a frame is drawn.
    pub fn prepare(&mut self, ctx: &Context) {
        self.frames.begin(Instant::now(), self.chat.is_answering());
        self.receive();
        self.models.receive(ctx, &self.worker, &self.settings, &mut self.notice);
        if let Some(failure) = self.playground.receive(ctx) {
            self.notice.show(failure);
        }
        self.apply(ctx);
        self.advance(ctx);
        if self.frames.is_on() {
            ctx.request_repaint();
        }
        // The time without a first token is shown, and steps of a script may wait for time.
        if self.is_busy() || self.drive.is_running() {
            ctx.request_repaint_after(Duration::from_millis(50));
        }
    }

    /// Draws the window.
    pub fn draw(&mut self, ui: &mut Ui) {
        let ctx = ui.ctx().clone();
        self.keys(&ctx);
        let frame =
            Frame::new().fill(look::palette(ui).ground).inner_margin(Margin::symmetric(14, 8));
        Panel::top("bar").frame(frame).show(ui, |ui| self.bar(ui));
        if self.notice.failure().is_some() {
            let frame = Frame::new().inner_margin(Margin::symmetric(14, 8));
            Panel::top("notice").show_separator_line(false).frame(frame).show(ui, |ui| {
                self.notice.ui(ui);
            });
        }
        self.body(ui);
        let loaded = self.loaded.as_ref();
        let begun = self.models.ui(&ctx, &self.worker, &self.settings, loaded, &mut self.notice);
        if let Some(source) = begun {
            self.begin_loading(source);
        }
        self.hint_of_drop(&ctx);
    }
}

impl eframe::App for App {
    fn logic(&mut self, ctx: &Context, _: &mut eframe::Frame) {
        self.prepare(ctx);
    }

    fn ui(&mut self, ui: &mut Ui, _: &mut eframe::Frame) {
        self.draw(ui);
    }

    fn clear_color(&self, visuals: &egui::Visuals) -> [f32; 4] {
        visuals.panel_fill.to_normalized_gamma_f32()
    }

    fn on_exit(&mut self) {
        self.with(|panels, host| panels.chat.on_exit(host));
        // A panic of another part must not lose what the user chose.
        if self.settings != self.saved
            && let Err(error) = self.settings.save(&self.folder.join("settings.json"))
        {
            eprintln!("warploom: {error}");
        }
    }
}
