//! Lazy tensors: results on every device, and error texts.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use warploom::graph::{Conv2d, Pool2d, PoolKind, RopePairs};
use warploom::provider::{Device, NullProvider, OpenOptions};
use warploom::runtime::{Runtime, SyncMode};
use warploom::tensor::AttentionOptions;
use warploom::{DType, Tensor};
use warploom_core::base::Format;
use warploom_core::quant;

use crate::devices;

/// Runs a test on every device.
pub(crate) fn on_each(test: impl Fn(&Runtime)) {
    for (label, runtime) in devices::every(false) {
        crate::tell(&format!("tensors on {label}"));
        test(&runtime);
    }
}

/// A runtime that executes nothing, for tests of plans, submits and errors.
pub(crate) fn null() -> (Arc<dyn Device>, Runtime) {
    let device = NullProvider::device(&OpenOptions::default());
    (device.clone(), Runtime::on(device, SyncMode::Lazy, None).unwrap())
}

pub(crate) fn cpu() -> Runtime {
    Runtime::builder().device("cpu").build().unwrap()
}

#[track_caller]
pub(crate) fn close(tensor: &Tensor, want: &[f32]) {
    let have = tensor.to_vec::<f32>().unwrap();
    assert_eq!(have.len(), want.len(), "{tensor:?}");
    for (i, (a, b)) in have.iter().zip(want).enumerate() {
        let near = (a - b).abs() <= 1e-5 * (1.0 + b.abs()) || a == b;
        assert!(near, "element {i} of {tensor:?}: {a}, not {b}\n{have:?}\n{want:?}");
    }
}

#[track_caller]
fn message(tensor: &Tensor) -> String {
    tensor.check().unwrap_err().to_string()
}

#[test]
fn new_tensors_hold_what_was_asked_for() {
    on_each(|rt| {
        close(&Tensor::zeros(rt, [2, 2]), &[0.0; 4]);
        close(&Tensor::ones(rt, [3]), &[1.0; 3]);
        assert_eq!(Tensor::full(rt, [2], 7).to_vec::<i32>().unwrap(), [7, 7]);
        assert!(Tensor::full(rt, (), true).item::<bool>().unwrap());
        close(&Tensor::arange(rt, 1.0, 2.0, 0.25), &[1.0, 1.25, 1.5, 1.75]);
        close(&Tensor::arange(rt, 3.0, 0.0, -1.0), &[3.0, 2.0, 1.0]);
        close(&Tensor::arange(rt, 3.0, 0.0, 1.0), &[]);
        close(&Tensor::linspace(rt, 0.0, 1.0, 5), &[0.0, 0.25, 0.5, 0.75, 1.0]);
        close(&Tensor::eye(rt, 3), &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
        let bits = vec![true, false, true];
        assert_eq!(Tensor::from_vec(rt, bits.clone(), [3]).to_vec::<bool>().unwrap(), bits);
        let long = Tensor::from_vec(rt, vec![-5_i64, 9], [2]);
        assert_eq!((long.dtype(), long.to_vec::<i64>().unwrap()), (DType::I32, vec![-5, 9]));
    });
}

#[test]
fn random_numbers_follow_their_seed() {
    let rt = cpu();
    let numbers = |seed| Tensor::randn(&rt, [10_000], seed).to_vec::<f32>().unwrap();
    assert_eq!(numbers(1), numbers(1));
    assert_ne!(numbers(1), numbers(2));
    let normal = Tensor::randn(&rt, [10_000], 3);
    let (mean, var) = (normal.mean(..), normal.var(..));
    assert!(mean.item::<f32>().unwrap().abs() < 0.05);
    assert!((var.item::<f32>().unwrap() - 1.0).abs() < 0.05);
    let even = Tensor::rand(&rt, [10_000], 4);
    let (low, high) = (even.min(..).item::<f32>().unwrap(), even.max(..).item::<f32>().unwrap());
    assert!((0.0..0.01).contains(&low) && (0.99..1.0).contains(&high), "{low} {high}");
}

#[test]
fn operators_take_tensors_and_numbers_on_both_sides() {
    on_each(|rt| {
        let x = Tensor::from_vec(rt, vec![1.0_f32, 2.0, 4.0], [3]);
        close(&(&x + &x), &[2.0, 4.0, 8.0]);
        close(&(&x - 1), &[0.0, 1.0, 3.0]);
        close(&(2.0 * &x), &[2.0, 4.0, 8.0]);
        close(&(8 / &x), &[8.0, 4.0, 2.0]);
        close(&(1.0 - &x), &[0.0, -1.0, -3.0]);
        close(&(-&x % 3), &[-1.0, -2.0, -1.0]);
        let mut sum = x.clone();
        sum += &x;
        sum *= 0.5;
        sum -= 1;
        sum /= x.clone();
        close(&sum, &[0.0, 0.5, 0.75]);
        close(&x.pow(2.0).clamp(2.0, 10.0), &[2.0, 4.0, 10.0]);
        let i = Tensor::from_vec(rt, vec![7, -7, i32::MAX], [3]);
        assert_eq!((&i / 2).to_vec::<i32>().unwrap(), [3, -3, i32::MAX / 2]);
        assert_eq!((&i + 1).to_vec::<i32>().unwrap(), [8, -6, i32::MIN]);
        let (low, high) = (x.lt(2.0), x.ge(4.0));
        assert_eq!(low.logical_or(&high).to_vec::<bool>().unwrap(), [true, false, true]);
        assert_eq!(low.logical_not().to_vec::<bool>().unwrap(), [false, true, true]);
        close(&low.select(&x, -1.0), &[1.0, -1.0, -1.0]);
        close(&x.gt(1).select(2.0, 3.0), &[3.0, 2.0, 2.0]);
        assert_eq!((&x * 0.6).cast(DType::I32).to_vec::<i32>().unwrap(), [0, 1, 2]);
        close(&i.narrow(0, ..2).cast(DType::F32), &[7.0, -7.0]);
    });
}

#[test]
fn functions_of_one_number() {
    on_each(|rt| {
        let values = [-1.5_f32, -0.5, 0.25, 0.5, 2.5];
        let x = Tensor::from_slice(rt, &values, [5]);
        let each = |f: fn(f32) -> f32| values.map(f).to_vec();
        close(&x.exp(), &each(f32::exp));
        close(&x.abs().log(), &each(|v| v.abs().ln()));
        close(&x.abs().sqrt(), &each(|v| v.abs().sqrt()));
        close(&x.abs().rsqrt(), &each(|v| v.abs().sqrt().recip()));
        close(&x.reciprocal(), &each(f32::recip));
        close(&x.sin(), &each(f32::sin));
        close(&x.cos(), &each(f32::cos));
        close(&x.tanh(), &each(f32::tanh));
        close(&x.floor(), &each(f32::floor));
        close(&x.ceil(), &each(f32::ceil));
        close(&x.round(), &each(f32::round_ties_even));
        close(&x.relu(), &each(|v| v.max(0.0)));
        close(&x.sigmoid(), &each(|v| 1.0 / (1.0 + (-v).exp())));
        close(&x.silu(), &each(|v| v / (1.0 + (-v).exp())));
        close(&x.square(), &each(|v| v * v));
        // erf(0.5) and GELU(2.5) from tables.
        close(&x.erf().narrow(0, 3..4), &[0.520_499_9]);
        close(&x.gelu().narrow(0, 4..), &[2.484_476]);
        close(&x.gelu_tanh().narrow(0, 4..), &[2.484_916]);
        close(&x.minimum(0.0).maximum(-1.0), &each(|v| v.clamp(-1.0, 0.0)));
    });
}

#[test]
fn reductions_take_axes_from_both_ends() {
    on_each(|rt| {
        let x = Tensor::arange(rt, 0.0, 6.0, 1.0).reshape([2, 3]);
        close(&x.sum(..), &[15.0]);
        close(&x.sum(-1), &[3.0, 12.0]);
        close(&x.sum(0), &[3.0, 5.0, 7.0]);
        close(&x.mean([0, 1]), &[2.5]);
        close(&x.max(1), &[2.0, 5.0]);
        close(&x.min(0), &[0.0, 1.0, 2.0]);
        close(&(&x + 1).prod(1), &[6.0, 120.0]);
        assert_eq!(x.max_keep(1).shape(), [2, 1]);
        close(&(&x - x.mean_keep(1)), &[-1.0, 0.0, 1.0, -1.0, 0.0, 1.0]);
        close(&x.var(1), &[2.0 / 3.0; 2]);
        let none: [i32; 0] = [];
        close(&x.sum(none), &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(x.argmax(1).to_vec::<u32>().unwrap(), [2, 2]);
        assert_eq!(x.argmin(0).to_vec::<u32>().unwrap(), [0, 0, 0]);
        let columns = x.softmax(0).to_vec::<f32>().unwrap();
        let e = 1.0 / (1.0 + 3.0_f32.exp());
        assert!((columns[0] - e).abs() < 1e-6 && (columns[0] + columns[3] - 1.0).abs() < 1e-6);
        close(&x.log_softmax(1).exp().sum(1), &[1.0, 1.0]);
    });
}

#[test]
fn movements_put_elements_where_they_belong() {
    on_each(|rt| {
        let x = Tensor::arange(rt, 0.0, 6.0, 1.0).reshape([2, 3]);
        close(&x.t(), &[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        close(&x.t().flatten(), &[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        close(&x.permute([1, 0]).reshape([2, -1]), &[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        close(&x.narrow(1, 1..), &[1.0, 2.0, 4.0, 5.0]);
        close(&x.slice(-1, .., 2), &[0.0, 2.0, 3.0, 5.0]);
        close(&x.index(0, -1), &[3.0, 4.0, 5.0]);
        let (a, b) = (x.index(0, 0), x.index(0, 1));
        close(&a.concat(&[&b, &a], 0), &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 0.0, 1.0, 2.0]);
        close(&a.stack(&[&b], 1), &[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        close(&a.pad(&[(1, 2)], -1.0), &[-1.0, 0.0, 1.0, 2.0, -1.0, -1.0]);
        close(&a.unsqueeze(0).expand([2, 3]), &[0.0, 1.0, 2.0, 0.0, 1.0, 2.0]);
        assert_eq!(a.unsqueeze(-1).squeeze(-1).shape(), [3]);
        let parts = x.split(1, &[1, 2]);
        close(&parts[0], &[0.0, 3.0]);
        close(&parts[1], &[1.0, 2.0, 4.0, 5.0]);
        let shapes: Vec<usize> = x.chunk(1, 2).iter().map(|part| part.shape()[1]).collect();
        assert_eq!(shapes, [2, 1]);
        let ids = Tensor::from_vec(rt, vec![2_i32, 0, 9], [3]);
        close(&x.gather(1, &ids), &[2.0, 0.0, 0.0, 5.0, 3.0, 0.0]);
        close(&x.index_select(0, &[1]), &[3.0, 4.0, 5.0]);
        close(&x.transpose(0, -1).narrow(0, ..1).flatten(), &[0.0, 3.0]);
        close(&x.narrow(0, 1..1), &[]);
    });
}

#[test]
fn products_norms_and_attention() {
    on_each(|rt| {
        let a = Tensor::from_vec(rt, vec![1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
        let w = Tensor::from_vec(rt, vec![1.0_f32, 0.0, -1.0, 2.0, 1.0, 0.0], [2, 3]);
        close(&a.matmul(w.t()), &[-2.0, 4.0, -2.0, 13.0]);
        close(&a.linear(&w), &[-2.0, 4.0, -2.0, 13.0]);
        close(&a.linear(&(&w * 2)), &[-4.0, 8.0, -4.0, 26.0]);
        // Two weights on one operand, each in a separate buffer.
        let other = Tensor::from_vec(rt, vec![1.0_f32; 6], [2, 3]);
        close(&(a.linear(&w) - a.linear(&other)), &[-8.0, -2.0, -17.0, -2.0]);
        close(&a.index(0, 0).linear(&(&w + 0)), &[-2.0, 4.0]);
        let ones = Tensor::ones(rt, [3]);
        let rms = 14.0_f32 / 3.0;
        close(&a.rms_norm(&ones, 0.0).index(0, 0), &[1.0, 2.0, 3.0].map(|v: f32| v / rms.sqrt()));
        let unit = (2.0_f32 / 3.0).sqrt().recip();
        close(&a.layer_norm(&ones, &ones, 0.0).index(0, 1), &[1.0 - unit, 1.0, 1.0 + unit]);
        let image = Tensor::arange(rt, 0.0, 16.0, 1.0).reshape([1, 1, 4, 4]);
        let box2 = Tensor::ones(rt, [1, 1, 2, 2]);
        let conv = Conv2d { stride: (2, 2), ..Conv2d::default() };
        close(&image.conv2d(&box2, conv), &[10.0, 18.0, 42.0, 50.0]);
        let pool = Pool2d::new(PoolKind::Max, (2, 2));
        close(&image.pool2d(pool), &[5.0, 7.0, 13.0, 15.0]);
        // One key sees itself only: the result is the value, for both heads that share it.
        let q = Tensor::ones(rt, [1, 2, 4]);
        let v = Tensor::arange(rt, 0.0, 4.0, 1.0).reshape([1, 1, 4]);
        let options = AttentionOptions { causal: true, ..AttentionOptions::default() };
        let want = [0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0];
        close(&q.attention(&v, &v, options), &want);
        let at = Tensor::from_vec(rt, vec![0, 1], [2]);
        let frequencies = Tensor::full(rt, [1], std::f32::consts::FRAC_PI_2);
        let x = Tensor::from_vec(rt, vec![1.0_f32, 2.0, 1.0, 2.0], [2, 1, 2]);
        close(&x.rope(&at, &frequencies, RopePairs::Half), &[1.0, 2.0, -2.0, 1.0]);
    });
}

#[test]
fn stored_formats_are_read_as_they_are() {
    on_each(|rt| {
        let values: Vec<f32> = (0..64).map(|i| (i % 7) as f32 - 3.0).collect();
        let x = Tensor::ones(rt, [1, 32]);
        for format in [Format::Q8_0, Format::Plain(DType::F16), Format::Plain(DType::BF16)] {
            let bytes = quant::encode(format, &values).unwrap();
            let mut exact = vec![0.0; 64];
            quant::decode(format, &bytes, &mut exact).unwrap();
            let weight = Tensor::quantised(rt, format, &bytes, [2, 32]);
            let sums: Vec<f32> = exact.chunks(32).map(|row| row.iter().sum()).collect();
            close(&x.linear(&weight), &sums);
            let ids = Tensor::from_vec(rt, vec![1_u32], [1]);
            close(&weight.gather(0, &ids).cast(DType::F32), &exact[32..]);
        }
        let halves: Vec<half::f16> = values.iter().map(|v| half::f16::from_f32(*v)).collect();
        let x = Tensor::from_slice(rt, &halves, [8, 8]);
        assert_eq!(x.to_vec::<half::f16>().unwrap(), halves);
        close(&(x.cast(DType::F32) * 2), &values.iter().map(|v| v * 2.0).collect::<Vec<_>>());
        let odd = Tensor::from_slice(rt, &halves[..3], [3]);
        assert_eq!(odd.to_vec::<half::f16>().unwrap(), halves[..3]);
        close(&odd.cast(DType::F32), &values[..3]);
        let brain = Tensor::from_vec(rt, vec![half::bf16::from_f32(1.5)], [1]);
        assert_eq!(brain.cast(DType::I32).to_vec::<i32>().unwrap(), [1]);
    });
}

fn f16_of<T: Half>(rt: &Runtime) {
    let numbers = |values: &[f32]| values.iter().map(|v| T::rounded(*v)).collect::<Vec<T>>();
    let check = |x: &Tensor, want: &[f32]| {
        assert_eq!(x.dtype(), T::DTYPE);
        assert_eq!(x.to_vec::<T>().unwrap(), numbers(want), "{x:?}");
    };
    let a: Vec<f32> = (0..15).map(|i| i as f32 / 4.0 - 1.5).collect();
    let x = Tensor::from_vec(rt, numbers(&a), [3, 5]);
    let row = Tensor::from_vec(rt, numbers(&[1.0, 0.5, -2.0, 3.0, 0.25]), [5]);
    let each = |f: fn(f32) -> f32| a.iter().map(|v| f(*v)).collect::<Vec<f32>>();
    check(&(&x * 2 + 0.5), &each(|v| v * 2.0 + 0.5));
    check(&x.relu(), &each(|v| v.max(0.0)));
    check(&x.gt(1.0).select(&x, 0.25), &each(|v| if v > 1.0 { v } else { 0.25 }));
    check(&x.cast(DType::F32).cast(T::DTYPE), &a);
    check(&x.slice(1, 1..4, 1).slice(0, 1..3, 1).t(), &[0.0, 1.25, 0.25, 1.5, 0.5, 1.75]);
    check(&x.sum(-1), &[-5.0, 1.25, 7.5]);
    check(&x.max(0), &a[10..]);
    check(&x.concat(&[&x], 0).slice(0, 2..4, 1), &[&a[10..], &a[..5]].concat());
    check(&x.index_select(0, &[2, 0]), &[&a[10..], &a[..5]].concat());
    let by_hand: Vec<f32> = (0..3)
        .map(|r| (0..5).map(|c| a[r * 5 + c] * [1.0, 0.5, -2.0, 3.0, 0.25][c]).sum())
        .collect();
    check(&x.matmul(row.reshape([5, 1])), &by_hand);
    check(&x.linear(&row.reshape([1, 5])), &by_hand);
    // A loop keeps its type, and rounds at every step.
    let (mut y, mut want) = (row.clone(), numbers(&[1.0, 0.5, -2.0, 3.0, 0.25]));
    for _ in 0..5 {
        y = &y * 1.1 + &row;
        let first = numbers(&[1.0, 0.5, -2.0, 3.0, 0.25]);
        let step = |(v, r): (&T, &T)| {
            T::rounded(T::rounded(v.wide() * T::rounded(1.1).wide()).wide() + r.wide())
        };
        want = want.iter().zip(&first).map(step).collect();
    }
    assert_eq!(y.to_vec::<T>().unwrap(), want);
    let least = Tensor::full(rt, [3], 7).cast(T::DTYPE);
    check(&least, &[7.0; 3]);
}

/// A type of two bytes on the host.
trait Half: warploom::tensor::Element + PartialEq + std::fmt::Debug {
    fn rounded(value: f32) -> Self;
    fn wide(&self) -> f32;
}

impl Half for half::f16 {
    fn rounded(value: f32) -> Self {
        half::f16::from_f32(value)
    }
    fn wide(&self) -> f32 {
        self.to_f32()
    }
}

impl Half for half::bf16 {
    fn rounded(value: f32) -> Self {
        half::bf16::from_f32(value)
    }
    fn wide(&self) -> f32 {
        self.to_f32()
    }
}

#[test]
fn tensors_of_f16_compute() {
    on_each(|rt| {
        f16_of::<half::f16>(rt);
        f16_of::<half::bf16>(rt);
    });
}

type Sizes = &'static [usize];

/// Shapes that NumPy broadcasts, and the result; `None` if it refuses.
const BROADCASTS: [(Sizes, Sizes, Option<Sizes>); 14] = [
    (&[], &[], Some(&[])),
    (&[], &[3], Some(&[3])),
    (&[1], &[3], Some(&[3])),
    (&[3], &[3], Some(&[3])),
    (&[3], &[2, 3], Some(&[2, 3])),
    (&[2, 1], &[3], Some(&[2, 3])),
    (&[2, 1], &[1, 3], Some(&[2, 3])),
    (&[5, 1, 4, 1], &[2, 1, 3], Some(&[5, 2, 4, 3])),
    (&[0], &[1], Some(&[0])),
    (&[0, 3], &[3], Some(&[0, 3])),
    (&[2], &[3], None),
    (&[2, 3], &[2], None),
    (&[0], &[2], None),
    (&[2, 1, 3], &[2, 2], None),
];

#[test]
fn broadcasting_is_numpys() {
    on_each(|rt| {
        for (a, b, want) in BROADCASTS {
            for (a, b) in [(a, b), (b, a)] {
                let sum = Tensor::ones(rt, a) + Tensor::ones(rt, b);
                let shape = sum.check().ok().map(|()| sum.shape());
                assert_eq!(shape, want, "{a:?} and {b:?}");
                if let Some(want) = want {
                    close(&sum, &vec![2.0; want.iter().product()]);
                }
            }
        }
    });
}

/// The element of `values`, of this shape, that broadcasting reads at an index of the result.
fn broadcast_element(values: &[f32], shape: &[usize], index: &[usize]) -> f32 {
    let lead = index.len() - shape.len();
    let place = shape
        .iter()
        .zip(&index[lead..])
        .fold(0, |place, (size, at)| place * size + if *size == 1 { 0 } else { *at });
    values[place]
}

#[test]
fn random_shapes_broadcast_elementwise() {
    let runtimes: Vec<Runtime> =
        devices::every(false).into_iter().map(|(_, runtime)| runtime).collect();
    let shapes = prop::collection::vec((1_usize..4, any::<bool>(), any::<bool>()), 0..5)
        .prop_flat_map(|axes| (Just(axes.clone()), 0..=axes.len(), 0..=axes.len()));
    let mut runner =
        TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(60) });
    let result = runner.run(&shapes, |(axes, cut_a, cut_b)| {
        let full: Vec<usize> = axes.iter().map(|(size, ..)| *size).collect();
        let a: Vec<usize> =
            axes[cut_a..].iter().map(|(size, one, _)| if *one { 1 } else { *size }).collect();
        let b: Vec<usize> =
            axes[cut_b..].iter().map(|(size, _, one)| if *one { 1 } else { *size }).collect();
        let numbers = |shape: &[usize], by: f32| -> Vec<f32> {
            (0..shape.iter().product::<usize>()).map(|i| i as f32 * by).collect()
        };
        let (va, vb) = (numbers(&a, 1.0), numbers(&b, 100.0));
        for rt in &runtimes {
            let ta = Tensor::from_slice(rt, &va, &a[..]);
            let tb = Tensor::from_slice(rt, &vb, &b[..]);
            let y = &ta - &tb;
            let have = y.to_vec::<f32>().unwrap();
            let shape = y.shape();
            prop_assert!(shape.len() <= full.len());
            for (place, value) in have.iter().enumerate() {
                let mut rest = place;
                let mut index = vec![0; shape.len()];
                for (at, size) in index.iter_mut().zip(shape).rev() {
                    (*at, rest) = (rest % size, rest / size);
                }
                let want = broadcast_element(&va, &a, &index) - broadcast_element(&vb, &b, &index);
                prop_assert_eq!(*value, want, "{:?} and {:?} at {:?}", a, b, index);
            }
        }
        Ok(())
    });
    result.unwrap();
}

#[test]
fn errors_name_the_operation_its_place_and_the_shapes() {
    let (_, rt) = null();
    let (a, b) = (Tensor::zeros(&rt, [2, 3]), Tensor::zeros(&rt, [4]));
    let line = line!() + 1;
    let bad = &a + &b;
    let text = message(&bad);
    let want = format!("add at tests/it/on_device/tensor.rs:{line}:15: ");
    assert!(text.starts_with(&want), "{text}");
    assert!(text.ends_with("shapes [2, 3] and [4] do not broadcast: axis 1 is 3 and 4"), "{text}");
    // It propagates to all later operations, and the read reports the first.
    assert_eq!(message(&(bad.relu().sum(..) * 2).matmul(&a)), text);
    assert_eq!((bad.exp() + 1).to_vec::<f32>().unwrap_err().to_string(), text);
    assert_eq!(bad.to_string(), format!("<{text}>"));
    // It has no sizes that could be taken for real ones.
    let later = bad.relu();
    assert_eq!(later.try_shape().unwrap_err().to_string(), text);
    for ask in [|x: &Tensor| x.shape().len(), Tensor::rank, Tensor::elements] {
        let asked = std::panic::catch_unwind(|| ask(&later));
        assert_eq!(*asked.unwrap_err().downcast::<String>().unwrap(), text);
    }

    let says = |tensor: Tensor, words: &str| {
        let text = message(&tensor);
        assert!(text.contains("at tests/it/on_device/tensor.rs:"), "{text}");
        assert!(text.contains(words), "{words:?} is not in {text:?}");
    };
    says(Tensor::from_slice(&rt, &[1.0_f32; 5], [2, 3]), "5 numbers for the shape [2, 3] of 6");
    says(Tensor::zeros(&rt, [2, -3]), "the shape [2, -3] has the size -3");
    says(Tensor::from_vec(&rt, vec![1_i64 << 40], [1]), "does not fit i32");
    says(Tensor::arange(&rt, 0.0, 1.0, 0.0), "not a finite row");
    says(a.matmul(&b), "needs rank 2 or more");
    says(a.matmul(&a), "inner sizes, not 3 and 2");
    says(a.sum(2), "no axis 2 in a rank of 2");
    says(a.softmax(-3), "no axis -3 in the shape [2, 3]");
    says(a.reshape([4, 2]), "[2, 3] cannot become [4, 2]: 6 elements, not 8");
    says(a.narrow(1, 2..5), "no 2..5 by 1 on axis 1 of [2, 3]");
    says(a.index(0, 2), "no index 2 on axis 0 of [2, 3]");
    says(a.index_select(1, &[0, 3]), "no index 3 on axis 1 of [2, 3]");
    says(a.expand([3, 3]), "shapes [2, 3] and [3, 3] do not broadcast");
    says(a.permute([0, 0]), "axis 0 occurs twice");
    says(a.permute([0]), "does not name every axis of [2, 3]");
    says(a.squeeze(1), "axis 1 of [2, 3] is 3, not 1");
    says(b.t(), "[4] is not a matrix");
    says(a.concat(&[&b], 0), "concat(f32[2, 3], f32[4]) needs rank 2");
    says(a.stack(&[&b], 0), "shapes [2, 3] and [4] are not equal");
    says(a.split(1, &[1, 1]).remove(1), "parts [1, 1] are 2, axis 1 of [2, 3] is 3");
    says(&a + Tensor::full(&rt, [3], 1), "a tensor of f32 and one of i32: cast one");
    says(
        Tensor::full(&rt, [3], 1) * 0.5,
        "the scalar F32(0.5) is not a value of i32: cast the tensor",
    );
    says(a.gt(0.0).select(&a, 1).select(&a, &a), "needs bool for operand 0");
    says(Tensor::full(&rt, [3], 1).softmax(0), "needs floats for operand 0");
    let halves = Tensor::from_vec(&rt, vec![half::f16::ONE], [1]);
    says(&halves + Tensor::ones(&rt, [1]), "a tensor of f16 and one of f32: cast one");
    let (_, other) = null();
    says(&a + Tensor::zeros(&other, [3]), "operands of two runtimes, on null:0 and null:0");
    let packed = Tensor::quantised(&rt, Format::Q8_0, &[0; 34], [1, 32]);
    says(&packed + 1.0, "in format q8_0: only linear, expert_linear and gather of axis 0 can");
    says(Tensor::quantised(&rt, Format::Q8_0, &[0; 34], [2, 16]), "blocks of 32");
    says(Tensor::quantised(&rt, Format::Q8_0, &[0; 33], [1, 32]), "33 bytes for [1, 32]");
    let error = a.to_vec::<i32>().unwrap_err().to_string();
    assert!(error.contains("elements are f32, not i32"), "{error}");
    let error = a.item::<f32>().unwrap_err().to_string();
    assert!(error.contains("one number of 6"), "{error}");
    let error = packed.to_vec::<f32>().unwrap_err().to_string();
    assert!(error.contains("packed as q8_0"), "{error}");
}

/// An error at run time names the source line of the operation, and leaves the runtime usable.
#[test]
fn what_no_kernel_does_is_said_with_its_place() {
    on_each(|rt| {
        let q = Tensor::ones(rt, [1, 1, 4096]);
        let x = q.attention(&q, &q, AttentionOptions::default());
        x.check().unwrap();
        let error = x.to_vec::<f32>().unwrap_err();
        let text = error.to_string();
        let asked = text.contains("attention at tests/it/on_device/tensor.rs:");
        assert!(error.is_unsupported() && asked, "{text}");
        close(&Tensor::ones(rt, [1]), &[1.0]);
    });
}
