//! Formats tensors as text in the style of NumPy.

use std::fmt::Write;

use super::{Element, Tensor};
use crate::base::DType;
use crate::error::Result;
use crate::runtime::Runtime;

/// Number of elements above which only the ends of each axis are printed.
const SUMMARY: usize = 1000;
/// Elements printed at each end of an axis in a summary.
const EDGE: usize = 3;

impl Tensor {
    /// Formats the values as text; for large tensors, only the values at the ends of each axis.
    /// Runs pending operations first.
    ///
    /// ```
    /// # use warploom::{Runtime, Tensor};
    /// # fn main() -> warploom::Result<()> {
    /// let x = Tensor::arange(&Runtime::auto()?, 0.0, 4.0, 1.0).reshape([2, 2]) / 2;
    /// assert_eq!(x.text()?, "f32[2, 2]\n[[0  , 0.5],\n [1  , 1.5]]");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The tensor's deferred error, if it has one; invalid if its elements are packed; any planning
    /// or device error.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn text(&self) -> Result<String> {
        crate::base::platform::block_on(self.text_async())
    }

    /// Async version of [`Tensor::text`]; see [`crate::tensor`].
    ///
    /// # Errors
    /// Same as [`Tensor::text`].
    pub async fn text_async(&self) -> Result<String> {
        self.check_plain()?;
        let bytes = self.to_bytes_async().await?;
        let (dtype, dims, shape) = (self.dtype(), self.dims().to_string(), self.sizes().to_vec());
        let text = move |_: &Runtime| Ok(format!("{dtype}{dims}\n{}", body(dtype, &shape, &bytes)));
        self.runtime().offload(text).await
    }
}

fn body(dtype: DType, shape: &[usize], bytes: &[u8]) -> String {
    let cells: Vec<String> = match dtype {
        DType::F32 => cells(&f32::decode(bytes), |v| float(*v)),
        DType::F16 => cells(&half::f16::decode(bytes), |v| float(v.to_f32())),
        DType::BF16 => cells(&half::bf16::decode(bytes), |v| float(v.to_f32())),
        DType::I32 => cells(&i32::decode(bytes), i32::to_string),
        DType::U32 => cells(&u32::decode(bytes), u32::to_string),
        DType::Bool => cells(&bool::decode(bytes), bool::to_string),
    };
    block(shape, &cells)
}

fn cells<T>(values: &[T], text: impl Fn(&T) -> String) -> Vec<String> {
    values.iter().map(text).collect()
}

/// Formats a float with six significant digits, and with an exponent if it is far from 1.
fn float(value: f32) -> String {
    let size = value.abs();
    if !value.is_finite() || value == 0.0 {
        return value.to_string();
    }
    if !(1e-4..1e6).contains(&size) {
        return format!("{value:.5e}");
    }
    let digits = (5 - size.log10().floor() as i32).max(0) as usize;
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

/// Writes cells of equal width in nested brackets.
fn block(shape: &[usize], cells: &[String]) -> String {
    let short = cells.len() > SUMMARY;
    let mut shown = Vec::new();
    places(shape, short, 0, &mut shown);
    let width = shown.iter().filter_map(|at| cells.get(*at)).map(String::len).max().unwrap_or(0);
    let mut out = String::new();
    write_axis(&mut out, shape, cells, Style { short, width, depth: 0 }, 0);
    out
}

/// Returns the printed indices of an axis, with `None` for an omitted range.
fn along(size: usize, short: bool) -> Vec<Option<usize>> {
    match short && size > 2 * EDGE {
        false => (0..size).map(Some).collect(),
        true => {
            let ends = (0..EDGE).map(Some).chain([None]);
            ends.chain((size - EDGE..size).map(Some)).collect()
        }
    }
}

/// Appends the memory indices of the printed cells to `out`.
fn places(shape: &[usize], short: bool, start: usize, out: &mut Vec<usize>) {
    let [size, inner @ ..] = shape else { return out.push(start) };
    let step: usize = inner.iter().product();
    for at in along(*size, short).into_iter().flatten() {
        places(inner, short, start + at * step, out);
    }
}

#[derive(Clone, Copy)]
struct Style {
    short: bool,
    width: usize,
    /// Number of open brackets.
    depth: usize,
}

fn write_axis(out: &mut String, shape: &[usize], cells: &[String], style: Style, start: usize) {
    let [size, inner @ ..] = shape else {
        // Writing to a string does not fail.
        let _ = write!(out, "{:<width$}", cells[start], width = style.width);
        return;
    };
    let step: usize = inner.iter().product();
    out.push('[');
    for (i, at) in along(*size, style.short).into_iter().enumerate() {
        if i > 0 && inner.is_empty() {
            out.push_str(", ");
        } else if i > 0 {
            out.push(',');
            // One more empty line per axis between rows and this one.
            (0..inner.len()).for_each(|_| out.push('\n'));
            (0..=style.depth).for_each(|_| out.push(' '));
        }
        match at {
            Some(at) => {
                let style = Style { depth: style.depth + 1, ..style };
                write_axis(out, inner, cells, style, start + at * step);
            }
            None => out.push_str(".."),
        }
    }
    out.push(']');
}

#[cfg(not(target_arch = "wasm32"))]
impl std::fmt::Display for Tensor {
    /// Writes the text of [`Tensor::text`], which runs pending operations. An error is written in
    /// place of the values.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.text() {
            Ok(text) => f.write_str(&text),
            Err(error) => write!(f, "<{error}>"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_have_six_digits() {
        let texts = [0.0, 1.0, -1.5, 1.0 / 3.0, 123_456.7, 1e6, -3.25e-7, f32::NAN].map(float);
        assert_eq!(
            texts,
            ["0", "1", "-1.5", "0.333333", "123457", "1.00000e6", "-3.25000e-7", "NaN"]
        );
    }

    #[test]
    fn axes_are_nested_and_large_ones_cut() {
        let cells: Vec<String> = (0..8).map(|i| i.to_string()).collect();
        assert_eq!(block(&[2, 2, 2], &cells), "[[[0, 1],\n  [2, 3]],\n\n [[4, 5],\n  [6, 7]]]");
        assert_eq!((block(&[], &cells[..1]), block(&[0], &[])), ("0".into(), "[]".into()));
        let cells: Vec<String> = (0..2000).map(|i| i.to_string()).collect();
        assert_eq!(block(&[2000], &cells), "[0   , 1   , 2   , .., 1997, 1998, 1999]");
    }
}
