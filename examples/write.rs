//! Generates text with a model from a GGUF file: `cargo run --example write -- FILE DEVICE PROMPT`.

use std::io::Write;
use std::ops::ControlFlow;

use warploom::runtime::Runtime;
use warploom_llm::{Event, GenerateOptions, Model, Sampling, Session};
use warploom_models::gguf::Access;

fn main() -> warploom::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let argument = |i: usize, default: &str| args.get(i).cloned().unwrap_or(default.into());
    let model = Model::open(argument(0, "models/warploom-tiny-llama-Q4_K_M.gguf"), Access::Mmap)?;
    let runtime = Runtime::builder().device(argument(1, "auto")).build()?;
    eprintln!("{}", runtime.startup_line());
    let mut session = Session::builder(model).runtime(runtime).build()?;
    let sampling = Sampling::greedy();
    let options = GenerateOptions::default().max_tokens(48).sampling(sampling);
    let done = session.generate(&argument(2, "Once upon a time"), &options, &mut |event| {
        if let Event::Text(text) = event {
            print!("{text}");
            let _ = std::io::stdout().flush();
        }
        ControlFlow::Continue(())
    })?;
    println!();
    eprintln!("{:.1} tokens/s", done.decode_rate());
    Ok(())
}
