//! Sorting, the largest elements, quantiles, distinct values; convolutions over one axis, transposed
//! ones and interpolation; inverse functions. On every device.

use warploom::graph::Conv2d;
use warploom::tensor::Conv1d;
use warploom::{DType, Tensor};

use super::tensor::{close, cpu, on_each};

/// Values without order, some of them equal.
fn scattered(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + 13) % 1009 % 400) as f32 - 200.0).collect()
}

fn ids(tensor: &Tensor) -> Vec<u32> {
    tensor.to_vec::<u32>().unwrap()
}

#[test]
fn sorted_rows_are_those_of_std() {
    on_each(|rt| {
        // On one workgroup, and on several with merges.
        for n in [7, 1000, 5000] {
            let values = scattered(2 * n);
            let x = Tensor::from_slice(rt, &values, [2, n]);
            for descending in [false, true] {
                let mut want = Vec::new();
                for row in values.chunks(n) {
                    let mut order: Vec<u32> = (0..n as u32).collect();
                    order.sort_by(|a, b| {
                        let (a, b) = (row[*a as usize], row[*b as usize]);
                        if descending { b.total_cmp(&a) } else { a.total_cmp(&b) }
                    });
                    want.extend(order);
                }
                assert_eq!(ids(&x.argsort(-1, descending)), want, "{n} {descending}");
                let sorted: Vec<f32> = want
                    .iter()
                    .enumerate()
                    .map(|(i, id)| values[i / n * n + *id as usize])
                    .collect();
                let have = x.sort(1, descending);
                assert_eq!(have.to_vec::<f32>().unwrap(), sorted, "{n} {descending}");
                let columns = x.t().sort(0, descending).t();
                assert_eq!(columns.to_vec::<f32>().unwrap(), sorted, "{n} {descending}");
            }
        }
        let x = Tensor::from_vec(rt, vec![3_i32, i32::MIN, -1, i32::MAX, 0], [5]);
        let sorted = x.sort(0, false).to_vec::<i32>().unwrap();
        assert_eq!(sorted, [i32::MIN, -1, 0, 3, i32::MAX]);
        let x = Tensor::from_vec(rt, vec![3_u32, u32::MAX, 0, 1 << 31], [4]);
        assert_eq!(ids(&x.sort(0, true)), [u32::MAX, 1 << 31, 3, 0]);
        let half = Tensor::from_slice(rt, &[2.5, -1.0, 0.25], [3]).cast(DType::F16);
        close(&half.sort(0, false).cast(DType::F32), &[-1.0, 0.25, 2.5]);
    });
}

#[test]
fn the_largest_are_found_by_either_way() {
    on_each(|rt| {
        let values = scattered(2 * 60);
        let x = Tensor::from_slice(rt, &values, [2, 60]);
        // Searched, and sorted.
        for k in [0, 1, 5, 16, 17, 60] {
            let (largest, found) = x.top_k(k, 1);
            let sorted = x.sort(1, true).narrow(1, ..k);
            assert_eq!(largest.shape(), [2, k]);
            assert_eq!(largest.to_vec::<f32>().unwrap(), sorted.to_vec::<f32>().unwrap(), "{k}");
            let order = x.argsort(1, true).narrow(1, ..k);
            assert_eq!(ids(&found), ids(&order), "{k}");
        }
        let (largest, found) = x.t().top_k(3, 0);
        assert_eq!((largest.shape(), found.shape()), (&[3, 2][..], &[3, 2][..]));
        let (largest, _) = Tensor::from_vec(rt, vec![4_i32, -9, 7], [3]).top_k(2, 0);
        assert_eq!(largest.to_vec::<i32>().unwrap(), [7, 4]);
    });
}

#[test]
fn quantiles_are_those_of_numpy() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    on_each(|rt| {
        let x = Tensor::from_vec(rt, vec![7.0_f32, 1.0, 3.0, 4.0, 2.0, 8.0], [2, 3]);
        close(&x.median(1), &[3.0, 4.0]);
        close(&x.median(0), &[5.5, 1.5, 5.5]);
        close(&x.quantile(0.25, 1), &[2.0, 3.0]);
        close(&x.quantile(0.9, -1), &[6.2, 7.2]);
        close(&x.quantile(0.0, 1), &[1.0, 2.0]);
        close(&x.quantile(1.0, 1), &[7.0, 8.0]);
        let rows = vec![1.0, nan, 2.0, inf, inf, 0.0, -inf, 1.0, 2.0];
        let special = Tensor::from_vec(rt, rows, [3, 3]).median(1).to_vec::<f32>().unwrap();
        assert!(special[0].is_nan() && special[1..] == [inf, 1.0], "{special:?}");
        close(&Tensor::from_vec(rt, vec![inf, inf], [2]).quantile(0.5, 0), &[inf]);
    });
}

#[test]
fn distinct_values_are_counted() {
    on_each(|rt| {
        let x = Tensor::from_vec(rt, vec![2.0, f32::NAN, -1.0, 2.0, f32::NAN, 2.0], [2, 3]);
        let (values, counts) = x.unique().unwrap();
        let found = values.to_vec::<f32>().unwrap();
        assert!(found[..2] == [-1.0, 2.0] && found[2].is_nan(), "{found:?}");
        assert_eq!(ids(&counts), [1, 3, 2]);
        let ints = Tensor::from_vec(rt, vec![5_i32, -5, 5], [3]).unique().unwrap();
        assert_eq!(ints.0.to_vec::<i32>().unwrap(), [-5, 5]);
        let half = Tensor::from_slice(rt, &[0.5, 0.5], [2]).cast(DType::BF16).unique().unwrap();
        assert_eq!((half.0.dtype(), ids(&half.1)), (DType::BF16, vec![2]));
        let empty = Tensor::zeros(rt, [0]).unique().unwrap();
        assert_eq!((empty.0.shape(), empty.1.shape()), (&[0][..], &[0][..]));
    });
}

#[test]
fn convolutions_are_those_of_pytorch() {
    on_each(|rt| {
        let x = Tensor::from_slice(rt, &[1.0, 2.0, 3.0, 4.0, 5.0], [1, 1, 5]);
        let w = Tensor::from_slice(rt, &[1.0, 0.0, -1.0], [1, 1, 3]);
        close(&x.conv1d(&w, Conv1d::default()), &[-2.0, -2.0, -2.0]);
        let padded = Conv1d { stride: 2, pad_before: 1, pad_after: 1, ..Conv1d::default() };
        close(&x.conv1d(&w, padded), &[-2.0, -2.0, 4.0]);
        // torch.nn.functional.conv_transpose1d
        let w = Tensor::from_slice(rt, &[1.0, 10.0, 100.0, 2.0, 20.0, 200.0], [1, 2, 3]);
        let short = x.narrow(2, ..2);
        close(
            &short.conv_transpose1d(&w, Conv1d { stride: 2, ..Conv1d::default() }, 1),
            &[1.0, 10.0, 102.0, 20.0, 200.0, 0.0, 2.0, 20.0, 204.0, 40.0, 400.0, 0.0],
        );
        let padded = Conv1d { pad_before: 1, pad_after: 1, ..Conv1d::default() };
        close(&short.conv_transpose1d(&w, padded, 0), &[12.0, 120.0, 24.0, 240.0]);
        // The transposed convolution takes the result of a convolution to the image's size.
        let image = Tensor::rand(rt, [2, 4, 7, 6], 1);
        let weight = Tensor::rand(rt, [6, 2, 3, 2], 2);
        let conv = Conv2d {
            stride: (2, 1),
            pad_before: (1, 0),
            pad_after: (1, 1),
            dilation: (1, 2),
            groups: 2,
        };
        let y = image.conv2d(&weight, conv);
        let back = y.conv_transpose2d(&weight, conv, (0, 0));
        assert_eq!(back.shape(), image.shape());
        // <conv(a), b> = <a, transposed(b)>
        let (a, b) = (y.mul(&y).sum(..), image.mul(&back).sum(..));
        let (a, b) = (a.item::<f32>().unwrap(), b.item::<f32>().unwrap());
        assert!((a - b).abs() < 1e-4 * a.abs(), "{a} and {b}");
    });
}

#[test]
fn interpolation_is_that_of_pytorch() {
    on_each(|rt| {
        let x = Tensor::from_slice(rt, &[1.0, 2.0, 3.0, 4.0], [1, 1, 2, 2]);
        close(
            &x.upsample_bilinear2d(4, 4, false),
            &[
                1.0, 1.25, 1.75, 2.0, 1.5, 1.75, 2.25, 2.5, 2.5, 2.75, 3.25, 3.5, 3.0, 3.25, 3.75,
                4.0,
            ],
        );
        close(&x.upsample_bilinear2d(3, 3, true), &[1.0, 1.5, 2.0, 2.0, 2.5, 3.0, 3.0, 3.5, 4.0]);
        let row = Tensor::from_slice(rt, &[0.0, 1.0, 2.0, 3.0], [1, 1, 1, 4]);
        close(&row.upsample_bilinear2d(1, 2, false), &[0.5, 2.5]);
        close(&row.upsample_bilinear2d(1, 1, true), &[0.0]);
    });
}

#[test]
fn inverse_functions_are_those_of_std() {
    on_each(|rt| {
        let values = [-1.0_f32, -0.9, -0.5, -0.3, -1e-4, 0.0, 1e-6, 0.2, 0.49, 0.51, 0.99, 1.0];
        let x = Tensor::from_slice(rt, &values, [values.len()]);
        let each = |f: fn(f32) -> f32| values.map(f).to_vec();
        close(&x.asin(), &each(f32::asin));
        close(&x.acos(), &each(f32::acos));
        close(&x.atan(), &each(f32::atan));
        close(&x.asinh(), &each(f32::asinh));
        close(&(&x * 0.999).atanh(), &each(|v| (v * 0.999).atanh()));
        let wide = [-1e30_f32, -1e4, -3.0, -1.5, 1.0, 1.2, 2.5, 7e8, 1e20, f32::INFINITY];
        let y = Tensor::from_slice(rt, &wide, [wide.len()]);
        let each = |f: fn(f32) -> f32| wide.map(f).to_vec();
        close(&y.atan(), &each(f32::atan));
        close(&y.asinh(), &each(f32::asinh));
        close(&y.abs().acosh(), &each(|v| v.abs().acosh()));
        for far in [y.asin(), y.acos(), y.neg().acosh(), y.atanh()] {
            // All but one element are outside of the range.
            assert!(far.narrow(0, 5..9).is_nan().any(..).item::<bool>().unwrap(), "{far:?}");
        }
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let points = [
            (0.0_f32, 1.0_f32),
            (1.0, 0.0),
            (-0.0, -1.0),
            (0.0, -1.0),
            (2.0, 3.0),
            (-2.0, -3.0),
            (3e30, -1e-30),
            (inf, inf),
            (-inf, -inf),
            (0.0, 0.0),
        ];
        let [a, b] = [points.map(|p| p.0), points.map(|p| p.1)];
        let [ya, xb] = [a, b].map(|v| Tensor::from_slice(rt, &v, [v.len()]));
        close(&ya.atan2(&xb), &points.map(|(y, x)| y.atan2(x)));
        let lost = Tensor::full(rt, [2], nan).atan2(&Tensor::ones(rt, [2]));
        assert!(lost.is_nan().all(..).item::<bool>().unwrap());
    });
}

#[test]
fn elements_are_written_by_ids() {
    on_each(|rt| {
        let x = Tensor::arange(rt, 0.0, 6.0, 1.0).reshape([2, 3]);
        // One place twice, one outside of the axis on either side.
        let ids = Tensor::from_vec(rt, vec![2, 2, 0, -1, 3, 1], [2, 3]);
        let source = Tensor::arange(rt, 10.0, 16.0, 1.0).reshape([2, 3]);
        close(&x.scatter(1, &ids, &source), &[12.0, 1.0, 11.0, 3.0, 15.0, 5.0]);
        let ids = Tensor::from_vec(rt, vec![1_u32, 0, 1], [1, 3]);
        let row = source.narrow(0, ..1);
        close(&x.scatter(0, &ids, &row), &[0.0, 11.0, 2.0, 10.0, 4.0, 12.0]);
        let ints = Tensor::from_vec(rt, vec![1_i32, 2, 3], [3]);
        let ids = Tensor::from_vec(rt, vec![0, 0], [2]);
        let y = ints.scatter(0, &ids, &Tensor::from_vec(rt, vec![-8_i32, -9], [2]));
        assert_eq!(y.to_vec::<i32>().unwrap(), [-9, 2, 3]);
        // A permutation undoes a lookup.
        let order = Tensor::permutation(rt, 3000, 5);
        let values = Tensor::rand(rt, [3000], 1);
        let back = values.zeros_like().scatter(0, &order, &values.gather(0, &order));
        assert_eq!(back.to_vec::<f32>().unwrap(), values.to_vec::<f32>().unwrap());
    });
}

#[test]
fn the_mean_of_nothing_is_no_number() {
    on_each(|rt| {
        let device = rt.device().profile().id();
        let inf = f32::INFINITY;
        for shape in [[0, 3], [3, 0]] {
            let axis = if shape[0] == 0 { 0 } else { 1 };
            let x = Tensor::zeros(rt, shape);
            let have = x.mean(axis).to_vec::<f32>().unwrap();
            let all = have.len() == 3 && have.iter().all(|v| v.is_nan());
            assert!(all, "{device} {shape:?}: {have:?}");
            close(&x.sum(axis), &[0.0; 3]);
            close(&x.prod(axis), &[1.0; 3]);
            close(&x.max(axis), &[-inf; 3]);
            close(&x.min(axis), &[inf; 3]);
        }
    });
}

#[test]
fn integers_are_reduced() {
    on_each(|rt| {
        let x = Tensor::from_vec(rt, vec![3_i32, -7, 3, i32::MAX, 1, -2], [2, 3]);
        let ints = |tensor: Tensor| tensor.to_vec::<i32>().unwrap();
        assert_eq!(ints(x.sum(1)), [-1, i32::MAX - 1]);
        assert_eq!(ints(x.prod(0)), [3_i32.wrapping_mul(i32::MAX), -7, -6]);
        assert_eq!(ints(x.max_keep(1)), [3, i32::MAX]);
        assert_eq!(ints(x.min(..)), [-7]);
        assert_eq!(ids(&x.argmax(1)), [0, 0]);
        assert_eq!(ids(&x.argmin(1)), [1, 2]);
        let y = Tensor::from_vec(rt, vec![5_u32, u32::MAX, 0, 5], [2, 2]);
        assert_eq!(ids(&y.max(0)), [5, u32::MAX]);
        assert_eq!(ids(&y.sum(..)), [9]);
        assert_eq!(ids(&y.argmax(0)), [0, 0]);
        let text = y.mean(0).check().unwrap_err().to_string();
        assert!(text.contains("cast to f32"), "{text}");
        let text = y.gt(1).sum(0).check().unwrap_err().to_string();
        assert!(text.contains("any, all"), "{text}");
    });
}

#[test]
fn errors_name_the_called_function() {
    let rt = cpu();
    let x = Tensor::ones(&rt, [2, 3]);
    let message = |tensor: Tensor| tensor.check().unwrap_err().to_string();
    let image = Tensor::ones(&rt, [1, 2, 3, 3]);
    for (tensor, name, part) in [
        (x.gt(0.0).sort(0, false), "sort at ", "bool"),
        (x.argsort(2, false), "argsort at ", "no axis 2"),
        (x.top_k(4, 1).0, "top_k at ", "the 4 largest of 3"),
        (x.quantile(1.5, 0), "quantile at ", "1.5"),
        (x.cast(DType::I32).median(0), "median at ", "i32"),
        (Tensor::zeros(&rt, [2, 0]).median(1), "median at ", "[2, 0]"),
        (x.conv1d(&x, Conv1d::default()), "conv1d at ", "[2, 3]"),
        (x.scatter(0, &x.cast(DType::I32), &image), "scatter at ", "[1, 2, 3, 3]"),
        (image.conv_transpose2d(&x, Conv2d::default(), (0, 0)), "conv_transpose2d at ", "[2, 3]"),
        (
            image.conv_transpose2d(&image.reshape([2, 1, 3, 3]), Conv2d::default(), (1, 0)),
            "conv_transpose2d at ",
            "1 extra rows",
        ),
        (image.upsample_bilinear2d(0, 3, false), "upsample_bilinear2d at ", "0 x 3"),
        (x.cast(DType::I32).asin(), "asin at ", "i32"),
        (x.cast(DType::I32).softmax(0), "softmax at ", "i32"),
        (x.gt(0.0).argmax(0), "argmax at ", "bool"),
    ] {
        let text = message(tensor);
        assert!(text.starts_with(name) && text.contains(part), "{name}: {text}");
        assert!(text.contains("tensor_order.rs"), "{text}");
    }
    assert!(x.gt(0.0).unique().is_err());
    let huge = Tensor::linspace(&rt, 0.0, 1.0, usize::MAX / 8).check().unwrap_err().to_string();
    assert!(huge.starts_with("linspace at "), "{huge}");
}
