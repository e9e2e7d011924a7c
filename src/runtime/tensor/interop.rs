//! Tensors from and to the types of other crates, each with a feature of its name.

#[cfg(feature = "image")]
use image::{DynamicImage, Rgba, RgbaImage};
#[cfg(feature = "ndarray")]
use ndarray::{ArrayBase, ArrayD, Data, Dimension, IxDyn};

#[cfg(feature = "ndarray")]
use super::Element;
use super::Tensor;
use crate::error::{Error, Result};
use crate::runtime::Runtime;

#[cfg(feature = "ndarray")]
impl Tensor {
    /// Creates a tensor from an array of `ndarray`, in any layout; its elements are copied to the device
    /// immediately.
    ///
    /// ```
    /// use ndarray::array;
    /// use warploom::{Runtime, Tensor};
    ///
    /// # fn main() -> warploom::Result<()> {
    /// let a = array![[1.0_f32, 2.0], [3.0, 4.0]];
    /// let x = Tensor::from_ndarray(&Runtime::auto()?, &a.t());
    /// assert_eq!((x * 2.0).to_ndarray::<f32>()?, (&a.t() * 2.0).into_dyn());
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn from_ndarray<T: Element, S: Data<Elem = T>, D: Dimension>(
        runtime: &Runtime,
        array: &ArrayBase<S, D>,
    ) -> Tensor {
        match array.as_slice() {
            Some(values) => Tensor::from_slice(runtime, values, array.shape()),
            // Not in row-major order.
            None => {
                let values: Vec<T> = array.iter().copied().collect();
                Tensor::from_slice(runtime, &values, array.shape())
            }
        }
    }

    /// Reads the tensor as an array of `ndarray`, in row-major order.
    ///
    /// # Errors
    /// Same as `Tensor::to_vec`.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn to_ndarray<T: Element>(&self) -> Result<ArrayD<T>> {
        crate::base::platform::block_on(self.to_ndarray_async())
    }

    /// Async version of `Tensor::to_ndarray`.
    ///
    /// # Errors
    /// Same as `Tensor::to_vec`.
    pub async fn to_ndarray_async<T: Element>(&self) -> Result<ArrayD<T>> {
        let values = self.to_vec_async().await?;
        let shape = IxDyn(self.try_shape()?);
        ArrayD::from_shape_vec(shape, values).map_err(|e| Error::invalid(e.to_string()))
    }
}

#[cfg(feature = "image")]
impl Tensor {
    /// Creates a tensor `[channels, height, width]` from a picture of the crate `image`, as
    /// convolutions read it: `f32` from 0 to 1, or beyond for pictures of floats. Channels are those of
    /// the picture: grey, grey and alpha, RGB, or RGBA.
    #[track_caller]
    pub fn from_image(runtime: &Runtime, picture: &DynamicImage) -> Tensor {
        // Grey pictures have it in each of red, green and blue.
        let channels: &[usize] = match picture.color().channel_count() {
            1 => &[0],
            2 => &[0, 3],
            3 => &[0, 1, 2],
            _ => &[0, 1, 2, 3],
        };
        let pixels = picture.to_rgba32f();
        let (width, height) = (pixels.width() as usize, pixels.height() as usize);
        let mut values = Vec::with_capacity(channels.len() * width * height);
        for channel in channels {
            values.extend(pixels.pixels().map(|pixel| pixel.0[*channel]));
        }
        Tensor::from_slice(runtime, &values, [channels.len(), height, width])
    }

    /// Reads the tensor as a picture of the crate `image`, with 8 bits a channel: `[height, width]` or
    /// `[1, height, width]` is grey, and `[2, ..]`, `[3, ..]` and `[4, ..]` are grey and alpha, RGB, and
    /// RGBA. Numbers below 0, and NaN, become 0, and those above 1 become 1.
    ///
    /// # Errors
    /// Invalid for another shape; same as `Tensor::to_vec`.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn to_image(&self) -> Result<DynamicImage> {
        crate::base::platform::block_on(self.to_image_async())
    }

    /// Async version of `Tensor::to_image`.
    ///
    /// # Errors
    /// Same as `Tensor::to_image`.
    pub async fn to_image_async(&self) -> Result<DynamicImage> {
        let wrong = || {
            let text =
                format!("the shape {} is not [channels, height, width] of a picture", self.dims());
            Error::invalid(text)
        };
        let (channels, height, width) = match *self.try_shape()? {
            [height, width] => (1, height, width),
            [channels @ 1..=4, height, width] => (channels, height, width),
            _ => return Err(wrong()),
        };
        let size = (u32::try_from(width), u32::try_from(height));
        let (Ok(columns), Ok(rows)) = size else { return Err(wrong()) };
        let values = self.to_vec_async::<f32>().await?;
        let plane = height * width;
        let byte = |channel: usize, at: usize| {
            // NaN becomes 0.
            (values[channel * plane + at].clamp(0.0, 1.0) * 255.0).round() as u8
        };
        let pixel = |x: u32, y: u32| {
            let at = y as usize * width + x as usize;
            Rgba(match channels {
                1 => [byte(0, at), byte(0, at), byte(0, at), 255],
                2 => [byte(0, at), byte(0, at), byte(0, at), byte(1, at)],
                3 => [byte(0, at), byte(1, at), byte(2, at), 255],
                _ => [byte(0, at), byte(1, at), byte(2, at), byte(3, at)],
            })
        };
        let picture = DynamicImage::ImageRgba8(RgbaImage::from_fn(columns, rows, pixel));
        Ok(match channels {
            1 => picture.to_luma8().into(),
            2 => picture.to_luma_alpha8().into(),
            3 => picture.to_rgb8().into(),
            _ => picture,
        })
    }
}
