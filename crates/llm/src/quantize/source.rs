//! Reads the metadata and, row by row, the weights of the model to quantise.

use std::path::Path;

use crate::foreign;
use crate::huggingface::Folder;
use warploom::{Error, Result};
use warploom_core::base::{DType, Format};
use warploom_models::gguf::{Access, Gguf, TensorInfo, Writer};

/// The model to quantise.
pub(super) enum Source {
    Gguf(Box<Gguf>),
    Folder(Box<Folder>),
}

/// A tensor of the model.
pub(super) struct Tensor {
    pub(super) name: String,
    /// Sizes, outermost first.
    pub(super) shape: Vec<u64>,
    pub(super) format: Format,
    place: Place,
}

enum Place {
    Gguf(TensorInfo),
    /// Index into [`Folder::tensors`].
    Folder(usize),
}

impl Tensor {
    pub(super) fn elements(&self) -> u64 {
        self.shape.iter().product()
    }

    pub(super) fn columns(&self) -> usize {
        self.shape.last().copied().unwrap_or(1) as usize
    }

    /// Returns the number of rows, each of `columns` values.
    pub(super) fn rows(&self) -> usize {
        self.elements() as usize / self.columns()
    }

    pub(super) fn format_is_float(&self) -> bool {
        matches!(self.format, Format::Plain(DType::F32 | DType::F16 | DType::BF16))
    }
}

/// Keys that describe how a file stores its tensors; the new file has its own.
const OF_PACKING: [&str; 3] =
    ["general.file_type", "general.quantization_version", "general.alignment"];

impl Source {
    /// Opens a model: a folder, a file in a folder, or a GGUF file.
    pub(super) fn open(path: &Path) -> Result<Source> {
        match Folder::is_at(path) {
            true => Ok(Source::Folder(Box::new(Folder::open(path)?))),
            false => {
                let file = Gguf::open(path, Access::Mmap)?;
                foreign::refuse_no_model(&file)?;
                Ok(Source::Gguf(Box::new(file)))
            }
        }
    }

    /// Writes the metadata of the model to `to`, without the keys that describe how a file stores
    /// its tensors.
    pub(super) fn describe(&self, to: &mut Writer) -> Result<()> {
        match self {
            Source::Folder(folder) => folder.describe(to),
            Source::Gguf(file) => file
                .metadata()
                .filter(|(key, _)| !OF_PACKING.contains(key) && !key.starts_with("split."))
                .try_for_each(|(key, value)| to.key(key, value)),
        }
    }

    /// Returns all tensors, in order, with their GGUF names.
    ///
    /// # Errors
    /// Unsupported, naming the tensor, if one is already quantised or of an unknown type.
    pub(super) fn tensors(&self) -> Result<Vec<Tensor>> {
        match self {
            Source::Folder(folder) => {
                let tensors = folder.tensors().iter().enumerate();
                Ok(tensors
                    .map(|(index, tensor)| Tensor {
                        name: tensor.name.clone(),
                        shape: tensor.shape.clone(),
                        format: tensor.format,
                        place: Place::Folder(index),
                    })
                    .collect())
            }
            Source::Gguf(file) => file.tensors().map(|info| of_file(file, info)).collect(),
        }
    }

    /// Returns the bytes of a row.
    pub(super) fn row<'a>(&'a self, tensor: &'a Tensor, row: usize) -> Result<&'a [u8]> {
        match (self, &tensor.place) {
            (Source::Folder(folder), Place::Folder(index)) => {
                folder.row(&folder.tensors()[*index], row)
            }
            (Source::Gguf(file), Place::Gguf(info)) => {
                let bytes = file.bytes(info)?;
                let len = bytes.len() / tensor.rows();
                Ok(&bytes[row * len..(row + 1) * len])
            }
            _ => Err(Error::invalid(format!("tensor `{}` is of another model", tensor.name))),
        }
    }
}

fn of_file(file: &Gguf, info: TensorInfo) -> Result<Tensor> {
    let format = info.format()?;
    if format.is_quantised() {
        return Err(Error::unsupported(format!(
            "{}: tensor `{}` at byte {} is {format} already: quantising starts from F32, F16 or \
             BF16, as every time loses something",
            file.name(),
            info.name(),
            info.file_offset()
        )));
    }
    let shape = match info.shape() {
        [] => vec![1],
        shape => shape.to_vec(),
    };
    Ok(Tensor { name: info.name().to_owned(), shape, format, place: Place::Gguf(info) })
}
