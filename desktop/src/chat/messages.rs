//! The messages of a conversation.

use std::time::Duration;

use eframe::egui::{self, CollapsingHeader, Label, Layout, RichText, ScrollArea, Ui};
use egui_commonmark::{CommonMarkCache, CommonMarkViewer};

use super::{Chat, Running, centred};
use crate::format;
use crate::history::Message;
use crate::host::Host;
use crate::look;
use crate::settings::{Preset, Settings};

/// Questions that a new conversation offers.
const SUGGESTIONS: [&str; 3] = [
    "Tell me a story about a brave mouse and a red ball.",
    "What is the capital of France?",
    "Who are you?",
];

/// How long a button says that it copied.
const COPIED: Duration = Duration::from_millis(1500);

/// What the user wants with a message.
enum Wish {
    Copy(usize),
    Retry,
    Edit(usize),
    Branch(usize),
}

impl Chat {
    pub(super) fn messages(&mut self, ui: &mut Ui, host: &mut Host<'_>) {
        let messages = self.current().map(|current| current.messages.clone()).unwrap_or_default();
        let running = self.running.as_ref().filter(|running| running.conversation == self.shown);
        if messages.is_empty() && running.is_none() {
            return self.welcome(ui, host);
        }
        let (is_running, copied) = (running.is_some(), self.copied);
        let mut wish = None;
        let scroll = ScrollArea::vertical().id_salt(("messages", &self.shown));
        scroll.auto_shrink([false; 2]).stick_to_bottom(true).show(ui, |ui| {
            ui.add_space(14.0);
            centred(ui, |ui| {
                for (i, message) in messages.iter().enumerate() {
                    let last = i + 1 == messages.len() && !is_running;
                    ui.push_id(i, |ui| match message.user {
                        true => user(ui, message, i, is_running, &mut wish),
                        false => model(ui, &mut self.cache, &message.text),
                    });
                    if !message.user {
                        let copied =
                            copied.is_some_and(|(at, when)| at == i && when.elapsed() < COPIED);
                        below(ui, message, i, last, copied, &mut wish);
                    }
                    ui.add_space(12.0);
                }
                if let Some(running) =
                    self.running.as_ref().filter(|running| running.conversation == self.shown)
                {
                    ui.push_id("running", |ui| model(ui, &mut self.cache, &running.text));
                    ui.horizontal(|ui| {
                        ui.spinner();
                        ui.small(RichText::new(status(running)).weak());
                    });
                }
            });
            ui.add_space(10.0);
        });
        match wish {
            None => {}
            Some(Wish::Retry) => self.retry(host),
            Some(Wish::Branch(at)) => self.branch(at, host),
            Some(Wish::Copy(at)) => {
                ui.ctx().copy_text(messages[at].text.clone());
                self.copied = Some((at, std::time::Instant::now()));
                ui.ctx().request_repaint_after(COPIED);
            }
            Some(Wish::Edit(at)) => {
                self.draft.clone_from(&messages[at].text);
                self.editing = Some(at);
                self.focus = true;
            }
        }
    }

    fn welcome(&mut self, ui: &mut Ui, host: &mut Host<'_>) {
        ui.add_space((ui.available_height() * 0.24).max(12.0));
        let mut chosen = None;
        ui.vertical_centered(|ui| {
            ui.label(RichText::new("A language model, in this window").size(27.0).strong());
            ui.weak("It runs on your own device. Nothing that you write leaves it.");
            ui.add_space(16.0);
            for text in SUGGESTIONS {
                if ui.add_enabled(host.loaded.is_some(), egui::Button::new(text)).clicked() {
                    chosen = Some(text);
                }
            }
            ui.add_space(10.0);
            preset_menu(ui, host.settings);
            ui.add_space(10.0);
            ui.small(RichText::new("Drop a GGUF file anywhere to load it.").weak());
        });
        if let Some(text) = chosen {
            self.set_draft(text);
            self.send(host);
        }
    }
}

/// Draws the menu of presets, with the name of the one that is set.
fn preset_menu(ui: &mut Ui, settings: &mut Settings) {
    let mut all = Preset::builtin();
    all.extend(settings.presets.iter().cloned());
    let set = all.iter().find(|preset| settings.is(preset)).map_or("own", |preset| &preset.name);
    ui.menu_button(format!("Preset: {set}"), |ui| {
        for preset in &all {
            let button = ui.selectable_label(settings.is(preset), preset.name.as_str());
            if button.on_hover_text(preset.system.as_str()).clicked() {
                settings.apply(preset);
                ui.close();
            }
        }
    });
}

/// Returns the line below an answer that is being generated.
fn status(running: &Running) -> String {
    match (running.prompt, running.tokens) {
        (Some((done, total)), _) => format!("reading {done} of {total} tokens"),
        (None, 0) => format!("waiting {}", format::seconds(running.begin.elapsed().as_secs_f64())),
        (None, 1) => "1 token".into(),
        (None, tokens) => {
            let speed = (tokens - 1) as f64 / running.since_first.max(1e-9);
            format!("{tokens} tokens · {}", format::speed(speed))
        }
    }
}

/// Draws a message of the user.
fn user(ui: &mut Ui, message: &Message, at: usize, running: bool, wish: &mut Option<Wish>) {
    let palette = look::palette(ui);
    ui.with_layout(Layout::top_down(egui::Align::Max), |ui| {
        let widest = ui.available_width() * 0.86;
        let frame = egui::Frame::new().fill(palette.user).corner_radius(16);
        frame.inner_margin(egui::Margin::symmetric(13, 9)).show(ui, |ui| {
            ui.set_max_width(widest);
            ui.with_layout(Layout::top_down(egui::Align::Min), |ui| {
                ui.add(Label::new(message.text.as_str()).wrap().selectable(true));
            });
        });
        ui.horizontal(|ui| {
            if look::quiet_button(ui, "Branch").on_hover_text("Continue in a copy").clicked() {
                *wish = Some(Wish::Branch(at));
            }
            if !running && look::quiet_button(ui, "Edit").clicked() {
                *wish = Some(Wish::Edit(at));
            }
        });
    });
}

/// Draws a message of the model: Markdown, with its thoughts folded.
fn model(ui: &mut Ui, cache: &mut CommonMarkCache, text: &str) {
    let (thoughts, answer) = split_thoughts(text);
    if let Some(thoughts) = thoughts {
        let header = CollapsingHeader::new(RichText::new("Thinking").weak());
        header.id_salt("thoughts").show(ui, |ui| {
            ui.add(Label::new(RichText::new(thoughts.trim()).weak()).wrap());
        });
    }
    if !answer.trim().is_empty() {
        CommonMarkViewer::new().show(ui, cache, answer.trim());
    }
}

/// Draws the figures of an answer, and what can be done with it.
fn below(
    ui: &mut Ui,
    message: &Message,
    at: usize,
    last: bool,
    copied: bool,
    wish: &mut Option<Wish>,
) {
    ui.horizontal_wrapped(|ui| {
        ui.small(RichText::new(message.stats.as_str()).weak());
        if look::quiet_button(ui, if copied { "Copied" } else { "Copy" }).clicked() {
            *wish = Some(Wish::Copy(at));
        }
        if last && look::quiet_button(ui, "Write again").clicked() {
            *wish = Some(Wish::Retry);
        }
    });
}

/// Splits an answer into the thoughts between `<think>` and `</think>`, and the rest.
fn split_thoughts(text: &str) -> (Option<&str>, &str) {
    let Some(rest) = text.trim_start().strip_prefix("<think>") else { return (None, text) };
    match rest.split_once("</think>") {
        Some((thoughts, answer)) => (Some(thoughts), answer),
        None => (Some(rest), ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thoughts_are_separate_from_the_answer() {
        assert_eq!(split_thoughts("plain <think>"), (None, "plain <think>"));
        assert_eq!(split_thoughts("<think>why"), (Some("why"), ""));
        assert_eq!(split_thoughts(" <think>a</think>b"), (Some("a"), "b"));
    }
}
