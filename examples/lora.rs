//! Fine-tunes a language model by low-rank adapters (LoRA): the weights of the GGUF file stay
//! packed as they are, and only two small matrices for each projection of queries and values are
//! trained. Usage: `cargo run --release --example lora -- [FILE [TEXT [STEPS]]]`, with a model of
//! the architecture `llama`. Writes the adapters to `lora.safetensors`.

use warploom::graph::RopePairs;
use warploom::tensor::AttentionOptions;
use warploom::{Error, Result, Runtime, Tensor};
use warploom_llm::config::Config;
use warploom_llm::tokenizer::{EncodeOptions, Tokenizer};
use warploom_models::gguf::{Access, Gguf};
use warploom_nn::{Adam, Init, Optimizer, Params};

const RANK: usize = 8;
const ALPHA: f32 = 16.0;
const TEXT: &str = "The loom weaves warps of thirty-two threads. Each thread computes one element, \
                    and the warp computes thirty-two of them at once.";

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let argument = |i: usize, default: &str| args.get(i).cloned().unwrap_or(default.into());
    let file = Gguf::open(argument(0, "models/warploom-tiny-llama-Q4_K_M.gguf"), Access::Mmap)?;
    let steps: u32 =
        argument(2, "30").parse().map_err(|e| Error::invalid(format!("STEPS: {e}")))?;
    let runtime = Runtime::auto()?;
    eprintln!("{}", runtime.startup_line());

    let tokenizer = Tokenizer::from_gguf(&file)?;
    let ids = tokenizer.encode(&argument(1, TEXT), EncodeOptions::default().add_bos(true))?;
    let model = Llama::load(&runtime, &file)?;
    println!("{} tokens, {} trained numbers", ids.len(), model.adapters.elements());
    // Each token is to be predicted from those before it.
    let count = ids.len() - 1;
    let input = Tensor::from_slice(&runtime, &ids[..count], [count]);
    let target = Tensor::from_slice(&runtime, &ids[1..], [count]);
    let mut adam = Adam::new(model.adapters.vars(), 3e-3);
    for step in 0..=steps {
        let loss = model.logits(&input)?.cross_entropy(&target);
        adam.step(&loss.backward()?)?;
        if step % 10 == 0 {
            println!("step {step:3}: loss {:.4}", loss.item::<f32>()?);
        }
    }
    model.adapters.save("lora.safetensors")
}

struct Llama {
    config: Config,
    embedding: Tensor,
    output: Tensor,
    norm: Tensor,
    frequencies: Tensor,
    layers: Vec<Layer>,
    adapters: Params,
}

struct Layer {
    attention_norm: Tensor,
    feed_forward_norm: Tensor,
    q: Projection,
    k: Projection,
    v: Projection,
    out: Projection,
    gate: Projection,
    up: Projection,
    down: Projection,
}

/// A frozen weight and, for some, its adapter: `y = x W^T + (alpha / rank) x A^T B^T`.
struct Projection {
    weight: Tensor,
    adapter: Option<(warploom::tensor::Var, warploom::tensor::Var)>,
}

impl Projection {
    fn forward(&self, x: &Tensor) -> Tensor {
        let y = x.linear(&self.weight);
        match &self.adapter {
            Some((a, b)) => y + x.linear(&a.value()).linear(&b.value()) * (ALPHA / RANK as f32),
            None => y,
        }
    }
}

impl Llama {
    fn load(runtime: &Runtime, file: &Gguf) -> Result<Llama> {
        let config = Config::from_gguf(file)?;
        if config.architecture.name != "llama" || config.has_rope_factors {
            return Err(Error::unsupported("only plain models of the architecture llama"));
        }
        let weight = |name: &str| -> Result<Tensor> {
            let info = file.tensor(name)?;
            let shape: Vec<usize> = info.shape().iter().map(|size| *size as usize).collect();
            let weight = Tensor::quantised(runtime, info.format()?, &file.weights(&info)?, shape);
            weight.check().map(|()| weight)
        };
        let adapters = Params::new(runtime, 1);
        let layer = |i: usize| -> Result<Layer> {
            let plain = |name: &str| {
                let weight = weight(&format!("blk.{i}.{name}.weight"))?;
                Ok::<_, Error>(Projection { weight, adapter: None })
            };
            let adapted = |name: &str| {
                let weight = plain(name)?.weight;
                let (rows, columns) = (weight.shape()[0], weight.shape()[1]);
                let at = adapters.at("blk").at(i).at(name);
                let a = at.var("lora_a", &[RANK, columns], Init::of_inputs(columns))?;
                // Zero, so that training begins at the model as it is.
                let b = at.var("lora_b", &[rows, RANK], Init::Constant(0.0))?;
                Ok::<_, Error>(Projection { weight, adapter: Some((a, b)) })
            };
            Ok(Layer {
                attention_norm: plain("attn_norm")?.weight,
                feed_forward_norm: plain("ffn_norm")?.weight,
                q: adapted("attn_q")?,
                k: plain("attn_k")?,
                v: adapted("attn_v")?,
                out: plain("attn_output")?,
                gate: plain("ffn_gate")?,
                up: plain("ffn_up")?,
                down: plain("ffn_down")?,
            })
        };
        let embedding = weight("token_embd.weight")?;
        let output = match config.tied_output {
            true => embedding.clone(),
            false => weight("output.weight")?,
        };
        let half = config.rope_dim / 2;
        let turn = |i: usize| config.rope_base.powf(-(i as f64) / half as f64) as f32;
        Ok(Llama {
            layers: (0..config.layers).map(layer).collect::<Result<_>>()?,
            norm: weight("output_norm.weight")?,
            frequencies: Tensor::from_values(runtime, (0..half).map(turn)),
            config,
            embedding,
            output,
            adapters,
        })
    }

    /// Maps token ids `[tokens]` to logits `[tokens, vocabulary]`.
    fn logits(&self, ids: &Tensor) -> Result<Tensor> {
        let Config { heads, kv_heads, head_dim, norm_epsilon: eps, .. } = self.config;
        let count = ids.elements();
        let positions = Tensor::arange(ids.runtime(), 0, count as i32, 1);
        let turn = |x: Tensor| x.rope(&positions, &self.frequencies, RopePairs::Interleaved);
        let options = AttentionOptions {
            scale: Some(self.config.attention_scale),
            causal: true,
            ..AttentionOptions::default()
        };
        let mut x = self.embedding.gather(0, ids);
        for layer in &self.layers {
            let h = x.rms_norm(&layer.attention_norm, eps);
            let q = turn(layer.q.forward(&h).reshape([count, heads, head_dim]));
            let k = turn(layer.k.forward(&h).reshape([count, kv_heads, head_dim]));
            let v = layer.v.forward(&h).reshape([count, kv_heads, head_dim]);
            let mixed = q.attention(&k, &v, options).reshape([count, heads * head_dim]);
            x += layer.out.forward(&mixed);
            let h = x.rms_norm(&layer.feed_forward_norm, eps);
            let inner = layer.gate.forward(&h).silu() * layer.up.forward(&h);
            x += layer.down.forward(&inner);
        }
        let logits = x.rms_norm(&self.norm, eps).linear(&self.output);
        logits.check().map(|()| logits)
    }
}
