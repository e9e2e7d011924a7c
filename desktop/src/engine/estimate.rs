//! The memory of a model, before it is loaded.

use warploom::graph::computing_in;
use warploom::plan::{Plan, SlotRole};
use warploom::runtime::Runtime;
use warploom::{Error, Result};
use warploom_llm::chat::Template;
use warploom_llm::{CacheShape, DecoderInput, DecoderOutput, Model, Session, classes};

use super::Place;

/// The memory that a model needs on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Size of the file in bytes.
    pub file: u64,
    /// Bytes of the weights.
    pub weights: u64,
    /// Bytes of the KV cache.
    pub cache: u64,
    /// Bytes of the intermediates of the largest run.
    pub arena: u64,
    /// Positions of the KV cache.
    pub context: usize,
    /// Name of the device.
    pub device: String,
    /// Memory of the device, if it reports it.
    pub available: Option<u64>,
    /// Whether the model can answer messages; otherwise it continues a text.
    pub chats: bool,
}

impl Estimate {
    /// Returns whether it fits; `None` if the device does not report its memory.
    pub fn fits(&self) -> Option<bool> {
        let need = self.weights.saturating_add(self.cache).saturating_add(self.arena);
        self.available.map(|available| need <= available)
    }

    /// Estimates a model on the device of a runtime, from the head of its file.
    ///
    /// # Errors
    /// Errors of planning.
    pub fn of(model: &Model, place: &Place, runtime: &Runtime) -> Result<Estimate> {
        let profile = runtime.device().profile();
        let mode = place.compute().unwrap_or_else(|| Session::default_mode(profile));
        let dtype = Session::default_cache(mode);
        let context = place.context_of(model);
        let shape = CacheShape::new(1, context, dtype);
        let graph =
            model.graph_on(profile.kind, shape, DecoderInput::Tokens, DecoderOutput::Sample)?;
        let graph = computing_in(&graph, mode)?;
        let class = classes(context).into_iter().next_back();
        let class = class.ok_or_else(|| Error::invalid("a context of 0 positions"))?;
        let plan = Plan::new(&graph, &class, profile, &runtime.plan_options())?;
        let resident = |role: &SlotRole| {
            matches!(role, SlotRole::Weight(_) | SlotRole::Merged(_) | SlotRole::State(_))
        };
        let slots = plan.slots.iter().zip(&plan.recording.slots);
        let arena = slots.filter(|(role, _)| !resident(role)).map(|(_, slot)| slot.bytes).sum();
        let budget = runtime.pool().budget();
        Ok(Estimate {
            file: model.file().file_bytes(),
            weights: model.weight_bytes(),
            cache: model.cache_bytes_per_token(dtype) * context as u64,
            arena,
            context,
            device: profile.name.clone(),
            available: budget.or(Some(profile.memory_bytes).filter(|bytes| *bytes > 0)),
            chats: Template::of(model).is_ok(),
        })
    }
}
