//! The editor of a pack's files.

use std::sync::Arc;

use eframe::egui::{self, FontId, Layout, RichText, ScrollArea, TextBuffer, TextEdit, Ui};

use super::{File, Playground, highlight};
use crate::look;

impl Playground {
    pub(super) fn editor(&mut self, ui: &mut Ui) {
        let name = match self.file {
            File::Shader => self.texts.shader.0.clone(),
            File::Manifest => "pack.toml".into(),
            File::Reference => {
                self.texts.reference.as_ref().map(|(name, _)| name.clone()).unwrap_or_default()
            }
        };
        let problem = self.checked().and_then(|checked| checked.problem.clone());
        let wrong = problem.filter(|problem| problem.file.as_ref() == Some(&name));
        let wrong = wrong.and_then(|problem| problem.line);
        let palette = look::palette(ui);
        let text = match self.file {
            File::Shader => &mut self.texts.shader.1,
            File::Manifest => &mut self.texts.manifest,
            File::Reference => match &mut self.texts.reference {
                Some((_, text)) => text,
                None => return,
            },
        };
        let frame = egui::Frame::new().fill(palette.raised).corner_radius(10).inner_margin(8);
        let changed = frame.show(ui, |ui| {
            ScrollArea::both()
                .id_salt(&name)
                .auto_shrink([false; 2])
                .show(ui, |ui| {
                    ui.with_layout(Layout::left_to_right(egui::Align::Min), |ui| {
                        ui.spacing_mut().item_spacing.x = 10.0;
                        let lines = text.lines().count() + usize::from(text.ends_with('\n'));
                        let numbers: Vec<String> =
                            (1..=lines.max(1)).map(|line| format!("{line:>4}")).collect();
                        let numbers =
                            RichText::new(numbers.join("\n")).font(FontId::monospace(13.0));
                        ui.add(egui::Label::new(numbers.color(palette.faint)).selectable(false));
                        let mut layouter = |ui: &Ui, text: &dyn TextBuffer, _: f32| {
                            let job = highlight::layout(ui, text.as_str(), wrong);
                            let galley: Arc<egui::Galley> =
                                ui.fonts_mut(|fonts| fonts.layout_job(job));
                            galley
                        };
                        let field = TextEdit::multiline(text)
                            .code_editor()
                            .frame(egui::Frame::NONE)
                            .margin(egui::Margin::ZERO)
                            .desired_width(f32::INFINITY)
                            .layouter(&mut layouter);
                        ui.add(field).changed()
                    })
                    .inner
                })
                .inner
        });
        if changed.inner {
            self.unkept = true;
            self.edited();
        }
    }
}
