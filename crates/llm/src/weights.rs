//! Finds and checks the tensors of a model, and converts them to their formats on a device.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use super::config::{Config, EmbeddingParts, Norm, Pooling, ROPE_FACTORS};
use super::layer_sizes::LAYER_EMBEDDING;
use super::rope::{self, LOCAL_ROPE_FREQUENCIES, ROPE_FREQUENCIES};
use warploom::provider::GRANULE;
use warploom::{Error, Result};
use warploom_core::base::{DType, Format};
use warploom_core::quant;
use warploom_models::gguf::Gguf;

/// Maximum bytes of a piece of a weight in the file, except for a longer row.
const PIECE: u64 = 16 << 20;

/// A tensor that the decoder reads.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Weight {
    /// Name in the file, or of a computed table.
    pub(super) name: String,
    /// Sizes, outermost first.
    pub(super) shape: Vec<u64>,
    /// Format on the device.
    pub(super) format: Format,
}

impl Weight {
    /// Returns the size on the device in bytes.
    ///
    /// # Errors
    /// Bad file if the size overflows.
    pub(super) fn bytes(&self) -> Result<u64> {
        let elements = self.shape.iter().try_fold(1u64, |n, dim| n.checked_mul(*dim));
        elements.and_then(|n| self.format.bytes(n)).ok_or_else(|| {
            let (name, shape, format) = (&self.name, &self.shape, self.format);
            Error::bad_file(format!("tensor {name:?}: {shape:?} {format} has no size in bytes"))
        })
    }
}

/// Finds in the file every tensor that the decoder reads, and checks it against the config.
///
/// # Errors
/// Bad file if a tensor is missing or has the wrong shape or type; unsupported if a tensor is
/// unknown, because ignoring it would give wrong results.
pub(super) fn of_file(file: &Gguf, config: &Config) -> Result<Vec<Weight>> {
    let table = table(config, |name, shape, need| match need {
        Need::Optional if file.find_tensor(name).is_none() => Ok(None),
        _ => checked(file, name, shape).map(Some),
    })?;
    let known: HashSet<&str> = table.iter().map(|weight| weight.name.as_str()).collect();
    // Blocks that predict further tokens are not computed.
    let further = |name: &str| {
        let block = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        let block = block.and_then(|(block, _)| block.parse::<usize>().ok());
        let key = format!("{}.nextn_predict_layers", config.architecture.name);
        let has_further = file.find_u64(&key).is_ok_and(|n| n.is_some_and(|n| n > 0));
        has_further && block.is_some_and(|block| block >= config.layers)
    };
    // Files may have matrices of keys in layers that read those of another layer.
    let spare = |name: &str| {
        let block = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        block.is_some_and(|(block, rest)| {
            let layer = block.parse().ok().filter(|layer: &usize| *layer < config.layers);
            let shares = layer.is_some_and(|layer| config.keys_of(layer) != layer);
            shares && ["attn_k.weight", "attn_v.weight", "attn_k_norm.weight"].contains(&rest)
        })
    };
    let unread = |name: &str| {
        // Frequencies stored by old files are computed from the config instead.
        !known.contains(name)
            && !further(name)
            && !spare(name)
            && name != ROPE_FACTORS
            && !name.ends_with("attn_rot_embd.weight")
    };
    match file.tensors().find(|info| unread(info.name())) {
        None => Ok(table),
        Some(info) => Err(Error::unsupported(format!(
            "{}: tensor {:?} at offset {}: architecture {} reads no tensor of this name",
            file.name(),
            info.name(),
            info.file_offset(),
            config.architecture.name
        ))),
    }
}

/// Whether a tensor may be absent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Required,
    Optional,
}

/// Returns every tensor that the decoder reads. `stored` returns the format of the tensor with this
/// name and shape, or `None` if the tensor is optional and absent.
pub(super) fn table(
    config: &Config,
    stored: impl Fn(&str, &[u64], Need) -> Result<Option<Format>>,
) -> Result<Vec<Weight>> {
    let mut table = Table { weights: Vec::new(), config, stored };
    let (d, vocabulary) = (config.width as u64, config.vocabulary as u64);
    table.matrix("token_embd", &[vocabulary, d])?;
    let architecture = config.architecture;
    if architecture.embedding == EmbeddingParts::PositionsAndTypes {
        table.matrix("position_embd", &[config.context as u64, d])?;
    }
    if architecture.embedding != EmbeddingParts::None {
        table.matrix("token_types", &[config.token_types as u64, d])?;
        table.norm("token_embd_norm", d)?;
    }
    if !architecture.sum_norms {
        table.norm(architecture.output_norm, d)?;
    }
    if config.pooling == Pooling::Score {
        table.head(d)?;
    }
    for (layer, [results, operands]) in (2..).zip(&config.dense) {
        table.product(&format!("dense_{layer}"), [*results as u64, *operands as u64])?;
    }
    if !config.tied_output {
        table.product("output", [vocabulary, d])?;
    }
    let sizes = &config.layer_sizes;
    if sizes.embedding > 0 {
        let (each, all) = (sizes.embedding as u64, (sizes.embedding * config.layers) as u64);
        table.matrix(LAYER_EMBEDDING, &[vocabulary, all])?;
        table.product("per_layer_model_proj", [all, d])?;
        table.norm("per_layer_proj_norm", each)?;
    }
    for layer in 0..config.layers {
        table.layer(layer)?;
    }
    let mut weights = table.weights;
    let rotates = (0..config.layers).any(|layer| config.rotates(layer));
    let is_local = config.local_rope_base.is_some();
    for (name, there, dim) in [
        (ROPE_FREQUENCIES, rotates, config.rope_dim),
        (LOCAL_ROPE_FREQUENCIES, is_local, config.local_rope_dim()),
    ] {
        if there {
            let shape = vec![dim as u64 / 2];
            weights.push(Weight { name: name.into(), shape, format: Format::F32 });
        }
    }
    Ok(weights)
}

pub(super) struct Table<'a, F> {
    weights: Vec<Weight>,
    pub(super) config: &'a Config,
    stored: F,
}

impl<F: Fn(&str, &[u64], Need) -> Result<Option<Format>>> Table<'_, F> {
    pub(super) fn matrix(&mut self, name: &str, shape: &[u64]) -> Result<()> {
        let name = format!("{name}.weight");
        if let Some(format) = (self.stored)(&name, shape, Need::Required)? {
            self.weights.push(Weight { name, shape: shape.to_vec(), format });
        }
        Ok(())
    }

    /// Adds a matrix if it is present.
    pub(super) fn matrix_if_present(&mut self, name: &str, shape: &[u64]) -> Result<()> {
        if let Some(format) = (self.stored)(name, shape, Need::Optional)? {
            self.weights.push(Weight { name: name.to_owned(), shape: shape.to_vec(), format });
        }
        Ok(())
    }

    /// Adds the layers that make a score of a token: a dense one, if there is one, and one with one
    /// result, or with those of yes and no.
    fn head(&mut self, d: u64) -> Result<()> {
        if self.config.architecture.answers {
            return self.product("cls.output", [2, d]);
        }
        if (self.stored)("cls.weight", &[d, d], Need::Optional)?.is_some() {
            self.product("cls", [d, d])?;
        }
        self.product("cls.output", [1, d])
    }

    /// Adds the weight of a norm, and its bias if norms have one.
    pub(super) fn norm(&mut self, name: &str, len: u64) -> Result<()> {
        self.vector(&format!("{name}.weight"), len, Need::Required)?;
        match self.config.architecture.norm {
            Norm::Rms => Ok(()),
            Norm::Layer => self.vector(&format!("{name}.bias"), len, Need::Required),
        }
    }

    /// Adds a vector if it is present.
    pub(super) fn vector(&mut self, name: &str, len: u64, need: Need) -> Result<()> {
        self.small(name, &[len], need)
    }

    /// Adds a vector, or one for each expert, if it is present. These are small and read by many
    /// kernels, so they are f32 on the device.
    pub(super) fn small(&mut self, name: &str, shape: &[u64], need: Need) -> Result<()> {
        if (self.stored)(name, shape, need)?.is_some() {
            let (name, shape) = (name.to_owned(), shape.to_vec());
            self.weights.push(Weight { name, shape, format: Format::F32 });
        }
        Ok(())
    }

    /// Adds a matrix with its optional scale, which is one factor for all results, and its bias,
    /// which some architectures require.
    pub(super) fn product(&mut self, name: &str, shape: [u64; 2]) -> Result<()> {
        self.matrix(name, &shape)?;
        self.vector(&format!("{name}.scale"), 1, Need::Optional)?;
        let stem = name.rsplit('.').next().unwrap_or(name);
        let biased = self.config.architecture.biases.contains(&stem);
        let need = if biased { Need::Required } else { Need::Optional };
        self.vector(&format!("{name}.bias"), shape[0], need)
    }
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

/// Returns the bytes of a weight in its format on the device, in pieces of whole rows: those in the
/// file if the file stores the same format. A piece is made when it is requested.
///
/// # Errors
/// Bad file if the tensor is missing; unsupported if its type is.
pub(super) fn pieces<'a>(
    file: &'a Gguf,
    config: &'a Config,
    weight: &'a Weight,
) -> Result<impl Iterator<Item = Result<Cow<'a, [u8]>>> + use<'a>> {
    let is_table = rope::is_table(&weight.name);
    let rows = row_count(weight);
    // Rows of a piece.
    let mut most = rows.max(1);
    if !is_table && weight.shape.len() > 1 {
        let info = file.tensor(&weight.name)?;
        // I2_S has one scale, at the end of the tensor.
        if info.format()? != Format::I2S {
            let row = info.byte_len().unwrap_or(0) / rows.max(1);
            // Writes to a device begin at multiples of `GRANULE` bytes.
            most = (PIECE / row.max(1)).max(1).next_multiple_of(GRANULE);
        }
    }
    let count = rows.div_ceil(most);
    Ok((0..count).map(move |i| match count {
        1 => bytes(file, config, weight),
        _ => rows_of(file, weight, i * most..rows.min((i + 1) * most)),
    }))
}

/// Returns the number of rows of a matrix, or of the matrices of all experts.
fn row_count(weight: &Weight) -> u64 {
    weight.shape.split_last().map_or(1, |(_, outer)| outer.iter().product())
}

/// Returns rows of a matrix in its format on the device.
fn rows_of<'a>(file: &'a Gguf, weight: &Weight, rows: Range<u64>) -> Result<Cow<'a, [u8]>> {
    let info = file.tensor(&weight.name)?;
    let (format, len) = (info.format()?, info.byte_len().unwrap_or(0));
    let row = len / row_count(weight).max(1);
    let bytes = file.part(&info, rows.start * row..rows.end * row)?;
    if format == weight.format {
        return Ok(bytes);
    }
    let named = |e: Error| e.context(format_args!("{}: tensor {:?}", file.name(), weight.name));
    if weight.format != Format::F32 {
        return quant::keep(format, weight.format, &bytes).map(Cow::Owned).map_err(named);
    }
    let columns = weight.shape.last().copied().unwrap_or(1);
    let mut values = vec![0.0f32; ((rows.end - rows.start) * columns) as usize];
    quant::decode(format, &bytes, &mut values).map_err(named)?;
    Ok(Cow::Owned(bytemuck::cast_slice(&values).to_vec()))
}

/// Returns the bytes of a weight in its format on the device: those in the file if the file stores
/// the same format.
pub(super) fn bytes<'a>(file: &'a Gguf, config: &Config, weight: &Weight) -> Result<Cow<'a, [u8]>> {
    if let Some(table) = rope::table(file, config, &weight.name)? {
        return Ok(Cow::Owned(bytemuck::cast_slice(&table).to_vec()));
    }
    let info = file.tensor(&weight.name)?;
    if info.format()? == weight.format {
        return file.weights(&info);
    }
    if weight.format != Format::Plain(DType::F32) {
        let kept = quant::keep(info.format()?, weight.format, &file.weights(&info)?);
        let named = |e: Error| e.context(format_args!("{}: tensor {:?}", file.name(), weight.name));
        return kept.map(Cow::Owned).map_err(named);
    }
    Ok(Cow::Owned(bytemuck::cast_slice(&decoded(file, &weight.name)?).to_vec()))
}

/// Decodes a tensor to f32.
pub(super) fn decoded(file: &Gguf, name: &str) -> Result<Vec<f32>> {
    let info = file.tensor(name)?;
    let bytes = file.weights(&info)?;
    // At most 32 times the bytes of the file.
    let mut values = vec![0.0; info.elements() as usize];
    quant::decode(info.format()?, &bytes, &mut values)
        .map_err(|e| e.context(format_args!("{}: tensor {name:?}", file.name())))?;
    Ok(values)
}

#[cfg(test)]
#[path = "weights_tests.rs"]
mod tests;
