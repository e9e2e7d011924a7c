//! Hugging Face models: a folder with `config.json`, `tokenizer.json` and weights in safetensors,
//! presented as GGUF.
//!
//! A [`Folder`] provides the metadata and tensors of the model's GGUF file, each tensor row by row
//! in that file's layout. [`Folder::gguf`] builds the file in memory, so that all other code reads
//! one format; `quantize` writes it to disk.
//!
//! Differences between architectures are rows of a table in `names`. `config` converts the
//! hyperparameters to metadata, `tokenizer` the vocabulary with additions from other files
//! (`companions`), `pooling` that of sentence-transformers, `templates` the chat templates, `generation` the end tokens. Nothing is guessed:
//! a missing value, an unknown tensor or an unsupported tokenizer is an error that names it.

mod companions;
mod config;
mod experts;
mod foreign;
mod generation;
mod names;
mod pooling;
mod templates;
mod tokenizer;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use config::Config;
use warploom::{Error, Result};
use warploom_core::base::Format;
use warploom_core::quant;
use warploom_models::gguf::{self, Gguf, Writer};
use warploom_models::safetensors::Safetensors;

/// Maximum size of a text file, in bytes; the largest vocabularies take about 35 MB.
const MAX_TEXT: u64 = 256 << 20;

/// An opened model folder.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    config: Config,
    files: Vec<Safetensors>,
    /// Index of the first of `files` that is of a dense layer after the vector of a text.
    dense: usize,
    tensors: Vec<Placed>,
}

/// A tensor under its GGUF name, and the location of its values.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) name: String,
    /// Sizes, outermost first.
    pub(super) shape: Vec<u64>,
    pub(super) format: Format,
    from: From,
}

#[derive(Debug)]
enum From {
    /// The tensor `name` in the weight file with index `file`. `interleave` is the number of heads
    /// of a tensor whose rows are reordered: for rotation, the file pairs rows that are half a head
    /// apart, and GGUF pairs neighbouring rows. The first `skip` rows are left out.
    File { file: usize, name: String, interleave: Option<usize>, skip: usize },
    /// One tensor for each expert, in their order: the weight file and the name.
    Experts(Vec<(usize, String)>),
    /// Bytes of computed values.
    Made(Vec<u8>),
}

/// The field that the configs of all models have in common.
#[derive(serde::Deserialize)]
struct Kind {
    model_type: String,
}

/// The index of a model whose weights are in several files.
#[derive(serde::Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Folder {
    /// Returns whether `path` may be a model folder or a file in one: a folder, or a file with the
    /// extension `safetensors` or `json`.
    pub fn is_at(path: &Path) -> bool {
        let file = |suffix: &str| path.extension().is_some_and(|e| e == suffix);
        path.is_dir() || file("safetensors") || file("json")
    }

    /// Opens a model folder, given by its path or by a file in it. The weight files are
    /// memory-mapped and must not change while the folder is open.
    ///
    /// # Errors
    /// Bad file, naming file and field, if the config or weights are missing or inconsistent; io if
    /// a file cannot be read; unsupported for an unknown architecture or tensor.
    pub fn open(path: &Path) -> Result<Folder> {
        let path = match path.is_dir() {
            true => path,
            false => path.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new(".")),
        };
        let config = read_config(path)?;
        let mut files = open_weights(path)?;
        let dense = files.len();
        let named = |e: Error| e.context(path.join("config.json").display());
        let has_dense = config.names().and_then(|names| names.architecture()).map_err(named)?.dense;
        for place in pooling::read(path, has_dense)?.dense {
            files.extend(open_weights(&place)?);
        }
        let (path, tensors) = (path.to_owned(), Vec::new());
        let mut folder = Folder { path, config, files, dense, tensors };
        folder.tensors = folder.place()?;
        Ok(folder)
    }

    /// Builds the model's GGUF file in memory, including the weights.
    ///
    /// # Errors
    /// Io, bad file or unsupported, naming file and field, for the config, tokenizer, chat
    /// templates or generation config; out of memory if the file does not fit in memory.
    pub fn gguf(&self) -> Result<Gguf> {
        let mut writer = Writer::new();
        self.describe(&mut writer)?;
        for tensor in &self.tensors {
            writer.tensor(&tensor.name, &tensor.shape, tensor.format)?;
        }
        let need = writer.file_bytes();
        let mut bytes = Vec::new();
        if usize::try_from(need).is_err() || bytes.try_reserve_exact(need as usize).is_err() {
            return Err(Error::out_of_memory(self.name(), need, 0));
        }
        let mut out = writer.begin(bytes)?;
        for tensor in &self.tensors {
            for row in 0..tensor.rows() {
                out.write(self.row(tensor, row)?)?;
            }
        }
        Gguf::from_bytes(out.finish()?, &self.name())
    }

    /// Returns the folder's path, for error messages.
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Writes the metadata of the GGUF file, except for the type of its weights.
    pub(super) fn describe(&self, to: &mut Writer) -> Result<()> {
        self.config.describe(&self.path, to)?;
        let arch = self.config.names()?.architecture;
        for tensor in self.tensors.iter().filter(|tensor| tensor.name.starts_with("dense_")) {
            let stem = tensor.name.trim_end_matches(".weight");
            for (end, size) in [("feat_out", tensor.shape[0]), ("feat_in", tensor.shape[1])] {
                let size = u32::try_from(size).map_err(|_| {
                    Error::bad_file(format!("{}: {stem}: {size} is too large", self.name()))
                })?;
                to.key(&format!("{arch}.{stem}_{end}"), gguf::Value::U32(size))?;
            }
        }
        tokenizer::describe(&self.path, &self.config, to)
    }

    /// Returns the tensors of the GGUF file, in file order.
    pub(super) fn tensors(&self) -> &[Placed] {
        &self.tensors
    }

    /// Returns the bytes of a row of a tensor, with rows in GGUF's order.
    pub(super) fn row<'a>(&'a self, tensor: &'a Placed, row: usize) -> Result<&'a [u8]> {
        let mut rows = tensor.rows();
        let (bytes, row) = match &tensor.from {
            From::Made(bytes) => (&bytes[..], row),
            From::File { file, name, interleave, skip } => {
                let row = interleave.map_or(row, |heads| interleaved(row, rows / heads));
                rows += skip;
                (self.files[*file].bytes(name)?, row + skip)
            }
            From::Experts(experts) => {
                let each = tensor.rows() / experts.len().max(1);
                let (file, name) = &experts[row / each.max(1)];
                let bytes = self.files[*file].bytes(name)?;
                let len = bytes.len() / each.max(1);
                return bytes.get(row % each * len..(row % each + 1) * len).ok_or_else(|| {
                    Error::bad_file(format!("{}: tensor `{name}` has no row {row}", self.name()))
                });
            }
        };
        let len = bytes.len() / rows;
        bytes.get(row * len..(row + 1) * len).ok_or_else(|| {
            Error::bad_file(format!("{}: tensor `{}` has no row {row}", self.name(), tensor.name))
        })
    }

    /// Returns the matrix of a dense layer after the vector of a text, from the file with this index.
    fn dense_layer(&self, index: usize) -> Result<Placed> {
        const SOURCE: &str = "linear.weight";
        let file = &self.files[index];
        let bad = |what: String| Error::bad_file(format!("{}: {what}", file.name()));
        if let Some(other) = file.tensors().keys().find(|name| *name != SOURCE) {
            return Err(bad(format!("tensor `{other}`, a dense layer has `{SOURCE}` alone")));
        }
        let info =
            file.tensors().get(SOURCE).ok_or_else(|| bad(format!("no tensor `{SOURCE}`")))?;
        let (shape, name) = (info.shape().to_vec(), SOURCE.to_owned());
        if shape.len() != 2 || shape.contains(&0) {
            return Err(bad(format!("tensor `{SOURCE}`: shape {shape:?} is not a matrix")));
        }
        let format = info.format().ok_or_else(|| {
            let dtype = info.dtype();
            bad(format!("type {dtype} is not supported; known: F32, F16, BF16"))
        })?;
        let from = From::File { file: index, name, interleave: None, skip: 0 };
        // GGUF counts them behind the model and its pooling.
        let name = format!("dense_{}.weight", index - self.dense + 2);
        Ok(Placed { name, shape, format, from })
    }

    /// Lists every tensor of the files under its GGUF name, ordered by layer.
    fn place(&self) -> Result<Vec<Placed>> {
        let config = self.path.join("config.json");
        let names = self.config.names().map_err(|e| e.context(config.display()))?;
        self.config.check_heads().map_err(|e| e.context(config.display()))?;
        let mut placed = Vec::new();
        let mut experts = experts::Gathered::default();
        for (index, file) in self.files.iter().enumerate() {
            if index >= self.dense {
                placed.push(self.dense_layer(index)?);
                continue;
            }
            for (source, info) in file.tensors() {
                let named =
                    |e: Error| e.context(format_args!("{}: tensor `{source}`", file.name()));
                let expert = names.expert(source, &self.config).map_err(named)?;
                if let Some((name, expert)) = expert {
                    experts.add(name, expert, index, source, info).map_err(named)?;
                    continue;
                }
                let Some(name) = names.translate(source, &self.config).map_err(named)? else {
                    continue;
                };
                let bad = |what: String| {
                    Error::bad_file(format!("{}: tensor `{source}`: {what}", file.name()))
                };
                let mut shape = info.shape().to_vec();
                if shape.is_empty() || shape.contains(&0) {
                    return Err(bad(format!("shape {shape:?} is not a vector or matrix")));
                }
                let rows = self.config.vocab_size;
                if ["token_embd.weight", "output.weight"].contains(&name.as_str())
                    && shape[0] != rows
                {
                    let config = config.display();
                    return Err(Error::bad_file(format!(
                        "{config}: vocab_size: {rows}, but tensor `{source}` has {} rows",
                        shape[0]
                    )));
                }
                let format = info.format().ok_or_else(|| {
                    let dtype = info.dtype();
                    bad(format!("type {dtype} is not supported; known: F32, F16, BF16"))
                })?;
                let interleave = names.interleave(&name, &self.config);
                let halves = |heads: usize| (heads as u64).checked_mul(2);
                let whole = |heads| halves(heads).is_some_and(|n| shape[0].is_multiple_of(n));
                if interleave.is_some_and(|heads| !whole(heads)) {
                    return Err(bad(format!("{} rows are not whole heads", shape[0])));
                }
                if names.norms_less_one && name.ends_with("_norm.weight") {
                    let (format, from) = (Format::F32, plus_one(format, file.bytes(source)?)?);
                    placed.push(Placed { name, shape, format, from });
                    continue;
                }
                let mut skip = 0;
                if name == "position_embd.weight" {
                    skip = self.config.first_position(names);
                    if shape[0] <= skip {
                        return Err(bad(format!(
                            "{} rows, the first position is {skip}",
                            shape[0]
                        )));
                    }
                    shape[0] -= skip;
                }
                let skip = skip as usize;
                let from = From::File { file: index, name: source.clone(), interleave, skip };
                placed.push(Placed { name, shape, format, from });
            }
        }
        placed.extend(experts.placed(&self.name(), self.config.experts())?);
        if let Some(factors) = self.config.rope_factors(&self.name())? {
            let from = From::Made(quant::encode(Format::F32, &factors)?);
            let (name, shape) = ("rope_freqs.weight".into(), vec![factors.len() as u64]);
            placed.push(Placed { name, shape, format: Format::F32, from });
        }
        placed.sort_by_cached_key(|tensor| names::place(&tensor.name));
        match placed.windows(2).find(|pair| pair[0].name == pair[1].name) {
            Some(pair) => {
                let name = &pair[0].name;
                Err(Error::bad_file(format!("{}: two tensors are `{name}`", self.name())))
            }
            None => Ok(placed),
        }
    }
}

impl Placed {
    /// Returns the number of rows: the product of all dimensions but the last.
    pub(super) fn rows(&self) -> usize {
        self.shape.iter().rev().skip(1).product::<u64>() as usize
    }
}

/// Decodes the weights of a norm, which are stored minus 1, and adds 1 to each.
fn plus_one(format: Format, bytes: &[u8]) -> Result<From> {
    let bits = format.block_bytes() as usize;
    let mut values = vec![0.0; bytes.len() / bits.max(1)];
    quant::decode(format, bytes, &mut values)?;
    values.iter_mut().for_each(|value| *value += 1.0);
    Ok(From::Made(quant::encode(Format::F32, &values)?))
}

/// Returns the row of the weight file that becomes `row` in GGUF, which interleaves the two halves
/// of each head of `len` rows.
fn interleaved(row: usize, len: usize) -> usize {
    let (head, at) = (row / len, row % len);
    head * len + at % 2 * (len / 2) + at / 2
}

/// Reads the hyperparameters of a model. Checks the model type first, because other types have
/// different fields.
fn read_config(folder: &Path) -> Result<Config> {
    let path = folder.join("config.json");
    if folder.is_dir() && !path.exists() {
        return Err(foreign::without(folder, "config.json"));
    }
    let bad = |e| Error::bad_file(format!("{}: {e}", path.display()));
    let text = text(&path)?;
    let text = without_mark(&text);
    let Kind { model_type } = serde_json::from_str(text).map_err(bad)?;
    names::of(&model_type, None, false).map_err(|e| e.context(path.display()))?;
    serde_json::from_str(text).map_err(bad)
}

/// Opens the weight files and checks that they contain the tensors that their index lists.
fn open_weights(folder: &Path) -> Result<Vec<Safetensors>> {
    const INDEX: &str = "model.safetensors.index.json";
    let open = |file: &str| {
        let file = folder.join(file);
        Safetensors::open(&file).map_err(|error| foreign::weights(&file, error))
    };
    let index = folder.join(INDEX);
    if !index.is_file() {
        let file = "model.safetensors";
        return match folder.join(file).exists() {
            true => Ok(vec![open(file)?]),
            false => Err(foreign::without(folder, file)),
        };
    }
    let Index { weight_map } = json(&index)?;
    let mut opened = Vec::new();
    for file in parts(&index, &weight_map)? {
        let places = || weight_map.iter().filter(|(_, place)| *place == file).map(|(name, _)| name);
        let path = folder.join(file);
        if let Err(error) = std::fs::metadata(&path) {
            let (name, count) = (path.display(), places().count());
            let what = format!(
                "{name}: cannot find it, but {INDEX} places {count} of {} tensors in it: fetch it \
                 too",
                weight_map.len()
            );
            return Err(Error::io(what, error));
        }
        let part = open(file)?;
        if let Some(tensor) = places().find(|tensor| !part.tensors().contains_key(*tensor)) {
            let name = path.display();
            let what = format!("{name}: no tensor `{tensor}`, but {INDEX} places it there");
            return Err(Error::bad_file(what));
        }
        opened.push(part);
    }
    Ok(opened)
}

/// Returns the sorted names of the files in an index.
fn parts<'a>(index: &Path, weight_map: &'a BTreeMap<String, String>) -> Result<Vec<&'a String>> {
    let mut files: Vec<&String> = weight_map.values().collect();
    files.sort();
    files.dedup();
    // Only plain file names are allowed, so that no path leads out of the folder.
    let plain = |name: &&String| {
        !name.contains(['/', '\\', ':', '\0']) && name.ends_with(".safetensors") && *name != ".."
    };
    match files.iter().find(|name| !plain(name)) {
        Some(name) => {
            let index = index.display();
            Err(Error::bad_file(format!("{index}: weight_map: {name:?} is not a file name")))
        }
        None => Ok(files),
    }
}

/// Reads a text file in UTF-8.
fn text(path: &Path) -> Result<String> {
    let name = path.display();
    let size = std::fs::metadata(path).map_err(|e| Error::io(format!("{name}: cannot find it"), e));
    let size = size?.len();
    if size > MAX_TEXT {
        return Err(Error::bad_file(format!("{name}: {size} bytes, at most {MAX_TEXT} are read")));
    }
    let bytes = std::fs::read(path).map_err(|e| Error::io(format!("{name}: cannot read it"), e))?;
    let bad = |what: String| Error::bad_file(format!("{name}: {what}"));
    if let Some(found) = gguf::foreign::stand_in(&bytes) {
        return Err(bad(found.to_string()));
    }
    if gguf::foreign::utf16(&bytes).is_some() {
        return Err(bad("text in UTF-16, which is not read: save it as UTF-8".into()));
    }
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        bad(format!("byte {at} and those behind it are no text in UTF-8"))
    })
}

/// Strips the byte order mark that some programs write before JSON.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Reads a JSON file.
fn json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    // The message of `serde_json` includes line and column.
    serde_json::from_str(without_mark(&text(path)?))
        .map_err(|e| Error::bad_file(format!("{}: {e}", path.display())))
}

#[cfg(test)]
mod tests;
