//! A model on a device, which continues texts and answers conversations.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use js_sys::Function;
use serde_json::{Value, json};
use warploom::{ComputeMode, Error, Result};
use warploom_llm::chat::{Chat, ChatOptions, Message, Template};
use warploom_llm::tokenizer::EncodeOptions;
use warploom_llm::{
    Event, Finish, GenerateOptions, Generated, OnUpload, Recovered, Session, StopStrings,
};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::engine::Shared;
use crate::error::to_js;
use crate::options::{self, Compute, Generate, Load};
use crate::pace::paced;

/// A model on a device.
#[wasm_bindgen]
pub struct Model {
    runtime: Shared,
    model: Arc<warploom_llm::Model>,
    load: Load,
    busy: Cell<bool>,
    /// `None` while a text is generated, and after a failed change of the compute mode.
    state: RefCell<Option<State>>,
    recovered: Recoveries,
}

/// Tokens of the first prompt, whose kernels are those of every prompt of 9 to 64 tokens.
const PROMPT: usize = 32;

/// Recoveries from a lost device that JavaScript has not received yet. The callback of a session
/// must be `Send`, which no function of JavaScript is.
type Recoveries = Arc<Mutex<Vec<Recovered>>>;

/// Marks a model as busy until it is dropped.
pub(crate) struct Busy<'a>(&'a Cell<bool>);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// The session, alone or in a conversation whose tokens are in its cache.
pub(crate) enum State {
    Text(Session),
    Chat(Box<Chat>),
}

impl State {
    pub(crate) fn into_session(self) -> Session {
        match self {
            State::Text(session) => session,
            State::Chat(chat) => chat.into_session(),
        }
    }

    pub(crate) fn session(&self) -> &Session {
        match self {
            State::Text(session) => session,
            State::Chat(chat) => chat.session(),
        }
    }
}

#[wasm_bindgen]
impl Model {
    /// Returns JSON: `{name, architecture, context, vocabulary, weights, cache, quantisation,
    /// compute, layers, width, fileBytes, template}`. `context` is the number of positions of the
    /// cache, `weights` and `cache` are bytes on the device, `quantisation` is the format that most
    /// bytes of the file have, and `template` says whether `chat` works.
    pub fn info(&self) -> String {
        let (model, config) = (&self.model, self.model.config());
        let file = model.file();
        let name = file.find_str("general.name").ok().flatten().unwrap_or(file.name());
        let state = self.state.borrow();
        let session = state.as_ref().map(State::session);
        let context = session.map_or_else(|| self.load.context_of(model), Session::context);
        let cache = session
            .map(|session| model.cache_bytes_per_token(session.cache_type()) * context as u64);
        json!({
            "name": name,
            "file": file.name(),
            "architecture": config.architecture.name,
            "context": context,
            "trainedContext": config.context,
            "vocabulary": config.vocabulary,
            "layers": config.layers,
            "width": config.width,
            "weights": model.weight_bytes(),
            "cache": cache,
            "fileBytes": file.file_bytes(),
            "quantisation": quantisation(model),
            "compute": session.map(|session| mode_name(session.mode())),
            "template": Template::of(model).is_ok(),
        })
        .to_string()
    }

    /// Continues a prompt. `options` is JSON: `{maxTokens?, temperature?, topK?, topP?, minP?,
    /// repeatPenalty?, seed?, stop?: string[], compute?: "f32" | "int8"}`. `event` receives JSON,
    /// `{"text", "tokens"}` for each piece of text, `{"prompt": {"done", "total"}}`, and
    /// `{"recovered": {"lost", "device", "tokens", "seconds"}}` after a lost device was opened
    /// again; it returns false to stop. Resolves to JSON: `{text, finish: "stop" | "length" | "cancelled",
    /// promptTokens, cachedTokens, tokens, promptSeconds, seconds}`; `promptTokens` counts the whole
    /// prompt, with the `cachedTokens` that were in the cache already.
    ///
    /// # Errors
    /// Invalid if a text is being generated, for a bad option, and if the prompt is empty or does
    /// not fit in the context; errors of the device; what `event` throws.
    pub async fn generate(
        &self,
        prompt: String,
        options: String,
        event: Function,
    ) -> Result<String, JsValue> {
        let mut events = Events::new(event, self.recovered.clone());
        let run = async {
            let _busy = self.begin()?;
            let options: Generate = options::parse("options of the text", &options)?;
            let mut session = self.take(options.compute).await?.into_session();
            events.begin(&options);
            let wanted = GenerateOptions::default()
                .max_tokens(options.max_tokens.unwrap_or(256))
                .sampling(options.sampling());
            let generated = match session.truncate(0) {
                Ok(()) => session.generate_async(&prompt, &wanted, &mut |e| events.take(e)).await,
                Err(error) => Err(error),
            };
            self.give_back(State::Text(session));
            generated.map(|generated| (generated, 0))
        };
        let generated = paced(run).await;
        events.result(generated)
    }

    /// Answers a conversation: JSON, `[{role: "system" | "user" | "assistant" | "tool", content}]`.
    /// The cache keeps the tokens that it has in common with the one before. Everything else as for
    /// [`Model::generate`].
    ///
    /// # Errors
    /// Same as [`Model::generate`], and unsupported if the model has no chat template.
    pub async fn chat(
        &self,
        messages: String,
        options: String,
        event: Function,
    ) -> Result<String, JsValue> {
        let mut events = Events::new(event, self.recovered.clone());
        let run = async {
            let _busy = self.begin()?;
            let options: Generate = options::parse("options of the answer", &options)?;
            let messages: Vec<Message> = options::parse("messages", &messages)?;
            // Before the session is taken, which would be lost with an error.
            let template = Template::of(&self.model)?;
            let mut chat = match self.take(options.compute).await? {
                State::Chat(chat) => chat,
                State::Text(session) => Box::new(Chat::with_template(session, template)?),
            };
            events.begin(&options);
            let wanted = ChatOptions::default()
                .max_tokens(options.max_tokens.unwrap_or(512))
                .sampling(options.sampling());
            chat.set_messages(messages);
            let reply = chat.answer_async(&wanted, &mut |e| events.take(e)).await;
            self.give_back(State::Chat(chat));
            reply.map(|reply| (reply.generated, reply.reused))
        };
        let generated = paced(run).await;
        events.result(generated)
    }

    /// Returns the tokens of a text, without control tokens.
    ///
    /// # Errors
    /// Invalid if the text cannot be encoded.
    pub fn tokenize(&self, text: &str) -> Result<Vec<u32>, JsValue> {
        self.model.tokenizer().encode(text, EncodeOptions::default()).map_err(to_js)
    }

    /// Returns the text of tokens.
    ///
    /// # Errors
    /// Invalid if a token is not in the vocabulary.
    pub fn detokenize(&self, ids: &[u32]) -> Result<String, JsValue> {
        self.model.tokenizer().decode(ids).map_err(to_js)
    }
}

impl Model {
    /// Uploads a model; `progress` receives the uploaded bytes and their total.
    pub(crate) async fn load(
        runtime: Shared,
        model: Arc<warploom_llm::Model>,
        load: Load,
        progress: &mut OnUpload<'_>,
    ) -> Result<Model> {
        let (busy, state) = (Cell::new(false), RefCell::default());
        let recovered = Recoveries::default();
        let mode = load.compute.map(ComputeMode::from);
        let made = Model { runtime, model, load, busy, state, recovered };
        let session = made.session(mode, progress).await?;
        made.give_back(State::Text(session));
        Ok(made)
    }

    /// Keeps the session for the next text. If it opened its lost device again, the engine uses the
    /// new one from now on.
    pub(crate) fn give_back(&self, state: State) {
        self.runtime.replace(state.session().runtime().clone());
        self.state.replace(Some(state));
    }

    /// Begins one text.
    ///
    /// # Errors
    /// Invalid if another is being generated.
    pub(crate) fn begin(&self) -> Result<Busy<'_>> {
        match self.busy.replace(true) {
            true => Err(Error::invalid("the model is generating another text")),
            false => Ok(Busy(&self.busy)),
        }
    }

    /// Takes the session for one text. If the text needs another compute mode, the weights are
    /// uploaded again, since their layout and the cache depend on it.
    pub(crate) async fn take(&self, compute: Option<Compute>) -> Result<State> {
        let wanted = compute.or(self.load.compute);
        let mode = wanted.map_or_else(
            || Session::default_mode(self.runtime.borrow().device().profile()),
            ComputeMode::from,
        );
        let state = self.state.take();
        let fits = |state: &State| mode == state.session().mode();
        if let Some(state) = state.filter(fits) {
            return Ok(state);
        }
        // The old session is freed by now, since both may not fit.
        self.session(Some(mode), &mut |_, _| {}).await.map(State::Text)
    }

    /// Makes a session on the device.
    async fn session(
        &self,
        mode: Option<ComputeMode>,
        progress: &mut OnUpload<'_>,
    ) -> Result<Session> {
        let runtime = self.runtime.borrow().clone();
        let recovered = self.recovered.clone();
        let mut builder = Session::builder(self.model.clone());
        if let Some(first) = &self.load.first {
            builder = builder.prewarm(PROMPT, &first.sampling());
        }
        let builder = builder
            .runtime(runtime)
            .context(self.load.context)
            .compute(mode)
            .cache(self.load.cache.map(Into::into))
            .on_recovery(move |now| {
                recovered.lock().unwrap_or_else(PoisonError::into_inner).push(now.clone());
            });
        let device = self.runtime.borrow().device().clone();
        let build = async {
            let session =
                builder.progress(|done, total| progress(done, total)).build_async().await?;
            // A browser reports refused memory later than the call: here instead of in a text.
            session.device().wait(session.device().submit(&[])?).await?;
            Ok(session)
        };
        let built = build.await;
        if built.is_err() {
            // Further reports of the same failure are of no other call: the first wait takes one,
            // the second lets those under way arrive, the third takes one of them.
            for _ in 0..3 {
                if let Ok(ticket) = device.submit(&[]) {
                    let _ = device.wait(ticket).await;
                }
            }
        }
        built
    }
}

/// Returns the name of the type that most bytes of a file have.
fn quantisation(model: &warploom_llm::Model) -> &'static str {
    let mut bytes: Vec<(&'static str, u64)> = Vec::new();
    for info in model.file().tensors() {
        let (name, len) = (info.type_name().unwrap_or("unknown"), info.byte_len().unwrap_or(0));
        match bytes.iter_mut().find(|(of, _)| *of == name) {
            Some((_, sum)) => *sum += len,
            None => bytes.push((name, len)),
        }
    }
    bytes.into_iter().max_by_key(|(_, sum)| *sum).map_or("unknown", |(name, _)| name)
}

fn mode_name(mode: ComputeMode) -> &'static str {
    match mode {
        ComputeMode::F32 => "f32",
        ComputeMode::Int8 => "int8",
        ComputeMode::F16 => "f16",
    }
}

/// Passes events to JavaScript, and looks for stop strings.
struct Events {
    event: Function,
    stops: StopStrings,
    text: String,
    tokens: usize,
    /// Whether a stop string was found.
    stopped: bool,
    /// What the callback threw.
    thrown: Option<JsValue>,
    recovered: Recoveries,
}

impl Events {
    fn new(event: Function, recovered: Recoveries) -> Events {
        let (stops, text) = (StopStrings::new(Vec::new()), String::new());
        Events { event, stops, text, tokens: 0, stopped: false, thrown: None, recovered }
    }

    fn begin(&mut self, options: &Generate) {
        self.stops = StopStrings::new(options.stop.clone());
    }

    fn take(&mut self, event: Event<'_>) -> ControlFlow<()> {
        self.recoveries();
        match event {
            Event::Progress { done, total } => {
                self.send(&json!({ "prompt": { "done": done, "total": total } }))
            }
            Event::Prompt(total) => {
                self.send(&json!({ "prompt": { "done": total, "total": total } }))
            }
            Event::Token(_) => {
                self.tokens += 1;
                ControlFlow::Continue(())
            }
            Event::Text(text) => {
                let (text, stopped) = self.stops.push(text);
                self.stopped = stopped;
                match self.piece(&text) {
                    ControlFlow::Continue(()) if !stopped => ControlFlow::Continue(()),
                    _ => ControlFlow::Break(()),
                }
            }
            _ => ControlFlow::Continue(()),
        }
    }

    /// Passes on the recoveries since the last event.
    fn recoveries(&mut self) {
        let mut recovered = self.recovered.lock().unwrap_or_else(PoisonError::into_inner);
        let new = std::mem::take(&mut *recovered);
        drop(recovered);
        for Recovered { lost, device, tokens, elapsed, .. } in new {
            let seconds = elapsed.as_secs_f64();
            // Whether to stop is asked again with the next text.
            let _ = self.send(&json!({ "recovered": {
                "lost": lost, "device": device, "tokens": tokens, "seconds": seconds,
            } }));
        }
    }

    fn piece(&mut self, text: &str) -> ControlFlow<()> {
        if text.is_empty() {
            return ControlFlow::Continue(());
        }
        self.text.push_str(text);
        self.send(&json!({ "text": text, "tokens": self.tokens }))
    }

    fn send(&mut self, event: &Value) -> ControlFlow<()> {
        match self.event.call1(&JsValue::NULL, &event.to_string().into()) {
            // Only false stops, so that a callback that returns nothing goes on.
            Ok(goes_on) if goes_on.as_bool() == Some(false) => ControlFlow::Break(()),
            Ok(_) => ControlFlow::Continue(()),
            Err(thrown) => {
                self.thrown = Some(thrown);
                ControlFlow::Break(())
            }
        }
    }

    /// Ends the text and returns the result as JSON; the second number is that of the prompt's tokens
    /// that were in the cache already.
    fn result(mut self, generated: Result<(Generated, usize)>) -> Result<String, JsValue> {
        self.recoveries();
        let (generated, cached) = generated.map_err(to_js)?;
        if !self.stopped {
            let rest = self.stops.finish();
            let _ = self.piece(&rest);
        }
        if let Some(thrown) = self.thrown {
            return Err(thrown);
        }
        let finish = match generated.finish {
            Finish::Interrupted if self.stopped => "stop",
            Finish::Interrupted => "cancelled",
            Finish::Stop => "stop",
            _ => "length",
        };
        let report = json!({
            "text": self.text,
            "finish": finish,
            "promptTokens": generated.prompt_tokens + cached,
            "cachedTokens": cached,
            "tokens": generated.tokens.len(),
            "promptSeconds": generated.first_token.as_secs_f64(),
            "seconds": (generated.first_token + generated.decode).as_secs_f64(),
        });
        Ok(report.to_string())
    }
}
