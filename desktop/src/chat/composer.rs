//! The message field.

use eframe::egui::{self, Id, Key, KeyboardShortcut, Modifiers, Stroke, TextEdit, Ui};

use super::Chat;
use crate::host::Host;
use crate::look;

/// Height from which on the message field scrolls, in points.
const HIGHEST: f32 = 180.0;

impl Chat {
    pub(super) fn composer(&mut self, ui: &mut Ui, host: &mut Host<'_>) {
        let palette = look::palette(ui);
        if self.editing.is_some() {
            ui.horizontal(|ui| {
                ui.weak("Editing a message: what follows it is replaced.");
                if look::quiet_button(ui, "Cancel").clicked() {
                    self.editing = None;
                    self.draft.clear();
                }
            });
        }
        let id = Id::unique("message");
        let focused = ui.memory(|memory| memory.has_focus(id));
        let was_focused = std::mem::replace(&mut self.focused, focused);
        // Before the field sees the key. Shift and Enter begin a new line, and `consume_key` does not
        // regard Shift.
        let enter = focused
            && ui.input_mut(|input| {
                !input.modifiers.shift && input.consume_key(Modifiers::NONE, Key::Enter)
            });
        let line = if focused { palette.accent } else { palette.line };
        let frame = egui::Frame::new()
            .fill(palette.raised)
            .stroke(Stroke::new(1.0, line))
            .corner_radius(20)
            .inner_margin(egui::Margin { left: 14, right: 8, top: 7, bottom: 7 });
        let sent = frame.show(ui, |ui| {
            ui.horizontal(|ui| {
                let field = TextEdit::multiline(&mut self.draft)
                    .id(id)
                    .hint_text("Write a message")
                    .frame(egui::Frame::NONE)
                    .desired_rows(1)
                    .desired_width(ui.available_width() - 92.0)
                    .return_key(KeyboardShortcut::new(Modifiers::SHIFT, Key::Enter));
                let field = egui::ScrollArea::vertical()
                    .id_salt("message rows")
                    // The row that it lies in has the height of a button. The field grows out of it,
                    // by its height in the last frame.
                    .max_height(self.height.min(HIGHEST))
                    .min_scrolled_height(self.height.min(HIGHEST))
                    .show(ui, |ui| ui.add(field))
                    .inner;
                if std::mem::replace(&mut self.height, field.rect.height()) != field.rect.height() {
                    ui.ctx().request_repaint();
                }
                if std::mem::take(&mut self.focus) {
                    field.request_focus();
                }
                let layout = egui::Layout::right_to_left(egui::Align::Center);
                ui.with_layout(layout, |ui| match self.running.is_some() {
                    true => {
                        if ui.button("Stop").on_hover_text("Escape").clicked() {
                            host.worker.stop();
                        }
                        false
                    }
                    false => {
                        let ready = host.loaded.is_some() && !self.draft.trim().is_empty();
                        look::main_button(ui, ready, "Send").on_hover_text("Enter").clicked()
                    }
                })
                .inner
            })
            .inner
        });
        if sent.inner || enter {
            self.send(host);
            self.focus = true;
        }
        if self.running.is_some() && ui.input(|input| input.key_pressed(Key::Escape)) {
            host.worker.stop();
            // The field gave it up at this key, before this frame.
            self.focus |= was_focused;
        }
        ui.vertical_centered(|ui| ui.small(self.line(host)));
    }

    /// Returns the line below the field: what runs where.
    fn line(&self, host: &Host<'_>) -> String {
        let Some(loaded) = host.loaded else { return "No model is loaded".into() };
        let what = if loaded.chats {
            ""
        } else {
            "this model has no chat format and continues the text · "
        };
        format!("{what}{} · {} · context {}", loaded.device_name, loaded.device, loaded.context)
    }
}
