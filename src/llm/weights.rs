//! The tensors of a model: names, shapes, and the form in which they go to a device.

use std::borrow::Cow;

use super::config::{Config, ROPE_FACTORS};
use crate::base::{DType, Format};
use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::quant;

/// Name under which the rotary frequencies are bound: computed here, in no file.
pub(super) const ROPE_FREQUENCIES: &str = "rope.frequencies";

/// A tensor that the decoder reads.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Weight {
    /// Name in the file.
    pub(super) name: String,
    /// Sizes, outermost first.
    pub(super) shape: Vec<u64>,
    /// Form in which it goes to a device.
    pub(super) format: Format,
}

/// Every tensor that the decoder reads, found in the file and checked against the config.
pub(super) fn of_file(file: &Gguf, config: &Config) -> Result<Vec<Weight>> {
    table(config, |name, shape| checked(file, name, shape))
}

/// Every tensor that the decoder reads; `stored` says how the one of a name and sizes is stored.
pub(super) fn table(
    config: &Config,
    stored: impl Fn(&str, &[u64]) -> Result<Format>,
) -> Result<Vec<Weight>> {
    let matrix = |name: String, shape: [u64; 2]| -> Result<Weight> {
        let format = stored(&name, &shape)?;
        Ok(Weight { name, shape: shape.to_vec(), format })
    };
    // Vectors are small and read by many kernels: they go to the device as f32.
    let vector = |name: String, len: u64| -> Result<Weight> {
        stored(&name, &[len])?;
        Ok(Weight { name, shape: vec![len], format: Format::F32 })
    };
    let (d, q) = (config.width as u64, (config.heads * config.head_dim) as u64);
    let (kv, ff) = (config.kv_width() as u64, config.feed_forward as u64);
    let vocabulary = config.vocabulary as u64;
    let mut table = vec![
        matrix("token_embd.weight".into(), [vocabulary, d])?,
        vector("output_norm.weight".into(), d)?,
    ];
    if !config.tied_output {
        table.push(matrix("output.weight".into(), [vocabulary, d])?);
    }
    for layer in 0..config.layers {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}.weight");
        table.push(vector(name("attn_norm"), d)?);
        table.push(matrix(name("attn_q"), [q, d])?);
        table.push(matrix(name("attn_k"), [kv, d])?);
        table.push(matrix(name("attn_v"), [kv, d])?);
        table.push(matrix(name("attn_output"), [d, q])?);
        table.push(vector(name("ffn_norm"), d)?);
        table.push(matrix(name("ffn_gate"), [ff, d])?);
        table.push(matrix(name("ffn_up"), [ff, d])?);
        table.push(matrix(name("ffn_down"), [d, ff])?);
    }
    table.push(Weight {
        name: ROPE_FREQUENCIES.into(),
        shape: vec![config.rope_dim as u64 / 2],
        format: Format::F32,
    });
    Ok(table)
}

fn checked(file: &Gguf, name: &str, shape: &[u64]) -> Result<Format> {
    let info = file.tensor(name)?;
    if info.shape() != shape {
        return Err(Error::bad_file(format!(
            "{}: tensor {name:?} at offset {} is {:?}, the metadata asks for {shape:?}",
            file.name(),
            info.file_offset(),
            info.shape()
        )));
    }
    let format = info.format()?;
    match format {
        Format::Plain(dtype) if !dtype.is_float() => Err(Error::bad_file(format!(
            "{}: tensor {name:?} at offset {} holds {dtype}, not numbers of a product",
            file.name(),
            info.file_offset()
        ))),
        format => Ok(format),
    }
}

/// The bytes of a weight as they go to a device: those of the file where the form is the same.
pub(super) fn bytes<'a>(file: &'a Gguf, config: &Config, weight: &Weight) -> Result<Cow<'a, [u8]>> {
    if weight.name == ROPE_FREQUENCIES {
        let factors = match config.has_rope_factors {
            true => Some(decoded(file, ROPE_FACTORS)?),
            false => None,
        };
        let frequencies = config.rope_frequencies(factors.as_deref())?;
        return Ok(Cow::Owned(bytemuck::cast_slice(&frequencies).to_vec()));
    }
    let info = file.tensor(&weight.name)?;
    if info.format()? == weight.format {
        return file.weights(&info);
    }
    if weight.format != Format::Plain(DType::F32) {
        let (have, want) = (info.format()?, weight.format);
        return Err(Error::unsupported(format!("{:?}: {have} as {want}", weight.name)));
    }
    Ok(Cow::Owned(bytemuck::cast_slice(&decoded(file, &weight.name)?).to_vec()))
}

/// A tensor's numbers.
fn decoded(file: &Gguf, name: &str) -> Result<Vec<f32>> {
    let info = file.tensor(name)?;
    let bytes = file.weights(&info)?;
    // Not larger than 32 times the bytes that are there.
    let mut values = vec![0.0; info.elements() as usize];
    quant::decode(info.format()?, &bytes, &mut values)
        .map_err(|e| e.context(format_args!("{}: tensor {name:?}", file.name())))?;
    Ok(values)
}
