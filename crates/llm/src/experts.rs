//! Mixtures of experts: their hyperparameters.

use super::architecture::{Gate, Routing};
use super::config::{Keys, MAX_WIDTH};
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
    /// The function that makes weights of the router's logits.
    pub gate: Gate,
    /// Whether the weights of the chosen experts are divided by their sum.
    pub normalised: bool,
    /// Factor of the weights.
    pub scale: f32,
    /// Inner size of a network that computes every token beside the experts, by a gate of its own;
    /// `None` without one.
    pub shared_feed_forward: Option<usize>,
}

impl Experts {
    /// Reads the keys of a mixture of experts; `None` if the file has none.
    ///
    /// # Errors
    /// Unsupported for a mixture in an architecture without one, or of groups; bad file, naming file
    /// and key, for a value that is missing or out of range.
    pub(super) fn read(keys: &Keys<'_>) -> Result<Option<Experts>> {
        let name = "expert_count";
        let count = keys.file.find_u64(&keys.key(name))?.unwrap_or(0);
        let routing: Routing = match (keys.architecture.experts, count) {
            (None, 0) => return Ok(None),
            (None, n) => {
                return Err(keys.unsupported(name, format!("a mixture of {n} experts")));
            }
            (Some(routing), _) => routing,
        };
        let count = keys.count(name, MAX_EXPERTS)?;
        let active = keys.count("expert_used_count", count as u64)?;
        let bool_of = |name: &str| keys.file.find_bool(&keys.key(name));
        let shared_feed_forward = match routing.has_shared {
            true => Some(keys.count("expert_shared_feed_forward_length", MAX_WIDTH)?),
            false => None,
        };
        for (name, what) in [
            ("expert_shared_count", "shared experts"),
            ("expert_group_count", "groups of experts"),
            ("leading_dense_block_count", "leading layers without experts"),
        ] {
            let least = match name {
                "expert_group_count" => 1,
                "expert_shared_count" if routing.has_shared => 1,
                _ => 0,
            };
            match keys.file.find_u64(&keys.key(name))? {
                Some(n) if n > least => {
                    return Err(keys.unsupported(name, format!("{n} {what}")));
                }
                _ => {}
            }
        }
        let gate = match keys.file.find_u64(&keys.key("expert_gating_func"))? {
            None | Some(0) => routing.gate,
            Some(1) => Gate::Softmax,
            Some(2) => Gate::Sigmoid,
            Some(n) => {
                return Err(keys.unsupported("expert_gating_func", format!("gate {n}")));
            }
        };
        let scale = match keys.file.find_f32(&keys.key("expert_weights_scale"))? {
            None | Some(0.0) => 1.0,
            Some(_) => keys.number("expert_weights_scale", None, 0.0, 1e6)?,
        };
        Ok(Some(Experts {
            count,
            active,
            gate,
            normalised: bool_of("expert_weights_norm")?.unwrap_or(routing.normalises),
            scale: scale as f32,
            shared_feed_forward,
        }))
    }
}
