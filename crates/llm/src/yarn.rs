//! YaRN: scales rotary frequencies for longer contexts. Low frequencies are divided by a factor,
//! high ones are kept, and queries and keys are enlarged to compensate.

use super::config::{Keys, MAX_CONTEXT};
use warploom::Result;

/// Turns within the original context above which a frequency is kept, if the file names none.
pub(crate) const BETA_FAST: f64 = 32.0;
/// Turns below which a frequency is divided by the factor, if the file names none.
pub(crate) const BETA_SLOW: f64 = 1.0;

/// The YaRN parameters of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Yarn {
    /// Ratio of the new context to the original; above 0.
    pub factor: f64,
    /// Context of the model before scaling, in tokens.
    pub original_context: f64,
    /// Frequencies that make more than this many turns in the original context are kept.
    pub beta_fast: f64,
    /// Frequencies that make fewer than this many turns are divided by `factor`.
    pub beta_slow: f64,
    /// Share of the unscaled value in the frequencies that are kept, from 0 to 1; the rest is the
    /// divided value.
    pub extrapolation: f64,
    /// Factor that multiplies both rotated queries and rotated keys.
    pub attention: f64,
    /// Whether the two ends of the transition between the ranges, as indices of pairs, are rounded
    /// outwards to integers.
    pub truncate: bool,
}

/// Returns the magnitude correction for a scaling factor: a formula that the method's authors
/// fitted to measurements. `by` multiplies the logarithm of the factor.
pub(super) fn magnitude(factor: f64, by: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * by * factor.ln() + 1.0 }
}

impl Yarn {
    /// Returns the scaled frequency of pair `pair` out of `dim / 2`. `plain` is the unscaled
    /// frequency, and `base` the base of all frequencies.
    pub(super) fn apply(&self, base: f64, dim: usize, pair: usize, plain: f64) -> f64 {
        let [low, high] = self.borders(base, dim);
        let ramp = ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
        let kept = (1.0 - ramp) * self.extrapolation;
        plain / self.factor * (1.0 - kept) + plain * kept
    }

    /// Returns the indices of the first and last pair of the range over which frequencies change
    /// from kept to divided. They may be fractional.
    fn borders(&self, base: f64, dim: usize) -> [f64; 2] {
        let dim = dim as f64;
        let pair = |turns: f64| {
            let wave = self.original_context / (turns * std::f64::consts::TAU);
            dim * wave.ln() / (2.0 * base.ln())
        };
        let (low, high) = (pair(self.beta_fast), pair(self.beta_slow));
        let (low, high) = if self.truncate { (low.floor(), high.ceil()) } else { (low, high) };
        [low.max(0.0), high.min(dim - 1.0)]
    }
}

/// Reads the parameters of YaRN from llama.cpp's keys and from `yarn_truncate`, an extension of
/// this crate. `context` is the default of the original context; `rotates_all` is whether heads are
/// rotated as a whole.
pub(super) fn read(
    keys: &Keys<'_>,
    context: usize,
    rotates_all: bool,
    factor: f64,
) -> Result<Yarn> {
    let original = keys.find_count("rope.scaling.original_context_length", MAX_CONTEXT)?;
    let number = |name: &str, default: f64, low: f64, high: f64| {
        keys.number(&format!("rope.scaling.{name}"), Some(default), low, high)
    };
    // These keys may also be 0.
    let or_zero = |name: &str, default: f64, high: f64| {
        let key = keys.key(&format!("rope.scaling.{name}"));
        match keys.file.find_f32(&key)? {
            Some(0.0) => Ok(0.0),
            _ => number(name, default, 0.0, high),
        }
    };
    let extrapolation = or_zero("yarn_ext_factor", 1.0, 1.0)?;
    let has_multiplier = keys.file.value_at(&keys.key("rope.scaling.yarn_log_multiplier"));
    let multiplier = match has_multiplier {
        None => 0.0,
        Some(_) => or_zero("yarn_log_multiplier", 0.0, 1e3)?,
    };
    let cost = match (extrapolation == 0.0, multiplier == 0.0) {
        (true, _) => 1.0,
        (false, true) => magnitude(factor, 1.0),
        (false, false) => magnitude(factor, 1.0) / magnitude(factor, multiplier),
    };
    let attention = cost * number("attn_factor", 1.0, 0.0, 1e3)?;
    if number("yarn_attn_factor", 1.0, 0.0, 1e3)? != 1.0 {
        let name = "rope.scaling.yarn_attn_factor";
        return Err(keys.unsupported(name, "a second factor on rotated heads".into()));
    }
    if attention != 1.0 && !rotates_all {
        let what = "YaRN in a part of a head that its factor does not cover".into();
        return Err(keys.unsupported("rope.dimension_count", what));
    }
    let truncate = keys.file.find_bool(&keys.key("rope.scaling.yarn_truncate"))?;
    Ok(Yarn {
        factor,
        original_context: original.unwrap_or(context) as f64,
        beta_fast: number("yarn_beta_fast", BETA_FAST, 0.0, 1e6)?,
        beta_slow: number("yarn_beta_slow", BETA_SLOW, 0.0, 1e6)?,
        extrapolation,
        attention,
        truncate: truncate.unwrap_or(keys.architecture.rounds_yarn),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, RopeScaling};
    use crate::test_file::{Entry, gguf};
    use serde_json::Value as Json;

    const SHAPES: [(&str, &[u64]); 1] = [("token_embd.weight", &[8, 64])];

    /// Reads the config of a llama model with heads of size 32 and these keys.
    fn config(keys: &[(&'static str, Entry)]) -> Result<Config> {
        let mut all = vec![
            ("general.architecture", Entry::Text("llama")),
            ("llama.block_count", Entry::Integer(1)),
            ("llama.context_length", Entry::Integer(4096)),
            ("llama.embedding_length", Entry::Integer(64)),
            ("llama.feed_forward_length", Entry::Integer(64)),
            ("llama.attention.head_count", Entry::Integer(2)),
            ("llama.attention.layer_norm_rms_epsilon", Entry::Float(1e-5)),
            ("llama.rope.scaling.type", Entry::Text("yarn")),
        ];
        all.extend_from_slice(keys);
        Config::from_gguf(&gguf(&all, &SHAPES))
    }

    /// Frequencies and factors match those of `transformers` (`tests/golden/rope`) for keys as
    /// converted from the config of a folder.
    #[test]
    fn frequencies_are_those_of_the_library() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/rope/yarn.json");
        let golden: Json = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let rows = golden.as_array().unwrap();
        assert!(rows.len() >= 8);
        for row in rows {
            let given = &row["rope_parameters"];
            let get = |key: &str| given[key].as_f64();
            let original = || get("original_max_position_embeddings").unwrap();
            let factor = get("factor").unwrap_or_else(|| 4096.0 / original());
            let attention = row["attention_factor"].as_f64().unwrap();
            let mut keys = vec![
                ("llama.rope.freq_base", Entry::Float(get("rope_theta").unwrap() as f32)),
                ("llama.rope.scaling.factor", Entry::Float(factor as f32)),
                (
                    "llama.rope.scaling.attn_factor",
                    Entry::Float((attention / magnitude(factor, 1.0)) as f32),
                ),
            ];
            if let Some(original) = given["original_max_position_embeddings"].as_u64() {
                keys.push(("llama.rope.scaling.original_context_length", Entry::Integer(original)));
            }
            for (theirs, ours) in [
                ("beta_fast", "llama.rope.scaling.yarn_beta_fast"),
                ("beta_slow", "llama.rope.scaling.yarn_beta_slow"),
            ] {
                keys.extend(get(theirs).map(|number| (ours, Entry::Float(number as f32))));
            }
            if given["truncate"] == false {
                keys.push(("llama.rope.scaling.yarn_truncate", Entry::Bool(false)));
            }
            let config = config(&keys).unwrap();
            let got = config.rope_frequencies(None).unwrap();
            let want: Vec<f64> = serde_json::from_value(row["inv_freq"].clone()).unwrap();
            assert_eq!(got.len(), want.len());
            for (got, want) in got.iter().zip(&want) {
                assert!(
                    (f64::from(*got) - want).abs() <= want * 2e-6,
                    "{given}: {got}, want {want}"
                );
            }
            let scale = f64::from(config.scale(0)) * 32f64.sqrt();
            assert!((scale - attention * attention).abs() < 1e-5, "{given}: {scale}");
        }
    }

    #[test]
    fn keys_of_llama_cpp_say_the_factor() {
        let attention = |keys: &[(&'static str, Entry)]| {
            let mut all = vec![("llama.rope.scaling.factor", Entry::Float(4.0))];
            all.extend_from_slice(keys);
            match config(&all).unwrap().rope_scaling {
                RopeScaling::Yarn(yarn) => yarn.attention,
                other => panic!("{other:?}"),
            }
        };
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-6, "{a}, want {b}");
        let plain = 1.0 + 0.1 * 4f64.ln();
        near(attention(&[]), plain);
        near(attention(&[("llama.rope.scaling.attn_factor", Entry::Float(0.5))]), plain / 2.0);
        let by = ("llama.rope.scaling.yarn_log_multiplier", Entry::Float(0.5));
        near(attention(&[by]), plain / (1.0 + 0.05 * 4f64.ln()));
        near(attention(&[("llama.rope.scaling.yarn_ext_factor", Entry::Float(0.0))]), 1.0);
        // With extrapolation 0, all frequencies are divided.
        let keys = [
            ("llama.rope.scaling.factor", Entry::Float(4.0)),
            ("llama.rope.scaling.yarn_ext_factor", Entry::Float(0.0)),
        ];
        let flat = config(&keys).unwrap().rope_frequencies(None).unwrap();
        assert_eq!(flat[0], 0.25);

        let wrong = [
            ("llama.rope.scaling.factor", Entry::Float(-1.0), "factor"),
            ("llama.rope.scaling.yarn_beta_fast", Entry::Float(0.0), "yarn_beta_fast"),
            ("llama.rope.scaling.yarn_ext_factor", Entry::Float(2.0), "yarn_ext_factor"),
            ("llama.rope.scaling.yarn_attn_factor", Entry::Float(2.0), "yarn_attn_factor"),
            ("llama.rope.dimension_count", Entry::Integer(16), "dimension_count"),
        ];
        for (key, value, words) in wrong {
            let mut keys = vec![(key, value)];
            if words != "factor" {
                keys.push(("llama.rope.scaling.factor", Entry::Float(4.0)));
            }
            let error = config(&keys).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
