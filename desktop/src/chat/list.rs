//! The list of conversations.

use std::path::Path;

use eframe::egui::{self, Id, Modal, Panel, RichText, ScrollArea, TextEdit, Ui};

use super::Chat;
use crate::history::Conversation;
use crate::host::Host;
use crate::look;

impl Chat {
    pub(super) fn list(&mut self, ui: &mut Ui, host: &mut Host<'_>) {
        ui.add_space(6.0);
        let width = ui.available_width();
        let new = egui::Button::new("New chat").min_size(egui::vec2(width, 0.0));
        if ui.add(new).on_hover_text("Ctrl+N").clicked() {
            self.begin();
        }
        let search = TextEdit::singleline(&mut self.search).hint_text("Search all messages");
        ui.add(search.desired_width(width));
        ui.add_space(2.0);
        let text = self.search.trim().to_owned();
        let matching =
            |conversation: &&Conversation| text.is_empty() || conversation.contains(&text);
        let rows: Vec<(String, String)> = self
            .all
            .iter()
            .filter(matching)
            .map(|conversation| (conversation.id.clone(), conversation.title()))
            .collect();
        if rows.is_empty() {
            ui.weak("Nothing found");
        }
        if let Some(saved) = &self.saved {
            let text = RichText::new(saved).weak();
            Panel::bottom("saved").show(ui, |ui| ui.add(egui::Label::new(text.small()).wrap()));
        }
        ScrollArea::vertical().auto_shrink([false; 2]).show(ui, |ui| {
            for (id, title) in rows {
                let shown = id == self.shown;
                if let (true, Some(new)) = (shown, &mut self.renaming) {
                    let field = ui.add(TextEdit::singleline(new).desired_width(width));
                    if field.lost_focus() {
                        self.rename(host);
                    } else {
                        field.request_focus();
                    }
                    continue;
                }
                let button = egui::Button::selectable(shown, title.as_str()).truncate();
                let button = button.min_size(egui::vec2(ui.available_width(), 30.0));
                let row = ui.add(button);
                if row.clicked() {
                    self.show(&id);
                    self.listing = false;
                }
                row.context_menu(|ui| self.menu(ui, &id, host));
            }
        });
    }

    fn menu(&mut self, ui: &mut Ui, id: &str, host: &mut Host<'_>) {
        if ui.button("Rename").clicked() {
            self.show(id);
            self.renaming = self.current().map(Conversation::title);
            ui.close();
        }
        if ui.button("Copy as Markdown").clicked() {
            if let Some(conversation) = self.find(id) {
                let text = conversation.markdown();
                ui.ctx().copy_text(text);
            }
            ui.close();
        }
        if ui.button("Save as Markdown").clicked() {
            self.export(|conversation| conversation.id == id, host);
            ui.close();
        }
        if ui.button("Save all as Markdown").clicked() {
            self.export(|_| true, host);
            ui.close();
        }
        if ui.button("Delete").clicked() {
            self.show(id);
            self.deleting = true;
            ui.close();
        }
    }

    /// Writes conversations as Markdown.
    fn export(&mut self, wanted: impl Fn(&Conversation) -> bool, host: &mut Host<'_>) {
        let (mut count, mut last) = (0, None);
        let all = self.all.iter().filter(|c| !c.messages.is_empty() && wanted(c));
        for conversation in all {
            match self.store.export(conversation) {
                Ok(path) => (count, last) = (count + 1, Some(path)),
                // The others would fail too.
                Err(error) => return host.notice.show(error.into()),
            }
        }
        let place = |path: &Path| match count {
            1 => path.display().to_string(),
            _ => path.parent().unwrap_or(path).display().to_string(),
        };
        self.saved = Some(match last {
            Some(path) => format!("{count} saved: {}", place(&path)),
            None => "There is nothing to save".into(),
        });
    }

    fn rename(&mut self, host: &mut Host<'_>) {
        let Some(new) = self.renaming.take() else { return };
        let new = new.trim().to_owned();
        if let Some(current) = self.current_mut() {
            // Without a title, it is made of the first message again.
            current.title = (!new.is_empty()).then_some(new);
            self.save_shown(host);
        }
    }

    /// Asks before a conversation is deleted.
    pub(super) fn confirm_delete(&mut self, ui: &mut Ui, host: &mut Host<'_>) {
        if !self.deleting {
            return;
        }
        let title = self.current().map(Conversation::title).unwrap_or_default();
        let modal = Modal::new(Id::unique("delete")).show(ui.ctx(), |ui| {
            ui.set_max_width(340.0);
            ui.heading("Delete this conversation?");
            ui.label(title);
            ui.add_space(8.0);
            ui.horizontal(|ui| {
                if look::main_button(ui, true, "Delete").clicked() {
                    self.delete(host);
                }
                if ui.button("Keep").clicked() {
                    self.deleting = false;
                }
            });
        });
        if modal.should_close() {
            self.deleting = false;
        }
    }

    fn delete(&mut self, host: &mut Host<'_>) {
        self.deleting = false;
        if self.running.as_ref().is_some_and(|running| running.conversation == self.shown) {
            host.worker.stop();
            self.running = None;
        }
        let Some(at) = self.all.iter().position(|c| c.id == self.shown) else { return };
        let conversation = self.all.remove(at);
        if let Err(error) = self.store.delete(&conversation) {
            host.notice.show(error.into());
        }
        match self.all.first().map(|first| first.id.clone()) {
            Some(id) => self.show(&id),
            None => self.begin(),
        }
    }
}
