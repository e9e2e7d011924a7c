//! The same prompt on several devices side by side.

use std::collections::BTreeSet;

use eframe::egui::{
    self, DragValue, FontId, Grid, RichText, ScrollArea, TextEdit, Ui, text::LayoutJob,
    text::TextFormat,
};
use warploom_llm::Sampling;

use crate::engine::{Ask, Compared, Difference, MOST_TOKENS, Turn};
use crate::format;
use crate::host::Host;
use crate::look;
use crate::notice::Failure;
use crate::worker::{Command, Devices};

/// What became of a device.
struct Row {
    device: String,
    result: Result<Box<Compared>, Failure>,
}

/// The panel that compares devices.
pub struct ComparePanel {
    prompt: String,
    tokens: usize,
    /// Devices that the user left out.
    without: BTreeSet<String>,
    /// The device that runs, and its number of tokens.
    running: Option<(String, usize)>,
    rows: Vec<Row>,
}

impl Default for ComparePanel {
    fn default() -> ComparePanel {
        ComparePanel {
            prompt: "Tell me a story about a brave mouse and a red ball.".into(),
            tokens: 32,
            without: BTreeSet::new(),
            running: None,
            rows: Vec::new(),
        }
    }
}

impl ComparePanel {
    /// Returns whether a comparison runs.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Returns the answers so far.
    pub fn answers(&self) -> impl Iterator<Item = Result<&Compared, &Failure>> {
        self.rows.iter().map(|row| row.result.as_deref())
    }

    /// Replaces the prompt.
    pub fn set_prompt(&mut self, text: &str) {
        text.clone_into(&mut self.prompt);
    }

    /// Compares devices.
    pub fn compare(&mut self, devices: Vec<String>, host: &Host<'_>) {
        let system = host.settings.system.trim();
        let ask = Ask {
            system: (!system.is_empty()).then(|| system.to_owned()),
            turns: vec![Turn { user: true, text: self.prompt.trim().to_owned() }],
            // Not read: the most probable token is taken.
            sampling: Sampling::greedy(),
            max_tokens: self.tokens,
        };
        self.rows.clear();
        self.running = Some((String::new(), 0));
        host.worker.send(Command::Compare(ask, devices));
    }

    /// Receives the number of tokens of the device that runs.
    pub fn on_comparing(&mut self, device: String, tokens: usize) {
        self.running = Some((device, tokens));
    }

    /// Receives the answer of a device.
    pub fn on_compared(&mut self, device: String, result: Result<Box<Compared>, Failure>) {
        self.rows.push(Row { device, result });
    }

    /// Receives the end of the comparison, also if its thread is gone.
    pub fn on_ended(&mut self) {
        self.running = None;
    }

    /// Forgets the answers of another model.
    pub fn reset(&mut self) {
        self.rows.clear();
        self.running = None;
    }

    /// Draws the panel.
    pub fn ui(&mut self, ui: &mut Ui, host: &Host<'_>, found: Option<&Devices>) {
        ScrollArea::vertical().auto_shrink([false; 2]).show(ui, |ui| {
            look::title(
                ui,
                "Compare devices",
                "The loaded model answers on each device in 32 bits, always with the most probable \
                 token. Equal tokens are marked, and the first that differs is shown with its \
                 logits.",
            );
            self.form(ui, host, found);
            ui.add_space(8.0);
            if self.rows.is_empty() && self.running.is_none() {
                ui.weak("Nothing has been compared yet.");
            }
            let first = self.rows.iter().find_map(|row| row.result.as_deref().ok());
            if self.running.is_none() {
                verdict(ui, &self.rows);
            }
            for row in &self.rows {
                answer(ui, row, first);
                ui.add_space(4.0);
            }
        });
    }

    fn form(&mut self, ui: &mut Ui, host: &Host<'_>, found: Option<&Devices>) {
        let label = ui.label("Prompt");
        let field = TextEdit::multiline(&mut self.prompt).desired_rows(2);
        ui.add(field.desired_width(f32::INFINITY)).labelled_by(label.id);
        let ids: Vec<String> = found
            .map(|found| found.devices.iter().map(|device| device.profile.id()).collect())
            .unwrap_or_default();
        ui.horizontal_wrapped(|ui| {
            for id in &ids {
                let mut with = !self.without.contains(id);
                if ui.checkbox(&mut with, id).changed() {
                    match with {
                        true => self.without.remove(id),
                        false => self.without.insert(id.clone()),
                    };
                }
            }
        });
        ui.horizontal_wrapped(|ui| {
            let label = ui.label("Tokens");
            ui.add(DragValue::new(&mut self.tokens).range(1..=MOST_TOKENS)).labelled_by(label.id);
            let chosen: Vec<String> =
                ids.into_iter().filter(|id| !self.without.contains(id)).collect();
            let ready = host.loaded.is_some()
                && !host.busy
                && !chosen.is_empty()
                && !self.prompt.trim().is_empty();
            let text = match chosen.len() {
                1 => "Run on 1 device".to_owned(),
                count => format!("Run on {count} devices"),
            };
            if look::main_button(ui, ready, &text).clicked() {
                self.compare(chosen, host);
            }
            if let Some((device, tokens)) = &self.running {
                if ui.button("Stop").clicked() {
                    host.worker.stop();
                }
                ui.spinner();
                ui.weak(match tokens {
                    0 => "loading the model".to_owned(),
                    tokens => format!("{device}: {tokens} tokens"),
                });
            }
        });
    }
}

/// Draws the line that says whether all answers are equal.
fn verdict(ui: &mut Ui, rows: &[Row]) {
    let answers: Vec<&Compared> =
        rows.iter().filter_map(|row| row.result.as_deref().ok()).collect();
    let [first, others @ ..] = &answers[..] else { return };
    if others.is_empty() {
        return;
    }
    let palette = look::palette(ui);
    let differ = others.iter().filter(|other| other.difference.is_some()).count();
    let (text, color) = match differ {
        0 => {
            let tokens = others.iter().map(|other| other.equal).min().unwrap_or(0);
            let largest = others.iter().map(|other| other.largest).fold(0.0, f32::max);
            let text = format!(
                "All {tokens} tokens are equal on {} devices; logits differ by at most {largest:.1e}",
                answers.len()
            );
            (text, palette.good)
        }
        count => {
            let text =
                format!("{count} of {} answers differ from that of {}", others.len(), first.device);
            (text, palette.bad)
        }
    };
    ui.label(RichText::new(text).strong().color(color));
    ui.add_space(4.0);
}

fn answer(ui: &mut Ui, row: &Row, first: Option<&Compared>) {
    look::card(ui, |ui| {
        let palette = look::palette(ui);
        let compared = match &row.result {
            Ok(compared) => compared,
            Err(failure) => {
                ui.strong(&row.device);
                let text = RichText::new(&failure.message).color(palette.bad);
                ui.add(egui::Label::new(text).wrap().selectable(true));
                return;
            }
        };
        ui.horizontal_wrapped(|ui| {
            ui.strong(format!("{} · {}", compared.device, compared.name));
            let figures = format!(
                "{} tokens · {} · first after {}",
                compared.tokens.len(),
                format::speed(compared.rate),
                format::seconds(compared.first_token)
            );
            ui.weak(figures);
        });
        let is_first = first.is_some_and(|first| first.device == compared.device);
        ui.add(egui::Label::new(text(ui, compared)).wrap().selectable(true));
        match (&compared.difference, is_first) {
            (Some(difference), _) => table(ui, difference, first, compared),
            (None, true) => {
                ui.small(RichText::new("The others are compared with this one.").weak());
            }
            (None, false) => {
                let text = format!("{} equal tokens", compared.equal);
                ui.small(RichText::new(text).color(palette.good));
            }
        }
    });
}

/// Lays out an answer: equal tokens in the colour of text, the first that differs on red, what
/// follows it in the secondary colour.
fn text(ui: &Ui, compared: &Compared) -> LayoutJob {
    let palette = look::palette(ui);
    let font = FontId::proportional(15.0);
    let mut job = LayoutJob::default();
    job.wrap.max_width = ui.available_width();
    for (at, token) in compared.tokens.iter().enumerate() {
        let mut format = TextFormat::simple(font.clone(), palette.text);
        if compared.difference.is_some() && at == compared.equal {
            (format.background, format.color) = (palette.bad_ground, palette.bad);
        } else if at >= compared.equal {
            format.color = palette.faint;
        }
        job.append(token, 0.0, format);
    }
    job
}

/// Draws the logits of the first token that differs.
fn table(ui: &mut Ui, difference: &Difference, first: Option<&Compared>, here: &Compared) {
    let other = first.map_or("the first device", |first| first.device.as_str());
    ui.label(format!("Token {} differs. Logits:", difference.at + 1));
    Grid::new(("logits", &here.device)).num_columns(3).spacing([22.0, 3.0]).show(ui, |ui| {
        ui.weak("");
        ui.weak(format!("on {other}"));
        ui.weak(format!("on {}", here.device));
        ui.end_row();
        for (choice, by) in [(&difference.first, other), (&difference.here, here.device.as_str())] {
            ui.label(format!("{:?}, which {by} chose", choice.text));
            ui.monospace(format!("{:.5}", choice.first));
            ui.monospace(format!("{:.5}", choice.here));
            ui.end_row();
        }
    });
}
