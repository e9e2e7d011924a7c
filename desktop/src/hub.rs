//! Models of Hugging Face: those in the cache, and downloads into it on a thread of their own, so
//! that answers go on meanwhile.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use eframe::egui::{self, Context, Key, ProgressBar, RichText, ScrollArea, TextEdit, Ui};
use warploom::Result;
use warploom_models::download::{CachedModel, Hub, HubOptions, Progress, Source};

use crate::format;
use crate::look;
use crate::notice::Failure;

/// Height of the list of cached models, in points.
const LIST: f32 = 170.0;

/// A download that runs.
struct Download {
    name: String,
    stop: Arc<AtomicBool>,
    /// The file, its bytes so far and all.
    file: String,
    done: u64,
    total: u64,
    /// When the file began, and its bytes then.
    begin: (Instant, u64),
    /// Why it waits, if it does.
    retry: Option<String>,
}

/// A report of a thread.
enum Report {
    Listed(std::result::Result<Vec<CachedModel>, Failure>),
    File(String, u64, u64),
    Bytes(u64),
    Retry(String),
    Done(std::result::Result<PathBuf, Failure>),
}

/// The part of the models' dialog that is about Hugging Face.
pub struct HubPanel {
    options: Option<HubOptions>,
    sent: Sender<Report>,
    reports: Receiver<Report>,
    /// The models in the cache, once they have been listed.
    cached: Option<Vec<CachedModel>>,
    listing: bool,
    text: String,
    download: Option<Download>,
}

impl HubPanel {
    /// Creates the part for a hub; `None` is that of the environment.
    pub fn new(options: Option<HubOptions>) -> HubPanel {
        let (sent, reports) = channel();
        let (text, cached) = (String::new(), None);
        HubPanel { options, sent, reports, cached, listing: false, text, download: None }
    }

    fn hub(&self) -> Result<Hub> {
        let options = self.options.clone();
        Ok(Hub::new(options.map_or_else(HubOptions::from_env, Ok)?))
    }

    /// Returns whether a download runs.
    pub fn is_downloading(&self) -> bool {
        self.download.is_some()
    }

    /// Returns the part of the running download that is there.
    pub fn part(&self) -> Option<f64> {
        let download = self.download.as_ref()?;
        Some(download.done as f64 / download.total.max(1) as f64)
    }

    /// Returns the models in the cache, once they have been listed.
    pub fn cached(&self) -> Option<&[CachedModel]> {
        self.cached.as_deref()
    }

    /// Replaces the name in the field.
    pub fn set_text(&mut self, text: &str) {
        text.clone_into(&mut self.text);
    }

    /// Lists the models in the cache, on a thread: it may lie on a slow disk.
    pub fn list(&mut self, ctx: &Context) -> Option<Failure> {
        if self.listing {
            return None;
        }
        let failure = self.spawn(ctx, "warploom cache", |hub, report| {
            report(Report::Listed(hub.list().map_err(Failure::from)));
        });
        self.listing = failure.is_none();
        failure
    }

    /// Downloads the model in the field, or goes on with it.
    pub fn fetch(&mut self, ctx: &Context) -> Option<Failure> {
        if self.download.is_some() {
            return None;
        }
        let source = match Source::parse(self.text.trim()) {
            Ok(source) => source,
            Err(error) => return Some(error.into()),
        };
        let stop = Arc::new(AtomicBool::new(false));
        self.download = Some(Download {
            name: source.to_string(),
            stop: stop.clone(),
            file: String::new(),
            done: 0,
            total: 0,
            begin: (Instant::now(), 0),
            retry: None,
        });
        let failure = self.spawn(ctx, "warploom download", move |hub, report| {
            let hub = hub.stopped_by(stop);
            let done = hub.fetch(&source, &mut |progress| {
                report(match progress {
                    Progress::File(name, have, all) => Report::File(name.to_owned(), have, all),
                    Progress::Bytes(have) => Report::Bytes(have),
                    Progress::Retry(why, _) => Report::Retry(why.to_owned()),
                });
            });
            report(Report::Done(done.map_err(Failure::of_download)));
        });
        if failure.is_some() {
            self.download = None;
        }
        failure
    }

    /// Ends the running download. What has arrived stays, and the next download goes on from there.
    pub fn stop(&self) {
        if let Some(download) = &self.download {
            download.stop.store(true, Ordering::Relaxed);
        }
    }

    fn spawn(
        &self,
        ctx: &Context,
        name: &str,
        work: impl FnOnce(Hub, &dyn Fn(Report)) + Send + 'static,
    ) -> Option<Failure> {
        let hub = match self.hub() {
            Ok(hub) => hub,
            Err(error) => return Some(error.into()),
        };
        let (ctx, sent) = (ctx.clone(), self.sent.clone());
        let run = move || {
            work(hub, &|report| {
                // Without a window no one is interested.
                let _ = sent.send(report);
                ctx.request_repaint();
            });
        };
        let spawned = std::thread::Builder::new().name(name.into()).spawn(run);
        spawned.err().map(|e| warploom::Error::io("cannot start a thread", e).into())
    }

    /// Receives what the threads report. Returns the path of a model that has been downloaded, or
    /// why there is none.
    pub fn receive(&mut self, ctx: &Context) -> Option<std::result::Result<PathBuf, Failure>> {
        while let Ok(report) = self.reports.try_recv() {
            match (report, &mut self.download) {
                (Report::Listed(found), _) => {
                    self.listing = false;
                    match found {
                        Ok(found) => self.cached = Some(found),
                        Err(failure) => {
                            self.cached.get_or_insert_default();
                            return Some(Err(failure));
                        }
                    }
                }
                (Report::File(file, have, total), Some(download)) => {
                    (download.file, download.done, download.total) = (file, have, total);
                    download.begin = (Instant::now(), have);
                }
                (Report::Bytes(have), Some(download)) => {
                    (download.done, download.retry) = (have, None);
                }
                (Report::Retry(why), Some(download)) => download.retry = Some(why),
                (Report::Done(done), Some(download)) => {
                    let stopped = download.stop.load(Ordering::Relaxed);
                    self.download = None;
                    let failed = self.list(ctx);
                    match (done, failed) {
                        // The user knows why.
                        (Err(_), None) if stopped => {}
                        (Ok(_), Some(failure)) => return Some(Err(failure)),
                        (done, _) => return Some(done),
                    }
                }
                (_, None) => {}
            }
        }
        None
    }

    /// Draws the part. Returns the path of a cached model that was chosen, or a failure.
    pub fn ui(&mut self, ui: &mut Ui) -> Option<std::result::Result<PathBuf, Failure>> {
        let mut failure = None;
        if self.cached.is_none() && !self.listing {
            failure = self.list(ui.ctx());
            if failure.is_some() {
                // Once, not at each frame.
                self.cached = Some(Vec::new());
            }
        }
        let entered = ui
            .horizontal(|ui| {
                let hint = "org/name, or org/name:Q4_K_M; also searches the cache";
                let field = TextEdit::singleline(&mut self.text).hint_text(hint);
                let field = ui.add(field.desired_width((ui.available_width() - 110.0).max(120.0)));
                let enter = field.lost_focus() && ui.input(|input| input.key_pressed(Key::Enter));
                let ready = self.download.is_none() && Source::parse(self.text.trim()).is_ok();
                let button = ui.add_enabled(ready, egui::Button::new("Download"));
                button.clicked() || (enter && ready)
            })
            .inner;
        if entered {
            failure = self.fetch(ui.ctx()).or(failure);
        }
        self.progress(ui);
        let chosen = self.models(ui);
        match (chosen, failure) {
            (Some(path), _) => Some(Ok(path)),
            (None, failure) => failure.map(Err),
        }
    }

    fn progress(&mut self, ui: &mut Ui) {
        let Some(download) = &self.download else { return };
        let palette = look::palette(ui);
        let mut stop = false;
        ui.horizontal(|ui| {
            let stopping = download.stop.load(Ordering::Relaxed);
            let text = match (&download.retry, download.total) {
                _ if stopping => "stopping after the next bytes".to_owned(),
                (Some(why), _) => format!("waiting: {why}"),
                (None, 0) => format!("asking for the files of {}", download.name),
                (None, total) => {
                    let (begin, from) = download.begin;
                    let rate = download.done.saturating_sub(from) as f64
                        / begin.elapsed().as_secs_f64().max(1e-3);
                    format!(
                        "{}: {} of {}, {}/s",
                        format::file_name(&download.file),
                        format::bytes(download.done),
                        format::bytes(total),
                        format::bytes(rate as u64)
                    )
                }
            };
            stop = look::quiet_button(ui, "Stop").on_hover_text("What has arrived stays").clicked();
            ui.add(egui::Label::new(RichText::new(text).weak()).truncate());
        });
        let part = download.done as f32 / download.total.max(1) as f32;
        ui.add(ProgressBar::new(part).desired_height(4.0).fill(palette.accent));
        if stop {
            self.stop();
        }
    }

    /// Draws the list of cached models that contain the text of the field.
    fn models(&self, ui: &mut Ui) -> Option<PathBuf> {
        let Some(cached) = &self.cached else {
            ui.weak("Looking into the cache");
            return None;
        };
        // `org/name:Q4_K_M` also finds `org/name:name-Q4_K_M.gguf`.
        let text = self.text.to_lowercase();
        let parts = || text.split([':', ' ']).filter(|part| !part.is_empty());
        let matches = |model: &&CachedModel| {
            let name = model.source.to_string().to_lowercase();
            parts().all(|part| name.contains(part))
        };
        let found: Vec<&CachedModel> = cached.iter().filter(matches).collect();
        if found.is_empty() {
            ui.weak(match cached.is_empty() {
                true => "No model is in the cache yet.",
                false => "No model in the cache has this in its name.",
            });
            return None;
        }
        let mut chosen = None;
        ScrollArea::vertical().id_salt("cached").max_height(LIST).show(ui, |ui| {
            for model in found {
                let text = format!("{} · {}", model.source, format::bytes(model.bytes));
                let button = egui::Button::new(text).truncate();
                if ui.add(button.min_size(egui::vec2(ui.available_width(), 0.0))).clicked() {
                    chosen = Some(model.path.clone());
                }
            }
        });
        chosen
    }
}

impl Drop for HubPanel {
    fn drop(&mut self) {
        // The thread ends after its next bytes; the program does not wait for a slow network.
        self.stop();
    }
}
