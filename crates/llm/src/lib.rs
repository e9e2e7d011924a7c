//! Language model inference: loads a GGUF file or a Hugging Face folder, and generates text.
//!
//! A chat in ten lines:
//!
//! ```no_run
//! use std::ops::ControlFlow;
//! use warploom_llm::chat::{Chat, ChatOptions};
//! use warploom_llm::{Event, Model, Session};
//! use warploom_models::gguf::Access;
//!
//! # fn main() -> warploom::Result<()> {
//! let model = Model::open("model.gguf", Access::Mmap)?;
//! let mut chat = Chat::new(Session::builder(model).context(4096).build()?)?;
//! let reply = chat.send("Tell me of a fox.", &ChatOptions::default(), &mut |event| {
//!     if let Event::Text(text) = event {
//!         print!("{text}");
//!     }
//!     ControlFlow::Continue(()) // `Break` ends the answer here.
//! })?;
//! println!("\n{:.0} tokens/s", reply.generated.decode_rate());
//! # Ok(())
//! # }
//! ```
//!
//! One level below, a session runs steps. This example runs a prompt and decodes eight more tokens,
//! which the device chooses without waiting for the host:
//!
//! ```no_run
//! use warploom_llm::{Model, Output, Session, StepRequest};
//!
//! # fn steps(model: std::sync::Arc<Model>, prompt: &[u32]) -> warploom::Result<()> {
//! let mut session = Session::builder(model).sequences(4).build()?;
//! let first = session.step(StepRequest::tokens(0, prompt, Output::Greedy))?.token()?;
//! let more = session.step(StepRequest::run_ahead(&[0], 8, Output::Greedy))?.tokens()?;
//! // One token of each of two sequences, and the logits after them.
//! let batch = [(0, more[7]), (1, first)];
//! let output = session.step(StepRequest::batch(&batch, Output::Logits))?;
//! for row in output.rows() {
//!     println!("{} logits", row.len());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Functions with an `_async` version block and exist on native targets only; the `_async` versions
//! exist everywhere. Structs may gain fields and enums may gain variants in later versions, so
//! options are built with a constructor or `Default`, and setters.
//!
//! The text side is independent of the device: `tokenizer` (`words`, `bpe`) and `utf8` convert text
//! to ids and back,
//! `config` reads a model's hyperparameters, `sampler` picks the next id from logits.
//! `architecture` is the table of differences between models, `weights` finds the tensors, `rope`
//! computes the rotary frequencies, `decoder` builds the forward pass as a graph. `builder` builds
//! a session: `planner` plans its runs, `prewarm` plans the first ones early, `upload` copies the
//! weights to the device. `session` keeps weights and KV cache there and replays a plan for each
//! step; `step` is its interface, `batch` decodes several sequences at once, `device_sampling`
//! chooses the next token, `embedder` computes vectors of texts (`pooling`), `rerank` scores of pairs, `run_ahead` decodes several tokens without a host round trip. `generate`
//! continues a prompt, `stop` finds strings that end a text, `structure` (feature `structure`)
//! constrains answers to a JSON schema or a grammar, `chat` answers messages, `perplexity` measures
//! how well the model predicts a text. `huggingface` presents a folder of safetensors as a GGUF file,
//! and `quantize` writes a GGUF file with quantised weights.

mod architecture;
mod batch;
mod bpe;
mod builder;
pub mod chat;
pub mod config;
mod config_variants;
mod decoder;
mod delta_net;
mod device_sampling;
mod embedder;
mod ends;
mod experts;
mod foreign;
mod generate;
#[cfg(not(target_arch = "wasm32"))]
pub mod huggingface;
mod layer_sizes;
mod layer_weights;
mod model;
#[cfg(not(target_arch = "wasm32"))]
mod pattern_native;
#[cfg(any(test, target_arch = "wasm32"))]
mod pattern_syntax;
#[cfg(target_arch = "wasm32")]
mod pattern_web;
mod perplexity;
mod planner;
mod pooling;
mod prefix;
mod pretokenizer;
mod prewarm;
mod prompts;
#[cfg(not(target_arch = "wasm32"))]
pub mod quantize;
mod recovery;
mod rerank;
mod rope;
mod run_ahead;
mod run_ahead_batch;
pub mod sampler;
mod sentencepiece;
mod session;
mod setters;
mod shape_buckets;
pub mod shapes;
mod short_conv;
mod step;
mod stop;
#[cfg(all(not(target_arch = "wasm32"), feature = "structure"))]
pub mod structure;
pub mod tokenizer;
#[cfg(any(not(target_arch = "wasm32"), feature = "tokenizer-json"))]
mod tokenizer_json;
#[cfg(all(target_arch = "wasm32", not(feature = "tokenizer-json")))]
#[path = "tokenizer_json_none.rs"]
mod tokenizer_json;
mod upload;
pub mod utf8;
mod vocabulary;
mod weights;
mod words;
mod yarn;

#[cfg(test)]
mod test_file;

pub use batch::class_of_batch;
pub use builder::{DEFAULT_CONTEXT, OnUpload, SessionBuilder};
pub use decoder::{BASE, CacheShape, DecoderInput, DecoderOutput, PAST, SEQ, TEXTS};
pub use embedder::{Embedder, EmbedderBuilder, cosine};
pub use generate::{Event, Finish, GenerateOptions, Generated, OnEvent};
pub use model::Model;
pub use perplexity::{OnWindow, Perplexity, PerplexityOptions};
pub use prefix::SavedPrefix;
pub use prompts::TextKind;
pub use recovery::{OnRecovery, Recovered, Recovery};
pub use sampler::{Sampler, Sampling};
pub use session::{MAX_SEQUENCES, Session};
pub use shape_buckets::{class_of, classes};
pub use step::{NextToken, Output, StepInput, StepOutput, StepRequest};
pub use stop::StopStrings;
