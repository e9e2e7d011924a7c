//! Errors as messages that say what to do.

use eframe::egui::{self, Ui};
use warploom::Error;

use crate::look;

/// The kind of an error, which decides its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file is no model, or is damaged.
    BadFile,
    /// The model, or an operation, is not supported.
    Unsupported,
    /// The device's memory is too small.
    OutOfMemory,
    /// The device was lost and did not open again.
    DeviceLost,
    /// A file could not be read or written.
    Io,
    /// A file or a folder is not there.
    NotFound,
    /// The user may not read or write a file.
    Denied,
    /// The disk is full.
    DiskFull,
    /// Another program listens on the port of the server.
    PortTaken,
    /// A download failed.
    Download,
    /// Conversations could not be read.
    Damaged,
    /// The settings could not be read.
    Settings,
    /// Another program changed a conversation, which was saved as a copy.
    Copied,
    /// A setting or a request that is not possible.
    Invalid,
    /// The thread of the engine panicked.
    Stopped,
    /// Anything else.
    Other,
}

/// An error that a thread reports to the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind of the error.
    pub kind: Kind,
    /// Its text, with its causes.
    pub message: String,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let kind = match () {
            () if error.is_bad_file() => Kind::BadFile,
            () if error.is_unsupported() => Kind::Unsupported,
            () if error.is_out_of_memory() => Kind::OutOfMemory,
            () if error.is_device_lost() => Kind::DeviceLost,
            () if error.is_io() => kind_of_io(&error),
            () if error.is_invalid() => Kind::Invalid,
            () => Kind::Other,
        };
        let mut message = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            message.push_str(&format!(": {cause}"));
            source = cause.source();
        }
        Failure { kind, message }
    }
}

/// Returns the kind of an error of the system.
fn kind_of_io(error: &Error) -> Kind {
    use std::io::ErrorKind;
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(cause) = cause.downcast_ref::<std::io::Error>() {
            return match cause.kind() {
                ErrorKind::NotFound => Kind::NotFound,
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Kind::Denied,
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Kind::DiskFull,
                ErrorKind::AddrInUse => Kind::PortTaken,
                _ => Kind::Io,
            };
        }
        source = cause.source();
    }
    Kind::Io
}

impl Failure {
    /// Returns the failure of a download, whose files come through the network.
    pub fn of_download(error: Error) -> Failure {
        let failure = Failure::from(error);
        match failure.kind {
            Kind::Io | Kind::NotFound | Kind::BadFile => {
                Failure { kind: Kind::Download, ..failure }
            }
            _ => failure,
        }
    }

    /// Creates a failure from a text.
    pub fn new(kind: Kind, message: impl Into<String>) -> Failure {
        Failure { kind, message: message.into() }
    }

    /// Returns what happened, and what the user can do.
    fn words(&self) -> (&'static str, &'static str) {
        match self.kind {
            Kind::BadFile => (
                "This file is not a model that can be read",
                "Choose a GGUF file. If it is one, its download may be incomplete.",
            ),
            Kind::Unsupported => {
                ("This is not supported yet", "Try another model or another quantisation.")
            }
            Kind::OutOfMemory => (
                "The device has not enough memory",
                "Close other programs, or choose a smaller model or a stronger quantisation, such \
                 as Q4.",
            ),
            Kind::DeviceLost => (
                "The device was lost",
                "The conversation is kept. Choose the device again, or another one.",
            ),
            Kind::Io => {
                ("A file could not be read or written", "See the details for what the system says.")
            }
            Kind::NotFound => (
                "A file is not there",
                "It may have been moved or deleted, or its disk is not connected.",
            ),
            Kind::Denied => (
                "A file could not be read or written",
                "You have no permission for it, or its disk can only be read.",
            ),
            Kind::DiskFull => ("The disk is full", "Free some space, and try again."),
            Kind::PortTaken => (
                "The port is taken",
                "Another program listens on it. Choose another port; 0 takes a free one.",
            ),
            Kind::Download => (
                "The download failed",
                "Check the connection. What has arrived stays, and the next download goes on from \
                 there.",
            ),
            Kind::Damaged => (
                "Some conversations could not be read",
                "Their files stay as they are. The others are in the list.",
            ),
            Kind::Settings => (
                "The settings could not be read",
                "The defaults are used. The file is kept under another name.",
            ),
            Kind::Copied => (
                "Another program changed this conversation",
                "Both are kept: this one was saved as a copy.",
            ),
            Kind::Invalid => ("That is not possible", "See the details."),
            Kind::Stopped => {
                ("The engine stopped", "The conversation is kept. Load the model again.")
            }
            Kind::Other => ("Something went wrong", "Try again."),
        }
    }
}

/// The message that the window shows, if there is one.
#[derive(Clone, Debug, Default)]
pub struct Notice(Option<(Failure, bool)>);

impl Notice {
    /// Shows an error; it replaces the one before.
    pub fn show(&mut self, failure: Failure) {
        self.0 = Some((failure, false));
    }

    /// Removes the message.
    pub fn clear(&mut self) {
        self.0 = None;
    }

    /// Returns the error that is shown.
    pub fn failure(&self) -> Option<&Failure> {
        self.0.as_ref().map(|(failure, _)| failure)
    }

    /// Draws the message.
    pub fn ui(&mut self, ui: &mut Ui) {
        let Some((failure, details)) = &mut self.0 else { return };
        let (title, text) = failure.words();
        let palette = look::palette(ui);
        let mut close = false;
        egui::Frame::new().fill(palette.bad_ground).corner_radius(14).inner_margin(14).show(
            ui,
            |ui| {
                ui.horizontal(|ui| {
                    ui.label(egui::RichText::new(title).strong().color(palette.bad));
                    ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
                        close = look::quiet_button(ui, "Dismiss").clicked();
                        let label = if *details { "Hide details" } else { "Details" };
                        if look::quiet_button(ui, label).clicked() {
                            *details = !*details;
                        }
                    });
                });
                ui.label(text);
                // What is wrong is only in the text itself.
                let needed = [Kind::Invalid, Kind::Damaged, Kind::Settings, Kind::Other];
                if *details || needed.contains(&failure.kind) {
                    ui.add(
                        egui::Label::new(egui::RichText::new(&failure.message).monospace()).wrap(),
                    );
                }
            },
        );
        ui.add_space(8.0);
        if close {
            self.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_kind_and_its_causes() {
        let cause = std::io::Error::other("no space left");
        let failure = Failure::from(Error::io("cannot write a.json", cause));
        assert_eq!(failure.kind, Kind::Io);
        assert!(failure.message.contains("a.json") && failure.message.contains("no space left"));
        let failure = Failure::from(Error::out_of_memory("weights", 10, 4));
        assert_eq!(failure.kind, Kind::OutOfMemory);
        use std::io::ErrorKind;
        for (cause, kind) in [
            (ErrorKind::AddrInUse, Kind::PortTaken),
            (ErrorKind::StorageFull, Kind::DiskFull),
            (ErrorKind::PermissionDenied, Kind::Denied),
            (ErrorKind::NotFound, Kind::NotFound),
        ] {
            assert_eq!(Failure::from(Error::io("a", cause.into())).kind, kind);
        }
        let broken = Error::io("the hub", ErrorKind::ConnectionRefused.into());
        assert_eq!(Failure::of_download(broken).kind, Kind::Download);
        let full = Error::io("the disk", ErrorKind::StorageFull.into());
        assert_eq!(Failure::of_download(full).kind, Kind::DiskFull);
    }
}
