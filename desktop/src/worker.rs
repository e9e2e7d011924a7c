//! The thread that owns the model. The window sends commands and receives events; it never waits.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use eframe::egui::Context;
use warploom::provider::{DeviceKind, DeviceProfile};
use warploom::runtime::Detection;
use warploom::webgpu::{Provider, wgpu};
use warploom_core::base::platform::panic_text;
use warploom_llm::Model;

use crate::engine::{
    Answered, Ask, Compared, Comparison, Engine, Estimate, Kernels, Place, Progress, Source,
};
use crate::notice::{Failure, Kind};

/// Interval at which a running server is checked.
const LOOK: Duration = Duration::from_millis(500);

/// A request of the window.
#[derive(Debug)]
pub enum Command {
    /// List the devices.
    Detect,
    /// Estimate the memory of a model before it is loaded.
    Estimate(Source, Place),
    /// Load a model.
    Load(Source, Place),
    /// Generate an answer. The number comes back with its events.
    Answer(u64, Ask),
    /// Generate the most probable answer on each of these devices, and compare them.
    Compare(Ask, Vec<String>),
    /// Time the kernels of one token.
    Kernels,
    /// Start a server on this port.
    Serve(u16),
    /// End the server.
    EndServer,
}

/// A device of the machine.
#[derive(Clone, Debug)]
pub struct FoundDevice {
    /// Its profile.
    pub profile: DeviceProfile,
    /// Why it has its place in the list.
    pub reason: &'static str,
    /// Whether it is the default.
    pub selected: bool,
}

/// The devices of the machine.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    /// The devices, best first.
    pub devices: Vec<FoundDevice>,
    /// Providers without devices, or that failed, and why.
    pub absent: Vec<(String, String)>,
}

/// The model that is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Where it comes from.
    pub source: Source,
    /// The requested place.
    pub place: Place,
    /// Id of the device.
    pub device: String,
    /// Name of the device.
    pub device_name: String,
    /// Whether the device is opened through wgpu, so that it can be taken away.
    pub through_wgpu: bool,
    /// Positions of the context.
    pub context: usize,
    /// Whether the model answers messages; otherwise it continues a text.
    pub chats: bool,
    /// Bytes of the weights.
    pub weights: u64,
}

/// A report of the worker.
#[derive(Debug)]
pub enum Event {
    /// The devices were listed.
    Devices(Result<Devices, Failure>),
    /// A model was estimated.
    Estimated(Source, Result<Estimate, Failure>),
    /// Bytes of weights that were uploaded, and all.
    Loading(u64, u64),
    /// A model was loaded.
    Loaded(Loaded),
    /// A model could not be loaded. The flag says whether the one before is still there.
    NotLoaded(Failure, bool),
    /// Tokens of a prompt that have been processed, and all.
    Prompt(u64, usize, usize),
    /// More text of an answer, the number of tokens so far and the seconds since the first.
    Text(u64, String, usize, f64),
    /// An answer ended.
    Answered(u64, Result<Answered, Failure>),
    /// A device has generated this many tokens for a comparison.
    Comparing(String, usize),
    /// A device generated its answer for a comparison.
    Compared(String, Result<Box<Compared>, Failure>),
    /// A comparison ended on all of its devices, or was stopped.
    ComparisonEnded,
    /// A session lost its device and goes on.
    Recovered(String),
    /// Kernels were timed.
    Kernels(Result<Box<Kernels>, Failure>),
    /// A server runs on this address.
    Serving(std::net::SocketAddr),
    /// The server ended, for this reason if it failed.
    NotServing(Option<Failure>),
    /// The thread panicked during a command; the model is gone.
    Stopped(Failure),
}

/// Shared by the window and the thread.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    gpu: Mutex<Option<wgpu::Device>>,
}

impl Shared {
    fn gpu(&self) -> MutexGuard<'_, Option<wgpu::Device>> {
        self.gpu.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the user still wants what runs.
    fn wanted(&self) -> ControlFlow<()> {
        match self.stop.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// The window's end of the worker.
pub struct Worker {
    commands: Option<Sender<Command>>,
    events: Receiver<Event>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread. It asks `ctx` for a frame after each event.
    ///
    /// # Errors
    /// If the system starts no thread.
    pub fn start(ctx: Context) -> std::io::Result<Worker> {
        let (commands, received) = channel();
        let (sent, events) = channel();
        let shared = Arc::new(Shared::default());
        let outbox = Outbox { events: sent, ctx };
        let room = Room { outbox, shared: shared.clone(), engine: None, opened: None };
        let thread = std::thread::Builder::new()
            .name("warploom worker".into())
            .spawn(move || room.run(&received))?;
        Ok(Worker { commands: Some(commands), events, shared, thread: Some(thread) })
    }

    /// Sends a command.
    pub fn send(&self, command: Command) {
        if matches!(command, Command::Answer(..) | Command::Compare(..)) {
            self.shared.stop.store(false, Ordering::Relaxed);
        }
        // The thread lasts as long as the sender.
        if let Some(commands) = &self.commands {
            let _ = commands.send(command);
        }
    }

    /// Returns the next event, if there is one.
    pub fn event(&self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// Ends the running answer or comparison after its next token.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    /// Destroys the device of the model, as if it was pulled out. Returns false if the device is
    /// not opened through wgpu, or was destroyed already.
    pub fn take_device_away(&self) -> bool {
        match self.shared.gpu().take() {
            Some(gpu) => {
                gpu.destroy();
                true
            }
            None => false,
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Sends events, and asks for a frame that shows them.
#[derive(Clone)]
struct Outbox {
    events: Sender<Event>,
    ctx: Context,
}

impl Outbox {
    fn send(&self, event: Event) {
        // Without a window no one is interested.
        let _ = self.events.send(event);
        self.ctx.request_repaint();
    }
}

/// The state of the thread.
struct Room {
    outbox: Outbox,
    shared: Arc<Shared>,
    engine: Option<(Source, Engine)>,
    /// A model that was opened for an estimate, so that it need not be opened again.
    opened: Option<(Source, Arc<Model>)>,
}

impl Room {
    fn run(mut self, commands: &Receiver<Command>) {
        use std::sync::mpsc::RecvTimeoutError::Disconnected;
        loop {
            let command = match commands.recv_timeout(LOOK) {
                Ok(command) => command,
                Err(Disconnected) => return,
                Err(_) => {
                    self.look_after_server();
                    continue;
                }
            };
            let done = catch_unwind(AssertUnwindSafe(|| self.execute(command)));
            if let Err(panic) = done {
                // Its state is unknown.
                self.engine = None;
                let failure = Failure::new(Kind::Stopped, panic_text(&*panic));
                self.outbox.send(Event::Stopped(failure));
            }
            let engine = self.engine.as_ref();
            *self.shared.gpu() =
                engine.and_then(|(_, engine)| Provider::gpu_of(&**engine.device()));
        }
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Detect => self.outbox.send(Event::Devices(detect())),
            Command::Estimate(source, place) => {
                let estimate = self.estimate(&source, &place).map_err(Failure::from);
                self.outbox.send(Event::Estimated(source, estimate));
            }
            Command::Load(source, place) => self.load(source, place),
            Command::Answer(number, ask) => self.answer(number, &ask),
            Command::Compare(ask, devices) => self.compare(&ask, devices),
            Command::Kernels => {
                let kernels = match &mut self.engine {
                    Some((_, engine)) => engine.kernels().map(Box::new).map_err(Failure::from),
                    None => Err(no_model()),
                };
                self.outbox.send(Event::Kernels(kernels));
            }
            Command::Serve(port) => {
                let started = match &mut self.engine {
                    Some((_, engine)) => engine.serve(port).map_err(Failure::from),
                    None => Err(no_model()),
                };
                self.outbox.send(match started {
                    Ok(address) => Event::Serving(address),
                    Err(failure) => Event::NotServing(Some(failure)),
                });
            }
            Command::EndServer => {
                let ended = self.engine.as_mut().map(|(_, engine)| engine.end_server());
                let failure = ended.and_then(Result::err).map(Failure::from);
                self.outbox.send(Event::NotServing(failure));
            }
        }
    }

    fn estimate(&mut self, source: &Source, place: &Place) -> warploom::Result<Estimate> {
        let model = source.open()?;
        self.opened = Some((source.clone(), model.clone()));
        match &self.engine {
            Some((_, engine)) if engine.place().device == place.device => {
                Estimate::of(&model, place, engine.runtime())
            }
            _ => Estimate::of(&model, place, &place.runtime()?),
        }
    }

    fn load(&mut self, source: Source, place: Place) {
        let opened = self.opened.take().filter(|(from, _)| *from == source);
        let loaded = match (&self.engine, opened) {
            // The same model on another device.
            (Some((from, engine)), _) if *from == source => Ok(engine.model().clone()),
            (_, Some((_, model))) => Ok(model),
            _ => source.open(),
        };
        let done = loaded.and_then(|model| match self.engine_of(model.clone(), &place) {
            // The memory of the model before may be what lacks.
            Err(error) if error.is_out_of_memory() && self.engine.is_some() => {
                self.load_in_place_of_the_last(model, &place)
            }
            done => done,
        });
        match done {
            Ok(engine) => {
                let loaded = described(&source, &engine);
                self.engine = Some((source, engine));
                self.outbox.send(Event::Loaded(loaded));
            }
            Err(error) => {
                let event = Event::NotLoaded(error.into(), self.engine.is_some());
                self.outbox.send(event);
            }
        }
    }

    /// Frees the model before, and loads another one. If that fails too, the model before is loaded
    /// again, so that the user still has one.
    fn load_in_place_of_the_last(
        &mut self,
        model: Arc<Model>,
        place: &Place,
    ) -> warploom::Result<Engine> {
        let before = self.engine.take();
        let before = before.map(|(source, engine)| {
            let before = (source, engine.model().clone(), engine.place().clone());
            // Its memory is free from here on.
            drop(engine);
            before
        });
        let done = self.engine_of(model, place);
        if let (Err(_), Some((source, model, place))) = (&done, before)
            && let Ok(engine) = self.engine_of(model, &place)
        {
            self.engine = Some((source, engine));
        }
        done
    }

    fn engine_of(&self, model: Arc<Model>, place: &Place) -> warploom::Result<Engine> {
        let (outbox, progress) = (self.outbox.clone(), self.outbox.clone());
        let on_recovery = Arc::new(move |recovered: &warploom_llm::Recovered| {
            outbox.send(Event::Recovered(recovered.to_string()));
        });
        Engine::load(model, place.clone(), on_recovery, &mut |done, total| {
            progress.send(Event::Loading(done, total));
        })
    }

    fn answer(&mut self, number: u64, ask: &Ask) {
        let Some((source, engine)) = &mut self.engine else {
            return self.outbox.send(Event::Answered(number, Err(no_model())));
        };
        let device = engine.profile().id();
        let (outbox, shared) = (&self.outbox, &self.shared);
        let mut first: Option<Instant> = None;
        let done = engine.answer(ask, &mut |progress| {
            match progress {
                Progress::Prompt(done, total) => outbox.send(Event::Prompt(number, done, total)),
                Progress::Text(text, tokens) => {
                    let since = first.get_or_insert_with(Instant::now).elapsed().as_secs_f64();
                    outbox.send(Event::Text(number, text.to_owned(), tokens, since));
                }
            }
            shared.wanted()
        });
        if engine.profile().id() != device {
            outbox.send(Event::Loaded(described(source, engine)));
        }
        outbox.send(Event::Answered(number, done.map_err(Failure::from)));
    }

    fn compare(&mut self, ask: &Ask, devices: Vec<String>) {
        let model = self.engine.as_ref().map(|(_, engine)| engine.model().clone());
        let mut comparison = Comparison::default();
        for device in devices {
            if self.shared.stop.load(Ordering::Relaxed) {
                break;
            }
            let (outbox, shared) = (&self.outbox, &self.shared);
            let compared = match &model {
                Some(model) => comparison
                    .run(model, &device, ask, &mut |tokens| {
                        outbox.send(Event::Comparing(device.clone(), tokens));
                        shared.wanted()
                    })
                    .map(Box::new)
                    .map_err(Failure::from),
                None => Err(no_model()),
            };
            self.outbox.send(Event::Compared(device, compared));
        }
        self.outbox.send(Event::ComparisonEnded);
    }

    fn look_after_server(&mut self) {
        let Some((_, engine)) = &mut self.engine else { return };
        if engine.server_is_alive() == Some(false) {
            let ended = Failure::new(Kind::Stopped, "the server stopped by itself");
            let failure = engine.end_server().err().map_or(ended, Failure::from);
            self.outbox.send(Event::NotServing(Some(failure)));
        }
    }
}

fn no_model() -> Failure {
    Failure::new(Kind::Invalid, "no model is loaded")
}

fn described(source: &Source, engine: &Engine) -> Loaded {
    let profile = engine.profile();
    Loaded {
        source: source.clone(),
        place: engine.place().clone(),
        device: profile.id(),
        device_name: profile.name.clone(),
        through_wgpu: Provider::gpu_of(&**engine.device()).is_some(),
        context: engine.context(),
        chats: engine.chats(),
        weights: engine.model().weight_bytes(),
    }
}

fn detect() -> Result<Devices, Failure> {
    let variable = warploom_core::config::var(&warploom_core::config::DEVICE);
    let detection = Detection::detect(variable.as_deref().unwrap_or("auto"))?;
    let selected = detection.selected;
    let devices = detection.devices.into_iter().enumerate();
    let shown = |(i, device): &(usize, warploom::runtime::DetectedDevice)| {
        device.profile.kind != DeviceKind::Null || *i == selected
    };
    let devices = devices.filter(shown).map(|(i, device)| FoundDevice {
        profile: device.profile,
        reason: device.reason,
        selected: i == selected,
    });
    let absent = detection.absent.into_iter().chain(detection.failures);
    Ok(Devices { devices: devices.collect(), absent: absent.collect() })
}
