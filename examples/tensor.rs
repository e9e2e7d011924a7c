//! Trains a small network to distinguish points inside a ring from points outside, with
//! hand-written gradients: `cargo run --release --example tensor`.

use warploom::{DType, Runtime, Tensor};

const POINTS: i32 = 1024;
const HIDDEN: i32 = 32;
const STEPS: usize = 1000;

fn main() -> warploom::Result<()> {
    let runtime = Runtime::auto()?;
    eprintln!("{}", runtime.startup_line());

    let x = Tensor::rand(&runtime, [POINTS, 2], 1) * 2 - 1;
    let radius = x.square().sum_keep(-1).sqrt();
    let inside = radius.gt(0.4).logical_and(radius.lt(0.9)).cast(DType::F32);
    Tensor::eval(&[&x, &inside])?;

    let mut w1 = Tensor::randn(&runtime, [2, HIDDEN], 2) * 2;
    let mut b1 = Tensor::randn(&runtime, [HIDDEN], 3);
    let mut w2 = Tensor::randn(&runtime, [HIDDEN, 1], 4) * 0.3;
    let mut b2 = Tensor::zeros(&runtime, [1]);
    for step in 0..=STEPS {
        let hidden = (x.matmul(&w1) + &b1).tanh();
        let guess = (hidden.matmul(&w2) + &b2).sigmoid();
        let right = guess.gt(0.5).eq(inside.gt(0.5)).cast(DType::F32).mean(..);

        // Backpropagation from the derivative of the cross entropy at the sigmoid's input.
        let error = (&guess - &inside) / POINTS;
        let back = error.matmul(w2.t()) * (1 - hidden.square());
        let rate = 4.0 / (1.0 + step as f32 / 500.0);
        w2 -= hidden.t().matmul(&error) * rate;
        b2 -= error.sum(0) * rate;
        w1 -= x.t().matmul(&back) * rate;
        b1 -= back.sum(0) * rate;
        Tensor::eval(&[&w1, &b1, &w2, &b2, &right])?;
        if step % 200 == 0 {
            println!("step {step:4}: {:5.1}% right", 100.0 * right.item::<f32>()?);
        }
    }
    let stats = runtime.tensor_stats();
    println!("{} graphs were planned for {} runs", stats.planned, stats.planned + stats.reused);
    Ok(())
}
