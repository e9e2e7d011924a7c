//! The forward pass of a `llama` model in float64, token by token, with nothing of the engine in
//! it: what logits are held to.

use std::collections::HashMap;

use warploom::llm::Model;
use warploom::llm::config::Config;
use warploom::quant;

/// A model with every weight as a number, and its cache.
pub(crate) struct Forward {
    config: Config,
    weights: HashMap<String, Vec<f32>>,
    frequencies: Vec<f32>,
    /// For each layer, keys and values of each position: `[position][kv_heads * head_dim]`.
    cache: Vec<[Vec<Vec<f64>>; 2]>,
}

impl Forward {
    pub(crate) fn new(model: &Model) -> Forward {
        let file = model.file();
        let decode = |name: &str| {
            let info = file.tensor(name).unwrap();
            let mut values = vec![0.0; info.elements() as usize];
            quant::decode(info.format().unwrap(), file.bytes(&info).unwrap(), &mut values).unwrap();
            values
        };
        let names: Vec<String> = file.tensors().map(|t| t.name().to_string()).collect();
        let mut weights: HashMap<String, Vec<f32>> =
            names.iter().map(|name| (name.clone(), decode(name))).collect();
        let factors = weights.remove("rope_freqs.weight");
        let config = model.config().clone();
        let frequencies = config.rope_frequencies(factors.as_deref()).unwrap();
        let cache = (0..config.layers).map(|_| [Vec::new(), Vec::new()]).collect();
        Forward { config, weights, frequencies, cache }
    }

    /// Forgets every position.
    pub(crate) fn reset(&mut self) {
        self.cache.iter_mut().flatten().for_each(Vec::clear);
    }

    /// Runs tokens after those before; logits after the last: `[vocabulary]`.
    pub(crate) fn run(&mut self, tokens: &[u32]) -> Vec<f64> {
        let mut x = Vec::new();
        for token in tokens {
            x = self.token(*token);
        }
        let x = self.norm("output_norm.weight", &x);
        let output = if self.config.tied_output { "token_embd.weight" } else { "output.weight" };
        self.product(output, &x)
    }

    /// Hidden state after one more token: `[width]`.
    fn token(&mut self, token: u32) -> Vec<f64> {
        let (d, hd) = (self.config.width, self.config.head_dim);
        let row = token as usize * d;
        let embedding = &self.weights["token_embd.weight"][row..row + d];
        let mut x: Vec<f64> = embedding.iter().map(|v| f64::from(*v)).collect();
        for layer in 0..self.config.layers {
            let name = |tensor: &str| format!("blk.{layer}.{tensor}.weight");
            let h = self.norm(&name("attn_norm"), &x);
            let mut q = self.product(&name("attn_q"), &h);
            let mut k = self.product(&name("attn_k"), &h);
            let v = self.product(&name("attn_v"), &h);
            let position = self.cache[layer][0].len();
            q.chunks_mut(hd).chain(k.chunks_mut(hd)).for_each(|head| self.rotate(head, position));
            self.cache[layer][0].push(k);
            self.cache[layer][1].push(v);
            let a = self.attend(layer, &q);
            add(&mut x, &self.product(&name("attn_output"), &a));
            let h = self.norm(&name("ffn_norm"), &x);
            let gate = self.product(&name("ffn_gate"), &h);
            let up = self.product(&name("ffn_up"), &h);
            let y: Vec<f64> =
                gate.iter().zip(&up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            add(&mut x, &self.product(&name("ffn_down"), &y));
        }
        x
    }

    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
        let scale = 1.0 / (mean + f64::from(self.config.norm_epsilon)).sqrt();
        x.iter().zip(&self.weights[name]).map(|(v, w)| v * scale * f64::from(*w)).collect()
    }

    /// `w` `[n, k]` times `x` `[k]`.
    fn product(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let w = &self.weights[name];
        let rows = w.len() / x.len();
        let mut y = vec![0.0; rows];
        let half = rows.div_ceil(2).max(1);
        std::thread::scope(|scope| {
            for (part, y) in w.chunks(half * x.len()).zip(y.chunks_mut(half)) {
                scope.spawn(move || {
                    for (row, y) in part.chunks(x.len()).zip(y) {
                        // Four sums, so that the additions do not wait for each other.
                        let mut sums = [0.0; 4];
                        for (w, x) in row.chunks(4).zip(x.chunks(4)) {
                            for ((sum, w), x) in sums.iter_mut().zip(w).zip(x) {
                                *sum += f64::from(*w) * x;
                            }
                        }
                        *y = sums.iter().sum();
                    }
                });
            }
        });
        y
    }

    /// Pairs `(2j, 2j + 1)` of one head.
    fn rotate(&self, head: &mut [f64], position: usize) {
        for (pair, frequency) in head.chunks_exact_mut(2).zip(&self.frequencies) {
            let (sin, cos) = (position as f64 * f64::from(*frequency)).sin_cos();
            let [a, b] = [pair[0], pair[1]];
            pair[0] = a * cos - b * sin;
            pair[1] = a * sin + b * cos;
        }
    }

    fn attend(&self, layer: usize, q: &[f64]) -> Vec<f64> {
        let hd = self.config.head_dim;
        let group = self.config.heads / self.config.kv_heads;
        let [keys, values] = &self.cache[layer];
        let mut out = vec![0.0; q.len()];
        for (head, (q, out)) in q.chunks(hd).zip(out.chunks_mut(hd)).enumerate() {
            let at = head / group * hd;
            let dot = |k: &Vec<f64>| q.iter().zip(&k[at..]).map(|(a, b)| a * b).sum::<f64>();
            let scores: Vec<f64> = keys.iter().map(|k| dot(k) / (hd as f64).sqrt()).collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for (weight, value) in weights.iter().zip(values) {
                for (o, v) in out.iter_mut().zip(&value[at..]) {
                    *o += weight / sum * v;
                }
            }
        }
        out
    }
}

fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}
