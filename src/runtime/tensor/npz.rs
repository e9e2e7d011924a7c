//! `.npz`: a ZIP archive with a `.npy` file for each array.

use std::io::{Cursor, Read, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::Tensor;
use crate::error::{Error, Result};
use crate::runtime::Runtime;

/// Room for the header of an array beside its elements.
const HEADER: u64 = 16 << 10;

impl Tensor {
    /// Creates a tensor for each array of a `.npz` file, as `numpy.savez` and `savez_compressed` write
    /// it; returns them with their names, in the order of the file. See [`Tensor::from_npy`].
    ///
    /// # Errors
    /// Invalid for bytes that are no such archive; those of [`Tensor::from_npy`], with the array's
    /// name; out of memory, before it is unpacked, for an array that exceeds a buffer of the device.
    #[track_caller]
    pub fn from_npz(runtime: &Runtime, bytes: &[u8]) -> Result<Vec<(String, Tensor)>> {
        let wrong = |error| Error::invalid(format!("npz: {error}"));
        let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(wrong)?;
        let most = runtime.device().profile().max_buffer_bytes.saturating_add(HEADER);
        let mut tensors = Vec::new();
        for i in 0..archive.len() {
            let file = archive.by_index(i).map_err(wrong)?;
            let name = file.name().map_err(wrong)?.into_owned();
            let of_array = |error: Error| error.context(format_args!("npz: array {name:?}"));
            // What an archive says of a size may be wrong, so that no more is read.
            let size = file.size();
            if size > most {
                let what = format!("npz: array {name:?}");
                return Err(Error::out_of_memory(what, size, most));
            }
            let mut data = Vec::new();
            file.take(size)
                .read_to_end(&mut data)
                .map_err(|e| Error::invalid(format!("npz: array {name:?}: {e}")))?;
            let tensor = Tensor::from_npy(runtime, &data).map_err(of_array)?;
            tensors.push((name.strip_suffix(".npy").unwrap_or(&name).to_owned(), tensor));
        }
        Ok(tensors)
    }

    /// Reads tensors as the bytes of a `.npz` file without compression, which `numpy.load` takes.
    ///
    /// ```
    /// # use warploom::{Runtime, Tensor};
    /// # fn main() -> warploom::Result<()> {
    /// # let runtime = Runtime::auto()?;
    /// let (w, b) = (Tensor::eye(&runtime, 2), Tensor::zeros(&runtime, [2]));
    /// let file = Tensor::to_npz(&[("w", &w), ("b", &b)])?;
    /// let arrays = Tensor::from_npz(&runtime, &file)?;
    /// assert_eq!((arrays[1].0.as_str(), arrays[1].1.shape()), ("b", &[2][..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Tensor::to_npy`]; invalid if two have one name.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn to_npz(tensors: &[(&str, &Tensor)]) -> Result<Vec<u8>> {
        crate::base::platform::block_on(Tensor::to_npz_async(tensors))
    }

    /// Async version of `Tensor::to_npz`.
    ///
    /// # Errors
    /// Same as `Tensor::to_npz`.
    pub async fn to_npz_async(tensors: &[(&str, &Tensor)]) -> Result<Vec<u8>> {
        let wrong = |name: &str, error: &dyn std::fmt::Display| {
            Error::invalid(format!("npz: array {name:?}: {error}"))
        };
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, tensor) in tensors {
            let data = tensor.to_npy_async().await?;
            let options = SimpleFileOptions::default()
                .compression_method(CompressionMethod::Stored)
                .large_file(data.len() > u32::MAX as usize);
            archive.start_file(format!("{name}.npy"), options).map_err(|e| wrong(name, &e))?;
            archive.write_all(&data).map_err(|e| wrong(name, &e))?;
        }
        let file = archive.finish().map_err(|e| wrong("", &e))?;
        Ok(file.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_come_back_and_wrong_ones_are_refused() {
        let rt = Runtime::builder().device("cpu").build().unwrap();
        let x = Tensor::arange(&rt, 0, 4, 1);
        let file = Tensor::to_npz(&[("x", &x), ("deep/y", &x.eq(1))]).unwrap();
        let arrays = Tensor::from_npz(&rt, &file).unwrap();
        let names: Vec<&str> = arrays.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["x", "deep/y"]);
        assert_eq!(arrays[0].1.to_vec::<i32>().unwrap(), [0, 1, 2, 3]);
        assert_eq!(arrays[1].1.to_vec::<bool>().unwrap(), [false, true, false, false]);
        let twice = Tensor::to_npz(&[("x", &x), ("x", &x)]).unwrap_err().to_string();
        assert!(twice.contains("\"x\""), "{twice}");
        assert!(Tensor::from_npz(&rt, b"\x93NUMPY").unwrap_err().to_string().contains("npz: "));
        // Compressed, and with an array that is none.
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
        archive.start_file("x.npy", options).unwrap();
        archive.write_all(&x.to_npy().unwrap()).unwrap();
        let good = archive.finish_into_readable().unwrap().into_inner().into_inner();
        assert_eq!(Tensor::from_npz(&rt, &good).unwrap()[0].1.shape(), [4]);
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        archive.start_file("notes.txt", options).unwrap();
        archive.write_all(b"text").unwrap();
        let bad = archive.finish().unwrap().into_inner();
        let error = Tensor::from_npz(&rt, &bad).unwrap_err().to_string();
        assert!(error.contains("array \"notes.txt\"") && error.contains("begins with"), "{error}");
        for at in 0..good.len() {
            assert!(Tensor::from_npz(&rt, &good[..at]).is_err(), "{at}");
            let mut changed = good.clone();
            changed[at] ^= 0x55;
            let _ = Tensor::from_npz(&rt, &changed);
        }
    }
}
