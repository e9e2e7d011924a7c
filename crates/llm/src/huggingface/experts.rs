//! Gathers the matrices of experts, one tensor each, which GGUF has in one tensor.

use std::collections::BTreeMap;

use super::{From, Placed};
use warploom::{Error, Result};
use warploom_core::base::Format;
use warploom_models::safetensors::TensorInfo;

/// The matrices of experts found so far, by their GGUF name.
#[derive(Default)]
pub(super) struct Gathered(BTreeMap<String, Matrices>);

/// The matrices of all experts that are one tensor of GGUF.
struct Matrices {
    shape: Vec<u64>,
    format: Format,
    /// The weight file and name of each expert's matrix.
    from: BTreeMap<u64, (usize, String)>,
}

impl Gathered {
    /// Adds the matrix of an expert: tensor `source` of the weight file with index `file`.
    ///
    /// # Errors
    /// Bad file for a shape or type other than that of the other experts.
    pub(super) fn add(
        &mut self,
        name: String,
        expert: u64,
        file: usize,
        source: &str,
        info: &TensorInfo,
    ) -> Result<()> {
        let shape = info.shape().to_vec();
        if shape.len() != 2 || shape.contains(&0) {
            return Err(Error::bad_file(format!("shape {shape:?} is not a matrix")));
        }
        let format = info.format().ok_or_else(|| {
            let dtype = info.dtype();
            Error::bad_file(format!("type {dtype} is not supported; known: F32, F16, BF16"))
        })?;
        let first = Matrices { shape: shape.clone(), format, from: BTreeMap::new() };
        let all = self.0.entry(name).or_insert(first);
        if (&all.shape, all.format) != (&shape, format) {
            return Err(Error::bad_file(format!(
                "{shape:?} {format}, other experts have {:?} {}",
                all.shape, all.format
            )));
        }
        all.from.insert(expert, (file, source.to_owned()));
        Ok(())
    }

    /// Returns the tensors of GGUF.
    ///
    /// # Errors
    /// Bad file if an expert is missing.
    pub(super) fn placed(self, folder: &str, count: u64) -> Result<Vec<Placed>> {
        let one = |(name, all): (String, Matrices)| {
            if let Some(missing) = (0..count).find(|expert| !all.from.contains_key(expert)) {
                return Err(Error::bad_file(format!(
                    "{folder}: `{name}`: expert {missing} of {count} has no tensor"
                )));
            }
            let shape = [&[count], &all.shape[..]].concat();
            let from = From::Experts(all.from.into_values().collect());
            Ok(Placed { name, shape, format: all.format, from })
        };
        self.0.into_iter().map(one).collect()
    }
}
