//! Mixtures of experts: their hyperparameters.

use super::architecture::{Gate, Routing, Sharing};
use super::config::{Keys, MAX_LAYERS, MAX_WIDTH};
use warploom::Result;

/// Maximum number of experts of a layer.
const MAX_EXPERTS: u64 = 1 << 12;

/// The hyperparameters of a mixture of experts.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Experts {
    /// Number of experts in each layer.
    pub count: usize,
    /// Number of experts that compute a token; at most `count`.
    pub active: usize,
    /// Inner size of the network of one expert, in elements.
    pub feed_forward: usize,
    /// Number of layers before the first one with experts.
    pub dense_layers: usize,
    /// The function that makes weights of the router's logits.
    pub gate: Gate,
    /// Whether the weights of the chosen experts are divided by their sum.
    pub normalised: bool,
    /// Factor of the weights.
    pub scale: f32,
    /// Whether a bias is added to the weights by which experts are chosen.
    pub has_selection_bias: bool,
    /// The network that computes every token beside the experts; `None` without one.
    pub shared: Option<SharedExpert>,
    /// Whether the feed-forward network computes every token too.
    pub is_beside: bool,
}

/// A network that computes every token beside a mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedExpert {
    /// Inner size, in elements.
    pub feed_forward: usize,
    /// Whether its result is multiplied by a gate.
    pub gated: bool,
}

impl Experts {
    /// Reads the keys of a mixture of experts; `None` if the file has none.
    ///
    /// # Errors
    /// Unsupported for a mixture in an architecture without one, of groups, or not in every layer;
    /// bad file, naming file and key, for a value that is missing or out of range.
    pub(super) fn read(keys: &Keys<'_>) -> Result<Option<Experts>> {
        let name = "expert_count";
        let count = keys.file.find_u64(&keys.key(name))?.unwrap_or(0);
        let routing: Routing = match (keys.architecture.experts, count) {
            (None, 0) => return Ok(None),
            (None, n) => {
                return Err(keys.unsupported(name, format!("a mixture of {n} experts")));
            }
            (Some(routing), 0) if routing.is_beside => return Ok(None),
            (Some(routing), _) => routing,
        };
        let count = keys.count(name, MAX_EXPERTS)?;
        let active = keys.count("expert_used_count", count as u64)?;
        for (name, what) in [
            ("expert_group_count", "groups of experts"),
            ("interleave_moe_layer_step", "layers between those with experts"),
        ] {
            match keys.file.find_u64(&keys.key(name))? {
                Some(n) if n > 1 => return Err(keys.unsupported(name, format!("{n} {what}"))),
                _ => {}
            }
        }
        let name = "leading_dense_block_count";
        let dense_layers = match keys.file.find_u64(&keys.key(name))? {
            None | Some(0) => 0,
            Some(_) => keys.count(name, MAX_LAYERS)?,
        };
        let gate = match keys.file.find_u64(&keys.key("expert_gating_func"))? {
            None | Some(0) => routing.gate,
            Some(1) => Gate::Softmax,
            Some(2) => Gate::Sigmoid,
            // Softmax of the chosen experts alone.
            Some(3) if routing.normalises => Gate::Softmax,
            Some(n) => {
                return Err(keys.unsupported("expert_gating_func", format!("gate {n}")));
            }
        };
        let scale = match keys.file.find_f32(&keys.key("expert_weights_scale"))? {
            None | Some(0.0) => 1.0,
            Some(_) => keys.number("expert_weights_scale", None, 0.0, 1e6)?,
        };
        let normalised = keys.file.find_bool(&keys.key("expert_weights_norm"))?;
        let feed_forward = keys.count("expert_feed_forward_length", MAX_WIDTH)?;
        Ok(Some(Experts {
            count,
            active,
            feed_forward,
            dense_layers,
            gate,
            normalised: normalised.unwrap_or(routing.normalises),
            scale: scale as f32,
            has_selection_bias: routing.has_selection_bias,
            is_beside: routing.is_beside,
            shared: shared(keys, routing.shared, feed_forward)?,
        }))
    }
}

/// Reads the keys of the network beside experts whose inner size is `feed_forward`.
fn shared(keys: &Keys<'_>, sharing: Sharing, feed_forward: usize) -> Result<Option<SharedExpert>> {
    let count = "expert_shared_count";
    let experts = keys.file.find_u64(&keys.key(count))?.unwrap_or(0);
    let gated = match sharing {
        Sharing::None if experts == 0 => return Ok(None),
        Sharing::None => {
            return Err(keys.unsupported(count, format!("{experts} shared experts")));
        }
        Sharing::Plain => false,
        Sharing::Gated => true,
    };
    let size = "expert_shared_feed_forward_length";
    let feed_forward = match keys.find_count(size, MAX_WIDTH)? {
        Some(size) => size,
        // Several shared experts are one wider network.
        None if !gated => keys.count(count, MAX_WIDTH / feed_forward as u64)? * feed_forward,
        None => return Err(keys.bad(size, "the key is missing".into())),
    };
    Ok(Some(SharedExpert { feed_forward, gated }))
}
