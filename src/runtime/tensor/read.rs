//! Reads of tensors, which run pending operations and wait for the device.

use std::sync::Arc;

use super::eval::{evaluate, reading};
use super::node::Stored;
use super::{Element, Tensor};
use crate::base::{Dim, SymbolValues};
use crate::error::{Error, Result, broken_invariant};
use crate::provider::{Args, Command, Recording, SlotRange};
use crate::runtime::Runtime;
use crate::runtime::batcher::{Keep, Work};
use crate::runtime::offload::Prepared;

/// Maximum bytes of a read that the polling thread decodes itself, in some microseconds.
const DECODED_IN_PLACE: usize = 64 << 10;
/// Maximum bytes of a read that the polling thread submits itself. Through CUDA the submit
/// allocates pinned memory for them: reads of 256 MiB blocked an H200's thread for some 130 ms.
const SUBMITTED_IN_PLACE: u64 = 1 << 20;

impl Tensor {
    /// Returns the values in row-major order. Runs pending operations first.
    ///
    /// # Errors
    /// The tensor's deferred error; invalid if its elements are not of type `T` or are packed; any
    /// planning or device error. Out of memory and a lost device have their own error kinds. After
    /// out of memory the runtime stays usable.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        crate::base::platform::block_on(self.to_vec_async())
    }

    /// Async version of [`Tensor::to_vec`]; see [`crate::tensor`].
    ///
    /// # Errors
    /// Same as [`Tensor::to_vec`].
    pub async fn to_vec_async<T: Element>(&self) -> Result<Vec<T>> {
        self.check_plain()?;
        if T::DTYPE != self.dtype() {
            let error = Error::invalid(format!(
                "elements are {}, not {}: cast before",
                self.dtype(),
                T::DTYPE
            ));
            return Err(reading(error, self));
        }
        let bytes = self.to_bytes_async().await?;
        match bytes.len() > DECODED_IN_PLACE {
            true => self.runtime().offload(move |_| Ok(T::decode(&bytes))).await,
            false => Ok(T::decode(&bytes)),
        }
    }

    /// Returns the rows of a matrix.
    ///
    /// # Errors
    /// Same as [`Tensor::to_vec`], and invalid for any other rank.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn to_vec2<T: Element>(&self) -> Result<Vec<Vec<T>>> {
        crate::base::platform::block_on(self.to_vec2_async())
    }

    /// Async version of [`Tensor::to_vec2`]; see [`crate::tensor`].
    ///
    /// # Errors
    /// Same as [`Tensor::to_vec2`].
    pub async fn to_vec2_async<T: Element>(&self) -> Result<Vec<Vec<T>>> {
        self.check()?;
        let [rows, columns] = *self.sizes() else {
            let error = Error::invalid(format!("the rows of the shape {}", self.dims()));
            return Err(reading(error, self));
        };
        let values = self.to_vec_async::<T>().await?;
        // A row without elements has no chunk.
        Ok((0..rows).map(|row| values[row * columns..(row + 1) * columns].to_vec()).collect())
    }

    /// Returns the value of a tensor with one element.
    ///
    /// # Errors
    /// Same as [`Tensor::to_vec`], and invalid if there is not exactly one element.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn item<T: Element>(&self) -> Result<T> {
        crate::base::platform::block_on(self.item_async())
    }

    /// Async version of [`Tensor::item`]; see [`crate::tensor`].
    ///
    /// # Errors
    /// Same as [`Tensor::item`].
    pub async fn item_async<T: Element>(&self) -> Result<T> {
        self.check()?;
        match self.to_vec_async().await?[..] {
            [value] => Ok(value),
            _ => {
                let (count, shape) = (self.count(), self.dims());
                let what = format!("one number of {count}, of a tensor of the shape {shape}");
                Err(reading(Error::invalid(what), self))
            }
        }
    }

    /// Blocking version of [`Tensor::to_bytes_async`].
    ///
    /// # Errors
    /// The tensor's deferred error; any planning or device error.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        crate::base::platform::block_on(self.to_bytes_async())
    }

    /// Checks that the elements are not stored packed.
    pub(super) fn check_plain(&self) -> Result<()> {
        match self.node.stored()? {
            Some(stored) if stored.format.is_quantised() => {
                let what = format!("packed as {}: gather rows of it", stored.format);
                Err(reading(Error::invalid(what), self))
            }
            _ => Ok(()),
        }
    }

    /// Returns the bytes on the device, little-endian in row-major order. A `bool` takes four
    /// bytes; a packed weight is in its storage format.
    ///
    /// # Errors
    /// The tensor's deferred error; any planning or device error.
    pub async fn to_bytes_async(&self) -> Result<Vec<u8>> {
        evaluate(&[self]).await?;
        let Some(stored) = self.node.stored()? else {
            broken_invariant(format_args!("{} did not run", self.node.origin()));
        };
        let bytes = match stored.format.bytes(self.count() as u64) {
            Some(bytes) => bytes,
            None => broken_invariant(format_args!("{} is not whole blocks", self.dims())),
        };
        let mut data = self.download(&stored, bytes).await.map_err(|e| reading(e, self))?;
        // A failure is known at the latest after the wait.
        if let Some(error) = stored.failure() {
            return Err(reading(error, self));
        }
        data.truncate(bytes as usize);
        Ok(data)
    }

    async fn download(&self, stored: &Arc<Stored>, bytes: u64) -> Result<Vec<u8>> {
        if bytes == 0 {
            return Ok(Vec::new());
        }
        let runtime = self.runtime();
        let mut recording = Recording { label: "read".into(), ..Recording::default() };
        // Memory is accessed in whole words.
        let slot = recording.slot("tensor", bytes.next_multiple_of(4));
        let from =
            SlotRange { slot, offset: Dim::new(0), bytes: Dim::from(bytes.next_multiple_of(4)) };
        recording.commands.push(Command::Download { from });
        let prepared = Prepared::new(runtime.device(), &recording, &[Some(stored.buffer.range())])?;
        let work = Work {
            prepared: prepared.id,
            dispatches: 0,
            downloads: 1,
            buffers: [stored.buffer.range().buffer].into(),
        };
        let keep = Keep { things: vec![stored.clone(), Arc::new(prepared)], bytes: 0 };
        let args = Args { symbols: SymbolValues::new(), ..Args::default() };
        let pending = match bytes > SUBMITTED_IN_PLACE {
            true => {
                let submit = move |runtime: &Runtime| {
                    let pending = runtime.batcher().record(&work, args, keep)?;
                    runtime.batcher().flush()?;
                    Ok(pending)
                };
                runtime.offload(submit).await?
            }
            false => runtime.batcher().record(&work, args, keep)?,
        };
        let mut downloads = runtime.batcher().read_async(pending).await?;
        downloads.pop().ok_or_else(|| Error::device("a download yielded nothing"))
    }
}
