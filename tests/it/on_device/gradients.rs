//! Gradients of tensors: each rule against differences of the function, on every device.

use warploom::graph::{Conv2d, Pool2d, PoolKind, RopePairs};
use warploom::tensor::{AttentionOptions, Conv1d, Var, no_grad};
use warploom::{DType, Runtime, Tensor};

use super::devices;
use super::tensor::{close, cpu, on_each};

/// A function of some tensors with a result of any shape.
type Function = fn(&[Tensor]) -> Tensor;

/// A function with the shapes of its arguments, and the range of their values.
struct Rule(&'static str, &'static [&'static [usize]], (f32, f32), Function);

/// Values without ties, spread over the range.
fn values(count: usize, (low, high): (f32, f32), seed: usize) -> Vec<f32> {
    let place = |i: usize| ((i * 7919 + seed * 104_729) % 1009) as f32 / 1009.0;
    (0..count).map(|i| low + (high - low) * place(i + 1)).collect()
}

/// The sum of the result's elements, each with its own weight.
fn weighed(result: &Tensor) -> Tensor {
    let count = result.elements();
    let weights = values(count, (-1.0, 1.0), 3);
    let weights = Tensor::from_vec(result.runtime(), weights, result.shape());
    result.cast(DType::F32).mul(weights).sum(..)
}

fn tensors(rt: &Runtime, rule: &Rule, arguments: &[Vec<f32>]) -> Vec<Tensor> {
    let pairs = arguments.iter().zip(rule.1);
    pairs.map(|(values, shape)| Tensor::from_slice(rt, values, *shape)).collect()
}

/// The gradients by reverse mode.
fn gradients(rt: &Runtime, rule: &Rule, arguments: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let vars: Vec<Var> = tensors(rt, rule, arguments).iter().map(Var::new).collect();
    let inputs: Vec<Tensor> = vars.iter().map(Var::value).collect();
    let loss = weighed(&rule.3(&inputs));
    let all = loss.backward().unwrap_or_else(|e| panic!("{}: {e}", rule.0));
    let one = |(var, input): (&Var, &Tensor)| {
        let gradient = all.get(var).cloned().unwrap_or_else(|| input.zeros_like());
        assert_eq!(gradient.shape(), input.shape(), "{}", rule.0);
        gradient.to_vec::<f32>().unwrap_or_else(|e| panic!("{}: {e}", rule.0))
    };
    vars.iter().zip(&inputs).map(one).collect()
}

/// The gradients by differences over five points, whose error is of the fourth order.
fn differences(rt: &Runtime, rule: &Rule, arguments: &[Vec<f32>]) -> Vec<Vec<f32>> {
    const STEP: f32 = 0.02;
    let mut out = Vec::new();
    for (which, argument) in arguments.iter().enumerate() {
        let slope = |i: usize| {
            let at = |steps: f32| {
                let mut moved = arguments.to_vec();
                moved[which][i] += steps * STEP;
                let loss = weighed(&rule.3(&tensors(rt, rule, &moved)));
                f64::from(loss.item::<f32>().unwrap())
            };
            let slope = 8.0 * (at(1.0) - at(-1.0)) - (at(2.0) - at(-2.0));
            (slope / (12.0 * f64::from(STEP))) as f32
        };
        out.push((0..argument.len()).map(slope).collect());
    }
    out
}

const ANY: (f32, f32) = (-2.0, 2.0);
const ABOVE: (f32, f32) = (0.5, 2.0);

fn rules() -> Vec<Rule> {
    let mut rules = elementwise();
    rules.extend(over_axes());
    rules.extend(moves());
    rules.extend(products());
    rules
}

fn elementwise() -> Vec<Rule> {
    vec![
        Rule("neg", &[&[5]], ANY, |x| x[0].neg()),
        Rule("abs", &[&[6]], ANY, |x| x[0].abs()),
        Rule("exp", &[&[5]], ANY, |x| x[0].exp()),
        Rule("log", &[&[5]], ABOVE, |x| x[0].log()),
        Rule("sqrt", &[&[5]], ABOVE, |x| x[0].sqrt()),
        Rule("rsqrt", &[&[5]], ABOVE, |x| x[0].rsqrt()),
        Rule("reciprocal", &[&[5]], ABOVE, |x| x[0].reciprocal()),
        Rule("sin", &[&[5]], ANY, |x| x[0].sin()),
        Rule("cos", &[&[5]], ANY, |x| x[0].cos()),
        Rule("tanh", &[&[5]], ANY, |x| x[0].tanh()),
        Rule("asin", &[&[7]], (-0.9, 0.9), |x| x[0].asin()),
        Rule("acos", &[&[7]], (-0.9, 0.9), |x| x[0].acos()),
        Rule("atan", &[&[7]], (-3.0, 3.0), |x| x[0].atan()),
        Rule("asinh", &[&[7]], (-3.0, 3.0), |x| x[0].asinh()),
        Rule("acosh", &[&[7]], (1.2, 3.0), |x| x[0].acosh()),
        Rule("atanh", &[&[7]], (-0.8, 0.8), |x| x[0].atanh()),
        Rule("atan2", &[&[7], &[7]], (0.3, 2.0), |x| x[0].neg().atan2(&x[1].neg())),
        Rule("sort", &[&[2, 5]], ANY, |x| x[0].sort(1, true).mul(&x[0])),
        Rule("median", &[&[2, 4]], ANY, |x| x[0].median(1)),
        Rule("scatter", &[&[2, 3], &[2, 2]], ANY, |x| {
            let ids = Tensor::from_vec(x[0].runtime(), vec![2, 2, 0, 5], [2, 2]);
            x[0].scatter(1, &ids, &x[1]).square()
        }),
        Rule("erf", &[&[5]], ANY, |x| x[0].erf()),
        Rule("sigmoid", &[&[5]], ANY, |x| x[0].sigmoid()),
        Rule("silu", &[&[5]], ANY, |x| x[0].silu()),
        Rule("gelu", &[&[5]], ANY, |x| x[0].gelu()),
        Rule("gelu_tanh", &[&[5]], ANY, |x| x[0].gelu_tanh()),
        Rule("relu", &[&[6]], ANY, |x| x[0].relu()),
        Rule("floor", &[&[5]], (1.1, 1.9), |x| x[0].mul(&x[0]).add(x[0].floor())),
        Rule("softplus", &[&[5]], ANY, |x| x[0].softplus()),
        Rule("selu", &[&[6]], ANY, |x| x[0].selu()),
        Rule("add", &[&[2, 3], &[3]], ANY, |x| &x[0] + &x[1]),
        Rule("sub", &[&[3], &[2, 3]], ANY, |x| &x[0] - &x[1]),
        Rule("mul", &[&[2, 1, 3], &[4, 1]], ANY, |x| &x[0] * &x[1]),
        Rule("div", &[&[2, 3], &[]], ABOVE, |x| &x[0] / &x[1]),
        // 2.2 to 2.4 by 0.9 to 1.1 is 2 always: differences see no jump.
        Rule("rem", &[&[5], &[1]], ABOVE, |x| x[0].mul(0.1).add(2.2).rem(x[1].mul(0.1).add(0.9))),
        Rule("pow", &[&[5], &[5]], ABOVE, |x| x[0].pow(&x[1])),
        Rule("pow of a number", &[&[5]], ANY, |x| x[0].pow(2.0)),
        Rule("maximum", &[&[6], &[6]], ANY, |x| x[0].maximum(x[1].flip(0))),
        Rule("minimum", &[&[6], &[6]], ANY, |x| x[0].minimum(x[1].flip(0))),
        Rule("select", &[&[2, 3], &[3]], ANY, |x| x[0].gt(0.3).select(x[0].square(), &x[1])),
        Rule("a tensor twice", &[&[4]], ANY, |x| &x[0] * &x[0] + x[0].exp()),
    ]
}

fn over_axes() -> Vec<Rule> {
    vec![
        Rule("sum", &[&[2, 3, 2]], ANY, |x| x[0].square().sum([0, 2])),
        Rule("mean", &[&[3, 4]], ANY, |x| x[0].square().mean_keep(0)),
        Rule("max", &[&[3, 4]], ANY, |x| x[0].max(-1)),
        Rule("min", &[&[3, 4]], ANY, |x| x[0].min_keep(0)),
        Rule("prod", &[&[2, 3]], ABOVE, |x| x[0].prod(1)),
        Rule("var", &[&[2, 5]], ANY, |x| x[0].var(1)),
        Rule("logsumexp", &[&[2, 4]], ANY, |x| x[0].logsumexp(-1)),
        Rule("cumsum", &[&[5]], ANY, |x| x[0].square().cumsum(0)),
        Rule("softmax", &[&[2, 5]], ANY, |x| x[0].softmax(-1)),
        Rule("softmax over rows", &[&[3, 2]], ANY, |x| x[0].softmax(0)),
        Rule("log_softmax", &[&[2, 5]], ANY, |x| x[0].log_softmax(-1)),
        Rule("rms_norm", &[&[2, 6], &[6]], ANY, |x| x[0].rms_norm(&x[1], 1e-5)),
        Rule("layer_norm", &[&[2, 6], &[6], &[6]], ANY, |x| x[0].layer_norm(&x[1], &x[2], 1e-5)),
        Rule("cross_entropy", &[&[3, 4]], ANY, |x| {
            x[0].cross_entropy(&Tensor::from_vec(x[0].runtime(), vec![2, 0, 3], [3]))
        }),
        Rule("mse_loss", &[&[3], &[3]], ANY, |x| x[0].mse_loss(&x[1])),
    ]
}

fn ids(like: &Tensor, ids: &[i32], shape: &[usize]) -> Tensor {
    Tensor::from_slice(like.runtime(), ids, shape)
}

fn moves() -> Vec<Rule> {
    vec![
        Rule("reshape", &[&[2, 3]], ANY, |x| x[0].reshape([3, 2]).square()),
        Rule("permute", &[&[2, 3, 2]], ANY, |x| x[0].permute([2, 0, 1]).square()),
        Rule("narrow", &[&[5, 2]], ANY, |x| x[0].narrow(0, 1..4).square()),
        Rule("slice", &[&[2, 8]], ANY, |x| x[0].slice(1, 1..8, 3).square()),
        Rule("expand", &[&[2, 1]], ANY, |x| x[0].expand([3, 2, 4])),
        Rule("pad", &[&[2, 2]], ANY, |x| x[0].square().pad(&[(1, 0), (0, 2)], 1.0)),
        Rule("concat", &[&[2, 2], &[2, 1]], ANY, |x| x[0].concat(&[&x[1], &x[0]], 1).square()),
        Rule("gather rows", &[&[4, 3]], ANY, |x| {
            x[0].gather(0, &ids(&x[0], &[1, 3, 1, 9, -1], &[5]))
        }),
        Rule("gather columns", &[&[2, 4, 2]], ANY, |x| {
            x[0].gather(1, &ids(&x[0], &[3, 3, 0, 1], &[2, 2])).square()
        }),
        Rule("take_along_axis", &[&[2, 4]], ANY, |x| {
            x[0].take_along_axis(1, &ids(&x[0], &[3, 3, 0, 1], &[2, 2])).square()
        }),
        Rule("index_add", &[&[3, 2], &[4, 2]], ANY, |x| {
            x[0].index_add(0, &ids(&x[0], &[2, 0, 2, 5], &[4]), &x[1]).square()
        }),
        Rule("scatter_add", &[&[2, 3], &[2, 2]], ANY, |x| {
            x[0].scatter_add(1, &ids(&x[0], &[2, 0, 1, 1], &[2, 2]), &x[1]).square()
        }),
        Rule("cast", &[&[3]], ANY, |x| x[0].cast(DType::F32).square()),
    ]
}

fn products() -> Vec<Rule> {
    vec![
        Rule("matmul", &[&[2, 3], &[3, 4]], ANY, |x| x[0].matmul(&x[1])),
        Rule("matmul of a batch and a matrix", &[&[2, 2, 3], &[3, 2]], ANY, |x| x[0].matmul(&x[1])),
        Rule("matmul of batches", &[&[2, 1, 2, 3], &[2, 3, 2]], ANY, |x| x[0].matmul(&x[1])),
        Rule("linear", &[&[2, 2, 3], &[4, 3]], ANY, |x| x[0].linear(&x[1])),
        Rule("linear of a row", &[&[3], &[2, 3]], ANY, |x| x[0].linear(&x[1])),
        Rule("einsum", &[&[2, 3], &[3, 2]], ANY, |x| {
            Tensor::einsum("ij,jk->ki", &[&x[0], &x[1]]).unwrap()
        }),
        Rule("conv2d", &[&[2, 2, 4, 5], &[3, 2, 2, 3]], ANY, |x| {
            x[0].conv2d(&x[1], Conv2d::default())
        }),
        Rule(
            "conv2d with strides, padding and groups",
            &[&[1, 4, 6, 5], &[2, 2, 3, 2]],
            ANY,
            |x| {
                let conv = Conv2d {
                    stride: (2, 3),
                    pad_before: (1, 2),
                    pad_after: (2, 0),
                    groups: 2,
                    ..Conv2d::default()
                };
                x[0].conv2d(&x[1], conv)
            },
        ),
        Rule("conv2d with dilation", &[&[2, 1, 7, 6], &[2, 1, 2, 2]], ANY, |x| {
            let conv = Conv2d { stride: (2, 1), dilation: (3, 2), ..Conv2d::default() };
            x[0].conv2d(&x[1], conv)
        }),
        Rule("conv_transpose2d", &[&[1, 4, 3, 2], &[4, 1, 2, 3]], ANY, |x| {
            let conv =
                Conv2d { stride: (2, 1), pad_before: (1, 0), groups: 2, ..Conv2d::default() };
            x[0].conv_transpose2d(&x[1], conv, (1, 0))
        }),
        Rule("conv1d", &[&[2, 2, 5], &[3, 2, 2]], ANY, |x| {
            x[0].conv1d(&x[1], Conv1d { stride: 2, pad_after: 1, ..Conv1d::default() })
        }),
        Rule("upsample_bilinear2d", &[&[1, 2, 2, 3]], ANY, |x| {
            x[0].upsample_bilinear2d(3, 5, false)
        }),
        Rule("max pool", &[&[1, 2, 5, 4]], ANY, |x| {
            let pool = Pool2d { stride: (1, 2), ..Pool2d::new(PoolKind::Max, (2, 2)) };
            x[0].pool2d(pool)
        }),
        Rule("mean pool", &[&[1, 1, 5, 5]], ANY, |x| {
            let pool = Pool2d {
                stride: (2, 2),
                pad_before: (1, 0),
                pad_after: (0, 1),
                ..Pool2d::new(PoolKind::Mean, (3, 2))
            };
            x[0].pool2d(pool)
        }),
        Rule("rope", &[&[2, 1, 4]], ANY, |x| {
            let frequencies = Tensor::from_vec(x[0].runtime(), vec![1.0_f32, 0.3], [2]);
            x[0].rope(&ids(&x[0], &[1, 4], &[2]), &frequencies, RopePairs::Half)
        }),
        Rule("attention", &[&[2, 2, 3], &[4, 2, 3], &[4, 2, 3]], ANY, |x| {
            x[0].attention(&x[1], &x[2], AttentionOptions::default())
        }),
        Rule("causal attention, shared keys", &[&[3, 4, 2], &[5, 2, 2], &[5, 2, 2]], ANY, |x| {
            let options = AttentionOptions {
                causal: true,
                past: 2,
                window: Some(3),
                ..AttentionOptions::default()
            };
            x[0].attention(&x[1], &x[2], options)
        }),
    ]
}

fn arguments(rule: &Rule) -> Vec<Vec<f32>> {
    let shapes = rule.1.iter().enumerate();
    shapes.map(|(i, shape)| values(shape.iter().product(), rule.2, i)).collect()
}

/// The first element of each argument that is too far from what is wanted.
fn wrong(name: &str, have: &[Vec<f32>], want: &[Vec<f32>], tolerance: f32) -> Vec<String> {
    let first = |(argument, (have, want)): (usize, (&Vec<f32>, &Vec<f32>))| {
        let most = want.iter().fold(1.0_f32, |most, value| most.max(value.abs()));
        let pairs = have.iter().zip(want).enumerate();
        let is_far = |have: f32, want: f32| have.is_nan() || (have - want).abs() > tolerance * most;
        let mut far = pairs.filter(|(_, (have, want))| is_far(**have, **want));
        far.next().map(|(i, (have, want))| {
            format!("{name}: argument {argument}, element {i}: {have}, not {want}")
        })
    };
    have.iter().zip(want).enumerate().filter_map(first).collect()
}

#[test]
fn gradients_are_the_slopes_of_the_function() {
    let rt = cpu();
    let mut all = Vec::new();
    for rule in rules() {
        let arguments = arguments(&rule);
        let want = differences(&rt, &rule, &arguments);
        all.extend(wrong(rule.0, &gradients(&rt, &rule, &arguments), &want, 2e-3));
    }
    assert!(all.is_empty(), "{all:#?}");
}

#[test]
fn gradients_are_equal_on_every_device() {
    let rt = cpu();
    let rules = rules();
    let want: Vec<_> = rules.iter().map(|rule| gradients(&rt, rule, &arguments(rule))).collect();
    on_each(|rt| {
        let step = devices::sample(rt.device().profile(), 4);
        for (rule, want) in rules.iter().zip(&want).step_by(step) {
            let all = wrong(rule.0, &gradients(rt, rule, &arguments(rule)), want, 1e-5);
            assert!(all.is_empty(), "{all:#?}");
        }
    });
}

#[test]
fn points_without_a_slope_have_the_documented_one() {
    on_each(|rt| {
        let slope = |x: &[f32], f: Function| {
            let var = Var::new(&Tensor::from_slice(rt, x, [x.len()]));
            let y = f(&[var.value()]).sum(..);
            y.backward().unwrap().get(&var).unwrap().to_vec::<f32>().unwrap()
        };
        assert_eq!(slope(&[0.0], |x| x[0].relu()), [0.0]);
        assert_eq!(slope(&[0.0], |x| x[0].abs()), [0.0]);
        assert_eq!(slope(&[1.0, 1.0, 0.0, 1.0], |x| x[0].mul(3.0).max(0)), [1.0, 1.0, 0.0, 1.0]);
        assert_eq!(slope(&[2.0, 5.0], |x| x[0].maximum(2.0)), [0.5, 1.0]);
        assert_eq!(slope(&[0.0, 2.0], |x| x[0].pow(0.0)), [0.0, 0.0]);
        // One zero: only its own slope is not zero. Two: none.
        assert_eq!(slope(&[2.0, 0.0, 3.0], |x| x[0].prod(0)), [0.0, 6.0, 0.0]);
        assert_eq!(slope(&[2.0, 0.0, 0.0], |x| x[0].prod(0)), [0.0, 0.0, 0.0]);
        let first =
            |x: &[Tensor]| x[0].reshape([1, 1, 1, 2]).pool2d(Pool2d::new(PoolKind::Max, (1, 2)));
        assert_eq!(slope(&[7.0, 7.0], first), [1.0, 0.0]);
    });
}

#[test]
fn half_types_have_gradients_of_their_type() {
    on_each(|rt| {
        for dtype in [DType::F16, DType::BF16] {
            let x = Tensor::from_vec(rt, vec![0.5_f32, -1.0, 2.0, 1.5], [2, 2]).cast(dtype);
            let var = Var::new(&x);
            let y = var.value().matmul(var.value()).softmax(-1);
            let gradients = y.narrow(1, ..1).sum(..).backward().unwrap();
            let gradient = gradients.get(&var).unwrap();
            assert_eq!(gradient.dtype(), dtype);
            assert!(
                gradient.cast(DType::F32).to_vec::<f32>().unwrap().iter().all(|v| v.is_finite())
            );
        }
    });
}

#[test]
fn gradients_have_gradients() {
    on_each(|rt| {
        let x = Var::new(&Tensor::from_vec(rt, vec![0.5_f32, 1.5], [2])).value();
        let y = x.pow(3.0).sum(..) + x.exp().sum(..);
        let first = y.grad(&[&x]).unwrap().remove(0);
        close(&first, &[0.75 + 0.5_f32.exp(), 6.75 + 1.5_f32.exp()]);
        let second = first.sum(..).grad(&[&x]).unwrap().remove(0);
        close(&second, &[3.0 + 0.5_f32.exp(), 9.0 + 1.5_f32.exp()]);
        let third = second.sum(..).grad(&[&x]).unwrap().remove(0);
        close(&third, &[6.0 + 0.5_f32.exp(), 6.0 + 1.5_f32.exp()]);
        // Of an intermediate result, and of what the result does not depend on.
        let double = &x * 2.0;
        let other = Var::new(&Tensor::ones(rt, [3])).value();
        let found = double.square().sum(..).grad(&[&double, &other]).unwrap();
        close(&found[0], &[2.0, 6.0]);
        close(&found[1], &[0.0; 3]);
    });
}

#[test]
fn traces_begin_at_variables_and_end_where_asked() {
    let rt = cpu();
    let x = Var::new(&Tensor::ones(&rt, [2]));
    let constant = Tensor::ones(&rt, [2]);
    assert!(!(&constant * 2.0).is_traced());
    assert!((x.value() * &constant).is_traced());
    assert!(!(x.value() * 2.0).detach().is_traced());
    assert!(!x.value().gt(0.0).is_traced());
    assert!(!no_grad(|| x.value() * 2.0).is_traced());
    let gradients = (x.value() * x.value().detach()).sum(..).backward().unwrap();
    close(gradients.get(&x).unwrap(), &[1.0, 1.0]);
    // A value taken before the variable is set stays what it was.
    let before = x.value();
    x.set(&(x.value() * 5.0)).unwrap();
    close(&before, &[1.0, 1.0]);
    close(&x.value(), &[5.0, 5.0]);
}

#[test]
fn errors_name_the_operation_and_its_line() {
    let rt = cpu();
    let x = Var::new(&Tensor::ones(&rt, [2, 3]));
    let text = |result: warploom::Result<_>| match result {
        Ok(_) => panic!("no error"),
        Err(e) => e.to_string(),
    };
    let error = text(x.value().backward().map(drop));
    assert!(
        error.contains("backward at") && error.contains("[2, 3] is not one element"),
        "{error}"
    );
    let error = text(Tensor::ones(&rt, ()).backward().map(drop));
    assert!(error.contains("not computed from a variable"), "{error}");
    let error = text(x.set(&Tensor::ones(&rt, [3])));
    assert!(error.contains("gradients.rs") && error.contains("[2, 3]"), "{error}");
    let error = text(x.value().reshape([5]).sum(..).backward().map(drop));
    assert!(error.contains("cannot become"), "{error}");
    let error = Var::new(&Tensor::arange(&rt, 0, 3, 1)).value().check().unwrap_err().to_string();
    assert!(error.contains("i32 have no gradient"), "{error}");
    let frequencies = Var::new(&Tensor::ones(&rt, [1]));
    let places = Tensor::arange(&rt, 0, 2, 1);
    let turned = Tensor::ones(&rt, [2, 1, 2]).rope(&places, &frequencies.value(), RopePairs::Half);
    let error = text(turned.sum(..).backward().map(drop));
    assert!(error.contains("rope at") && error.contains("no gradient"), "{error}");
}

#[test]
fn a_step_of_training_is_one_plan_and_keeps_no_activations() {
    let rt = cpu();
    let w = Var::new(&Tensor::rand(&rt, [16, 16], 1));
    let x = Tensor::rand(&rt, [8, 16], 2);
    let step = || {
        let loss = x.matmul(w.value()).tanh().matmul(w.value()).square().mean(..);
        let gradients = loss.backward().unwrap();
        w.set(&(w.value() - gradients.get(&w).unwrap() * 0.1)).unwrap();
        Tensor::eval(&[&w.value(), gradients.result()]).unwrap();
        gradients.result().item::<f32>().unwrap()
    };
    let first = step();
    step();
    let plans = rt.tensor_stats();
    let mut last = first;
    for _ in 0..10 {
        last = step();
    }
    assert_eq!(rt.tensor_stats().planned, plans.planned, "a step planned again");
    assert!(last < 0.9 * first, "{first} to {last}");
}

#[test]
fn a_long_chain_is_differentiated_and_dropped_without_a_deep_stack() {
    let rt = cpu();
    let x = Var::new(&Tensor::ones(&rt, [1]));
    let mut y = x.value();
    for _ in 0..3000 {
        y *= 0.999;
    }
    let gradients = y.sum(..).backward().unwrap();
    let slope = gradients.get(&x).unwrap().item::<f32>().unwrap();
    assert!((slope - 0.999_f32.powi(3000)).abs() < 1e-4, "{slope}");
}
