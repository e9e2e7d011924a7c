//! The panel of settings.

use std::path::Path;

use eframe::egui::{self, DragValue, Grid, RichText, ScrollArea, Slider, TextEdit, Ui};

use crate::frames::Frames;
use crate::host::Host;
use crate::look;
use crate::settings::{Preset, Settings, Theme};

/// Draws the settings. `folder` is where they and the conversations are kept.
pub fn ui(ui: &mut Ui, host: &mut Host<'_>, folder: &Path) {
    let (settings, frames) = (&mut *host.settings, &mut *host.frames);
    ScrollArea::vertical().auto_shrink([false; 2]).show(ui, |ui| {
        look::title(ui, "Settings", "");
        look::card(ui, |ui| {
            ui.strong("Answers");
            Grid::new("answers")
                .num_columns(2)
                .spacing([20.0, 8.0])
                .show(ui, |ui| answers(ui, settings));
            ui.add_space(4.0);
            let label = ui.label("System message");
            let field = TextEdit::multiline(&mut settings.system).desired_rows(2);
            let field = field.hint_text("None").desired_width(f32::INFINITY);
            ui.add(field).labelled_by(label.id);
            ui.add_space(4.0);
            presets(ui, settings);
        });
        ui.add_space(6.0);
        look::card(ui, |ui| {
            ui.strong("Models");
            Grid::new("models")
                .num_columns(2)
                .spacing([20.0, 8.0])
                .show(ui, |ui| models(ui, settings));
            ui.weak("They apply to the next model that is loaded.");
        });
        ui.add_space(6.0);
        look::card(ui, |ui| {
            ui.strong("Window");
            ui.horizontal(|ui| {
                for (theme, name) in [
                    (Theme::System, "As the system"),
                    (Theme::Light, "Light"),
                    (Theme::Dark, "Dark"),
                ] {
                    ui.radio_value(&mut settings.theme, theme, name);
                }
            });
            ui.horizontal(|ui| {
                ui.label("Scale");
                // With buttons, since a slider would move under the pointer.
                for scale in [0.8, 1.0, 1.25, 1.5, 2.0] {
                    let text = format!("{:.0} %", scale * 100.0);
                    ui.selectable_value(&mut settings.scale, scale, text);
                }
            });
            frame_times(ui, frames);
        });
        ui.add_space(6.0);
        look::card(ui, |ui| {
            ui.strong("Environment");
            ui.weak("Variables that the program reads. What is chosen here comes first.");
            environment(ui);
        });
        ui.add_space(6.0);
        ui.weak(format!("Conversations and settings are kept in {}", folder.display()));
    });
}

fn frame_times(ui: &mut Ui, frames: &mut Frames) {
    let mut on = frames.is_on();
    let checkbox = ui.checkbox(&mut on, "Measure the time of frames");
    if checkbox.on_hover_text("The window draws without pause meanwhile").changed() {
        frames.switch(on);
    }
    for line in frames.lines() {
        ui.label(RichText::new(line).monospace());
    }
}

fn answers(ui: &mut Ui, settings: &mut Settings) {
    let label = ui.label("Temperature");
    let slider = Slider::new(&mut settings.temperature, 0.0..=2.0).step_by(0.05);
    ui.add(slider).labelled_by(label.id).on_hover_text("0 always takes the most probable token");
    ui.end_row();
    let label = ui.label("Longest answer");
    let tokens = DragValue::new(&mut settings.max_tokens).range(1..=1 << 20).suffix(" tokens");
    ui.add(tokens).labelled_by(label.id);
    ui.end_row();
    ui.label("Seed");
    ui.horizontal(|ui| {
        let mut fixed = settings.seed.is_some();
        if ui.checkbox(&mut fixed, "fixed").changed() {
            settings.seed = fixed.then_some(1);
        }
        if let Some(seed) = &mut settings.seed {
            ui.add(DragValue::new(seed));
        }
    });
    ui.end_row();
}

/// Draws the presets: what sets temperature and system message, and what keeps those that are set.
fn presets(ui: &mut Ui, settings: &mut Settings) {
    let own = settings.presets.clone();
    let mut chosen = None;
    ui.horizontal_wrapped(|ui| {
        ui.label("Presets");
        for preset in Preset::builtin().iter().chain(&own) {
            let hint = match preset.system.as_str() {
                "" => "No system message",
                system => system,
            };
            let button = egui::Button::selectable(settings.is(preset), preset.name.as_str());
            let button = ui.add(button.frame_when_inactive(true)).on_hover_text(hint);
            if button.clicked() {
                chosen = Some(preset.clone());
            }
        }
    });
    if let Some(preset) = chosen {
        settings.apply(&preset);
    }
    ui.horizontal_wrapped(|ui| {
        let id = ui.scope_id().with("name of a preset");
        let mut name = ui.data_mut(|data| data.get_temp::<String>(id).unwrap_or_default());
        let field = TextEdit::singleline(&mut name).hint_text("Name").desired_width(140.0);
        let field = ui.add(field);
        look::name(&field, egui::Role::TextInput, "Name of a preset");
        let is_named = !name.trim().is_empty();
        if ui.add_enabled(is_named, egui::Button::new("Keep as a preset")).clicked() {
            settings.keep_preset(name.trim());
            name.clear();
        }
        ui.data_mut(|data| data.insert_temp(id, name));
        if let Some(at) = own.iter().position(|preset| settings.is(preset))
            && look::quiet_button(ui, &format!("Delete {:?}", own[at].name)).clicked()
        {
            settings.presets.remove(at);
        }
    });
}

fn models(ui: &mut Ui, settings: &mut Settings) {
    ui.label("Products");
    ui.checkbox(&mut settings.exact, "exact, in 32 bits").on_hover_text(
        "Otherwise the device's default, which may round activations to 8 bits and is faster",
    );
    ui.end_row();
    ui.label("Context");
    ui.horizontal(|ui| {
        let mut own = settings.context.is_some();
        if ui.checkbox(&mut own, "other than the default").changed() {
            settings.context = own.then_some(warploom_llm::DEFAULT_CONTEXT);
        }
        if let Some(context) = &mut settings.context {
            ui.add(DragValue::new(context).range(16..=1 << 20).suffix(" positions"));
        }
    });
    ui.end_row();
}

fn environment(ui: &mut Ui) {
    let variables = warploom_core::config::ALL.iter();
    let set = variables.filter_map(|var| Some((*var, warploom_core::config::var(var)?)));
    let set: Vec<_> = set.collect();
    if set.is_empty() {
        ui.label("None is set.");
    }
    for (var, value) in set {
        // A key or a token is not for the eyes of others.
        let secret = var.name.ends_with("KEY") || var.name.ends_with("TOKEN");
        let value = if secret { "set".to_owned() } else { value };
        ui.label(RichText::new(format!("{}={value}", var.name)).monospace());
        ui.add(egui::Label::new(RichText::new(var.help).weak()).wrap());
    }
}
