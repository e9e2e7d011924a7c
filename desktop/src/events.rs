//! What the window does with the events of the worker.

use crate::app::App;
use crate::engine::{Place, Source};
use crate::notice::Failure;
use crate::worker::{Command, Event, Loaded};

impl App {
    /// Gives the worker's events to the panels.
    pub(crate) fn receive(&mut self) {
        while let Some(event) = self.worker.event() {
            let failure = self.on_event(event);
            if let Some(failure) = failure {
                self.notice.show(failure);
            }
        }
    }

    /// Gives an event to its panel; returns a failure that the window shows.
    fn on_event(&mut self, event: Event) -> Option<Failure> {
        match event {
            Event::Devices(found) => return self.devices.on_devices(found),
            Event::Estimated(source, estimate) => {
                return self.models.on_estimated(&source, estimate);
            }
            Event::Loading(done, total) => {
                if let Some(loading) = &mut self.loading {
                    (loading.1, loading.2) = (done, total);
                }
            }
            Event::Loaded(loaded) => self.on_loaded(loaded),
            Event::NotLoaded(failure, kept) => {
                self.loading = None;
                if !kept {
                    self.loaded = None;
                    self.forget_model();
                    self.fall_back();
                }
                return Some(failure);
            }
            Event::Prompt(number, done, total) => self.chat.on_prompt(number, done, total),
            Event::Text(number, text, tokens, since) => {
                self.chat.on_text(number, &text, tokens, since);
            }
            Event::Answered(number, done) => {
                // The kernels of a model that serves cannot be timed.
                let is_free = self.serve.address().is_none();
                self.with(|panels, host| {
                    panels.chat.on_answered(number, done, host);
                    if is_free {
                        panels.kernels.after_answer(host);
                    }
                });
            }
            Event::Comparing(device, tokens) => self.compare.on_comparing(device, tokens),
            Event::Compared(device, compared) => self.compare.on_compared(device, compared),
            Event::ComparisonEnded => self.compare.on_ended(),
            Event::Recovered(text) => self.devices.on_recovered(text),
            Event::Kernels(kernels) => return self.kernels.on_kernels(kernels),
            Event::Serving(address) => self.serve.on_address(Some(address)),
            Event::NotServing(failure) => {
                self.serve.on_address(None);
                return failure;
            }
            Event::Stopped(failure) => {
                (self.loaded, self.loading) = (None, None);
                self.forget_model();
                self.models.on_stopped();
                self.with(|panels, host| panels.chat.on_stopped(failure, host));
            }
        }
        None
    }

    /// Loads the embedded model on the best device: the wanted model did not load, and without one
    /// nothing can be asked.
    fn fall_back(&mut self) {
        if std::mem::replace(&mut self.fell_back, true) {
            return;
        }
        let place = Place { exact: self.settings.exact, ..Place::default() };
        self.worker.send(Command::Load(Source::Embedded, place));
        self.loading = Some((Source::Embedded, 0, 0));
    }

    fn on_loaded(&mut self, loaded: Loaded) {
        self.loading = None;
        let served = self.serve.address();
        match &loaded.source {
            // The user's choice stays, for the next start.
            _ if std::mem::take(&mut self.fell_back) => {}
            Source::Embedded => self.settings.model = None,
            Source::File(path) => {
                self.settings.remember(path);
                self.settings.model = Some(path.clone());
            }
        }
        self.loaded = Some(loaded);
        self.forget_model();
        if let Some(address) = served {
            self.with(|panels, host| panels.serve.start(address.port(), host));
        }
    }

    /// Forgets what was measured of the model before.
    fn forget_model(&mut self) {
        self.kernels.reset();
        self.compare.reset();
        self.serve.on_address(None);
    }
}
