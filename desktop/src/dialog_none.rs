//! Without the feature `system` there are no dialogs of files: the fields for paths remain.

use std::path::PathBuf;

use eframe::egui::Ui;

/// As in `dialog.rs`, but without a button.
#[derive(Default)]
pub(crate) struct Chooser;

impl Chooser {
    /// Draws nothing.
    pub(crate) fn button(&self, _: &mut Ui, _: &str, _: (&str, &[&str])) {}

    /// Returns none.
    pub(crate) fn chosen(&self) -> Option<PathBuf> {
        None
    }
}
