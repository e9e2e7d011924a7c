//! Training with `warploom-nn`: losses of PyTorch, step by step, on every device.
//!
//! `tests/golden/training.py` writes the losses.

use std::collections::BTreeMap;

use warploom::graph::{Conv2d, Pool2d, PoolKind};
use warploom::tensor::Var;
use warploom::{DType, Runtime, Tensor};
use warploom_nn::{
    Activation, Adam, Conv2dLayer, Embedding, Init, LayerNorm, Linear, Lion, LossScale, Lstm,
    MultiHeadAttention, Muon, Optimizer, Params, RmsNorm, Schedule, Sgd, SgdOptions, clip_norm,
};

use super::devices;
use super::tensor::{close, cpu, on_each};

/// The same numbers as `values` of the script.
fn values(rt: &Runtime, shape: &[usize], seed: usize, scale: f32) -> Tensor {
    let count: usize = shape.iter().product();
    let value = |i: usize| (((i + 1) * 7919 + seed * 104_729) % 1009) as f64 / 1009.0 * 2.0 - 1.0;
    let all = (0..count).map(|i| value(i) as f32 * scale).collect();
    Tensor::from_vec::<f32>(rt, all, shape)
}

fn classes(rt: &Runtime, count: i32, factor: i32, modulus: i32) -> Tensor {
    Tensor::from_values(rt, (0..count).map(|i| i * factor % modulus))
}

/// A network: sets the script's initial values, and returns its loss.
type Network = fn(&Params) -> Box<dyn Fn() -> Tensor>;

/// Sets parameters in the order of the script.
fn begin(params: &Params, order: &[(&str, f32)]) {
    for (i, (name, scale)) in order.iter().enumerate() {
        let var = params.get(name).unwrap_or_else(|| panic!("no parameter {name}: {params:?}"));
        var.set(&values(params.runtime(), &var.shape(), i + 1, *scale)).unwrap();
    }
    assert_eq!(params.vars().len(), order.len(), "{params:?}");
}

fn mlp(params: &Params) -> Box<dyn Fn() -> Tensor> {
    let first = Linear::new(&params.at("first"), 8, 16).unwrap();
    let second = Linear::new(&params.at("second"), 16, 4).unwrap();
    begin(
        params,
        &[("first.weight", 0.5), ("first.bias", 0.1), ("second.weight", 0.5), ("second.bias", 0.1)],
    );
    let x = values(params.runtime(), &[32, 8], 11, 1.0);
    let target = classes(params.runtime(), 32, 7, 4);
    Box::new(move || {
        second.forward(&Activation::Tanh.forward(&first.forward(&x))).cross_entropy(&target)
    })
}

fn convolution(params: &Params) -> Box<dyn Fn() -> Tensor> {
    let padded = Conv2d { pad_before: (1, 1), pad_after: (1, 1), ..Conv2d::default() };
    let halved = Conv2d { stride: (2, 2), ..Conv2d::default() };
    let first = Conv2dLayer::new(&params.at("first"), 2, 4, 3, padded).unwrap();
    let second = Conv2dLayer::new(&params.at("second"), 4, 6, 2, halved).unwrap();
    let last = Linear::new(&params.at("last"), 24, 5).unwrap();
    begin(
        params,
        &[
            ("first.weight", 0.4),
            ("first.bias", 0.1),
            ("second.weight", 0.4),
            ("second.bias", 0.1),
            ("last.weight", 0.4),
            ("last.bias", 0.1),
        ],
    );
    let x = values(params.runtime(), &[6, 2, 8, 8], 12, 1.0);
    let target = classes(params.runtime(), 6, 3, 5);
    Box::new(move || {
        let y = first.forward(&x).relu().pool2d(Pool2d::new(PoolKind::Max, (2, 2)));
        let y = second.forward(&y).relu().reshape([6, -1]);
        last.forward(&y).cross_entropy(&target)
    })
}

fn lstm(params: &Params) -> Box<dyn Fn() -> Tensor> {
    let net = Lstm::new(params, 4, 6).unwrap();
    begin(
        params,
        &[("weight_ih_l0", 0.6), ("weight_hh_l0", 0.6), ("bias_ih_l0", 0.3), ("bias_hh_l0", 0.3)],
    );
    let x = values(params.runtime(), &[5, 3, 4], 13, 1.0);
    Box::new(move || {
        let (output, state) = net.forward(&x, &net.zero_state(3)).unwrap();
        output.square().mean(..) + state.cell.abs().mean(..)
    })
}

fn attention(params: &Params) -> Box<dyn Fn() -> Tensor> {
    let net = MultiHeadAttention::new(params, 8, 4, 2).unwrap();
    let norm = LayerNorm::new(&params.at("norm"), 8, 1e-5).unwrap();
    let last = RmsNorm::new(&params.at("last"), 8, 1e-5).unwrap();
    begin(
        params,
        &[
            ("q.weight", 0.6),
            ("k.weight", 0.6),
            ("v.weight", 0.6),
            ("out.weight", 0.6),
            ("norm.weight", 1.0),
            ("norm.bias", 0.2),
            ("last.weight", 1.0),
        ],
    );
    let x = values(params.runtime(), &[6, 8], 14, 1.0);
    Box::new(move || {
        let y = &x + net.forward(&norm.forward(&x), true);
        last.forward(&y).gelu().square().mean(..)
    })
}

fn optimiser(name: &str, vars: Vec<Var>) -> Box<dyn FnMut(&Tensor) -> f32> {
    let momentum = SgdOptions { momentum: 0.9, ..SgdOptions::default() };
    let (mut sgd, mut adam): (Option<Sgd>, Option<Adam>) = (None, None);
    match name {
        "sgd" => sgd = Some(Sgd::new(vars.clone(), 0.1)),
        "momentum" => {
            let options = SgdOptions { weight_decay: 0.01, ..momentum };
            sgd = Some(Sgd::with_options(vars.clone(), 0.05, options));
        }
        "nesterov" => {
            let options = SgdOptions { nesterov: true, ..momentum };
            sgd = Some(Sgd::with_options(vars.clone(), 0.05, options));
        }
        "adam" => adam = Some(Adam::new(vars.clone(), 0.01)),
        "adamw" => adam = Some(Adam::adamw(vars.clone(), 0.01, 0.1)),
        _ => sgd = Some(Sgd::new(vars.clone(), 0.5)),
    }
    let clips = name == "clipped";
    Box::new(move |loss| {
        let mut gradients = loss.backward().unwrap();
        if clips {
            clip_norm(&mut gradients, &vars, 0.1).unwrap();
        }
        match (&mut sgd, &mut adam) {
            (Some(sgd), _) => sgd.step(&gradients).unwrap(),
            (_, Some(adam)) => adam.step(&gradients).unwrap(),
            _ => unreachable!("one of both was made"),
        }
        gradients.result().item::<f32>().unwrap()
    })
}

#[test]
fn losses_of_ten_steps_are_those_of_pytorch() {
    let golden: BTreeMap<String, Vec<f32>> =
        serde_json::from_str(include_str!("../../golden/training.json")).unwrap();
    assert_eq!(golden.len(), 24);
    let networks: [(&str, Network); 4] =
        [("mlp", mlp), ("convolution", convolution), ("lstm", lstm), ("attention", attention)];
    on_each(|rt| {
        let step = devices::sample_software(rt.device().profile(), 5);
        for (name, want) in golden.iter().step_by(step) {
            let (network, algorithm) = name.split_once(' ').unwrap();
            let (_, network) = networks.iter().find(|(name, _)| *name == network).unwrap();
            let params = Params::new(rt, 1);
            let loss = network(&params);
            let mut step = optimiser(algorithm, params.vars());
            for (i, want) in want.iter().enumerate() {
                let have = step(&loss());
                let near = (have - want).abs() <= 1e-4 * want.abs().max(1.0);
                assert!(near, "{name}, step {i}: the loss is {have}, PyTorch's {want}");
            }
        }
    });
}

/// A step along the gradients of a loss with a learning rate; returns the loss.
type Stepping = Box<dyn FnMut(&Tensor, f32) -> f32>;

#[test]
fn other_optimisers_lower_the_loss_and_plan_once() {
    let rt = cpu();
    let lower = |mut optimiser: Stepping, params: &Params, rate: f32| {
        let loss = mlp(params);
        let schedule = Schedule::Cosine { rate, last: 0.0, warmup: 5, steps: 60 };
        let first = optimiser(&loss(), schedule.rate(0));
        for step in 1..5 {
            optimiser(&loss(), schedule.rate(step));
        }
        let before = rt.tensor_stats().planned;
        let last = (5..60).fold(first, |_, step| optimiser(&loss(), schedule.rate(step)));
        assert_eq!(rt.tensor_stats().planned, before, "a new rate was planned again");
        assert!(last < 0.8 * first, "{first} to {last}");
    };
    fn stepping(mut optimiser: impl Optimizer + 'static) -> Stepping {
        Box::new(move |loss, rate| {
            optimiser.set_learning_rate(rate);
            let gradients = loss.backward().unwrap();
            optimiser.step(&gradients).unwrap();
            gradients.result().item::<f32>().unwrap()
        })
    }
    let params = Params::new(&rt, 2);
    let _ = mlp(&params);
    lower(stepping(Lion::new(params.vars(), 0.0)), &params, 0.01);
    let params = Params::new(&rt, 3);
    let _ = mlp(&params);
    lower(stepping(Muon::new(params.vars(), 0.0)), &params, 0.05);
    lower(stepping(Adam::new(params.vars(), 0.0)), &params, 0.05);
}

#[test]
fn parameters_have_names_and_are_saved_and_loaded() {
    let rt = cpu();
    let params = Params::new(&rt, 7);
    Linear::new(&params.at("a"), 3, 2).unwrap();
    Embedding::new(&params.at("b").at(0), 4, 2).unwrap();
    let names: Vec<String> = params.named().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a.bias", "a.weight", "b.0.weight"]);
    assert_eq!((params.elements(), params.at("a").vars().len()), (16, 2));
    // The same layer again is the same parameter; another shape is an error.
    let again = Linear::new(&params.at("a"), 3, 2).unwrap();
    assert!(again.weight.is(&params.get("a.weight").unwrap()));
    let error = Linear::new(&params.at("a"), 4, 2).unwrap_err().to_string();
    assert!(
        error.contains("parameter a.bias is") || error.contains("parameter a.weight is"),
        "{error}"
    );

    let folder = std::env::temp_dir().join(format!("warploom-nn-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("params.safetensors");
    params.save(&file).unwrap();
    // Initial values depend on seed and name, so that another seed gives others.
    let other = Params::new(&rt, 8);
    Linear::new(&other.at("a"), 3, 2).unwrap();
    Embedding::new(&other.at("b").at(0), 4, 2).unwrap();
    let read = |params: &Params| params.get("a.weight").unwrap().value().to_vec::<f32>().unwrap();
    assert_ne!(read(&params), read(&other));
    other.load(&file).unwrap();
    assert_eq!(read(&params), read(&other));
    // A file with less or more, with another shape, or none: nothing is changed.
    let fails = |params: &Params, what: &str| {
        let before =
            params.vars().iter().map(|v| v.value().to_vec::<f32>().unwrap()).collect::<Vec<_>>();
        let error = params.load(&file).unwrap_err().to_string();
        assert!(error.contains("params.safetensors") && error.contains(what), "{error}");
        let after =
            params.vars().iter().map(|v| v.value().to_vec::<f32>().unwrap()).collect::<Vec<_>>();
        assert_eq!(before, after);
    };
    other.var("c", &[1], Init::Constant(0.0)).unwrap();
    fails(&other, "c");
    let less = Params::new(&rt, 1);
    Linear::new(&less.at("a"), 3, 2).unwrap();
    fails(&less, "b.0.weight is no parameter");
    let wide = Params::new(&rt, 1);
    Linear::new(&wide.at("a"), 5, 2).unwrap();
    Embedding::new(&wide.at("b").at(0), 4, 2).unwrap();
    fails(&wide, "a.weight is [2, 3], the parameter [2, 5]");
    std::fs::write(&file, b"no safetensors").unwrap();
    fails(&other, "safetensors");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn mixed_precision_trains_and_skips_steps_that_overflow() {
    on_each(|rt| {
        let params = Params::new(rt, 5);
        let layer = Linear::new(&params, 8, 4).unwrap();
        let x = values(rt, &[16, 8], 1, 1.0).cast(DType::F16);
        let target = classes(rt, 16, 3, 4);
        let mut adam = Adam::new(params.vars(), 0.05);
        let mut scale = LossScale::new().with_factor(1024.0).with_patience(4);
        let mut losses = Vec::new();
        for _ in 0..12 {
            let loss = layer.forward(&x).cast(DType::F32).cross_entropy(&target);
            let mut gradients = scale.scaled(&loss).backward().unwrap();
            assert_eq!(gradients.get(&layer.weight).unwrap().dtype(), DType::F32);
            assert!(scale.unscale(&mut gradients, &params.vars()).unwrap());
            adam.step(&gradients).unwrap();
            losses.push(loss.item::<f32>().unwrap());
        }
        assert!(losses[11] < losses[0] && scale.factor() == 8192.0, "{losses:?} {scale:?}");
        // 70,000 is no f16.
        let loss = layer.forward(&x).mul(60_000.0).mul(60_000.0).cast(DType::F32).sum(..);
        let mut gradients = scale.scaled(&loss).backward().unwrap();
        assert!(!scale.unscale(&mut gradients, &params.vars()).unwrap());
        assert_eq!(scale.factor(), 4096.0);
    });
}

#[test]
fn embeddings_learn_from_the_rows_that_were_read() {
    on_each(|rt| {
        let params = Params::new(rt, 9);
        let table = Embedding::new(&params, 5, 2).unwrap();
        let ids = Tensor::from_vec(rt, vec![1, 3, 1], [3]);
        let gradients = table.forward(&ids).sum(..).backward().unwrap();
        let want = [0.0, 0.0, 2.0, 2.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0];
        close(gradients.get(&table.weight).unwrap(), &want);
    });
}
