//! Runs the steps of a script in the window.

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eframe::egui::{ColorImage, Context, ScreenshotCallback, ViewportCommand, vec2};

use crate::app::App;
use crate::gallery::Size;
use crate::script::{Script, Step};

/// Frames that are drawn before a picture is taken, so that layouts have settled.
const SETTLE: Duration = Duration::from_millis(400);

/// A script that runs.
pub(crate) struct Drive {
    script: Option<Script>,
    failed: Arc<Mutex<Option<String>>>,
    /// Receives the picture that was asked for.
    picture: Option<Receiver<Arc<ColorImage>>>,
    /// Whether the pack of this step runs.
    runs: bool,
}

/// What a step needs before the next one.
enum Done {
    Now,
    Later,
}

impl Drive {
    /// Creates the runner of a script, if there is one. `failed` receives the reason of a failure.
    pub(crate) fn new(script: Option<Script>, failed: Arc<Mutex<Option<String>>>) -> Drive {
        Drive { script, failed, picture: None, runs: false }
    }

    /// Returns whether a script runs.
    pub(crate) fn is_running(&self) -> bool {
        self.script.is_some()
    }
}

impl App {
    /// Runs the steps of the script that can run now. Closes the window after the last one, or if
    /// one fails.
    pub(crate) fn advance(&mut self, ctx: &Context) {
        while let Some(script) = &self.drive.script {
            let Some((line, step)) = script.step() else { break };
            let done = match script.is_late() {
                true => Err("it waited too long".to_owned()),
                false => self.execute(ctx, &step),
            };
            match done {
                Ok(Done::Later) => return,
                Ok(Done::Now) => {
                    if let Some(script) = &mut self.drive.script {
                        script.advance();
                    }
                }
                Err(error) => {
                    let text = format!("line {line} of the script: {error}");
                    let mut failed =
                        self.drive.failed.lock().unwrap_or_else(PoisonError::into_inner);
                    *failed = Some(text);
                    drop(failed);
                    self.end(ctx);
                    return;
                }
            }
        }
        if self.drive.script.is_some() {
            self.end(ctx);
        }
    }

    fn end(&mut self, ctx: &Context) {
        self.drive.script = None;
        for line in self.frames.lines() {
            println!("{line}");
        }
        self.worker.stop();
        ctx.send_viewport_cmd(ViewportCommand::Close);
    }

    fn execute(&mut self, ctx: &Context, step: &Step) -> Result<Done, String> {
        let waited = self.drive.script.as_ref().map_or(Duration::ZERO, Script::waited);
        let when = |done: bool| Ok(if done { Done::Now } else { Done::Later });
        match step {
            Step::Panel(panel) => self.show(*panel),
            Step::Size(width, height) => {
                ctx.send_viewport_cmd(ViewportCommand::InnerSize(vec2(*width, *height)));
            }
            Step::Theme(theme) => self.settings.theme = *theme,
            Step::Set(name, value) => self.set(name, value)?,
            Step::Type(text) => self.chat.set_draft(text),
            Step::Send => {
                self.with(|panels, host| panels.chat.send(host));
                if !self.chat.is_answering() {
                    return Err(
                        "nothing was sent: no model is loaded, or the field is empty".into()
                    );
                }
            }
            Step::Stop => self.worker.stop(),
            Step::New => self.chat.begin(),
            Step::Wait => {
                let downloads = self.models.hub().is_downloading();
                return when(!self.is_busy() && !downloads);
            }
            Step::Pause(seconds) => return when(waited.as_secs_f64() >= *seconds),
            Step::Tokens(count) => {
                if !self.chat.is_answering() {
                    return Err(format!("the answer ended before {count} tokens"));
                }
                return when(self.chat.tokens() >= *count);
            }
            Step::Models => self.models.show(),
            Step::Close => self.models.hide(),
            Step::Open(path) => self.open_file(path),
            Step::Load => match self.models.load(&self.worker, &self.settings) {
                Some(source) => self.begin_loading(source),
                None => return Err("no model was estimated".into()),
            },
            Step::Device(device) => {
                let device = device.clone();
                self.with(|panels, host| panels.devices.choose(device, host));
                let source = self.loaded.as_ref().map(|loaded| loaded.source.clone());
                self.begin_loading(source.unwrap_or(crate::engine::Source::Embedded));
            }
            Step::TakeAway => self.with(|panels, host| panels.devices.take_away(host)),
            Step::Measure => self.with(|panels, host| panels.kernels.measure(host)),
            Step::Scene(_) | Step::Cells(..) | Step::Steps(_) => return self.drive_picture(step),
            Step::Pack(_) | Step::Edit(..) | Step::Checked | Step::Run(_) => {
                return self.drive_playground(step);
            }
            Step::Kernel(step) => {
                if !self.kernels.choose(*step) {
                    return Err(format!("there is no measurement with a kernel {step}"));
                }
            }
            Step::Compare(devices) => {
                let text = self.chat.take_draft();
                self.compare.set_prompt(&text);
                let devices = devices.clone();
                self.with(|panels, host| panels.compare.compare(devices, host));
            }
            Step::Fetch(name) => {
                self.models.hub().set_text(name);
                if let Some(failure) = self.models.hub().fetch(ctx) {
                    return Err(failure.message);
                }
            }
            Step::Frames(on) => self.frames.switch(*on),
            Step::Server => self.with(|panels, host| panels.serve.switch(host)),
            Step::Shot(path) => return self.shoot(ctx, path, waited),
            Step::Expect(text) => self.expect(text)?,
        }
        Ok(Done::Now)
    }

    fn drive_picture(&mut self, step: &Step) -> Result<Done, String> {
        let Some(gallery) = &mut self.gallery else {
            return Err("there is no graphics device for pictures".into());
        };
        match step {
            Step::Scene(scene) => {
                gallery.show(*scene);
                gallery.play(true);
            }
            Step::Cells(width, height) => {
                gallery.set_size(Some(Size { width: *width, height: *height }));
            }
            Step::Steps(count) if gallery.steps() < *count => return Ok(Done::Later),
            _ => {
                gallery.play(false);
                println!("{}: {}", gallery.scene().title(), gallery.figures());
            }
        }
        Ok(Done::Now)
    }

    fn drive_playground(&mut self, step: &Step) -> Result<Done, String> {
        let playground = &mut self.playground;
        let done = match step {
            Step::Pack(name) => playground.open(name),
            Step::Edit(old, new) => playground.replace(old, new),
            Step::Run(device) => {
                if !std::mem::replace(&mut self.drive.runs, true) {
                    playground.run(vec![device.clone()]);
                }
                if playground.is_busy() {
                    return Ok(Done::Later);
                }
                self.drive.runs = false;
                let failed = playground.timed().iter().find_map(|timed| {
                    let why = timed.result.as_ref().err()?;
                    Some(format!("run {}: {why}", timed.device))
                });
                return failed.map_or(Ok(Done::Now), Err);
            }
            _ if playground.is_busy() => return Ok(Done::Later),
            _ => true,
        };
        match done {
            true => Ok(Done::Now),
            false => Err(format!("{step:?}: there is no such pack, or no such text in it")),
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        fn read<T: std::str::FromStr>(value: &str) -> Result<T, String> {
            value.parse().map_err(|_| format!("{value:?} is not valid"))
        }
        let settings = &mut self.settings;
        match name {
            "temperature" => settings.temperature = read(value)?,
            "max_tokens" => settings.max_tokens = read(value)?,
            "seed" => settings.seed = Some(read(value)?),
            "exact" => settings.exact = read(value)?,
            "port" => settings.port = read(value)?,
            "system" => value.clone_into(&mut settings.system),
            _ => return Err(format!("there is no setting {name:?}")),
        }
        Ok(())
    }

    /// Checks that a text is in the last answer, in the message of the window, or in what happened
    /// to devices.
    fn expect(&self, text: &str) -> Result<(), String> {
        let last = self.chat.current().and_then(|current| current.messages.last());
        let failure = self.notice.failure().map(|failure| failure.message.clone());
        let mut all: Vec<String> = last.map(|last| last.text.clone()).into_iter().collect();
        all.extend(failure);
        all.extend(self.devices.events().iter().cloned());
        let problem = self.playground.checked().and_then(|checked| checked.problem.as_ref());
        all.extend(problem.map(|problem| problem.message.clone()));
        let compared = self.compare.answers();
        all.extend(compared.map(|answer| match answer {
            Ok(compared) => compared.tokens.concat(),
            Err(failure) => failure.message.clone(),
        }));
        match all.iter().any(|other| other.contains(text)) {
            true => Ok(()),
            false => Err(format!("{text:?} is not in {all:?}")),
        }
    }

    fn shoot(&mut self, ctx: &Context, path: &Path, waited: Duration) -> Result<Done, String> {
        if waited < SETTLE {
            return Ok(Done::Later);
        }
        let Some(picture) = &self.drive.picture else {
            let (sent, picture) = channel();
            let ctx_later = ctx.clone();
            let callback = ScreenshotCallback::new(move |image| {
                let _ = sent.send(image);
                ctx_later.request_repaint();
            });
            ctx.send_viewport_cmd(ViewportCommand::Screenshot(callback));
            self.drive.picture = Some(picture);
            return Ok(Done::Later);
        };
        let Ok(image) = picture.try_recv() else { return Ok(Done::Later) };
        self.drive.picture = None;
        let [width, height] = image.size.map(|size| size as u32);
        let rgba: Vec<u8> = image.pixels.iter().flat_map(|pixel| pixel.to_array()).collect();
        let done = image::RgbaImage::from_raw(width, height, rgba)
            .ok_or_else(|| format!("a picture of {width} x {height}"))?
            .save_with_format(path, image::ImageFormat::Png);
        done.map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Done::Now)
    }
}
