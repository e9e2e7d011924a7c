//! Quantises a model: reads the F32, F16 and BF16 weights of a GGUF file or a Hugging Face folder
//! and writes them to a GGUF file in a smaller format.
//!
//! Weights are streamed: on each thread, a slice of rows is decoded, packed and compared with the
//! original, and then written. This takes a few megabytes per thread, whatever the size of the
//! model. The new file appears only when it is complete (`atomic`).
//!
//! Matrices are written in the requested format. Vectors are written in F32, because they are small
//! and an error in a norm affects every value. A matrix gets a different format if its rows are not
//! a multiple of the block, or if the requested format is ternary and the matrix is the embedding
//! or the output matrix; the report notes this.

mod atomic;
mod place;
mod source;

use std::ops::ControlFlow;
use std::path::Path;

use source::{Source, Tensor};
use warploom::{Error, Result};
use warploom_core::base::{DType, Format};
use warploom_core::quant;
use warploom_models::gguf::{Value, Writer};

/// Target formats, each with llama.cpp's name for a file in that format and its value of
/// `general.file_type`.
pub const TARGETS: [(Format, &str, u32); 10] = [
    (Format::Q8_0, "Q8_0", 7),
    (Format::Q5_1, "Q5_1", 9),
    (Format::Q5_0, "Q5_0", 8),
    (Format::Q5K, "Q5_K", 16),
    (Format::Q4K, "Q4_K", 14),
    (Format::Q4_1, "Q4_1", 3),
    (Format::Q4_0, "Q4_0", 2),
    (Format::TQ2_0, "TQ2_0", 37),
    (Format::TQ1_0, "TQ1_0", 36),
    (Format::Plain(DType::F16), "F16", 1),
];

/// Number of weights that a thread packs at a time.
const SLICE: usize = 256 << 10;

/// Quantisation settings.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct QuantizeOptions {
    /// The format for matrices: one of [`TARGETS`].
    pub format: Format,
    /// Whether an existing output file may be replaced. An input file is never replaced.
    pub replace: bool,
    /// Number of threads; `None` uses one per core.
    pub threads: Option<usize>,
}

impl QuantizeOptions {
    /// Creates settings for this format, with one thread per core and without replacing an existing
    /// file.
    pub fn new(format: Format) -> QuantizeOptions {
        QuantizeOptions { format, replace: false, threads: None }
    }
}

crate::setters!(QuantizeOptions { format: Format, replace: bool, threads: Option<usize> });

/// Result of quantising a model.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QuantizeReport {
    /// All tensors, in the order of the new file.
    pub tensors: Vec<TensorReport>,
    /// Total size of the original tensors in bytes.
    pub bytes_before: u64,
    /// Size of the new file in bytes.
    pub bytes_after: u64,
}

/// Result of quantising a tensor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TensorReport {
    /// Name in the new file.
    pub name: String,
    /// Sizes, outermost first.
    pub shape: Vec<u64>,
    /// Original format.
    pub from: Format,
    /// New format.
    pub to: Format,
    /// Why the new format of a matrix is not the requested one; `None` if it is, and for other
    /// tensors.
    pub note: Option<String>,
    /// Root mean square error of the new values.
    pub rmse: f64,
    /// Root mean square of the original values, for comparison with `rmse`.
    pub rms: f64,
    /// Largest absolute error of a value.
    pub max_error: f64,
}

/// Quantises the model at `input`, which is a GGUF file, a Hugging Face folder or a file in such a
/// folder, and writes the GGUF file `output` or, if that is a link, its target. `progress` receives
/// the number of finished weights and their total; if it breaks, nothing is written and the result
/// is `None`.
///
/// # Errors
/// Invalid if the format is not a target, if the output already exists, is an input or is not a
/// regular file, or if a value is outside the range of its new format; unsupported if a tensor is
/// already quantised; bad file if the input is not valid; io if reading or writing fails, such as
/// on a full disk. No partial file remains after an error.
pub fn quantize(
    input: &Path,
    output: &Path,
    options: &QuantizeOptions,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Option<QuantizeReport>> {
    let target = TARGETS.iter().find(|(format, ..)| *format == options.format);
    let Some((_, _, file_type)) = target else {
        let known: Vec<&str> = TARGETS.iter().map(|(_, name, _)| *name).collect();
        let (format, known) = (options.format, known.join(", "));
        return Err(Error::invalid(format!("quantising to {format}; there are {known}")));
    };
    let place = place::of(input, output, options.replace)?;
    let source = Source::open(input)?;
    let tensors = source.tensors()?;
    let mut writer = Writer::new();
    source.describe(&mut writer)?;
    writer.key("general.file_type", Value::U32(*file_type))?;
    writer.key("general.quantization_version", Value::U32(2))?;
    let mut reports = Vec::with_capacity(tensors.len());
    for tensor in &tensors {
        let report = planned(tensor, options.format);
        writer.tensor(&report.name, &report.shape, report.to)?;
        reports.push(report);
    }
    let bytes_after = writer.file_bytes();
    let total = tensors.iter().map(|t| t.elements()).sum();
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let threads = options.threads.unwrap_or(cores).max(1);

    atomic::write(&place, bytes_after, |file| {
        let mut out = writer.begin(file)?;
        let mut done = 0;
        for (tensor, report) in tensors.iter().zip(&mut reports) {
            let mut sums = Sums::default();
            let columns = tensor.columns();
            let rows = (SLICE / columns).max(1);
            let mut from = 0;
            while from < tensor.rows() {
                if progress(done, total).is_break() {
                    return Ok(None);
                }
                let packed = slices(&source, tensor, report.to, from, rows, threads)?;
                for part in packed {
                    out.write(&part.bytes)?;
                    sums.add(&part.sums);
                    from += part.rows;
                    done += (part.rows * columns) as u64;
                }
            }
            sums.report(tensor.elements(), report);
        }
        if progress(done, total).is_break() {
            return Ok(None);
        }
        out.finish()?;
        Ok(Some(()))
    })
    .map(|written| {
        let bytes_before = tensors.iter().filter_map(|t| t.format.bytes(t.elements())).sum();
        written.map(|()| QuantizeReport { tensors: reports, bytes_before, bytes_after })
    })
}

/// Endings of names of matrices that stay F32: routers of experts, and short convolutions.
const KEPT: [&str; 2] = [".ffn_gate_inp.weight", ".ssm_conv1d.weight"];

/// Chooses the new format of a tensor, and returns its report without the measured errors.
fn planned(tensor: &Tensor, wanted: Format) -> TensorReport {
    let ternary = matches!(wanted, Format::TQ1_0 | Format::TQ2_0);
    let vocabulary = ["token_embd.weight", "output.weight"].contains(&tensor.name.as_str());
    let columns = tensor.columns() as u64;
    // The first format whose blocks divide a row.
    let fitting = |first: Format| {
        let all = [first, Format::Q8_0, Format::Plain(DType::F16)];
        all.into_iter().find(|f| columns.is_multiple_of(f.block_len())).unwrap_or(Format::F32)
    };
    let (to, note) = if !tensor.format_is_float() {
        (tensor.format, None)
    } else if tensor.shape.len() < 2 || !tensor.name.ends_with(".weight") {
        (Format::F32, None)
    } else if KEPT.iter().any(|name| tensor.name.ends_with(name)) {
        (Format::F32, Some("small, and decides what the rest computes".to_owned()))
    } else if ternary && vocabulary {
        (fitting(Format::Q8_0), Some("the vocabulary is not ternary".to_owned()))
    } else {
        let to = fitting(wanted);
        let block = wanted.block_len();
        let note = format!("rows of {columns} are not whole blocks of {block}");
        (to, (to != wanted).then_some(note))
    };
    TensorReport {
        name: tensor.name.clone(),
        shape: tensor.shape.clone(),
        from: tensor.format,
        to,
        note,
        rmse: 0.0,
        rms: 0.0,
        max_error: 0.0,
    }
}

/// Packed rows of a tensor.
struct Part {
    rows: usize,
    bytes: Vec<u8>,
    sums: Sums,
}

/// Packs up to `threads` slices of `rows` rows each in parallel, starting at row `from`, and
/// returns them in order.
fn slices(
    source: &Source,
    tensor: &Tensor,
    to: Format,
    from: usize,
    rows: usize,
    threads: usize,
) -> Result<Vec<Part>> {
    let starts = (0..threads).map(|i| from + i * rows).filter(|start| *start < tensor.rows());
    std::thread::scope(|scope| {
        let work = |start: usize| {
            let count = rows.min(tensor.rows() - start);
            pack(source, tensor, to, start, count).map_err(|e| {
                let (name, end) = (&tensor.name, start + count);
                e.context(format_args!("tensor `{name}`, rows {start} to {end}"))
            })
        };
        let running: Vec<_> = starts.map(|start| scope.spawn(move || work(start))).collect();
        let finished = running.into_iter().map(|thread| thread.join());
        finished.map(|part| part.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// Packs `count` rows from row `start` on and measures the error.
fn pack(source: &Source, tensor: &Tensor, to: Format, start: usize, count: usize) -> Result<Part> {
    let mut bytes = Vec::new();
    for row in start..start + count {
        bytes.extend_from_slice(source.row(tensor, row)?);
    }
    if to == tensor.format {
        let mut sums = Sums::default();
        if tensor.format_is_float() {
            let mut values = vec![0.0; count * tensor.columns()];
            quant::decode(to, &bytes, &mut values)?;
            sums.compare(&values, &values);
        }
        return Ok(Part { rows: count, bytes, sums });
    }
    let mut values = vec![0.0; count * tensor.columns()];
    quant::decode(tensor.format, &bytes, &mut values)?;
    let bytes = quant::encode(to, &values)?;
    let mut back = vec![0.0; values.len()];
    quant::decode(to, &bytes, &mut back)?;
    // Encoders of block formats refuse such values, but f16 has infinities and NaN.
    if let Some(at) = back.iter().position(|v| !v.is_finite()) {
        let (value, column) = (values[at], at % tensor.columns());
        return Err(Error::invalid(format!("column {column} is {value}, which {to} cannot hold")));
    }
    let mut sums = Sums::default();
    sums.compare(&values, &back);
    Ok(Part { rows: count, bytes, sums })
}

/// Error statistics of the values compared so far.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    squares: f64,
    errors: f64,
    max_error: f64,
}

impl Sums {
    fn compare(&mut self, before: &[f32], after: &[f32]) {
        for (before, after) in before.iter().zip(after) {
            let (before, error) = (f64::from(*before), f64::from(*after) - f64::from(*before));
            self.squares += before * before;
            self.errors += error * error;
            self.max_error = self.max_error.max(error.abs());
        }
    }

    fn add(&mut self, other: &Sums) {
        self.squares += other.squares;
        self.errors += other.errors;
        self.max_error = self.max_error.max(other.max_error);
    }

    fn report(&self, elements: u64, to: &mut TensorReport) {
        to.rmse = (self.errors / elements as f64).sqrt();
        to.rms = (self.squares / elements as f64).sqrt();
        to.max_error = self.max_error;
    }
}

/// Creates an empty folder for one test.
#[cfg(test)]
fn test_folder(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("warploom-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
