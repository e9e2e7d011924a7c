//! Tensors from and to the types of other crates.

use image::{DynamicImage, GrayImage, Luma, LumaA, Rgb, RgbImage, Rgba};
use ndarray::{Array3, ArrayD, IxDyn, array, s};
use warploom::{DType, Runtime, Tensor};

fn runtime() -> Runtime {
    Runtime::builder().device("cpu").build().unwrap()
}

#[test]
fn arrays_of_ndarray_in_any_layout() {
    let rt = runtime();
    let a = Array3::from_shape_fn((3, 4, 5), |(i, j, k)| (100 * i + 10 * j + k) as f32);
    let x = Tensor::from_ndarray(&rt, &a);
    assert_eq!((x.shape(), x.to_ndarray::<f32>().unwrap()), (&[3, 4, 5][..], a.clone().into_dyn()));
    // Neither transposed nor cut arrays are in row-major order.
    let turned = a.view().reversed_axes();
    assert_eq!(Tensor::from_ndarray(&rt, &turned).to_ndarray::<f32>().unwrap(), turned.into_dyn());
    let cut = a.slice(s![..;2, 1..3, ..;-1]);
    assert_eq!(Tensor::from_ndarray(&rt, &cut).to_ndarray::<f32>().unwrap(), cut.into_dyn());
    let product = Tensor::from_ndarray(&rt, &array![[1_i32, 2], [3, 4]]) * 3;
    assert_eq!(product.to_ndarray::<i32>().unwrap(), array![[3, 6], [9, 12]].into_dyn());
    let one: ArrayD<f32> = Tensor::scalar(&rt, 7.0_f32).to_ndarray().unwrap();
    assert_eq!(one, ArrayD::from_elem(IxDyn(&[]), 7.0));
    let none = Tensor::from_ndarray(&rt, &ndarray::Array2::<f32>::zeros((0, 3)));
    assert_eq!(none.to_ndarray::<f32>().unwrap().shape(), [0, 3]);
    let error = x.to_ndarray::<i32>().unwrap_err().to_string();
    assert!(error.contains("f32, not i32"), "{error}");
    let bad = &x + Tensor::ones(&rt, [2]);
    assert!(bad.to_ndarray::<f32>().unwrap_err().to_string().contains("do not broadcast"));
}

#[test]
fn pictures_of_every_kind_come_back() {
    let rt = runtime();
    let (w, h) = (5, 3);
    let byte = |x: u32, y: u32, channel: u32| (x * 50 + y * 7 + channel * 3) as u8;
    let pictures: [(usize, DynamicImage); 4] = [
        (1, GrayImage::from_fn(w, h, |x, y| Luma([byte(x, y, 0)])).into()),
        (
            2,
            image::GrayAlphaImage::from_fn(w, h, |x, y| LumaA([byte(x, y, 0), byte(x, y, 1)]))
                .into(),
        ),
        (3, RgbImage::from_fn(w, h, |x, y| Rgb([0, 1, 2].map(|c| byte(x, y, c)))).into()),
        (
            4,
            image::RgbaImage::from_fn(w, h, |x, y| Rgba([0, 1, 2, 3].map(|c| byte(x, y, c))))
                .into(),
        ),
    ];
    for (channels, picture) in pictures {
        let x = Tensor::from_image(&rt, &picture);
        assert_eq!((x.shape(), x.dtype()), (&[channels, 3, 5][..], DType::F32));
        assert_eq!(x.to_image().unwrap(), picture, "{channels} channels");
        // A row is along the width.
        let last = x.index(0, -1).index(0, 1).to_vec::<f32>().unwrap();
        let want = (0..5).map(|x| f32::from(byte(x, 1, channels as u32 - 1)) / 255.0);
        let difference = last.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(difference < 1e-6, "{last:?}");
    }
    // What no byte holds, in a picture without channels.
    let x = Tensor::from_vec(&rt, vec![-1.0_f32, f32::NAN, 0.5, 2.0], [2, 2]);
    assert_eq!(x.to_image().unwrap().to_luma8().into_raw(), [0, 0, 128, 255]);
    for wrong in [vec![5, 2, 2], vec![4], vec![1, 1, 2, 2]] {
        let error = Tensor::ones(&rt, wrong).to_image().unwrap_err();
        assert!(
            error.is_invalid() && error.to_string().contains("channels, height, width"),
            "{error}"
        );
    }
}
