//! Reads what only some architectures have, and refuses what none of them computes.

use super::config::{
    EmbeddingParts, Keys, MAX_CONTEXT, MAX_LAYERS, MAX_WIDTH, Rotated, Window, Windows,
};
use super::layer_sizes::irregular;
use warploom::{Error, Result};
use warploom_models::gguf::Value;

/// Maximum number of token types; BERT has 2.
const MAX_TYPES: u64 = 1 << 10;
/// Name of a tensor that only longrope models have; longrope is not supported.
pub(super) const LONG_ROPE_FACTORS: &str = "rope_factors_long.weight";

impl Keys<'_> {
    /// Reads the window; `None` if there is none or it is at least as long as the context, so that
    /// it has no effect.
    pub(super) fn window(&self, context: usize, layers: usize) -> Result<Option<Window>> {
        let name = "attention.sliding_window";
        // Files without a window have 0 or no key.
        let size = match (self.file.find_u64(&self.key(name))?, self.architecture.default_window) {
            (None, Some(size)) => size as usize,
            (None | Some(0), None) if !self.architecture.varies => return Ok(None),
            _ => self.count(name, MAX_CONTEXT)?,
        };
        // Tokens of an encoder see half of the window on both sides.
        let reach = if self.architecture.encodes { size / 2 + 1 } else { size };
        // Layers with a window have other frequencies, and maybe other heads, however long it is.
        if reach >= context && self.architecture.local_rope_base.is_none() {
            return Ok(None);
        }
        let period = match self.architecture.windows {
            Windows::None => {
                return Err(self.unsupported(name, format!("a window of {size} keys")));
            }
            Windows::Every => None,
            Windows::AllBut(period) => Some(self.window_period(period, layers)?),
        };
        Ok(Some(Window { size: size as u32, period }))
    }

    /// Returns `n` if every `n`-th layer, counted from 1, has no window: a number in the file, or what
    /// its list of layers says.
    fn window_period(&self, usual: usize, layers: usize) -> Result<usize> {
        let name = "attention.sliding_window_pattern";
        let Some(Value::Array(_)) = self.file.value(&self.key(name)) else {
            return Ok(self.find_count(name, MAX_LAYERS)?.unwrap_or(usual));
        };
        let slides = self.layer_counts(name, layers, [0, 1])?.unwrap_or_default();
        let period = slides.iter().position(|slides| *slides == 0).unwrap_or(layers) + 1;
        let regular =
            |(layer, slides): (usize, &usize)| (*slides == 0) == (layer + 1).is_multiple_of(period);
        match slides.iter().enumerate().all(regular) {
            true => Ok(period),
            false => Err(irregular(self, name, period)),
        }
    }

    /// Reads a soft cap, if the architecture has it; 0 as its default is none.
    pub(super) fn soft_cap(&self, name: &str, default: Option<f64>) -> Result<Option<f32>> {
        let Some(default) = default else { return Ok(None) };
        let given = self.file.find_f32(&self.key(name))?;
        if given.is_none() && default == 0.0 {
            return Ok(None);
        }
        self.number(name, Some(default), 0.0, 1e6).map(|cap| Some(cap as f32))
    }

    /// Returns the factor of the embedding, that of what each layer adds, and the divisor of the
    /// logits.
    pub(super) fn scales(&self, width: usize) -> Result<[f32; 3]> {
        let root = if self.architecture.scales_embedding { (width as f64).sqrt() } else { 1.0 };
        if !self.architecture.has_scales {
            return Ok([root as f32, 1.0, 1.0]);
        }
        // Files without a factor have 0 or no key.
        let factor = |name: &str| match self.file.find_f32(&self.key(name))? {
            None | Some(0.0) => Ok(1.0),
            Some(_) => self.number(name, None, 0.0, 1e6).map(|n| n as f32),
        };
        Ok([factor("embedding_scale")?, factor("residual_scale")?, factor("logit_scale")?])
    }

    /// Returns the number of rows of `token_types`, of which the first is used; 0 for an architecture
    /// without token types.
    pub(super) fn token_types(&self, width: usize) -> Result<usize> {
        if self.architecture.embedding == EmbeddingParts::None {
            return Ok(0);
        }
        let info = self.file.tensor("token_types.weight")?;
        match *info.shape() {
            [rows @ 1..=MAX_TYPES, columns] if columns == width as u64 => Ok(rows as usize),
            ref shape => Err(Error::bad_file(format!(
                "{}: tensor token_types.weight has shape {shape:?}, not [types, {width}] with 1 to \
                 {MAX_TYPES} types",
                self.file.name()
            ))),
        }
    }

    /// Reads the sizes of the dense layers after the vector of a text, `[results, operands]` each.
    pub(super) fn dense(&self, width: usize) -> Result<Vec<[usize; 2]>> {
        let mut layers: Vec<[usize; 2]> = Vec::new();
        if !self.architecture.dense {
            return Ok(layers);
        }
        for layer in ["dense_2", "dense_3"] {
            let (inner, outer) = (format!("{layer}_feat_in"), format!("{layer}_feat_out"));
            let Some(operands) = self.find_count(&inner, MAX_WIDTH)? else { break };
            let before = layers.last().map_or(width, |[results, _]| *results);
            if operands != before {
                let what = format!("{operands}, but the vector before it has {before} elements");
                return Err(self.bad(&inner, what));
            }
            layers.push([self.count(&outer, MAX_WIDTH)?, operands]);
        }
        Ok(layers)
    }

    /// Returns which layers do not rotate queries and keys, as [`Config::unrotated_period`] has it.
    pub(super) fn unrotated_period(&self, layers: usize) -> Result<Option<usize>> {
        let window = self.file.find_u64(&self.key("attention.sliding_window"))?;
        match (self.architecture.rotated, self.architecture.windows) {
            (Rotated::All, _) => Ok(None),
            // Every layer.
            (Rotated::None, _) => Ok(Some(1)),
            (Rotated::AllBut(period), _) => Ok(Some(period)),
            (Rotated::Windowed, Windows::AllBut(period)) if window.is_some_and(|n| n > 0) => {
                self.window_period(period, layers).map(Some)
            }
            (Rotated::Windowed, _) => Ok(None),
        }
    }

    /// Refuses variants of the supported architectures that need a different forward pass.
    pub(super) fn refuse_what_is_not_done(&self) -> Result<()> {
        // The values at which these keys have no effect.
        let neutral = [
            ("final_logit_softcapping", 0.0, "a soft cap of logits"),
            ("attn_logit_softcapping", 0.0, "a soft cap of scores"),
            ("rope.scaling.attn_factor", 1.0, "a factor on rotated heads"),
        ];
        let is_yarn = self.file.find_str(&self.key("rope.scaling.type"))? == Some("yarn");
        for (name, neutral, what) in neutral {
            let done = match name {
                "rope.scaling.attn_factor" => is_yarn,
                "final_logit_softcapping" => self.architecture.logit_cap.is_some(),
                _ => self.architecture.score_cap.is_some(),
            };
            if done {
                continue;
            }
            match self.file.find_f32(&self.key(name))? {
                Some(n) if n != neutral => {
                    return Err(self.unsupported(name, format!("{what}, {n}")));
                }
                _ => {}
            }
        }
        let (causal, encodes) = ("attention.causal", self.architecture.encodes);
        if self.file.find_bool(&self.key(causal))?.is_some_and(|causal| causal == encodes) {
            return Err(self.unsupported(causal, format!("{encodes} of this architecture")));
        }
        match self.file.find_tensor(LONG_ROPE_FACTORS) {
            None => Ok(()),
            Some(info) => Err(Error::unsupported(format!(
                "{}: tensor {LONG_ROPE_FACTORS} at offset {}: factors of rotary frequencies that \
                 depend on the length of the text (longrope) are not supported",
                self.file.name(),
                info.file_offset()
            ))),
        }
    }
}

#[cfg(test)]
#[path = "config_variants_tests.rs"]
mod tests;
