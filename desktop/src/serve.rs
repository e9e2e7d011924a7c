//! The switch of the server.

use std::net::SocketAddr;

use eframe::egui::{self, DragValue, ScrollArea, TextEdit, Ui};

use crate::host::Host;
use crate::look;
use crate::worker::Command;

/// The panel of the server.
#[derive(Default)]
pub struct ServePanel {
    address: Option<SocketAddr>,
    changing: bool,
}

impl ServePanel {
    /// Receives the address of the running server; `None` if it ended.
    pub fn on_address(&mut self, address: Option<SocketAddr>) {
        self.address = address;
        self.changing = false;
    }

    /// Returns the address of the running server.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns whether the server is being switched.
    pub fn is_changing(&self) -> bool {
        self.changing
    }

    /// Switches the server.
    pub fn switch(&mut self, host: &Host<'_>) {
        match self.address {
            None => self.start(host.settings.port, host),
            Some(_) => {
                self.changing = true;
                host.worker.send(Command::EndServer);
            }
        }
    }

    /// Starts the server on a port.
    pub fn start(&mut self, port: u16, host: &Host<'_>) {
        self.changing = true;
        host.worker.send(Command::Serve(port));
    }

    /// Draws the panel.
    pub fn ui(&mut self, ui: &mut Ui, host: &mut Host<'_>) {
        ScrollArea::vertical().auto_shrink([false; 2]).show(ui, |ui| {
            look::title(
                ui,
                "Server",
                "Other programs of this machine use the loaded model through the interface of \
                 OpenAI. The chat here goes on meanwhile, as one of its requests.",
            );
            ui.horizontal(|ui| {
                let ready = host.loaded.is_some() && !host.busy;
                let text = if self.address.is_some() { "Switch off" } else { "Switch on" };
                if look::main_button(ui, ready, text).clicked() {
                    self.switch(host);
                }
                ui.add_enabled_ui(self.address.is_none(), |ui| {
                    let label = ui.label("Port");
                    let port = DragValue::new(&mut host.settings.port).range(0..=u16::MAX);
                    ui.add(port).labelled_by(label.id).on_hover_text("0 takes a free one");
                });
                if self.changing {
                    ui.spinner();
                }
            });
            let Some(address) = self.address else { return };
            ui.add_space(8.0);
            let palette = look::palette(ui);
            look::card(ui, |ui| {
                ui.label(egui::RichText::new("It runs").color(palette.good).strong());
                copyable(ui, &format!("http://{address}/v1"));
                ui.add_space(6.0);
                ui.weak("For example:");
                copyable(
                    ui,
                    &format!(
                        "curl http://{address}/v1/chat/completions -H 'Content-Type: \
                         application/json' -d '{{\"messages\": [{{\"role\": \"user\", \
                         \"content\": \"Who are you?\"}}]}}'"
                    ),
                );
            });
        });
    }
}

/// Draws a text with a button that copies it.
fn copyable(ui: &mut Ui, text: &str) {
    ui.horizontal(|ui| {
        if ui.button("Copy").clicked() {
            ui.ctx().copy_text(text.to_owned());
        }
        let mut shown = text;
        ui.add(
            TextEdit::multiline(&mut shown)
                .desired_rows(1)
                .desired_width(f32::INFINITY)
                .code_editor(),
        );
    });
}
