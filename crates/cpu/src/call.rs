//! The arguments of a kernel: parameters, memory ranges, threads and vector functions.
//!
//! Bindings are raw ranges, since a dispatch may bind one buffer several times. A kernel requests
//! its output first, then its inputs; both are checked against the binding. The output is only
//! written through a raw pointer ([`Out`]). An input is a slice if it shares no byte with an
//! output, otherwise a copy made before the first write. So a kernel reads its inputs as they were
//! before the launch, and no reference overlaps memory that is written.

use std::marker::PhantomData;
use std::ops::Deref;

use super::arch::Arch;
use super::arch::int8::Int8;
use super::epilogue::Epilogue;
use super::pool::Pool;
use warploom_core::base::Format;
use warploom_core::error::{Error, Result};

/// A checked range of a buffer. Its memory stays allocated until the work that resolved the range
/// is done. While a call uses it, the device's turn excludes all other access.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// Address of the first byte; a multiple of 4.
    pub(super) ptr: *mut u8,
    /// Size in bytes.
    pub(super) bytes: u64,
}

// SAFETY: a span is a checked address; `Call` defines which accesses through it are allowed.
unsafe impl Send for Span {}
// SAFETY: as above.
unsafe impl Sync for Span {}

/// Threads and vector functions of a device.
pub(super) struct Context {
    pub(super) pool: Pool,
    pub(super) arch: &'static Arch,
    /// Int8 functions for quantised rows.
    pub(super) int8: &'static Int8,
}

/// One kernel launch.
pub(super) struct Call<'a> {
    pub(super) params: &'a [u32],
    pub(super) spans: &'a [Span],
    /// Storage format of the weights of a kernel family, or of the keys and values of attention.
    pub(super) format: Format,
    /// Names and accesses of the bindings.
    pub(super) names: &'a [(&'static str, warploom_kernels::Access)],
    /// Whether the reduction order is fixed, as in deterministic mode (`catalogue::IN_ORDER`).
    pub(super) in_order: bool,
    /// Whether rows of x are rounded to 8 bits before they are multiplied (`catalogue::ROUNDED`).
    pub(super) rounded: bool,
    /// Whether the index that argmax returns is a token (`catalogue::TOKEN`).
    pub(super) token: bool,
    /// The epilogue and prologue fused into the kernel.
    pub(super) fusion: Option<&'a Epilogue>,
    pub(super) context: &'a Context,
}

/// Element types of 4, 2 or 1 bytes for which every bit pattern is valid.
pub(super) trait Element: Copy + Send + Sync {}
impl Element for f32 {}
impl Element for u32 {}
impl Element for i32 {}
impl Element for u16 {}
impl Element for u8 {}

/// Memory that a kernel writes: a raw pointer shared by threads, each writing its own elements.
#[derive(Clone, Copy)]
pub(super) struct Out<'a> {
    ptr: *mut f32,
    len: usize,
    memory: PhantomData<&'a ()>,
}

// SAFETY: writes go through `unsafe` methods, whose callers promise disjoint elements per thread.
unsafe impl Send for Out<'_> {}
// SAFETY: as above.
unsafe impl Sync for Out<'_> {}

impl<'a> Out<'a> {
    /// Wraps host memory as an output.
    pub(super) fn of(memory: &'a mut [f32]) -> Out<'a> {
        Out { ptr: memory.as_mut_ptr(), len: memory.len(), memory: PhantomData }
    }

    /// Returns the number of elements.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the pointer to element `at`.
    ///
    /// # Safety
    /// `at` is at most the length.
    pub(super) unsafe fn at(&self, at: usize) -> *mut f32 {
        debug_assert!(at <= self.len);
        // SAFETY: inside the range, by the caller's promise.
        unsafe { self.ptr.add(at) }
    }

    /// Returns elements `start .. start + len` for writing.
    ///
    /// # Safety
    /// The elements lie inside the range, and no other reference to any of them is alive.
    #[allow(clippy::mut_from_ref, reason = "the caller promises that no two overlap")]
    pub(super) unsafe fn slice(&self, start: usize, len: usize) -> &'a mut [f32] {
        debug_assert!(start + len <= self.len);
        // SAFETY: inside the range and unshared, by the caller's promise; any bits are an f32.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(start), len) }
    }
}

/// Elements that a kernel reads.
pub(super) enum Input<'a, T> {
    /// A slice of the buffer.
    Borrowed(&'a [T]),
    /// A copy, because the kernel writes to part of the same memory.
    Copied(Vec<T>),
}

impl<T> Deref for Input<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match self {
            Input::Borrowed(slice) => slice,
            Input::Copied(copy) => copy,
        }
    }
}

impl<'a> Call<'a> {
    /// Returns the first `N` parameters.
    ///
    /// # Errors
    /// Invalid if there are fewer.
    pub(super) fn words<const N: usize>(&self) -> Result<[usize; N]> {
        match self.params.first_chunk::<N>() {
            Some(words) => Ok(words.map(|w| w as usize)),
            None => Err(Error::invalid(format!("{} parameters, not {N}", self.params.len()))),
        }
    }

    /// Returns the parameter at index `at`, whose bits are an `f32`; NaN if it is missing.
    pub(super) fn float(&self, at: usize) -> f32 {
        self.params.get(at).map_or(f32::NAN, |bits| f32::from_bits(*bits))
    }

    fn range<T: Element>(
        &self,
        binding: usize,
        offset: usize,
        len: u64,
    ) -> Result<(*mut T, usize)> {
        let name = self.names.get(binding).map_or("?", |(name, _)| name);
        let span = self
            .spans
            .get(binding)
            .ok_or_else(|| Error::invalid(format!("binding {binding} ({name}) is missing")))?;
        let size = size_of::<T>() as u64;
        let end = (offset as u64).checked_add(len).and_then(|end| end.checked_mul(size));
        match end {
            Some(end) if end <= span.bytes => {}
            _ => {
                return Err(Error::invalid(format!(
                    "{name}: {len} elements of {size} bytes from element {offset} pass the \
                     binding's {} bytes",
                    span.bytes
                )));
            }
        }
        // SAFETY: the offset lies inside the span, by the check above.
        let ptr = unsafe { span.ptr.cast::<T>().add(offset) };
        Ok((ptr, len as usize))
    }

    /// Returns `len` elements of the last binding, from element `offset` on, for writing.
    ///
    /// # Errors
    /// Invalid if the elements exceed the binding.
    pub(super) fn output(&self, offset: usize, len: u64) -> Result<Out<'a>> {
        self.output_of(self.names.len() - 1, offset, len)
    }

    /// Returns `len` elements of a binding, from element `offset` on, for writing.
    ///
    /// # Errors
    /// Invalid if the elements exceed the binding.
    pub(super) fn output_of(&self, binding: usize, offset: usize, len: u64) -> Result<Out<'a>> {
        let (ptr, len) = self.range::<f32>(binding, offset, len)?;
        Ok(Out { ptr, len, memory: PhantomData })
    }

    /// Same as [`Call::output_of`] for two-byte elements. The result starts at the address of
    /// the first element; its length is the number of 32-bit words that hold the elements.
    ///
    /// # Errors
    /// Invalid if the elements exceed the binding.
    pub(super) fn f16_of(&self, binding: usize, offset: usize, len: u64) -> Result<Out<'a>> {
        let (ptr, len) = self.range::<u16>(binding, offset, len)?;
        Ok(Out { ptr: ptr.cast(), len: len.div_ceil(2), memory: PhantomData })
    }

    /// Returns `len` elements of a binding for reading; writes to `out` do not change them.
    ///
    /// # Errors
    /// Invalid if the elements exceed the binding.
    pub(super) fn input<T: Element>(
        &self,
        binding: usize,
        offset: usize,
        len: u64,
        out: &Out<'a>,
    ) -> Result<Input<'a, T>> {
        self.input_apart(binding, offset, len, std::slice::from_ref(out))
    }

    /// Returns `len` elements of a binding for reading; writes to `outs` do not change them.
    ///
    /// # Errors
    /// Invalid if the elements exceed the binding.
    pub(super) fn input_apart<T: Element>(
        &self,
        binding: usize,
        offset: usize,
        len: u64,
        outs: &[Out<'a>],
    ) -> Result<Input<'a, T>> {
        let (ptr, len) = self.range::<T>(binding, offset, len)?;
        // SAFETY: inside the span, aligned (spans start at multiples of 4), initialised (buffers
        // start as zeros) and any bits are a `T`. The device is locked for this call, which only
        // writes to `outs`, and until the copy below is made nothing is written.
        let slice = unsafe { std::slice::from_raw_parts(ptr, len) };
        let apart = |out: &Out<'_>| {
            ptr as usize + size_of_val(slice) <= out.ptr as usize
                || out.ptr as usize + out.len * size_of::<f32>() <= ptr as usize
        };
        Ok(if outs.iter().all(apart) {
            Input::Borrowed(slice)
        } else {
            Input::Copied(slice.to_vec())
        })
    }

    /// Checks that a binding holds `len` elements from element `offset` on, without reading them.
    ///
    /// # Errors
    /// Invalid if the elements exceed the binding.
    pub(super) fn check<T: Element>(&self, binding: usize, offset: usize, len: u64) -> Result<()> {
        self.range::<T>(binding, offset, len).map(|_| ())
    }

    /// Returns whether element `offset` of a binding has the address of the first element of `out`.
    pub(super) fn shares_start<T: Element>(
        &self,
        binding: usize,
        offset: usize,
        out: &Out<'a>,
    ) -> bool {
        let span = self.spans.get(binding);
        span.is_some_and(|span| span.ptr.cast::<T>().wrapping_add(offset).cast() == out.ptr)
    }
}

/// Returns the number of elements from the first to the last of a tensor with these (size, stride)
/// pairs, or 0 if it is empty. Saturates, so that an overflow fails every range check.
pub(super) fn extent(dims: &[(usize, usize)]) -> u64 {
    if dims.iter().any(|(size, _)| *size == 0) {
        return 0;
    }
    dims.iter().fold(1u64, |sum, (size, stride)| {
        sum.saturating_add((*size as u64 - 1).saturating_mul(*stride as u64))
    })
}

/// Returns the number of elements of a contiguous tensor; saturates.
pub(super) fn volume(sizes: &[usize]) -> u64 {
    sizes.iter().fold(1u64, |product, size| product.saturating_mul(*size as u64))
}

/// Panics if a slice of `len` elements does not hold a tensor with these (size, stride) pairs. That
/// is a bug in the kernel, which has already checked its bindings.
pub(super) fn assert_holds(len: usize, dims: &[(usize, usize)]) {
    let need = extent(dims);
    if need > len as u64 {
        warploom_core::error::broken_invariant(format!(
            "a kernel reaches {need} of {len} elements"
        ));
    }
}
