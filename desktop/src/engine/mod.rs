//! A loaded model on a device, as the worker thread uses it: loads, answers, measures, serves.

mod compare;
mod estimate;
mod serving;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use warploom::plan::{Plan, Report};
use warploom::provider::{Device, DeviceProfile};
use warploom::runtime::{AnalyzeOptions, Runtime};
use warploom::{ComputeMode, Error, Result};
use warploom_llm::chat::{Chat, ChatOptions, Message, Role, Template};
use warploom_llm::tokenizer::EncodeOptions;
use warploom_llm::{
    DEFAULT_CONTEXT, DecoderOutput, Event, GenerateOptions, Generated, Model, Recovered, Recovery,
    Sampling, Session,
};
use warploom_models::gguf::Access;
use warploom_serve::{ServeOptions, Server};

pub use compare::{Choice, Compared, Comparison, Difference, MOST_TOKENS};
pub use estimate::Estimate;
use serving::{Served, through_the_queue};

/// How long a server that is switched off lets running answers go on.
const GRACE: Duration = Duration::from_secs(2);
/// Sequences of a serving session: answers at once, for which each has a KV cache.
const SEQUENCES: usize = 4;
/// Measured runs of each kernel.
const RUNS: usize = 20;

/// Where a model comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The model in the program.
    Embedded,
    /// A GGUF file, or a folder of Hugging Face.
    File(PathBuf),
}

impl Source {
    /// Returns its name for titles.
    pub fn name(&self) -> String {
        match self {
            Source::Embedded => "Built-in story model".into(),
            Source::File(path) => crate::format::file_name(&path.to_string_lossy()).to_owned(),
        }
    }

    /// Opens the file and checks the model in it.
    ///
    /// # Errors
    /// Same as [`Model::open`].
    pub fn open(&self) -> Result<Arc<Model>> {
        match self {
            Source::Embedded => Model::embedded(),
            Source::File(path) => Model::open(path, Access::Mmap),
        }
    }
}

/// The device and the settings of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Id of the device; `None` selects the best one, or the one of `WARPLOOM_DEVICE`.
    pub device: Option<String>,
    /// Whether products are computed in 32 bits, instead of the device's default.
    pub exact: bool,
    /// Positions of the KV cache; `None` is the session's default.
    pub context: Option<usize>,
}

impl Place {
    fn compute(&self) -> Option<ComputeMode> {
        self.exact.then_some(ComputeMode::F32)
    }

    /// Opens the device.
    ///
    /// # Errors
    /// Same as [`warploom::runtime::RuntimeBuilder::build`].
    pub fn runtime(&self) -> Result<Runtime> {
        let builder = Runtime::builder();
        match &self.device {
            Some(device) => builder.device(device.clone()).build(),
            None => builder.build(),
        }
    }

    fn context_of(&self, model: &Model) -> usize {
        let trained = model.config().context;
        self.context.unwrap_or(DEFAULT_CONTEXT).min(trained)
    }
}

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Whether the user wrote it; otherwise the model did.
    pub user: bool,
    /// The text.
    pub text: String,
}

/// A request for the model's next message.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// The system message, if any.
    pub system: Option<String>,
    /// The messages so far; the last one is the user's.
    pub turns: Vec<Turn>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Maximum number of tokens of the answer.
    pub max_tokens: usize,
}

/// Why an answer ended, and its figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// Number of tokens.
    pub tokens: usize,
    /// Seconds from the request to the first token.
    pub first_token: f64,
    /// Tokens per second after the first one.
    pub rate: f64,
    /// Why it ended: `stop`, `length`, `context` or `interrupted`.
    pub finish: &'static str,
    /// Number of oldest messages that no longer fit in the context.
    pub left_out: usize,
}

/// What a running answer reports.
#[derive(Debug)]
pub enum Progress<'a> {
    /// Tokens of a long prompt that have been processed, and all.
    Prompt(usize, usize),
    /// More text, and the number of tokens so far.
    Text(&'a str, usize),
}

/// Receives the progress of an answer; returns whether to continue.
pub type OnProgress<'a> = dyn FnMut(Progress<'_>) -> ControlFlow<()> + Send + 'a;

/// The kernels of one token, measured.
#[derive(Clone, Debug)]
pub struct Kernels {
    /// The plan.
    pub plan: Plan,
    /// Its measurement.
    pub report: Report,
    /// The plan as `warploom explain` prints it.
    pub explain: String,
    /// The trace of one run, in the format of Perfetto.
    pub trace: String,
    /// Tokens in the KV cache before the measured one.
    pub past: usize,
}

/// What the model is used by.
enum Use {
    Chat(Box<Chat>),
    /// A model without a chat format continues a text.
    Plain(Box<Session>),
    Serve(Box<Served>),
    /// Between two uses, and after one that failed.
    Nothing,
}

/// A loaded model.
pub struct Engine {
    model: Arc<Model>,
    runtime: Runtime,
    place: Place,
    on_recovery: Arc<dyn Fn(&Recovered) + Send + Sync>,
    used: Use,
}

impl Engine {
    /// Loads a model onto a device. `progress` receives the uploaded bytes and their total.
    ///
    /// # Errors
    /// Errors of opening the device and of the upload.
    pub fn load(
        model: Arc<Model>,
        place: Place,
        on_recovery: Arc<dyn Fn(&Recovered) + Send + Sync>,
        progress: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<Engine> {
        let runtime = place.runtime()?;
        let mut engine = Engine { model, runtime, place, on_recovery, used: Use::Nothing };
        let session = engine.session(1, progress)?;
        engine.chat(session)?;
        Ok(engine)
    }

    fn session(
        &self,
        sequences: usize,
        progress: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<Session> {
        let on_recovery = self.on_recovery.clone();
        // A device that the user chose is not replaced by another one.
        let recovery = match self.place.device {
            Some(_) => Recovery::SameDevice,
            None => Recovery::AnyDevice,
        };
        Session::builder(self.model.clone())
            .runtime(self.runtime.clone())
            .context(self.place.context_of(&self.model))
            .sequences(sequences)
            .compute(self.place.compute())
            .recovery(recovery)
            .on_recovery(move |recovered| on_recovery(recovered))
            .progress(progress)
            .build()
    }

    /// Uses a session for answers.
    fn chat(&mut self, session: Session) -> Result<()> {
        self.used = match Template::of(&self.model) {
            Ok(template) => Use::Chat(Box::new(Chat::with_template(session, template)?)),
            Err(_) => Use::Plain(Box::new(session)),
        };
        Ok(())
    }

    fn current(&self) -> Option<&Session> {
        match &self.used {
            Use::Chat(chat) => Some(chat.session()),
            Use::Plain(session) => Some(session),
            Use::Serve(_) | Use::Nothing => None,
        }
    }

    /// Returns the device that the model runs on.
    pub fn device(&self) -> &Arc<dyn Device> {
        match &self.used {
            Use::Serve(served) => &served.device,
            _ => self.current().map_or_else(|| self.runtime.device(), Session::device),
        }
    }

    /// Returns the profile of that device.
    pub fn profile(&self) -> &DeviceProfile {
        self.device().profile()
    }

    /// Returns the model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Returns the place that was requested.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Returns the runtime, for estimates of other models on the same device.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Returns whether the model answers messages; otherwise it continues a text.
    pub fn chats(&self) -> bool {
        match &self.used {
            Use::Chat(_) => true,
            Use::Serve(served) => served.template.is_some(),
            Use::Plain(_) | Use::Nothing => false,
        }
    }

    /// Returns the number of positions of the context.
    pub fn context(&self) -> usize {
        self.place.context_of(&self.model)
    }

    /// Generates the model's next message.
    ///
    /// # Errors
    /// Errors of rendering the conversation and of the device.
    pub fn answer(&mut self, ask: &Ask, on: &mut OnProgress<'_>) -> Result<Answered> {
        let mut tokens = 0;
        match &mut self.used {
            Use::Chat(chat) => {
                chat.set_messages(messages(ask));
                let options = ChatOptions::default()
                    .max_tokens(ask.max_tokens)
                    .sampling(ask.sampling.clone());
                let reply = chat.answer(&options, &mut |event| progress(event, &mut tokens, on))?;
                Ok(answered(&reply.generated, reply.left_out))
            }
            Use::Plain(session) => {
                session.truncate(0)?;
                let text: String = ask.turns.iter().map(|turn| turn.text.as_str()).collect();
                let options = GenerateOptions::default()
                    .max_tokens(ask.max_tokens)
                    .sampling(ask.sampling.clone());
                let generated = session
                    .generate(&text, &options, &mut |event| progress(event, &mut tokens, on))?;
                Ok(answered(&generated, 0))
            }
            Use::Serve(served) => through_the_queue(served, &self.model, ask, on),
            Use::Nothing => Err(Error::invalid("no model is loaded")),
        }
    }

    /// Times the kernels of one token, in the middle of a text.
    ///
    /// # Errors
    /// Invalid while the model serves; errors of planning and of the device.
    pub fn kernels(&mut self) -> Result<Kernels> {
        let session = match std::mem::replace(&mut self.used, Use::Nothing) {
            Use::Chat(chat) => chat.into_session(),
            Use::Plain(session) => *session,
            other => {
                self.used = other;
                return Err(Error::invalid(
                    "the model serves requests: switch the server off to time its kernels",
                ));
            }
        };
        let mut session = session;
        let mut measured = measure(&mut session);
        if let Err(error) = &measured {
            // The device may be lost, which only steps of a session notice: it is opened again.
            let is_lost = error.is_device_lost();
            drop(session);
            self.runtime = self.place.runtime()?;
            session = self.session(1, &mut |_, _| {})?;
            if is_lost {
                measured = measure(&mut session);
            }
        }
        self.chat(session)?;
        measured
    }

    /// Starts a server on the model; returns its address.
    ///
    /// # Errors
    /// Io if the port is taken, out of memory; the model is used for answers then, as before.
    pub fn serve(&mut self, port: u16) -> Result<std::net::SocketAddr> {
        if matches!(self.used, Use::Serve(_)) {
            return Err(Error::invalid("the server is running"));
        }
        // The memory of the session before is needed.
        self.used = Use::Nothing;
        let started = self.start(port);
        if started.is_err() {
            let session = self.session(1, &mut |_, _| {})?;
            self.chat(session)?;
        }
        started
    }

    fn start(&mut self, port: u16) -> Result<std::net::SocketAddr> {
        let session = self.session(SEQUENCES, &mut |_, _| {})?;
        let device = session.device().clone();
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        let server = Server::start(session, ServeOptions::default().address(address))?;
        let address = server.address();
        let template = Template::of(&self.model).ok();
        self.used = Use::Serve(Box::new(Served { server, template, device }));
        Ok(address)
    }

    /// Ends the server.
    ///
    /// # Errors
    /// Errors of loading the model for answers again.
    pub fn end_server(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.used, Use::Nothing) {
            Use::Serve(served) => served.server.stop(GRACE)?,
            other => {
                self.used = other;
                return Ok(());
            }
        }
        let session = self.session(1, &mut |_, _| {})?;
        self.chat(session)
    }

    /// Returns whether a server runs, and if so, whether it still answers.
    pub fn server_is_alive(&self) -> Option<bool> {
        match &self.used {
            Use::Serve(served) => Some(served.server.is_alive()),
            _ => None,
        }
    }
}

fn messages(ask: &Ask) -> Vec<Message> {
    let system = ask.system.iter().map(|text| Message::new(Role::System, text.as_str()));
    let turns = ask.turns.iter().map(|turn| {
        let role = if turn.user { Role::User } else { Role::Assistant };
        Message::new(role, turn.text.as_str())
    });
    system.chain(turns).collect()
}

/// Returns the tokens of a conversation, up to where the model's answer begins.
fn prompt_tokens(model: &Model, template: Option<&Template>, ask: &Ask) -> Result<Vec<u32>> {
    let tokenizer = model.tokenizer();
    match template {
        Some(template) => template
            .render(&messages(ask), true, tokenizer, Some(std::time::SystemTime::now()))?
            .encode(tokenizer, true),
        // A model without a chat format continues the text.
        None => {
            let text: String = ask.turns.iter().map(|turn| turn.text.as_str()).collect();
            tokenizer.encode(&text, EncodeOptions::default().add_bos(true))
        }
    }
}

fn progress(event: Event<'_>, tokens: &mut usize, on: &mut OnProgress<'_>) -> ControlFlow<()> {
    match event {
        Event::Progress { done, total } => on(Progress::Prompt(done, total)),
        Event::Text(text) => on(Progress::Text(text, *tokens)),
        Event::Token(_) => {
            *tokens += 1;
            on(Progress::Text("", *tokens))
        }
        _ => on(Progress::Text("", *tokens)),
    }
}

fn answered(generated: &Generated, left_out: usize) -> Answered {
    Answered {
        tokens: generated.tokens.len(),
        first_token: generated.first_token.as_secs_f64(),
        rate: generated.decode_rate(),
        finish: generated.finish.name(),
        left_out,
    }
}

fn measure(session: &mut Session) -> Result<Kernels> {
    let past = session.context() / 2;
    let (plan, symbols) = session.plan_for(1, past, DecoderOutput::Greedy)?;
    let inputs = plan.inputs.iter().map(|input| {
        let bytes = input.shape.elements().eval_size(&symbols)? * input.dtype.bytes();
        let bytes = usize::try_from(bytes)
            .map_err(|_| Error::invalid(format!("an input of {bytes} bytes")))?;
        Ok(vec![0; bytes])
    });
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let options = AnalyzeOptions { runs: RUNS, ..AnalyzeOptions::default() };
    let runtime = session.runtime().clone();
    let analysis = runtime.analyze(&plan, session.device_tensors(), &symbols, &inputs, &options)?;
    let trace = plan.trace(&analysis).to_string();
    let report = plan.report().measured(analysis);
    Ok(Kernels { explain: report.text(&Default::default()), report, trace, past, plan })
}
