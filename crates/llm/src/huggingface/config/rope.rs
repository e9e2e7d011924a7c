//! Converts the scaling of rotary frequencies to GGUF metadata and tensors.

use super::{Config, Scaling, missing};
use crate::yarn;
use warploom::{Error, Result};
use warploom_models::gguf::{Value, Writer};

impl Config {
    /// Writes the keys of YaRN, with the defaults of `transformers`.
    pub(super) fn describe_yarn(
        &self,
        scaling: &Scaling,
        arch: &str,
        name: &str,
        to: &mut Writer,
    ) -> Result<()> {
        let positions = self.max_position_embeddings;
        let original = scaling.original_max_position_embeddings.unwrap_or(positions);
        let factor = scaling.factor.unwrap_or(positions as f64 / original.max(1) as f64);
        let set = |number: Option<f64>| number.filter(|number| *number != 0.0);
        let attention =
            match (scaling.attention_factor, set(scaling.mscale), set(scaling.mscale_all_dim)) {
                (Some(given), ..) => given,
                (None, Some(by), Some(all)) => {
                    yarn::magnitude(factor, by) / yarn::magnitude(factor, all)
                }
                (None, ..) => yarn::magnitude(factor, 1.0),
            };
        let original = u32::try_from(original).map_err(|_| {
            let field = "original_max_position_embeddings";
            Error::bad_file(format!("{name}: rope_scaling: {field}: {original} is too large"))
        })?;
        let (fast, slow) = (set(scaling.beta_fast), set(scaling.beta_slow));
        let borders = (fast.unwrap_or(yarn::BETA_FAST), slow.unwrap_or(yarn::BETA_SLOW));
        if borders.0 < borders.1 {
            let (fast, slow) = borders;
            return Err(Error::bad_file(format!(
                "{name}: rope_scaling: beta_fast {fast} is below beta_slow {slow}"
            )));
        }
        let key = |key: &str| format!("{arch}.rope.scaling.{key}");
        to.key(&key("type"), Value::String("yarn"))?;
        to.key(&key("original_context_length"), Value::U32(original))?;
        let numbers = [
            ("factor", Some(factor)),
            // Readers multiply by the magnitude that follows from the factor, so divide by it.
            ("attn_factor", Some(attention / yarn::magnitude(factor, 1.0))),
            ("yarn_beta_fast", fast),
            ("yarn_beta_slow", slow),
        ];
        for (name, number) in numbers {
            if let Some(number) = number {
                to.key(&key(name), Value::F32(number as f32))?;
            }
        }
        if scaling.truncate == Some(false) {
            to.key(&key("yarn_truncate"), Value::Bool(false))?;
        }
        Ok(())
    }

    /// Returns the divisors of the rotary frequencies, `[rope_dim / 2]`, for Llama 3's scaling, or
    /// `None` for scalings without divisors.
    ///
    /// # Errors
    /// Unsupported for an unknown scaling; bad file if a value is missing or invalid.
    pub(in crate::huggingface) fn rope_factors(&self, folder: &str) -> Result<Option<Vec<f32>>> {
        let name = format!("{folder}: config.json");
        let scaling = self.scaling();
        let tempers = self.names().and_then(|names| names.architecture())?.tempers;
        scaling.check(&name, tempers)?;
        match scaling.name() {
            None | Some("default" | "linear" | "yarn") => return Ok(None),
            Some("llama3") => {}
            Some(other) => {
                return Err(Error::unsupported(format!(
                    "{name}: rope_type {other:?} is not supported; known: default, linear, \
                     llama3, yarn"
                )));
            }
        }
        let given = |field: &str, value: Option<f64>| value.ok_or_else(|| missing(&name, field));
        let factor = given("factor", scaling.factor)?;
        let low = given("low_freq_factor", scaling.low_freq_factor)?;
        let high = given("high_freq_factor", scaling.high_freq_factor)?;
        let context = scaling.original_max_position_embeddings.map(|n| n as f64);
        let context = given("original_max_position_embeddings", context)?;
        if !(factor > 0.0 && high > low) {
            let what = format!("factor {factor}, low_freq_factor {low}, high_freq_factor {high}");
            return Err(Error::bad_file(format!("{name}: rope_scaling: {what}")));
        }
        let (dim, base) = (self.rope_dim(), self.rope_theta(self.names()?));
        // Heads have a few hundred elements; the limit bounds the allocation.
        if dim > 1 << 16 {
            return Err(Error::bad_file(format!("{name}: head_dim: {dim} is too large")));
        }
        let divisor = |i: u64| {
            // Number of turns within the original context.
            let frequency = base.powf(-2.0 * i as f64 / dim as f64);
            let turns = context * frequency / std::f64::consts::TAU;
            let smooth = ((turns - low) / (high - low)).clamp(0.0, 1.0);
            (1.0 / ((1.0 - smooth) / factor + smooth)) as f32
        };
        Ok(Some((0..dim / 2).map(divisor).collect()))
    }
}
