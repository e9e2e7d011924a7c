//! The numbers of a model, read from a GGUF file and checked before anything is built on them.
//!
//! Every number here decides the size of a tensor or a loop. Whoever holds a [`Config`] may
//! multiply its fields without a check: all lie within the limits below.

use crate::error::{Error, Result};
use crate::gguf::Gguf;

/// Architectures that can be run.
const ARCHITECTURES: [&str; 1] = ["llama"];

/// Transformer blocks.
const MAX_LAYERS: u64 = 1 << 12;
/// Width, feed-forward width, heads times head size.
const MAX_WIDTH: u64 = 1 << 20;
/// Positions.
const MAX_CONTEXT: u64 = 1 << 27;
/// Tokens.
const MAX_VOCABULARY: u64 = 1 << 22;

/// The numbers of a `llama` model.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `general.architecture`.
    pub architecture: String,
    /// Transformer blocks.
    pub layers: usize,
    /// Size of the hidden state, elements.
    pub width: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Size of one head, elements; even.
    pub head_dim: usize,
    /// Inner size of the feed-forward part, elements.
    pub feed_forward: usize,
    /// Positions that the model was trained for.
    pub context: usize,
    /// Tokens: rows of the embedding.
    pub vocabulary: usize,
    /// Added to the mean square under the root of RMSNorm.
    pub norm_epsilon: f32,
    /// Base of the rotary frequencies.
    pub rope_base: f64,
    /// Elements of a head that are rotated, from the front; even, at most `head_dim`.
    pub rope_dim: usize,
    /// How the rotary frequencies were stretched for longer contexts.
    pub rope_scaling: RopeScaling,
    /// Whether the file holds divisors of the frequencies, in the tensor [`ROPE_FACTORS`]:
    /// `[rope_dim / 2]`, f32.
    pub has_rope_factors: bool,
    /// Whether the embedding is also the output matrix.
    pub tied_output: bool,
}

/// Name of the tensor that holds divisors of the rotary frequencies (Llama 3.1 and later).
pub const ROPE_FACTORS: &str = "rope_freqs.weight";

/// How rotary frequencies were stretched for longer contexts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all, or by [`ROPE_FACTORS`] alone.
    None,
    /// Every frequency divided by a factor.
    Linear {
        /// The factor, above 0.
        factor: f64,
    },
    /// Llama 3.1: low frequencies divided by a factor, high ones kept, smooth between.
    Llama3 {
        /// The factor, above 0.
        factor: f64,
        /// Waves longer than `original_context / low` are low.
        low: f64,
        /// Waves shorter than `original_context / high` are high; above `low`.
        high: f64,
        /// Positions of the model before it was stretched.
        original_context: f64,
    },
}

impl Config {
    /// Reads and checks the numbers of a file.
    ///
    /// # Errors
    /// Unsupported, for an architecture or a scaling that is not known; bad file, naming file and
    /// key, for a number that is missing, out of range or contradicts another.
    pub fn from_gguf(file: &Gguf) -> Result<Config> {
        let architecture = file.architecture()?;
        if !ARCHITECTURES.contains(&architecture) {
            return Err(Error::unsupported(format!(
                "{}: general.architecture: {architecture:?} is not supported; known: {}",
                file.name(),
                ARCHITECTURES.join(", ")
            )));
        }
        let keys = Keys { file, architecture };
        let width = keys.count("embedding_length", MAX_WIDTH)?;
        let heads = keys.count("attention.head_count", width as u64)?;
        let kv_heads = match keys.find_count("attention.head_count_kv", heads as u64)? {
            Some(n) if heads % n != 0 => {
                let what = format!("{n} does not divide attention.head_count, {heads}");
                return Err(keys.bad("attention.head_count_kv", what));
            }
            n => n.unwrap_or(heads),
        };
        let head_dim = keys.head_dim(width, heads)?;
        let rope_dim = match keys.find_count("rope.dimension_count", head_dim as u64)? {
            Some(n) if n % 2 != 0 => {
                return Err(keys.bad("rope.dimension_count", format!("{n} is odd")));
            }
            n => n.unwrap_or(head_dim),
        };
        let norm_epsilon = keys.number("attention.layer_norm_rms_epsilon", None, 0.0, 1.0)?;
        let config = Config {
            architecture: architecture.to_owned(),
            layers: keys.count("block_count", MAX_LAYERS)?,
            width,
            heads,
            kv_heads,
            head_dim,
            feed_forward: keys.count("feed_forward_length", MAX_WIDTH)?,
            context: keys.count("context_length", MAX_CONTEXT)?,
            vocabulary: keys.vocabulary(width)?,
            norm_epsilon: norm_epsilon as f32,
            rope_base: keys.number("rope.freq_base", Some(10_000.0), 1.0, 1e15)?,
            rope_dim,
            rope_scaling: keys.rope_scaling()?,
            has_rope_factors: keys.has_rope_factors(rope_dim)?,
            tied_output: file.find_tensor("output.weight").is_none(),
        };
        keys.refuse_experts()?;
        Ok(config)
    }

    /// Elements of all keys, or of all values, of one position in one layer.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Angle in radians by which pair `i` of a head turns from one position to the next:
    /// `[rope_dim / 2]`. `factors`, the values of [`ROPE_FACTORS`], divide them.
    ///
    /// # Errors
    /// Bad file, where `factors` has another length or holds a number that is not above 0.
    pub fn rope_frequencies(&self, factors: Option<&[f32]>) -> Result<Vec<f32>> {
        let half = self.rope_dim / 2;
        if let Some(factors) = factors {
            if factors.len() != half {
                let n = factors.len();
                return Err(Error::bad_file(format!("{ROPE_FACTORS}: {n} elements, not {half}")));
            }
            if let Some(i) = factors.iter().position(|f| !(f.is_finite() && *f > 0.0)) {
                let value = factors[i];
                return Err(Error::bad_file(format!("{ROPE_FACTORS}: element {i} is {value}")));
            }
        }
        let frequency = |i: usize| {
            let exponent = -2.0 * i as f64 / self.rope_dim as f64;
            let frequency = self.rope_scaling.apply(self.rope_base.powf(exponent));
            (frequency / factors.map_or(1.0, |f| f64::from(f[i]))) as f32
        };
        Ok((0..half).map(frequency).collect())
    }
}

impl RopeScaling {
    /// A frequency, in radians a position, after scaling.
    fn apply(self, frequency: f64) -> f64 {
        match self {
            RopeScaling::None => frequency,
            RopeScaling::Linear { factor } => frequency / factor,
            RopeScaling::Llama3 { factor, low, high, original_context } => {
                // Turns that a wave makes within the original context; the published formula
                // compares wavelengths, which is the same.
                let turns = original_context * frequency / std::f64::consts::TAU;
                let smooth = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                (1.0 - smooth) * frequency / factor + smooth * frequency
            }
        }
    }
}

/// The keys of one architecture in one file.
struct Keys<'a> {
    file: &'a Gguf,
    architecture: &'a str,
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    fn bad(&self, name: &str, what: String) -> Error {
        Error::bad_file(format!("{}: {}: {what}", self.file.name(), self.key(name)))
    }

    /// A number from 1 to `most`.
    fn count(&self, name: &str, most: u64) -> Result<usize> {
        match self.find_count(name, most)? {
            Some(n) => Ok(n),
            None => Err(self.bad(name, "the key is missing".into())),
        }
    }

    fn find_count(&self, name: &str, most: u64) -> Result<Option<usize>> {
        match self.file.find_u64(&self.key(name))? {
            Some(n) if n == 0 || n > most => {
                Err(self.bad(name, format!("{n}, must be from 1 to {most}")))
            }
            n => Ok(n.map(|n| n as usize)),
        }
    }

    /// A number above `low` and at most `high`.
    fn number(&self, name: &str, default: Option<f64>, low: f64, high: f64) -> Result<f64> {
        match self.file.find_f32(&self.key(name))?.map(f64::from).or(default) {
            Some(n) if n > low && n <= high => Ok(n),
            Some(n) => Err(self.bad(name, format!("{n}, must be above {low} and at most {high}"))),
            None => Err(self.bad(name, "the key is missing".into())),
        }
    }

    /// The size of a head. Keys and values may say it apart, but only the same.
    fn head_dim(&self, width: usize, heads: usize) -> Result<usize> {
        let most = MAX_WIDTH / heads as u64;
        let head_dim = match self.find_count("attention.key_length", most)? {
            Some(n) => n,
            None if width.is_multiple_of(heads) => width / heads,
            None => {
                let what = format!("{heads} does not divide embedding_length, {width}");
                return Err(self.bad("attention.head_count", what));
            }
        };
        if head_dim % 2 != 0 {
            let what = format!("heads of {head_dim} elements cannot be rotated in pairs");
            return Err(self.bad("attention.key_length", what));
        }
        match self.find_count("attention.value_length", most)? {
            Some(n) if n != head_dim => {
                let what = format!("{n}, but keys have {head_dim} elements");
                Err(self.bad("attention.value_length", what))
            }
            _ => Ok(head_dim),
        }
    }

    /// Rows of the embedding, which the metadata must not contradict.
    fn vocabulary(&self, width: usize) -> Result<usize> {
        let file = self.file.name();
        let info = self.file.tensor("token_embd.weight")?;
        let rows = match *info.shape() {
            [rows, columns] if columns == width as u64 => rows,
            _ => {
                let shape = info.shape();
                return Err(Error::bad_file(format!(
                    "{file}: tensor token_embd.weight has shape {shape:?}, not [tokens, {width}]"
                )));
            }
        };
        if rows == 0 || rows > MAX_VOCABULARY {
            return Err(Error::bad_file(format!(
                "{file}: tensor token_embd.weight has {rows} rows, must be from 1 to \
                 {MAX_VOCABULARY}"
            )));
        }
        match self.find_count("vocab_size", MAX_VOCABULARY)? {
            Some(n) if n as u64 != rows => {
                let what = format!("{n}, but tensor token_embd.weight has {rows} rows");
                Err(self.bad("vocab_size", what))
            }
            _ => Ok(rows as usize),
        }
    }

    fn rope_scaling(&self) -> Result<RopeScaling> {
        let name = "rope.scaling.type";
        let factor = || self.number("rope.scaling.factor", None, 0.0, 1e6);
        match self.file.find_str(&self.key(name))? {
            // Files from before the type was written hold the linear factor alone.
            None => match self.file.find_f32(&self.key("rope.scale_linear"))? {
                None => Ok(RopeScaling::None),
                Some(_) => {
                    let factor = self.number("rope.scale_linear", None, 0.0, 1e6)?;
                    Ok(RopeScaling::Linear { factor })
                }
            },
            Some("none") => Ok(RopeScaling::None),
            Some("linear") => Ok(RopeScaling::Linear { factor: factor()? }),
            Some("llama3") => {
                let low = self.number("rope.scaling.low_freq_factor", None, 0.0, 1e6)?;
                let original =
                    self.count("rope.scaling.original_context_length", MAX_CONTEXT)? as f64;
                Ok(RopeScaling::Llama3 {
                    factor: factor()?,
                    low,
                    high: self.number("rope.scaling.high_freq_factor", None, low, 1e6)?,
                    original_context: original,
                })
            }
            Some(other) => Err(Error::unsupported(format!(
                "{}: {}: {other:?} is not supported; known: none, linear, llama3",
                self.file.name(),
                self.key(name)
            ))),
        }
    }

    fn has_rope_factors(&self, rope_dim: usize) -> Result<bool> {
        let Some(info) = self.file.find_tensor(ROPE_FACTORS) else { return Ok(false) };
        let half = rope_dim as u64 / 2;
        if info.shape() != [half] {
            let (file, shape) = (self.file.name(), info.shape());
            return Err(Error::bad_file(format!(
                "{file}: tensor {ROPE_FACTORS} has shape {shape:?}, not [{half}]"
            )));
        }
        Ok(true)
    }

    /// Mixtures of experts share the architecture's name, but are another network.
    fn refuse_experts(&self) -> Result<()> {
        match self.file.find_u64(&self.key("expert_count"))? {
            Some(n) if n > 0 => Err(Error::unsupported(format!(
                "{}: {}: a mixture of {n} experts is not supported",
                self.file.name(),
                self.key("expert_count")
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
