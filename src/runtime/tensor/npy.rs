//! Files of NumPy: `.npy` holds one array, `.npz` is a ZIP archive of them.
//!
//! The format is NumPy's NEP 1, in its versions 1.0 to 3.0. The crate `npyz` was tried and panics on
//! headers that lie; the header is a dictionary of three known keys, so its reader is short.

use half::f16;

use super::{Element, Tensor};
use crate::base::DType;
use crate::error::{Error, Result};
use crate::runtime::Runtime;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Largest header: NumPy's own limit, for the same reason.
const HEADER: usize = 10_000;
/// Largest number of axes, which is NumPy's.
const AXES: usize = 64;

/// What a header says.
#[derive(Debug, PartialEq)]
struct Header {
    /// Type of the elements, such as `<f4`.
    descr: String,
    /// Whether the first axis is contiguous.
    fortran: bool,
    shape: Vec<usize>,
}

impl Tensor {
    /// Creates a tensor from the bytes of a `.npy` file, as `numpy.save` writes it, in either byte
    /// order and in C or Fortran order.
    ///
    /// `float32`, `float16`, `int32`, `uint32` and `bool` keep their type. Smaller integers become
    /// `i32` or `u32`. So do those of 64 bits, if every value fits.
    ///
    /// ```
    /// # use warploom::{Runtime, Tensor};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::auto()?;
    /// # let path = std::env::temp_dir().join("warploom-doc.npy");
    /// let x = Tensor::arange(&runtime, 0, 6, 1).reshape([2, 3]);
    /// std::fs::write(&path, x.to_npy()?)?;
    /// let y = Tensor::from_npy(&runtime, &std::fs::read(&path)?)?;
    /// assert_eq!(y.to_vec2::<i32>()?, [[0, 1, 2], [3, 4, 5]]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Invalid for bytes that are no such file, naming the offset, and for elements of another type,
    /// `float64` among them: save those with `.astype(numpy.float32)`.
    #[track_caller]
    pub fn from_npy(runtime: &Runtime, bytes: &[u8]) -> Result<Tensor> {
        let (header, start) = header(bytes)?;
        let data = &bytes[start..];
        let count = header.shape.iter().try_fold(1_usize, |all, size| all.checked_mul(*size));
        let kind = header.descr.trim_start_matches(['<', '>', '|', '=']);
        let size = kind.get(1..).and_then(|size| size.parse::<usize>().ok()).unwrap_or(0);
        let needed = count.and_then(|count| count.checked_mul(size.max(1)));
        if needed.is_none_or(|needed| needed > data.len()) {
            return Err(Error::invalid(format!(
                "npy: {} elements of {:?} from byte {start} on in {} bytes",
                shown(&header.shape),
                header.descr,
                bytes.len()
            )));
        }
        let data = &data[..needed.unwrap_or(0)];
        let data = match header.descr.starts_with('>') && size > 1 {
            true => {
                let swapped = data.chunks_exact(size).flat_map(|bytes| bytes.iter().rev().copied());
                swapped.collect::<Vec<u8>>().into()
            }
            false => std::borrow::Cow::Borrowed(data),
        };
        let flat = elements(runtime, kind, &data).ok_or_else(|| unknown(&header.descr))?;
        let tensor = if header.fortran {
            let reversed: Vec<usize> = header.shape.iter().rev().copied().collect();
            let axes: Vec<isize> = (0..reversed.len() as isize).rev().collect();
            flat.reshape(reversed).permute(axes)
        } else {
            flat.reshape(header.shape)
        };
        tensor.check()?;
        Ok(tensor)
    }

    /// Reads the tensor as the bytes of a `.npy` file, which `numpy.load` takes.
    ///
    /// # Errors
    /// Same as `Tensor::to_bytes`; invalid for `bf16`, which NumPy lacks: cast before.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn to_npy(&self) -> Result<Vec<u8>> {
        crate::base::platform::block_on(self.to_npy_async())
    }

    /// Async version of `Tensor::to_npy`.
    ///
    /// # Errors
    /// Same as `Tensor::to_npy`.
    pub async fn to_npy_async(&self) -> Result<Vec<u8>> {
        let shape = self.try_shape()?.to_vec();
        let descr = match self.dtype() {
            DType::F32 => "<f4",
            DType::F16 => "<f2",
            DType::I32 => "<i4",
            DType::U32 => "<u4",
            DType::Bool => "|b1",
            dtype => {
                return Err(Error::invalid(format!("npy has no {dtype}: cast to f32 before")));
            }
        };
        let mut file = header_of(descr, &shape);
        match self.dtype() {
            // Four bytes each on a device.
            DType::Bool => {
                file.extend(self.to_vec_async::<bool>().await?.into_iter().map(u8::from));
            }
            _ => {
                self.check_plain()?;
                file.extend(self.to_bytes_async().await?);
            }
        }
        Ok(file)
    }
}

/// Returns the elements as a vector; `None` for an unknown type.
#[track_caller]
fn elements(runtime: &Runtime, kind: &str, data: &[u8]) -> Option<Tensor> {
    macro_rules! vector {
        ($from:ty, $to:ty) => {{
            let (values, _) = data.as_chunks();
            let values = values.iter().map(|v| <$from>::from_le_bytes(*v) as $to);
            of(runtime, values.collect())
        }};
    }
    Some(match kind {
        "f4" => vector!(f32, f32),
        "f2" => {
            let (values, _) = data.as_chunks();
            of(runtime, values.iter().map(|v| f16::from_le_bytes(*v)).collect())
        }
        "i4" => vector!(i32, i32),
        "u4" => vector!(u32, u32),
        "b1" => of(runtime, data.iter().map(|v| *v != 0).collect()),
        "i1" => vector!(i8, i32),
        "i2" => vector!(i16, i32),
        "u1" => vector!(u8, u32),
        "u2" => vector!(u16, u32),
        // Checked to fit by `Tensor::from_vec`.
        "i8" => vector!(i64, i64),
        "u8" => return narrowed(runtime, data),
        _ => return None,
    })
}

#[track_caller]
fn of<T: Element>(runtime: &Runtime, values: Vec<T>) -> Tensor {
    let count = values.len();
    Tensor::from_vec(runtime, values, [count])
}

/// Returns unsigned integers of 64 bits as `u32`; a value that does not fit makes a failed tensor.
#[track_caller]
fn narrowed(runtime: &Runtime, data: &[u8]) -> Option<Tensor> {
    let (values, _) = data.as_chunks();
    let mut narrow = Vec::with_capacity(values.len());
    for (at, value) in values.iter().enumerate() {
        let value = u64::from_le_bytes(*value);
        match u32::try_from(value) {
            Ok(value) => narrow.push(value),
            Err(_) => {
                let text = format!("element {at} is {value}, which does not fit u32");
                let at = super::place::here();
                return Some(Tensor::failed(runtime, "from_npy", at, Error::invalid(text)));
            }
        }
    }
    Some(of(runtime, narrow))
}

fn unknown(descr: &str) -> Error {
    Error::invalid(match descr.trim_start_matches(['<', '>', '|', '=']) {
        "f8" => "npy: elements are float64, which devices lack: save them with \
                 .astype(numpy.float32)"
            .to_owned(),
        _ => format!("npy: elements of type {descr:?}, which are no numbers of a tensor"),
    })
}

/// Returns a shape in Python's notation.
fn shown(shape: &[usize]) -> String {
    match shape {
        [one] => format!("({one},)"),
        _ => {
            let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
            format!("({})", sizes.join(", "))
        }
    }
}

/// Returns the first bytes of a file, padded so that the elements are aligned as NumPy aligns them.
fn header_of(descr: &str, shape: &[usize]) -> Vec<u8> {
    let mut text =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {}, }}", shown(shape));
    let before = MAGIC.len() + 4;
    let padded = (before + text.len() + 1).next_multiple_of(64) - before;
    text.extend(std::iter::repeat_n(' ', padded - 1 - text.len()));
    text.push('\n');
    // A tensor has few axes, so the length fits two bytes.
    let mut file = [MAGIC, &[1, 0], &(text.len() as u16).to_le_bytes()].concat();
    file.extend(text.as_bytes());
    file
}

/// Reads the header of a file; returns it and where the elements begin.
fn header(bytes: &[u8]) -> Result<(Header, usize)> {
    let wrong = |what: String| Error::invalid(format!("npy: {what}"));
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        let first = &bytes[..bytes.len().min(MAGIC.len())];
        return Err(wrong(format!("begins with {first:02x?}, not with {MAGIC:02x?}")));
    };
    let (length, start) = match *rest {
        [1, _, a, b, ..] => (usize::from(u16::from_le_bytes([a, b])), 10),
        [2 | 3, _, a, b, c, d, ..] => (u32::from_le_bytes([a, b, c, d]) as usize, 12),
        [version, ..] if version > 3 || version == 0 => {
            return Err(wrong(format!("version {version}, not 1 to 3")));
        }
        _ => return Err(wrong(format!("ends after {} bytes, in its header", bytes.len()))),
    };
    if length > HEADER {
        return Err(wrong(format!("a header of {length} bytes, over {HEADER}")));
    }
    let Some(text) = bytes.get(start..start + length) else {
        let have = bytes.len() - start;
        return Err(wrong(format!("a header of {length} bytes, of which {have} are there")));
    };
    let text = std::str::from_utf8(text)
        .map_err(|e| wrong(format!("byte {} is not UTF-8", start + e.valid_up_to())))?;
    let mut reader = Reader { text, at: 0 };
    let header = reader
        .dictionary()
        .map_err(|what| wrong(format!("{what} at byte {}", start + reader.at)))?;
    Ok((header, start + length))
}

/// Reads the Python literal of a header. Errors are what is wrong at the current place.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

type Read<T> = std::result::Result<T, String>;

impl<'a> Reader<'a> {
    fn dictionary(&mut self) -> Read<Header> {
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        self.expect("{")?;
        while !self.takes("}") {
            let key = self.quoted()?;
            self.expect(":")?;
            match key {
                "descr" => descr = Some(self.quoted()?.to_owned()),
                "fortran_order" => fortran = Some(self.truth()?),
                "shape" => shape = Some(self.sizes()?),
                _ => return Err(format!("unknown key {key:?}")),
            }
            if !self.takes(",") {
                self.expect("}")?;
                break;
            }
        }
        let missing = |key: &str| format!("no key {key:?}");
        Ok(Header {
            descr: descr.ok_or_else(|| missing("descr"))?,
            fortran: fortran.ok_or_else(|| missing("fortran_order"))?,
            shape: shape.ok_or_else(|| missing("shape"))?,
        })
    }

    /// Returns what follows, after spaces.
    fn rest(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    fn takes(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Read<()> {
        match self.takes(token) {
            true => Ok(()),
            false => Err(format!("no {token:?}")),
        }
    }

    fn quoted(&mut self) -> Read<&'a str> {
        let rest = self.rest();
        let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'));
        // Types of several fields are lists.
        let quote = quote.ok_or("no text in quotes, as a type of one number is")?;
        let Some((text, _)) = rest[1..].split_once(quote) else {
            return Err("text without its end".into());
        };
        self.at += text.len() + 2;
        Ok(text)
    }

    fn truth(&mut self) -> Read<bool> {
        if self.takes("True") {
            return Ok(true);
        }
        match self.takes("False") {
            true => Ok(false),
            false => Err("neither True nor False".into()),
        }
    }

    fn sizes(&mut self) -> Read<Vec<usize>> {
        self.expect("(")?;
        let mut sizes = Vec::new();
        while !self.takes(")") {
            let rest = self.rest();
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let size = rest[..digits].parse().map_err(|_| "no size of an axis")?;
            if sizes.len() == AXES {
                return Err(format!("over {AXES} axes"));
            }
            sizes.push(size);
            self.at += digits;
            if !self.takes(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(sizes)
    }
}

#[cfg(test)]
#[path = "npy_tests.rs"]
mod tests;
