//! Reads a tensor and generates text on tokio's current-thread runtime, while a timer runs on the
//! same thread: `cargo run --example tokio -- DEVICE PROMPT`.

use std::ops::ControlFlow;
use std::time::Duration;

use warploom::{Runtime, Tensor};
use warploom_llm::{Event, GenerateOptions, Model, Sampling, Session};
use warploom_models::gguf::Access;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    Ok(tokio.block_on(run())?)
}

async fn run() -> warploom::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let argument = |i: usize, default: &str| args.get(i).cloned().unwrap_or(default.into());
    let timer = tokio::spawn(async {
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        loop {
            seconds.tick().await;
            eprintln!("this thread is free");
        }
    });

    let runtime = Runtime::builder().device(argument(0, "auto")).build_async().await?;
    let x = Tensor::randn(&runtime, [1024, 1024], 1);
    println!("{}", x.matmul(&x).square().mean(..).item_async::<f32>().await?);

    // Opening a model reads a file and uploads its weights, so it runs on a blocking thread.
    let opened = tokio::task::spawn_blocking(move || {
        let model = Model::open("models/warploom-tiny-llama-Q4_K_M.gguf", Access::Mmap)?;
        Session::builder(model).runtime(runtime).build()
    });
    let mut session = match opened.await {
        Ok(session) => session?,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    };
    let sampling = Sampling::greedy();
    let options = GenerateOptions::default().max_tokens(48).sampling(sampling);
    let mut print = |event: Event<'_>| {
        if let Event::Text(text) = event {
            print!("{text}");
        }
        ControlFlow::Continue(())
    };
    session.generate_async(&argument(1, "Once upon a time"), &options, &mut print).await?;
    println!();
    timer.abort();
    Ok(())
}
