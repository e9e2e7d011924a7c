//! Trains a small network to distinguish points inside a ring from points outside:
//! `cargo run --release --example tensor`.

use warploom::{DType, Runtime, Tensor};
use warploom_nn::{Linear, Optimizer, Params, Sgd};

const POINTS: usize = 1024;
const HIDDEN: usize = 32;
const STEPS: usize = 1000;

fn main() -> warploom::Result<()> {
    let runtime = Runtime::auto()?;
    eprintln!("{}", runtime.startup_line());

    let x = Tensor::rand(&runtime, [POINTS, 2], 1) * 2 - 1;
    let radius = x.square().sum_keep(-1).sqrt();
    let inside = radius.gt(0.4).logical_and(radius.lt(0.9)).cast(DType::F32);
    Tensor::eval(&[&x, &inside])?;

    let params = Params::new(&runtime, 2);
    let first = Linear::new(&params.at("first"), 2, HIDDEN)?;
    let second = Linear::new(&params.at("second"), HIDDEN, 1)?;
    let mut sgd = Sgd::new(params.vars(), 4.0);
    for step in 0..=STEPS {
        let guess = second.forward(&first.forward(&(&x * 4)).tanh());
        let loss = guess.binary_cross_entropy_with_logits(&inside);
        sgd.set_learning_rate(4.0 / (1.0 + step as f32 / 500.0));
        sgd.step(&loss.backward()?)?;
        if step % 200 == 0 {
            let right = guess.gt(0.0).eq(inside.gt(0.5)).cast(DType::F32).mean(..);
            println!("step {step:4}: {:5.1}% right", 100.0 * right.item::<f32>()?);
        }
    }
    let stats = runtime.tensor_stats();
    println!("{} graphs were planned for {} runs", stats.planned, stats.planned + stats.reused);
    Ok(())
}
