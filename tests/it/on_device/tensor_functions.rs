//! Functions, statistics, rearrangements, sums by index and losses of tensors, on every device.

#![allow(clippy::single_range_in_vec_init, reason = "a block along one axis has one range")]

use warploom::{DType, Tensor};

use super::tensor::{close, cpu, on_each};

#[track_caller]
fn ints(tensor: &Tensor, want: &[i32]) {
    assert_eq!(tensor.to_vec::<i32>().unwrap(), want, "{tensor:?}");
}

#[track_caller]
fn bools(tensor: &Tensor, want: &[bool]) {
    assert_eq!(tensor.to_vec::<bool>().unwrap(), want, "{tensor:?}");
}

/// Relative error of at most 2e-6, which small results need too.
#[track_caller]
fn exact(tensor: &Tensor, want: &[f32]) {
    let have = tensor.to_vec::<f32>().unwrap();
    for (have, want) in have.iter().zip(want) {
        assert!((have - want).abs() <= 2e-6 * want.abs(), "{tensor:?}: {have}, not {want}");
    }
}

#[test]
fn functions_are_those_of_std() {
    on_each(|rt| {
        let values = [-30.0_f32, -2.5, -0.5, -0.49, -1e-5, 1e-7, 0.25, 0.5, 3.0, 20.0];
        let x = Tensor::from_slice(rt, &values, [values.len()]);
        let each = |f: fn(f32) -> f32| values.map(f).to_vec();
        exact(&x.expm1(), &each(f32::exp_m1));
        let above = values.map(f32::abs);
        let positive = x.abs();
        exact(&positive.log1p(), &above.map(f32::ln_1p));
        exact(&(&positive * -0.03).log1p(), &above.map(|v| (v * -0.03).ln_1p()));
        close(&positive.log2(), &above.map(f32::log2));
        close(&positive.log10(), &above.map(f32::log10));
        close(&x.clamp(-3.0, 3.0).exp2(), &each(|v| v.clamp(-3.0, 3.0).exp2()));
        close(&x.clamp(-1.0, 1.0).tan(), &each(|v| v.clamp(-1.0, 1.0).tan()));
        exact(&x.clamp(-3.0, 3.0).sinh(), &each(|v| v.clamp(-3.0, 3.0).sinh()));
        close(&x.clamp(-3.0, 3.0).cosh(), &each(|v| v.clamp(-3.0, 3.0).cosh()));
        close(&x.trunc(), &each(f32::trunc));
        exact(&x.softplus(), &each(|v| v.max(0.0) + (-v.abs()).exp().ln_1p()));
        close(&x.softsign(), &each(|v| v / (1.0 + v.abs())));
        close(&x.mish(), &each(|v| v * (v.max(0.0) + (-v.abs()).exp().ln_1p()).tanh()));
        close(&x.leaky_relu(0.1), &each(|v| if v > 0.0 { v } else { 0.1 * v }));
        close(&x.relu6(), &each(|v| v.clamp(0.0, 6.0)));
        exact(&x.elu(1.5), &each(|v| if v > 0.0 { v } else { 1.5 * v.exp_m1() }));
        let selu = |v: f32| 1.050_701 * if v > 0.0 { v } else { 1.673_263_2 * v.exp_m1() };
        exact(&x.selu(), &each(selu));
        close(&x.hard_sigmoid(), &each(|v| (v / 6.0 + 0.5).clamp(0.0, 1.0)));
        close(&x.hard_swish(), &each(|v| v * (v / 6.0 + 0.5).clamp(0.0, 1.0)));
        close(&x.affine(2.0, -1.0), &each(|v| 2.0 * v - 1.0));
        close(
            &x.narrow(0, ..4).swiglu(),
            &[-30.0 / (1.0 + 30.0_f32.exp()) * -0.5, -2.5 / (1.0 + 2.5_f32.exp()) * -0.49],
        );
        close(&x.lerp(&Tensor::ones(rt, [10]), 0.25), &each(|v| v + 0.25 * (1.0 - v)));
        ints(&Tensor::from_vec(rt, vec![-7, 0, 9], [3]).sign(), &[-1, 0, 1]);
    });
}

/// As IEEE 754-2019 and NumPy have it.
#[test]
fn not_a_number_is_not_lost() {
    let nan = f32::NAN;
    on_each(|rt| {
        let x = Tensor::from_vec(rt, vec![1.0, nan, 3.0, -1.0, 0.5, 2.0], [2, 3]);
        bools(&x.max(-1).is_nan(), &[true, false]);
        bools(&x.min(-1).is_nan(), &[true, false]);
        bools(&x.max(0).is_nan(), &[false, true, false]);
        bools(&x.maximum(0.0).is_nan(), &[false, true, false, false, false, false]);
        bools(&x.minimum(x.flip(1)).is_nan(), &[false, true, false, false, false, false]);
        bools(&x.clamp(-1.0, 1.0).relu().is_nan(), &[false, true, false, false, false, false]);
        bools(&x.softmax(-1).is_nan(), &[true, true, true, false, false, false]);
        assert_eq!(x.argmax(-1).to_vec::<u32>().unwrap(), [1, 2]);
        for dtype in [DType::F16, DType::BF16] {
            let y = x.cast(dtype).max(-1).cast(DType::F32);
            bools(&y.is_nan(), &[true, false]);
        }
    });
}

#[test]
fn special_numbers_are_known() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    on_each(|rt| {
        let x = Tensor::from_vec(rt, vec![nan, inf, -inf, f32::MAX, 0.0, -1.5], [6]);
        bools(&x.is_nan(), &[true, false, false, false, false, false]);
        bools(&x.is_infinite(), &[false, true, true, false, false, false]);
        bools(&x.is_finite(), &[false, false, false, true, true, true]);
        let sign = x.sign().to_vec::<f32>().unwrap();
        assert!(sign[0].is_nan() && sign[1..] == [1.0, -1.0, 1.0, 0.0, -1.0], "{sign:?}");
        let y = Tensor::from_vec(rt, vec![inf, -inf, -inf, 88.0], [4]);
        let z = Tensor::from_vec(rt, vec![inf, -inf, 3.0, 88.0], [4]);
        close(&y.logaddexp(&z), &[inf, -inf, 3.0, 88.0 + std::f32::consts::LN_2]);
        let rows = Tensor::from_vec(rt, vec![-inf, -inf, inf, 1.0, 100.0, 100.0], [3, 2]);
        close(&rows.logsumexp(-1), &[-inf, inf, 100.0 + std::f32::consts::LN_2]);
    });
}

#[test]
fn statistics_and_scans() {
    on_each(|rt| {
        let x = Tensor::from_vec(rt, vec![1.0_f32, 2.0, 3.0, 4.0, 6.0, 8.0], [2, 3]);
        close(&x.var(-1), &[2.0 / 3.0, 8.0 / 3.0]);
        close(&x.var_ddof(-1, 1), &[1.0, 4.0]);
        close(&x.std_keep(1), &[(2.0_f32 / 3.0).sqrt(), (8.0_f32 / 3.0).sqrt()]);
        assert_eq!((x.std(0).shape(), x.var_keep(0).shape()), (&[3][..], &[1, 3][..]));
        close(&x.norm(..), &[130.0_f32.sqrt()]);
        close(&x.logsumexp_keep(0), &[4.048_587_3, 6.018_15, 8.006_715]);
        close(&x.cumsum(1), &[1.0, 3.0, 6.0, 4.0, 10.0, 18.0]);
        close(&x.cumsum(0), &[1.0, 2.0, 3.0, 5.0, 8.0, 11.0]);
        close(&x.cumprod(-1), &[1.0, 2.0, 6.0, 4.0, 24.0, 192.0]);
        close(&x.diff(1), &[1.0, 1.0, 2.0, 2.0]);
        let counts = Tensor::arange(rt, 1, 1001, 1);
        let sums: Vec<i32> = (1..=1000).map(|n| n * (n + 1) / 2).collect();
        ints(&counts.cumsum(0), &sums);
        let odd = x.rem(2.0).eq(1.0);
        bools(&odd.any(1), &[true, false]);
        bools(&odd.all(0), &[false, false, false]);
        bools(&x.gt(0.0).all(..), &[true]);
        bools(&Tensor::zeros(rt, [0, 2]).gt(0.0).all(0), &[true, true]);
    });
}

#[test]
fn elements_are_rearranged() {
    on_each(|rt| {
        let x = Tensor::arange(rt, 0, 6, 1).reshape([2, 3]);
        ints(&Tensor::cat(&[&x, &x], 0).unwrap().narrow(0, 1..3), &[3, 4, 5, 0, 1, 2]);
        ints(
            &Tensor::stack_all(&[x.clone(), &x + 1], -1).unwrap().index(0, 0),
            &[0, 1, 1, 2, 2, 3],
        );
        ints(&x.flip(1), &[2, 1, 0, 5, 4, 3]);
        ints(&x.roll(1, 1), &[2, 0, 1, 5, 3, 4]);
        ints(&x.roll(1, -4), &[1, 2, 0, 4, 5, 3]);
        ints(&x.repeat([1, 2]), &[0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]);
        assert_eq!(x.repeat([2, 1, 3]).shape(), [2, 2, 9]);
        ints(&x.repeat_interleave(0, 2), &[0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]);
        ints(&x.upsample_nearest2d(1, 2), &[0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
        ints(&x.unfold(1, 2, 1), &[0, 1, 1, 2, 3, 4, 4, 5]);
        assert_eq!(x.unfold(0, 1, 1).shape(), [2, 3, 1]);
        ints(&x.unfold(0, 2, 1), &[0, 3, 1, 4, 2, 5]);
        let block = Tensor::from_vec(rt, vec![-1, -2], [2, 1]);
        ints(&x.slice_assign(&[0..2, 1..2], &block), &[0, -1, 2, 3, -2, 5]);
        ints(&x.slice_assign(&[1..2], &x.narrow(0, ..1)), &[0, 1, 2, 0, 1, 2]);
        ints(&x.tril(0), &[0, 0, 0, 3, 4, 0]);
        ints(&x.triu(1), &[0, 1, 2, 0, 0, 5]);
        bools(&x.ge(0).tril(-1), &[false, false, false, true, false, false]);
        ints(&x.diag(), &[0, 4]);
        ints(&x.index(0, 1).diag(), &[3, 0, 0, 0, 4, 0, 0, 0, 5]);
        assert_eq!(x.unsqueeze(0).movedim(0, -1).shape(), [2, 3, 1]);
        ints(&x.reshape([2, 3, 1]).movedim(0, 1), &[0, 3, 1, 4, 2, 5]);
        assert_eq!(x.reshape([1, 2, 3]).flatten_range(0, 1).shape(), [2, 3]);
        let grid = Tensor::meshgrid(&[&Tensor::arange(rt, 0, 2, 1), &Tensor::arange(rt, 5, 8, 1)]);
        ints(&grid[0], &[0, 0, 0, 1, 1, 1]);
        ints(&grid[1], &[5, 6, 7, 5, 6, 7]);
        assert_eq!(x.to_vec2::<i32>().unwrap(), [[0, 1, 2], [3, 4, 5]]);
    });
}

#[test]
fn elements_are_taken_by_ids() {
    on_each(|rt| {
        let x = Tensor::arange(rt, 0.0, 6.0, 1.0).reshape([2, 3]);
        let ids = Tensor::from_vec(rt, vec![2, 0, 3, -1], [2, 2]);
        close(&x.take_along_axis(1, &ids), &[2.0, 0.0, 0.0, 0.0]);
        let ids = Tensor::from_vec(rt, vec![1_u32, 0, 1], [1, 3]);
        close(&x.take_along_axis(0, &ids), &[3.0, 1.0, 5.0]);
        let y = Tensor::arange(rt, 0, 24, 1).reshape([2, 3, 4]);
        let ids = Tensor::from_vec(rt, vec![2, 1, 0, 0, 1, 1, 2, 2], [2, 1, 4]);
        ints(&y.take_along_axis(1, &ids), &[8, 5, 2, 3, 16, 17, 22, 23]);
        close(&Tensor::from_vec(rt, vec![1, 3], [2]).one_hot(3), &[0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    });
}

#[test]
fn sums_by_index_are_those_of_loops() {
    on_each(|rt| {
        let a = Tensor::arange(rt, 0.0, 24.0, 1.0).reshape([2, 3, 4]);
        let b = Tensor::arange(rt, 0.0, 40.0, 1.0).reshape([2, 5, 4]);
        let (u, v) = (a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap());
        let mut want = vec![0.0; 2 * 5 * 3];
        for (n, i, j, k) in (0..120).map(|e| (e / 60, e / 20 % 3, e / 4 % 5, e % 4)) {
            want[(n * 5 + j) * 3 + i] += u[(n * 3 + i) * 4 + k] * v[(n * 5 + j) * 4 + k];
        }
        close(&Tensor::einsum("nik, njk -> nji", &[&a, &b]).unwrap(), &want);
        let x = Tensor::arange(rt, 1.0, 4.0, 1.0);
        let y = Tensor::arange(rt, 1.0, 3.0, 1.0);
        close(&Tensor::einsum("i,j->ji", &[&x, &y]).unwrap(), &[1.0, 2.0, 3.0, 2.0, 4.0, 6.0]);
        close(&Tensor::einsum("i,i", &[&x, &x]).unwrap(), &[14.0]);
        close(&Tensor::einsum("nik->k", &[&a]).unwrap(), &a.sum([0, 1]).to_vec::<f32>().unwrap());
        let chain = Tensor::einsum("nik,k,i->n", &[&a, &Tensor::ones(rt, [4]), &x]).unwrap();
        let weights = x.reshape([1, 3, 1]);
        close(&chain, &(&a * weights).sum([1, 2]).to_vec::<f32>().unwrap());
    });
}

#[test]
fn losses_are_those_of_pytorch() {
    on_each(|rt| {
        let x = Tensor::from_vec(rt, vec![0.5_f32, -1.0, 2.0, 0.0, 3.0, -2.0], [2, 3]);
        let y = Tensor::from_vec(rt, vec![1.0_f32, 0.0, 0.0, 1.0, 1.0, 0.0], [2, 3]);
        close(&x.mse_loss(&y), &[14.25 / 6.0]);
        close(&x.huber_loss(&y, 1.0), &[(0.125 + 0.5 + 1.5 + 0.5 + 1.5 + 1.5) / 6.0]);
        close(&x.binary_cross_entropy_with_logits(&y), &[0.630_488_2]);
        let classes = Tensor::from_vec(rt, vec![2, 0], [2]);
        close(&x.cross_entropy(&classes), &[1.648_148_3]);
    });
}

#[test]
fn random_integers_follow_their_seed() {
    let rt = cpu();
    let numbers = Tensor::rand_int(&rt, -3..4, [7000], 1).to_vec::<i32>().unwrap();
    for value in -3..4 {
        let count = numbers.iter().filter(|number| **number == value).count();
        assert!((850..1150).contains(&count), "{value} occurs {count} times of 7000");
    }
    let mut order = Tensor::permutation(&rt, 1000, 5).to_vec::<u32>().unwrap();
    assert!(order.windows(2).filter(|pair| pair[0] < pair[1]).count() < 600);
    order.sort_unstable();
    assert!(order.into_iter().eq(0..1000));
    let kept = Tensor::ones(&rt, [10_000]).dropout(0.25, 3);
    let (mean, zeros) = (kept.mean(..), kept.eq(0.0).cast(DType::F32).mean(..));
    assert!((mean.item::<f32>().unwrap() - 1.0).abs() < 0.02);
    assert!((zeros.item::<f32>().unwrap() - 0.25).abs() < 0.02);
    let halves = Tensor::ones(&rt, [2]).cast(DType::F16);
    assert_eq!((halves.zeros_like().dtype(), halves.ones_like().shape()), (DType::F16, &[2][..]));
    bools(&halves.gt(0.0).zeros_like(), &[false, false]);
    ints(&Tensor::from_values(&rt, (0..4).map(|i| i * i)), &[0, 1, 4, 9]);
}

#[test]
fn errors_name_the_called_function() {
    let rt = cpu();
    let x = Tensor::ones(&rt, [2, 3]);
    let message = |tensor: Tensor| tensor.check().unwrap_err().to_string();
    let row = Tensor::ones(&rt, [4]);
    for (tensor, name, part) in [
        (x.elu(1.0).mse_loss(&row), "mse_loss at ", "[2, 3] and [4]"),
        (x.cast(DType::I32).softplus(), "softplus at ", "i32"),
        (x.any(0), "any at ", "f32, not bool"),
        (x.var_ddof(0, 2), "var_ddof at ", "2 elements less 2"),
        (x.unfold(1, 4, 1), "unfold at ", "no windows of 4 by 1 on axis 1 of [2, 3]"),
        (x.slice_assign(&[0..3], &x), "slice_assign at ", "no 0..3 on axis 0 of [2, 3]"),
        (x.slice_assign(&[0..1], &x), "slice_assign at ", "[1, 3]"),
        (row.tril(0), "tril at ", "[4] is not a matrix"),
        (x.take_along_axis(0, &row), "take_along_axis at ", "[4]"),
        (x.dropout(1.0, 1), "dropout at ", "the probability 1"),
        (x.swiglu(), "swiglu at ", "[2, 3]"),
        (x.repeat([-1]), "repeat at ", "-1"),
        (x.cumsum(2), "cumsum at ", "no axis 2"),
        (Tensor::rand_int(&rt, 3..3, [1], 0), "rand_int at ", "3..3"),
        (x.nll_loss(&row), "nll_loss at ", "[4]"),
    ] {
        let text = message(tensor);
        assert!(text.starts_with(name) && text.contains(part), "{name}: {text}");
        assert!(text.contains("tensor_functions.rs"), "{text}");
    }
    assert!(Tensor::cat::<Tensor>(&[], 0).is_err());
    let error = Tensor::einsum("ij,jk", &[&x, &x]).unwrap_err().to_string();
    assert!(error.contains("\"ij,jk\": j is 3 and 2"), "{error}");
}
