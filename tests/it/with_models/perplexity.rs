//! Perplexity: equal to llama.cpp's where that is known, and nearly equal in `Int8`.

use std::ops::ControlFlow;
use std::sync::Arc;

use warploom::ComputeMode;
use warploom::runtime::Runtime;
use warploom_llm::tokenizer::EncodeOptions;
use warploom_llm::{Model, Perplexity, PerplexityOptions, Session};
use warploom_models::gguf::Access;

use crate::{devices, logits, tell};

/// Maximum relative change of a perplexity by rounded activations.
const INT8: f64 = 0.005;
/// The same for SmolLM2, which changes more: 0.51 % on this text and 0.47 % on its first three
/// windows, on the CPU.
const INT8_DEEP: f64 = 0.01;
/// Maximum difference of the mean from llama.cpp's, in nats per token: it also rounds activations,
/// in blocks of 256 for these formats.
const GOLDEN: f64 = 0.005;
/// Tokens of a window, as in the golden files.
const WINDOW: usize = 250;

fn measure(runtime: &Runtime, model: &Arc<Model>, mode: ComputeMode, text: &[u32]) -> Perplexity {
    let builder = Session::builder(model.clone()).runtime(runtime.clone()).context(WINDOW + 1);
    let mut session = builder.compute(mode).build().unwrap();
    let options = PerplexityOptions::default().window(Some(WINDOW)).skip(0);
    session.perplexity(text, &options, &mut |_, _| ControlFlow::Continue(())).unwrap()
}

fn golden(name: &str) -> serde_json::Value {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../models").join(name);
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// On the CPU, whose default mode is `Int8`.
#[test]
fn rounded_activations_hardly_change_a_perplexity() {
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    let text = golden("golden.json")["perplexity_text"].as_str().unwrap().to_owned();
    for file in logits::model_files() {
        let model = Model::open(&file, Access::Mmap).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let options = EncodeOptions::default().parse_special(true);
        let mut tokens = model.tokenizer().encode(&text, options).unwrap();
        // The golden files have eight windows; large models without one use three.
        let large = model.weight_bytes() >= logits::SMALL && !devices::whole();
        tokens.truncate(if large { 3 } else { 8 } * WINDOW);
        let [f32, int8] = [ComputeMode::F32, ComputeMode::Int8]
            .map(|mode| measure(&runtime, &model, mode, &tokens));
        let change = int8.value() / f32.value() - 1.0;
        tell(&format!(
            "perplexity: {name}, {} tokens: {:.4} +/- {:.4} in F32, {:.4} in Int8: {:+.3} %",
            f32.tokens,
            f32.value(),
            f32.error(),
            int8.value(),
            100.0 * change
        ));
        let most = if name.contains("SmolLM2") { INT8_DEEP } else { INT8 };
        assert!(change.abs() <= most, "{name}: {change}");
        // Equal bits would mean that nothing was rounded, not even keys and values.
        assert!(change != 0.0, "{name}");
        for golden in [golden("golden.json"), golden("golden-bitnet.json")] {
            let of = &golden["models"][&name]["perplexity"];
            let Some(want) = of["mean_nll"].as_f64() else { continue };
            assert_eq!((of["n_tokens"].as_u64(), tokens.len()), (Some(2000), 2000));
            let off = int8.mean() - want;
            tell(&format!("perplexity: {name}: {off:+.5} nats from llama.cpp"));
            assert!(off.abs() <= GOLDEN, "{name}: {off} nats from llama.cpp");
        }
    }
}

#[test]
fn windows_are_apart_and_what_is_skipped_does_not_count() {
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../models/warploom-tiny-llama-Q4_K_M.gguf");
    let model = Model::open(file, Access::Mmap).unwrap();
    let builder = Session::builder(model).runtime(runtime).context(100);
    let mut session = builder.compute(ComputeMode::F32).build().unwrap();
    let tokens: Vec<u32> = (0..230).map(|i| 100 + i * 37 % 3000).collect();
    let mut reported = 0;
    let mut run = |tokens: &[u32], window, skip| {
        let options = PerplexityOptions::default().window(window).skip(skip);
        session.perplexity(tokens, &options, &mut |done, total| {
            reported = total;
            assert!(done.tokens <= total);
            ControlFlow::Continue(())
        })
    };
    let whole = run(&tokens, Some(90), 0).unwrap();
    assert_eq!((whole.tokens, whole.windows), (230, 3));
    let parts = [0..90, 90..180, 180..230].map(|part| run(&tokens[part], Some(90), 0).unwrap());
    let sum: f64 = parts.iter().map(|part| part.mean() * part.tokens as f64).sum();
    assert!((sum / 230.0 - whole.mean()).abs() < 1e-9, "{sum} {whole:?}");
    let skipped = run(&tokens[..90], Some(90), 70).unwrap();
    let first = run(&tokens[..70], Some(90), 0).unwrap();
    let both = skipped.mean() * 20.0 + first.mean() * 70.0;
    assert!((both / 90.0 - parts[0].mean()).abs() < 1e-5, "{both}");
    // As many as the context holds, not more.
    assert_eq!(run(&tokens, None, 0).unwrap().windows, 3);
    for (tokens, window, skip, words) in [
        (&tokens[..], Some(101), 0, "1 to 100"),
        (&tokens[..], Some(0), 0, "1 to 100"),
        (&tokens[..5], None, 5, "no token counts"),
        (&[], None, 0, "no token counts"),
        (&[1, 4096], None, 0, "token 4096 of a vocabulary of 4096"),
    ] {
        let error = run(tokens, window, skip).unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains(words), "{error}");
    }
    run(&tokens, Some(50), 20).unwrap();
    assert_eq!(reported, 30 * 4 + 10);
}
