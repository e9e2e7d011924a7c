//! Pictures that packs compute on the device of the window, drawn from where they were computed.

mod paint;
mod photo;
mod scenes;
mod studio;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use eframe::egui::{self, Context, Key, Layout, RichText, Sense, TextEdit, Ui, Vec2};
use eframe::egui_wgpu::RenderState;

use crate::dialog::Chooser;
use crate::format;
use crate::look;
use crate::notice::Failure;
use crate::packs::Texts;
use paint::Painter;
pub use photo::is_picture;
pub use scenes::{DEEPEST, Pointer, Scene, SceneName, Size, View};
pub use studio::{Frame, Order, Studio};

/// Height over width of a picture.
const ASPECT: f32 = 0.75;
/// Radius of the filter at first, in pixels.
const RADIUS: u32 = 3;
/// Zoom of a frame while the picture zooms by itself.
const ZOOM: f64 = 0.985;
/// A point at the border of the Mandelbrot set, at which there is much to see at any depth.
const SIGHT: [f64; 2] = [-0.743_643_887_037_158_7, 0.131_825_904_205_311_97];

/// The last numbers of a series. Those of a first frame, which compiles kernels, do not count for long.
#[derive(Default)]
struct Recent(VecDeque<f64>);

impl Recent {
    const KEPT: usize = 15;

    fn push(&mut self, value: f64) {
        if self.0.len() == Recent::KEPT {
            self.0.pop_front();
        }
        self.0.push_back(value);
    }

    fn median(&self) -> Option<f64> {
        let mut all: Vec<f64> = self.0.iter().copied().collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }
}

/// The panel of pictures.
pub struct Gallery {
    studio: Studio,
    painter: Painter,
    scene: SceneName,
    frame: Option<Frame>,
    playing: bool,
    reset: bool,
    single: bool,
    view: View,
    /// The view that was asked for last.
    ordered: Option<View>,
    pointer: Pointer,
    /// Seconds of a step, of the last frames.
    seconds: Recent,
    size: Option<Size>,
    rect: egui::Rect,
    /// The picture that is filtered; `None` is the program's own.
    photo: Option<Arc<Path>>,
    /// Radius of the filter.
    radius: u32,
    /// Text in the field for a path.
    path: String,
    chooser: Chooser,
    /// Packs that the user changed.
    own: Arc<Vec<Texts>>,
    /// Whether the last order failed; it is not repeated before the user does something.
    failed: bool,
}

impl Gallery {
    /// Creates the panel on the device of the window.
    ///
    /// # Errors
    /// If the system starts no thread.
    pub fn new(state: &RenderState, ctx: Context) -> std::io::Result<Gallery> {
        Ok(Gallery {
            studio: Studio::start(state.device.clone(), state.queue.clone(), ctx)?,
            painter: Painter::new(&state.device, &state.queue, state.target_format),
            scene: SceneName::Life,
            frame: None,
            playing: true,
            reset: false,
            single: false,
            view: View::default(),
            ordered: None,
            pointer: Pointer::default(),
            seconds: Recent::default(),
            size: None,
            rect: egui::Rect::NOTHING,
            photo: None,
            radius: RADIUS,
            path: String::new(),
            chooser: Chooser::default(),
            own: Arc::default(),
            failed: false,
        })
    }

    /// Shows a picture.
    pub fn show(&mut self, scene: SceneName) {
        if self.scene != scene {
            self.scene = scene;
            self.seconds = Recent::default();
            self.view = View::default();
            self.failed = false;
        }
    }

    /// Shows a picture of the user, and paints over it.
    pub fn show_photo(&mut self, path: &Path) {
        self.photo = Some(path.into());
        self.show(SceneName::Photo);
        // Not that of the picture before, also if it is being computed.
        self.frame = None;
        (self.reset, self.playing, self.failed) = (true, true, false);
    }

    /// Shows the picture that a changed pack belongs to.
    pub fn show_pack(&mut self, texts: Texts) {
        let Some(scene) = SceneName::of_pack(&texts.name) else { return };
        let own = Arc::make_mut(&mut self.own);
        own.retain(|other| other.name != texts.name);
        let original = scene.packs().iter().any(|pack| Texts::of(pack) == texts);
        if !original {
            own.push(texts);
        }
        self.show(scene);
        (self.reset, self.failed) = (true, false);
    }

    /// Returns which picture is shown.
    pub fn scene(&self) -> SceneName {
        self.scene
    }

    /// Returns the picture of the user.
    pub fn photo(&self) -> Option<&Path> {
        self.photo.as_deref()
    }

    /// Sets the size of pictures; `None` is what suits the device.
    pub fn set_size(&mut self, size: Option<Size>) {
        self.size = size;
    }

    /// Plays or pauses.
    pub fn play(&mut self, playing: bool) {
        self.playing = playing;
        self.failed = false;
    }

    /// Returns the number of steps of the picture that is shown.
    pub fn steps(&self) -> u64 {
        self.frame.as_ref().filter(|frame| frame.scene == self.scene).map_or(0, |frame| frame.steps)
    }

    /// Asks for one step of a paused picture.
    pub fn step(&mut self) {
        self.single = true;
        self.failed = false;
    }

    /// Returns whether the picture that is shown has been computed, and no step is being computed.
    pub fn is_ready(&self) -> bool {
        let shown = self.frame.as_ref().is_some_and(|frame| frame.scene == self.scene);
        shown && !self.studio.is_waiting() && !self.single
    }

    /// Returns where the picture is in the window, in points.
    pub fn rect(&self) -> egui::Rect {
        self.rect
    }

    /// Draws the panel. Returns a failure of the thread, and the pack that is to be opened in the
    /// playground.
    pub fn ui(&mut self, ui: &mut Ui) -> (Option<Failure>, Option<Texts>) {
        let mut failure = None;
        if let Some(done) = self.studio.frame() {
            match done {
                Ok(frame) => {
                    if let Some(seconds) = frame.step_seconds.filter(|_| frame.scene == self.scene)
                    {
                        self.seconds.push(seconds);
                    }
                    // The picture has all of its layers.
                    if frame.scene == SceneName::Photo && frame.step_seconds.is_none() {
                        self.playing &= frame.steps == 0;
                    }
                    self.frame = Some(frame);
                }
                Err(error) => {
                    (self.playing, self.failed) = (false, true);
                    (self.single, self.reset) = (false, false);
                    failure = Some(error);
                }
            }
        }
        look::title(
            ui,
            "Pictures",
            "Kernel packs, computed on the device that draws this window and drawn from the memory \
             in which they were computed.",
        );
        let opened = self.buttons(ui);
        self.picture(ui);
        self.order(ui);
        (failure, opened)
    }

    fn buttons(&mut self, ui: &mut Ui) -> Option<Texts> {
        let mut opened = None;
        ui.horizontal_wrapped(|ui| {
            for scene in SceneName::ALL {
                let button = egui::Button::selectable(self.scene == scene, scene.title());
                if ui.add(button.frame_when_inactive(true)).clicked() {
                    self.show(scene);
                }
            }
            ui.add_space(12.0);
            let text = if self.playing { "Pause" } else { "Play" };
            if ui.button(text).clicked() {
                self.play(!self.playing);
            }
            if ui.add_enabled(!self.playing, egui::Button::new("Step")).clicked() {
                self.step();
            }
            if ui.button("Begin again").clicked() {
                (self.reset, self.failed) = (true, false);
                self.view = View::default();
                // It paused after its last layer.
                self.playing |= self.scene == SceneName::Photo;
            }
            opened = self.packs(ui);
        });
        if self.scene == SceneName::Photo {
            self.photo_row(ui);
        }
        ui.horizontal(|ui| {
            ui.weak(self.scene.hint());
            ui.with_layout(Layout::right_to_left(egui::Align::Center), |ui| {
                ui.label(RichText::new(self.figures()).monospace());
            });
        });
        opened
    }

    /// Draws what leads to the packs of the picture. Returns the one that is to be opened.
    fn packs(&mut self, ui: &mut Ui) -> Option<Texts> {
        let mut opened = None;
        ui.menu_button("Change its kernels", |ui| {
            for pack in self.scene.packs() {
                if ui.button(pack.name).clicked() {
                    let own = self.own.iter().find(|texts| texts.name == pack.name);
                    opened = Some(own.cloned().unwrap_or_else(|| Texts::of(pack)));
                    ui.close();
                }
            }
        });
        let changed = |texts: &Texts| SceneName::of_pack(&texts.name) == Some(self.scene);
        if self.own.iter().any(changed) && ui.button("Undo the changes").clicked() {
            let scene = self.scene;
            Arc::make_mut(&mut self.own)
                .retain(|texts| SceneName::of_pack(&texts.name) != Some(scene));
            (self.reset, self.failed) = (true, false);
        }
        opened
    }

    /// Draws what chooses the picture of the user.
    fn photo_row(&mut self, ui: &mut Ui) {
        if let Some(path) = self.chooser.chosen() {
            self.show_photo(&path);
        }
        ui.horizontal_wrapped(|ui| {
            let field = TextEdit::singleline(&mut self.path).hint_text("/path/to/picture.jpg");
            let field = ui.add(field.desired_width(260.0));
            let enter = field.lost_focus() && ui.input(|input| input.key_pressed(Key::Enter));
            let open = ui.button("Open").clicked() || enter;
            if open && !self.path.trim().is_empty() {
                let path = std::path::PathBuf::from(self.path.trim());
                self.show_photo(&path);
            }
            self.chooser.button(ui, "Choose a picture…", ("Pictures", &photo::ENDINGS));
            let label = ui.label("Radius");
            let radius = egui::Slider::new(&mut self.radius, 1..=10);
            if ui.add(radius).labelled_by(label.id).changed() {
                // It begins again with the next step.
                self.play(true);
            }
        });
    }

    /// Returns size and speed of the picture that is shown.
    pub fn figures(&self) -> String {
        let Some(frame) = self.frame.as_ref().filter(|frame| frame.scene == self.scene) else {
            return String::new();
        };
        let Size { width, height } = frame.size;
        let size = match height {
            1 => format!("{width}"),
            _ => format!("{width} × {height}"),
        };
        let Some(seconds) = self.seconds.median() else { return size };
        let (unit, count) = self.scene.work(frame.size);
        let rate = format::count(count / seconds.max(1e-9));
        let depth = match self.scene {
            SceneName::Mandelbrot => format!(" · zoom {:.1e}", 2.6 / self.view.span),
            _ => String::new(),
        };
        let traffic = match self.scene.traffic(frame.size) {
            Some(bytes) => format!(" · {}/s", format::bytes((bytes / seconds.max(1e-9)) as u64)),
            None => String::new(),
        };
        let step = format::seconds(seconds);
        format!("{size} · {step} a step · {rate} {unit}/s{traffic}{depth}")
    }

    fn picture(&mut self, ui: &mut Ui) {
        let room = ui.available_size();
        let aspect = match &self.frame {
            Some(Frame { scene: SceneName::Photo, size, .. }) => {
                (size.height as f32 / size.width as f32).clamp(0.1, 10.0)
            }
            _ => ASPECT,
        };
        let width = room.x.min(room.y / aspect).max(64.0);
        let size = Vec2::new(width, width * aspect);
        let area = ui.vertical_centered(|ui| ui.allocate_exact_size(size, Sense::click_and_drag()));
        let (rect, response) = area.inner;
        self.rect = rect;
        let palette = look::palette(ui);
        let Some(frame) = self.frame.as_ref().filter(|frame| frame.scene == self.scene) else {
            ui.painter().rect_filled(rect, 6.0, palette.sunken);
            return;
        };
        let points = matches!(frame.scene, SceneName::Boids | SceneName::Bodies);
        let (ground, ink) = match frame.scene {
            SceneName::Life => (palette.raised, palette.accent),
            _ => (egui::Color32::from_rgb(13, 13, 20), egui::Color32::from_rgb(120, 118, 255)),
        };
        if points {
            ui.painter().rect_filled(rect, 0.0, ground);
        }
        let shape = self.painter.shape(frame, rect, ui.pixels_per_point(), ground, ink);
        ui.painter().add(shape);
        self.point(ui, &response, rect, frame.size);
    }

    fn point(&mut self, ui: &Ui, response: &egui::Response, rect: egui::Rect, size: Size) {
        let cells = Vec2::new(size.width as f32, size.height as f32);
        let scale = cells / rect.size();
        self.pointer.pressed = response.is_pointer_button_down_on();
        let Some(at) = response.interact_pointer_pos().or(response.hover_pos()) else { return };
        let part = (at - rect.min) / rect.size();
        self.pointer.place = [part.x * cells.x, part.y * cells.y];
        let moved = response.drag_delta() * scale;
        self.pointer.moved = [moved.x, moved.y];
        if self.scene == SceneName::Mandelbrot {
            let place = [f64::from(part.x), f64::from(part.y)];
            let point = self.view.at(place, f64::from(1.0 / ASPECT));
            let wheel = ui.input(|input| input.smooth_scroll_delta.y);
            if response.hovered() && wheel != 0.0 {
                self.playing = false;
                self.view.zoom(f64::from(-wheel / 200.0).exp(), point);
            }
            if response.clicked() {
                self.playing = false;
                self.view.zoom(0.5, point);
            }
        }
    }

    fn order(&mut self, ui: &Ui) {
        if self.studio.is_waiting() || self.failed {
            return;
        }
        let shown = self.frame.as_ref().is_some_and(|frame| frame.scene == self.scene);
        let zooms = self.scene == SceneName::Mandelbrot;
        if zooms && self.playing && shown {
            self.zoom_on();
        }
        let moved = zooms && self.ordered != Some(self.view);
        let plays = self.playing && !zooms;
        if !(plays || moved || self.single || self.reset || !shown) {
            return;
        }
        let steps = match (plays, zooms) {
            (_, true) => Some(1),
            // One a frame, so that one sees it.
            (true, false) if self.scene == SceneName::Photo => Some(1),
            (true, false) => None,
            (false, false) => Some(u32::from(self.single)),
        };
        self.studio.order(Order {
            scene: self.scene,
            size: self.size,
            reset: self.reset,
            steps,
            pointer: self.pointer,
            view: self.view,
            photo: self.photo.clone(),
            radius: self.radius,
            own: self.own.clone(),
        });
        self.ordered = Some(self.view);
        (self.single, self.reset) = (false, false);
        if self.playing {
            ui.ctx().request_repaint();
        }
    }

    /// Zooms a little deeper; at the deepest, begins again.
    fn zoom_on(&mut self) {
        match self.view.span > 4.0 * DEEPEST {
            true => self.view.zoom(ZOOM, SIGHT),
            false => self.view = View::default(),
        }
        // The sight moves to the middle.
        for (middle, sight) in self.view.middle.iter_mut().zip(SIGHT) {
            *middle += (sight - *middle) * 0.04;
        }
    }
}
