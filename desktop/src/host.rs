//! What panels use of the rest of the program.

use crate::frames::Frames;
use crate::notice::Notice;
use crate::settings::Settings;
use crate::worker::{Loaded, Worker};

/// What panels use of the rest of the program.
pub struct Host<'a> {
    /// The thread that owns the model.
    pub worker: &'a Worker,
    /// The settings, which are saved when they change.
    pub settings: &'a mut Settings,
    /// The times of frames.
    pub frames: &'a mut Frames,
    /// The message of the window.
    pub notice: &'a mut Notice,
    /// The model that is loaded.
    pub loaded: Option<&'a Loaded>,
    /// Whether the worker has a command that is not done yet.
    pub busy: bool,
}
