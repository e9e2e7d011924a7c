//! The system's dialogs of files.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};

use eframe::egui::Ui;

/// A button that opens the system's dialog, and the files that were chosen there.
pub(crate) struct Chooser {
    sent: Sender<PathBuf>,
    chosen: Receiver<PathBuf>,
}

impl Default for Chooser {
    fn default() -> Chooser {
        let (sent, chosen) = channel();
        Chooser { sent, chosen }
    }
}

impl Chooser {
    /// Draws the button. `kind` is the name of a kind of files, and their endings.
    pub(crate) fn button(&self, ui: &mut Ui, text: &str, kind: (&str, &[&str])) {
        if !ui.button(text).clicked() {
            return;
        }
        let (ctx, sent) = (ui.ctx().clone(), self.sent.clone());
        let dialog = rfd::FileDialog::new().add_filter(kind.0, kind.1);
        let dialog = dialog.add_filter("All files", &["*"]);
        let run = move || {
            if let Some(path) = dialog.pick_file() {
                let _ = sent.send(path);
                ctx.request_repaint();
            }
        };
        // Without a thread there is the field for a path.
        let _ = std::thread::Builder::new().name("warploom dialog".into()).spawn(run);
    }

    /// Returns a file that was chosen.
    pub(crate) fn chosen(&self) -> Option<PathBuf> {
        self.chosen.try_recv().ok()
    }
}
