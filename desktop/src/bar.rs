//! The bar at the top of the window, and what a file above the window shows.

use eframe::egui::{self, Context, Frame, Layout, RichText, Ui};

use crate::app::App;
use crate::format;
use crate::look;

/// Width in points from which on all panels have a button.
const WIDE: f32 = 860.0;

impl App {
    pub(crate) fn bar(&mut self, ui: &mut Ui) {
        let palette = look::palette(ui);
        ui.horizontal(|ui| {
            ui.label(RichText::new("warploom").strong().size(18.0).color(palette.accent));
            ui.add_space(8.0);
            match ui.available_width() > WIDE {
                true => self.panel_buttons(ui),
                false => self.panel_choice(ui),
            }
            ui.with_layout(Layout::right_to_left(egui::Align::Center), |ui| {
                let name = match (&self.loading, &self.loaded) {
                    (Some((source, ..)), _) => source.name(),
                    (None, Some(loaded)) => loaded.source.name(),
                    (None, None) => "Choose a model".into(),
                };
                let button = egui::Button::new(name.to_string()).truncate();
                if ui.add(button).on_hover_text("Models, Ctrl+O").clicked() {
                    self.models.show();
                }
                if let Some(part) = self.models.hub().part() {
                    let text = format!("downloading, {}", format::share(part));
                    ui.small(RichText::new(text).color(palette.faint));
                }
                if let Some(address) = self.serve.address() {
                    ui.small(RichText::new(format!("serving on {address}")).color(palette.good));
                }
            });
        });
        if let Some((source, done, total)) = &self.loading {
            let fraction = if *total > 0 { *done as f32 / *total as f32 } else { 0.0 };
            let text = format!("Loading {}", source.name());
            let bar = egui::ProgressBar::new(fraction).desired_height(4.0).fill(palette.accent);
            ui.add(bar).on_hover_text(text);
        }
    }

    fn panel_buttons(&mut self, ui: &mut Ui) {
        for (i, panel) in self.panels().enumerate() {
            let button = egui::Button::selectable(self.panel == panel, panel.title());
            let key = format!("Ctrl+{}", i + 1);
            if ui.add(button).on_hover_text(key).clicked() {
                self.panel = panel;
            }
        }
    }

    /// Draws the panels as one choice, for which a narrow window has room.
    fn panel_choice(&mut self, ui: &mut Ui) {
        let choice = egui::ComboBox::from_id_salt("panels").selected_text(self.panel.title());
        let shown = choice.height(f32::INFINITY).show_ui(ui, |ui| {
            for panel in self.panels() {
                ui.selectable_value(&mut self.panel, panel, panel.title());
            }
        });
        look::name(&shown.response, egui::Role::ComboBox, "Panel");
    }

    pub(crate) fn hint_of_drop(&self, ctx: &Context) {
        if ctx.input(|input| input.raw.hovered_files.is_empty()) {
            return;
        }
        let area = egui::Area::new(egui::Id::unique("drop")).order(egui::Order::Foreground);
        area.anchor(egui::Align2::CENTER_CENTER, [0.0, 0.0]).interactable(false).show(ctx, |ui| {
            Frame::popup(ui.style()).inner_margin(40).show(ui, |ui| {
                ui.heading("Drop a GGUF file to load it, or a picture to filter it");
            });
        });
    }
}
