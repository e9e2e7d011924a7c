//! `generation_config.json`: a model's default generation settings.

use std::path::Path;

use serde_json::{Map, Value as Json};

use super::config::{Config, Ids};
use super::json;
use crate::vocabulary::END_TOKENS;
use warploom::{Error, Result};
use warploom_models::gguf::{Value, Writer};

const FILE: &str = "generation_config.json";

/// How a key is handled.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Use {
    /// Token ids, merged with those of `config.json`.
    Ids,
    /// A sampling default. It is written to the GGUF file under this key, for programs that read
    /// defaults there. The defaults of this library and its command line do not depend on the
    /// model: opening a model does not change the default of `--temperature`.
    Sampling(&'static str),
    /// Has no effect on the text that this library generates.
    NoEffect,
    /// Would change the text and is not supported: refused unless it has one of these values.
    Refused(&'static [Neutral]),
}

/// A value for which a key has no effect.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Neutral {
    Number(f64),
    Empty,
    False,
}

use Neutral::{Empty, False, Number};

/// Every key that `transformers` 5.24 reads. Other keys have no effect, there or here.
const KEYS: [(&str, Use); 70] = [
    ("max_length", Use::NoEffect),
    ("max_new_tokens", Use::NoEffect),
    ("min_length", Use::Refused(&[Number(0.0)])),
    ("min_new_tokens", Use::Refused(&[Number(0.0)])),
    ("early_stopping", Use::NoEffect),
    ("max_time", Use::NoEffect),
    ("stop_strings", Use::Refused(&[Empty])),
    ("do_sample", Use::NoEffect),
    ("num_beams", Use::Refused(&[Number(1.0)])),
    ("use_mtp", Use::NoEffect),
    ("use_cache", Use::NoEffect),
    ("cache_implementation", Use::NoEffect),
    ("cache_config", Use::NoEffect),
    ("max_cache_len", Use::NoEffect),
    ("temperature", Use::Sampling("general.sampling.temp")),
    ("top_k", Use::Sampling("general.sampling.top_k")),
    ("top_p", Use::Sampling("general.sampling.top_p")),
    ("min_p", Use::Sampling("general.sampling.min_p")),
    ("top_h", Use::Refused(&[])),
    ("typical_p", Use::Refused(&[Number(1.0)])),
    ("epsilon_cutoff", Use::Refused(&[Number(0.0)])),
    ("eta_cutoff", Use::Refused(&[Number(0.0)])),
    ("repetition_penalty", Use::Sampling("general.sampling.penalty_repeat")),
    ("encoder_repetition_penalty", Use::Refused(&[Number(1.0)])),
    ("length_penalty", Use::NoEffect),
    ("no_repeat_ngram_size", Use::Refused(&[Number(0.0)])),
    ("bad_words_ids", Use::Refused(&[Empty])),
    ("renormalize_logits", Use::NoEffect),
    ("forced_bos_token_id", Use::Refused(&[])),
    ("forced_eos_token_id", Use::Refused(&[])),
    ("remove_invalid_values", Use::NoEffect),
    ("exponential_decay_length_penalty", Use::Refused(&[])),
    ("suppress_tokens", Use::Refused(&[Empty])),
    ("begin_suppress_tokens", Use::Refused(&[Empty])),
    ("sequence_bias", Use::Refused(&[Empty])),
    ("token_healing", Use::Refused(&[False])),
    ("guidance_scale", Use::Refused(&[Number(1.0)])),
    ("watermarking_config", Use::Refused(&[])),
    ("num_return_sequences", Use::NoEffect),
    ("output_attentions", Use::NoEffect),
    ("output_hidden_states", Use::NoEffect),
    ("output_scores", Use::NoEffect),
    ("output_logits", Use::NoEffect),
    ("return_dict_in_generate", Use::NoEffect),
    ("pad_token_id", Use::Ids),
    ("bos_token_id", Use::Ids),
    ("eos_token_id", Use::Ids),
    ("encoder_no_repeat_ngram_size", Use::Refused(&[Number(0.0)])),
    ("decoder_start_token_id", Use::NoEffect),
    ("is_assistant", Use::NoEffect),
    ("num_assistant_tokens", Use::NoEffect),
    ("num_assistant_tokens_schedule", Use::NoEffect),
    ("assistant_confidence_threshold", Use::NoEffect),
    ("prompt_lookup_num_tokens", Use::NoEffect),
    ("max_matching_ngram_size", Use::NoEffect),
    ("assistant_early_exit", Use::NoEffect),
    ("assistant_lookbehind", Use::NoEffect),
    ("target_lookbehind", Use::NoEffect),
    ("assistant_ensemble_weight", Use::NoEffect),
    ("speculation_type", Use::NoEffect),
    ("compile_config", Use::NoEffect),
    ("disable_compile", Use::NoEffect),
    ("continuous_batching_config", Use::NoEffect),
    ("low_memory", Use::NoEffect),
    ("penalty_alpha", Use::Refused(&[Number(0.0)])),
    ("dola_layers", Use::Refused(&[])),
    ("diversity_penalty", Use::Refused(&[Number(0.0)])),
    ("num_beam_groups", Use::Refused(&[Number(1.0)])),
    ("constraints", Use::Refused(&[Empty])),
    ("force_words_ids", Use::Refused(&[Empty])),
];

/// Further keys without effect on the text: chunked prefill and the file's origin.
const OF_THE_FILE: [&str; 4] =
    ["prefill_chunk_size", "_from_model_config", "transformers_version", "_commit_hash"];

/// The contents of the file that are used.
#[derive(Debug, Default)]
pub(super) struct Generation {
    pub(super) bos: Option<u32>,
    pub(super) pad: Option<u32>,
    /// Ids of the tokens that end an answer.
    ends: Vec<u32>,
    sampling: Vec<(&'static str, f64)>,
}

/// Reads the file if the folder has one; returns no settings otherwise.
///
/// # Errors
/// Io if the file cannot be read; bad file, naming file and key, for a value of the wrong type;
/// unsupported, naming the key, for an unsupported setting that would change the text.
pub(super) fn read(folder: &Path) -> Result<Generation> {
    let path = folder.join(FILE);
    match path.exists() {
        true => of(&json(&path)?, &path.display().to_string()),
        false => Ok(Generation::default()),
    }
}

fn of(file: &Map<String, Json>, name: &str) -> Result<Generation> {
    let mut made = Generation::default();
    for (key, value) in file {
        let known = KEYS.iter().find(|(known, _)| known == key).map(|(_, what)| *what);
        let Some(what) = known.filter(|_| !value.is_null()) else {
            if known.is_none() && !OF_THE_FILE.contains(&key.as_str()) {
                tracing::warn!("{name}: {key:?}: unknown, has no effect");
            }
            continue;
        };
        let bad = |what: &str| Error::bad_file(format!("{name}: {key}: {value:.60}: {what}"));
        match what {
            Use::NoEffect => {}
            Use::Ids => {
                let ids: Ids = serde_json::from_value(value.clone())
                    .map_err(|_| bad("neither an id nor a list of ids"))?;
                match key.as_str() {
                    "eos_token_id" => made.ends = ids.all().to_vec(),
                    "bos_token_id" => made.bos = ids.all().first().copied(),
                    _ => made.pad = ids.all().first().copied(),
                }
            }
            Use::Sampling(ours) => {
                let (fits, what): (fn(f64) -> bool, _) = match key.as_str() {
                    "top_p" | "min_p" => (|n| (0.0..=1.0).contains(&n), "not a number from 0 to 1"),
                    "top_k" => (
                        |n| n.fract() == 0.0 && (0.0..=f64::from(i32::MAX)).contains(&n),
                        "not a whole number from 0 on",
                    ),
                    "repetition_penalty" => {
                        (|n| n as f32 > 0.0 && (n as f32).is_finite(), "not a number above 0")
                    }
                    _ => (|n| n >= 0.0 && (n as f32).is_finite(), "not a number of 0 or more"),
                };
                let number = value.as_f64().filter(|n| fits(*n));
                made.sampling.push((ours, number.ok_or_else(|| bad(what))?));
            }
            Use::Refused(neutral) => {
                let changes_nothing = neutral.iter().any(|neutral| match neutral {
                    Number(number) => value.as_f64() == Some(*number),
                    Empty => {
                        value.as_array().is_some_and(Vec::is_empty)
                            || value.as_object().is_some_and(Map::is_empty)
                    }
                    False => value == &Json::Bool(false),
                });
                if !changes_nothing {
                    return Err(Error::unsupported(format!(
                        "{name}: {key}: {value:.60} is not supported"
                    )));
                }
            }
        }
    }
    Ok(made)
}

impl Generation {
    /// Writes the keys of the end tokens, the padding token and sampling, and returns the first end
    /// id. `eos` is the end id of the tokenizer's own file, `tokens` the size of the vocabulary.
    ///
    /// # Errors
    /// Bad file, naming file and field, for an id outside the vocabulary.
    pub(super) fn describe(
        &self,
        config: &Config,
        eos: Option<u32>,
        tokens: usize,
        to: &mut Writer,
    ) -> Result<Option<u32>> {
        let of_config = config.eos_token_id.as_ref().map_or(&[][..], Ids::all);
        let from = [("config.json", of_config), (FILE, &self.ends)];
        let mut ends: Vec<u32> = eos.into_iter().collect();
        for (file, ids) in from {
            for id in ids {
                check(file, "eos_token_id", *id, tokens)?;
                if !ends.contains(id) {
                    ends.push(*id);
                }
            }
        }
        for (role, id) in ["eos", "eot", "eom"].iter().zip(&ends) {
            to.key(&format!("tokenizer.ggml.{role}_token_id"), Value::U32(*id))?;
        }
        if ends.len() > 3 {
            to.integers(
                END_TOKENS,
                ends.iter().map(|id| *id as i32).collect::<Vec<_>>().into_iter(),
            )?;
        }
        if let Some(bos) = self.bos {
            check(FILE, "bos_token_id", bos, tokens)?;
        }
        if let Some(pad) = self.pad {
            check(FILE, "pad_token_id", pad, tokens)?;
            to.key("tokenizer.ggml.padding_token_id", Value::U32(pad))?;
        }
        for (key, number) in &self.sampling {
            match *key {
                "general.sampling.top_k" => to.key(key, Value::I32(*number as i32))?,
                _ => to.key(key, Value::F32(*number as f32))?,
            };
        }
        Ok(ends.first().copied())
    }
}

fn check(file: &str, field: &str, id: u32, tokens: usize) -> Result<()> {
    match (id as usize) < tokens {
        true => Ok(()),
        false => {
            Err(Error::bad_file(format!("{file}: {field}: {id}, but there are {tokens} tokens")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of_key(key: &str, value: &Json) -> Result<Generation> {
        of(&Map::from_iter([(key.to_owned(), value.clone())]), FILE)
    }

    /// Checks every row of the table with values of several types.
    #[test]
    fn every_key_is_honoured_without_effect_or_refused() {
        for (key, what) in KEYS {
            assert_eq!(KEYS.iter().filter(|(other, _)| *other == key).count(), 1, "{key} twice");
            let empty = of_key(key, &Json::Null).unwrap();
            assert!(empty.ends.is_empty() && empty.sampling.is_empty(), "{key}: null");
            match what {
                Use::NoEffect => {
                    for value in [json!(5), json!("x"), json!([1]), json!(true)] {
                        let made = of_key(key, &value).unwrap();
                        assert!(made.ends.is_empty() && made.sampling.is_empty(), "{key}");
                        assert_eq!((made.bos, made.pad), (None, None), "{key}");
                    }
                }
                Use::Ids => {
                    let one = of_key(key, &json!(7)).unwrap();
                    let ids = [one.bos, one.pad, one.ends.first().copied()];
                    assert_eq!(ids.iter().flatten().collect::<Vec<_>>(), [&7], "{key}");
                    for wrong in [json!("x"), json!(-1), json!([1, "a"])] {
                        let error = of_key(key, &wrong).unwrap_err().to_string();
                        assert!(error.contains(key) && error.contains(FILE), "{error}");
                    }
                }
                Use::Sampling(ours) => {
                    let right = if key == "top_k" { 40.0 } else { 0.5 };
                    let made = of_key(key, &json!(right)).unwrap();
                    assert_eq!(made.sampling, [(ours, right)], "{key}");
                    let own: &[f64] = match key {
                        "top_p" | "min_p" => &[1.5, 2.0],
                        "top_k" => &[1.5, 1e10],
                        "repetition_penalty" => &[0.0],
                        _ => &[1e300],
                    };
                    let wrong = own.iter().map(|n| json!(n));
                    for wrong in wrong.chain([json!("x"), json!(-1), json!([0.5])]) {
                        let error = of_key(key, &wrong).unwrap_err().to_string();
                        assert!(error.contains(key) && error.contains(FILE), "{error}");
                    }
                }
                Use::Refused(neutral) => {
                    for value in [json!(17), json!([[5]]), json!({"a": 1}), json!(true)] {
                        let error = of_key(key, &value).unwrap_err();
                        assert!(error.is_unsupported(), "{error}");
                        assert!(error.to_string().contains(&format!("{FILE}: {key}: ")), "{error}");
                    }
                    for neutral in neutral {
                        let value = match neutral {
                            Number(number) => json!(number),
                            Empty => json!([]),
                            False => json!(false),
                        };
                        assert!(of_key(key, &value).is_ok(), "{key}: {value}");
                    }
                }
            }
        }
        for key in OF_THE_FILE.into_iter().chain(["not_a_key"]) {
            assert!(of_key(key, &json!("5.24.0")).unwrap().ends.is_empty());
        }
    }

    #[test]
    fn all_ends_of_both_files_count() {
        let config: Config = serde_json::from_value(json!({
            "model_type": "llama", "hidden_size": 8, "intermediate_size": 12,
            "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64,
            "rms_norm_eps": 1e-6, "vocab_size": 10, "eos_token_id": [1, 2]
        }))
        .unwrap();
        let keys = |ends: Json, eos: Option<u32>| {
            let made = of_key("eos_token_id", &ends)?;
            let mut writer = Writer::new();
            made.describe(&config, eos, 10, &mut writer)?;
            let gguf = warploom_models::gguf::Gguf::from_bytes(
                writer.begin(Vec::new())?.finish()?,
                "made",
            )?;
            let role = |role: &str| gguf.find_u32(&format!("tokenizer.ggml.{role}_token_id"));
            let list = gguf.find_integers(END_TOKENS)?;
            let list: Vec<u32> = list.into_iter().flatten().map(|id| id as u32).collect();
            Ok::<_, Error>(([role("eos")?, role("eot")?, role("eom")?], list))
        };
        assert_eq!(keys(json!([2, 3]), None).unwrap(), ([Some(1), Some(2), Some(3)], vec![]));
        assert_eq!(keys(json!(1), None).unwrap(), ([Some(1), Some(2), None], vec![]));
        let many = ([Some(5), Some(1), Some(2)], vec![5, 1, 2, 7, 8]);
        assert_eq!(keys(json!([7, 8, 5]), Some(5)).unwrap(), many);
        let error = keys(json!([99]), None).unwrap_err().to_string();
        assert!(error.contains("generation_config.json: eos_token_id: 99"), "{error}");
    }
}
