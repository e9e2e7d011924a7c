//! The devices of the machine.

use eframe::egui::{self, Grid, RichText, ScrollArea, Ui};
use warploom::provider::DeviceProfile;

use crate::format;
use crate::host::Host;
use crate::look;
use crate::models::place;
use crate::notice::Failure;
use crate::worker::{Command, Devices, FoundDevice};

/// Width in points below which a device has one fact a row.
const NARROW: f32 = 720.0;

/// The panel of devices.
#[derive(Default)]
pub struct DevicesPanel {
    found: Option<Devices>,
    /// What happened to devices: what was taken away, and how sessions went on.
    events: Vec<String>,
}

impl DevicesPanel {
    /// Receives the list of devices.
    pub fn on_devices(&mut self, found: Result<Devices, Failure>) -> Option<Failure> {
        match found {
            Ok(found) => {
                self.found = Some(found);
                None
            }
            Err(failure) => {
                // The models' device may be there all the same.
                self.found = Some(Devices::default());
                Some(failure)
            }
        }
    }

    /// Returns the devices, if they have been listed.
    pub fn found(&self) -> Option<&Devices> {
        self.found.as_ref()
    }

    /// Receives the recovery of a session.
    pub fn on_recovered(&mut self, text: String) {
        self.events.push(text);
    }

    /// Returns what happened to devices.
    pub fn events(&self) -> &[String] {
        &self.events
    }

    /// Destroys the device of the model.
    pub fn take_away(&mut self, host: &Host<'_>) {
        let id = host.loaded.map(|loaded| loaded.device.clone()).unwrap_or_default();
        let text = match host.worker.take_device_away() {
            true => format!("{id} was destroyed"),
            false => format!("{id} was destroyed already, or is not opened through wgpu"),
        };
        self.events.push(text);
    }

    /// Loads the model on a device; `None` is the best one.
    pub fn choose(&mut self, device: Option<String>, host: &mut Host<'_>) {
        host.settings.device = device;
        let source =
            host.loaded.map_or(crate::engine::Source::Embedded, |loaded| loaded.source.clone());
        host.worker.send(Command::Load(source, place(host.settings)));
    }

    /// Draws the panel. Returns whether loading on another device began.
    pub fn ui(&mut self, ui: &mut Ui, host: &mut Host<'_>) -> bool {
        let mut chosen = None;
        ScrollArea::vertical().auto_shrink([false; 2]).show(ui, |ui| {
            look::title(ui, "Devices", "The model runs on the one that you choose.");
            match &self.found {
                None => {
                    ui.spinner();
                }
                Some(found) => {
                    let auto = host.settings.device.is_none();
                    ui.horizontal(|ui| {
                        let text = "Choose the best one automatically";
                        if ui.radio(auto, text).clicked() && !auto && !host.busy {
                            chosen = Some(None);
                        }
                    });
                    ui.add_space(4.0);
                    for device in &found.devices {
                        if card(ui, device, host) {
                            chosen = Some(Some(device.profile.id()));
                        }
                        ui.add_space(4.0);
                    }
                    absent(ui, &found.absent);
                }
            }
            ui.add_space(10.0);
            self.loss(ui, host);
        });
        match chosen {
            Some(device) => {
                self.choose(device, host);
                true
            }
            None => false,
        }
    }

    fn loss(&mut self, ui: &mut Ui, host: &Host<'_>) {
        look::title(
            ui,
            "Take the device away",
            "Destroys the model's device, also in the middle of an answer. The session opens it \
             again, uploads the weights, computes the cache again, and the answer goes on.",
        );
        let loaded = host.loaded;
        let possible = loaded.is_some_and(|loaded| loaded.through_wgpu);
        if look::main_button(ui, possible, "Take it away").clicked() {
            self.take_away(host);
        }
        if let (Some(loaded), false) = (loaded, possible) {
            ui.weak(format!(
                "The model is on {}, which is not opened through wgpu. Choose a device that is.",
                loaded.device
            ));
        }
        for event in self.events.iter().rev() {
            ui.label(event);
        }
    }
}

fn absent(ui: &mut Ui, absent: &[(String, String)]) {
    for (provider, why) in absent {
        ui.add(egui::Label::new(RichText::new(format!("{provider}: {why}")).weak()).wrap());
    }
}

/// Draws a device. Returns whether it was chosen.
fn card(ui: &mut Ui, device: &FoundDevice, host: &Host<'_>) -> bool {
    let profile = &device.profile;
    let id = profile.id();
    let used = host.loaded.is_some_and(|loaded| loaded.device == id);
    look::card(ui, |ui| {
        let palette = look::palette(ui);
        let chosen = ui.horizontal(|ui| {
            ui.label(RichText::new(&profile.name).strong().size(16.0));
            ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
                if used {
                    ui.label(RichText::new("the model is here").color(palette.good));
                    return false;
                }
                ui.add_enabled(!host.busy, egui::Button::new(format!("Use {id}"))).clicked()
            })
            .inner
        });
        ui.weak(format!(
            "{id}: {}{}",
            device.reason,
            if device.selected { "; the default" } else { "" }
        ));
        let facts = facts(profile);
        let columns = if ui.available_width() < NARROW { 1 } else { 2 };
        // Beside the names.
        let width = ui.available_width() / columns as f32 - 180.0;
        Grid::new(&id).num_columns(2 * columns).spacing([22.0, 3.0]).show(ui, |ui| {
            for row in facts.chunks(columns) {
                for (name, value) in row {
                    ui.weak(*name);
                    ui.scope(|ui| {
                        ui.set_max_width(width);
                        ui.add(egui::Label::new(value).wrap());
                    });
                }
                ui.end_row();
            }
        });
        chosen.inner
    })
}

fn facts(profile: &DeviceProfile) -> Vec<(&'static str, String)> {
    let mut facts = vec![("Kind", profile.kind.title().to_owned())];
    let mut known = |name, value: u64, show: &dyn Fn(u64) -> String| {
        if value > 0 {
            facts.push((name, show(value)));
        }
    };
    known("Memory", profile.memory_bytes, &format::bytes);
    known("Bandwidth", profile.local_bandwidth, &|n| format!("{}/s", format::bytes(n)));
    known("Units", profile.compute_units.into(), &|n| n.to_string());
    known("Largest buffer", profile.max_buffer_bytes, &format::bytes);
    let threads = u64::from(profile.max_threads_per_workgroup);
    known("Threads of a workgroup", threads, &|n| n.to_string());
    known("Workgroup memory", profile.workgroup_memory_bytes.into(), &|n| match n {
        n if n == u64::from(u32::MAX) => "unlimited".into(),
        n => format::bytes(n),
    });
    if !profile.driver.is_empty() {
        facts.push(("Driver", profile.driver.clone()));
    }
    let features = profile.features();
    if !features.is_empty() {
        facts.push(("Features", features.join(", ")));
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_properties_are_left_out() {
        let profile = DeviceProfile::webgpu_floor("Test GPU");
        let names: Vec<&str> = facts(&profile).iter().map(|fact| fact.0).collect();
        assert!(names.contains(&"Kind") && !names.contains(&"Memory"), "{names:?}");
        let profile = profile.with(|p| p.memory_bytes = 8_000_000_000);
        let facts = facts(&profile);
        assert!(facts.contains(&("Memory", "8.0 GB".into())), "{facts:?}");
    }
}
