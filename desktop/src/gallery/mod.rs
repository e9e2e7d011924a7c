//! Pictures that packs compute on the device of the window, drawn from where they were computed.

mod paint;
mod scenes;
mod studio;

use eframe::egui::{self, Context, Layout, RichText, Sense, Ui, Vec2};
use eframe::egui_wgpu::RenderState;

use crate::format;
use crate::look;
use crate::notice::Failure;
use paint::Painter;
pub use scenes::{DEEPEST, Pointer, Scene, SceneName, Size, View};
pub use studio::{Frame, Order, Studio};

/// Height over width of a picture.
const ASPECT: f32 = 0.75;
/// Zoom of a frame while the picture zooms by itself.
const ZOOM: f64 = 0.985;
/// A point at the border of the Mandelbrot set, at which there is much to see at any depth.
const SIGHT: [f64; 2] = [-0.743_643_887_037_158_7, 0.131_825_904_205_311_97];

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
    /// Smoothed seconds of a step.
    seconds: Option<f64>,
    size: Option<Size>,
    rect: egui::Rect,
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
            seconds: None,
            size: None,
            rect: egui::Rect::NOTHING,
        })
    }

    /// Shows a picture.
    pub fn show(&mut self, scene: SceneName) {
        if self.scene != scene {
            self.scene = scene;
            self.seconds = None;
            self.view = View::default();
        }
    }

    /// Sets the size of pictures; `None` is what suits the device.
    pub fn set_size(&mut self, size: Option<Size>) {
        self.size = size;
    }

    /// Plays or pauses.
    pub fn play(&mut self, playing: bool) {
        self.playing = playing;
    }

    /// Returns the number of steps of the picture that is shown.
    pub fn steps(&self) -> u64 {
        self.frame.as_ref().filter(|frame| frame.scene == self.scene).map_or(0, |frame| frame.steps)
    }

    /// Asks for one step of a paused picture.
    pub fn step(&mut self) {
        self.single = true;
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

    /// Draws the panel; returns a failure of the thread.
    pub fn ui(&mut self, ui: &mut Ui) -> Option<Failure> {
        let mut failure = None;
        if let Some(done) = self.studio.frame() {
            match done {
                Ok(frame) => {
                    if let Some(seconds) = frame.step_seconds.filter(|_| frame.scene == self.scene)
                    {
                        let before = self.seconds.unwrap_or(seconds);
                        self.seconds = Some(before * 0.9 + seconds * 0.1);
                    }
                    self.frame = Some(frame);
                }
                Err(error) => {
                    self.playing = false;
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
        self.buttons(ui);
        self.picture(ui);
        self.order(ui);
        failure
    }

    fn buttons(&mut self, ui: &mut Ui) {
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
                self.playing = !self.playing;
            }
            if ui.add_enabled(!self.playing, egui::Button::new("Step")).clicked() {
                self.single = true;
            }
            if ui.button("Begin again").clicked() {
                self.reset = true;
                self.view = View::default();
            }
        });
        ui.horizontal(|ui| {
            ui.weak(self.scene.hint());
            ui.with_layout(Layout::right_to_left(egui::Align::Center), |ui| {
                ui.label(RichText::new(self.figures()).monospace());
            });
        });
    }

    fn figures(&self) -> String {
        let Some(frame) = self.frame.as_ref().filter(|frame| frame.scene == self.scene) else {
            return String::new();
        };
        let Size { width, height } = frame.size;
        let size = match height {
            1 => format!("{width}"),
            _ => format!("{width} × {height}"),
        };
        let Some(seconds) = self.seconds else { return size };
        let (unit, count) = self.scene.work(frame.size);
        let rate = format::count(count / seconds.max(1e-9));
        let depth = match self.scene {
            SceneName::Mandelbrot => format!(" · zoom {:.1e}", 2.6 / self.view.span),
            _ => String::new(),
        };
        format!("{size} · {} a step · {rate} {unit}/s{depth}", format::seconds(seconds))
    }

    fn picture(&mut self, ui: &mut Ui) {
        let room = ui.available_size();
        let width = room.x.min(room.y / ASPECT).max(64.0);
        let size = Vec2::new(width, width * ASPECT);
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
        if self.studio.is_waiting() {
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
