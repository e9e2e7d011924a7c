//! The forward pass of a model in float64, token by token, which shares only the file reader with
//! the engine: the reference for logits. `architectures` checks it against another library.

mod feed_forward;
mod layer_embedding;
mod short_conv;

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use warploom::ComputeMode;
use warploom::graph::RopePairs;
use warploom_core::base::Format;
use warploom_core::quant;
use warploom_llm::Model;
use warploom_llm::config::{Config, DeltaNet, HeadNorms};
use warploom_models::gguf::TensorInfo;

/// Maximum shift by `nudged`, in steps: a few units of a 32-bit float of that size.
const NUDGE: f64 = 3e-5;

/// A model with every weight as a number, and its cache.
pub struct Forward {
    config: Config,
    weights: HashMap<String, Vec<f32>>,
    frequencies: Vec<f32>,
    /// Of layers that have their own.
    local_frequencies: Vec<f32>,
    /// For each layer, keys and values of each position: `[position][kv_heads * head_dim]`.
    cache: Vec<[Vec<Vec<f64>>; 2]>,
    mode: ComputeMode,
    /// Names of weights in packed formats.
    packed: HashSet<String>,
    /// Whether keys and values are kept as f16.
    f16_cache: bool,
    /// Seed of the shifts of up to `NUDGE` steps before rounding; 0 for none.
    nudge: u64,
    /// Smallest distance of a value to the midpoint of two quantisation steps, in steps, since the
    /// reset: for queries, keys and values of all tokens, elsewhere for the last token.
    nearest: Cell<[f64; 2]>,
    /// The input of each layer while `inputs` runs: `[layer][token][width]`.
    seen: Vec<Vec<Vec<f32>>>,
}

impl Forward {
    /// Decodes every weight of a model. In [`ComputeMode::Int8`] the operands of packed weights are
    /// rounded as that mode defines.
    ///
    /// # Panics
    /// If the file lacks a tensor or has one that cannot be decoded.
    pub fn new(model: &Model, mode: ComputeMode) -> Forward {
        let file = model.file();
        let is_packed = |t: &TensorInfo| t.format().is_ok_and(Format::is_quantised);
        let packed = file.tensors().filter(is_packed).map(|t| t.name().to_string()).collect();
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
        let local_frequencies = config.local_rope_frequencies().unwrap_or_default();
        let cache = (0..config.layers).map(|_| [Vec::new(), Vec::new()]).collect();
        let (nearest, seen) = (Cell::new([0.5; 2]), Vec::new());
        Forward {
            config,
            weights,
            frequencies,
            local_frequencies,
            cache,
            mode,
            packed,
            f16_cache: false,
            nudge: 0,
            nearest,
            seen,
        }
    }

    /// Forgets every position.
    pub fn reset(&mut self) {
        self.cache.iter_mut().flatten().for_each(Vec::clear);
        self.nearest.set([0.5; 2]);
    }

    /// From now on values are shifted before rounding, by less than the error of any device: only
    /// those near a midpoint round to the other step.
    pub fn nudged(&mut self, seed: u64) {
        self.nudge = seed;
    }

    /// From now on, keys and values are rounded to f16.
    #[must_use]
    pub fn with_f16_cache(mut self) -> Forward {
        self.f16_cache = true;
        self
    }

    /// Smallest distance of a value that affects the last token to the midpoint of two quantisation
    /// steps: at most 0.5, in steps. For a model of one layer; keys and values of all tokens count.
    pub fn nearest(&self) -> f64 {
        let [all, last] = self.nearest.get();
        all.min(last)
    }

    /// The input of each layer for these tokens: `[layer][token][width]`.
    pub fn inputs(&mut self, tokens: &[u32]) -> Vec<Vec<Vec<f32>>> {
        self.reset();
        self.seen = vec![Vec::new(); self.config.layers];
        tokens.iter().for_each(|token| drop(self.token(*token)));
        std::mem::take(&mut self.seen)
    }

    /// Runs tokens after the previous ones; returns the logits after the last: `[vocabulary]`.
    pub fn run(&mut self, tokens: &[u32]) -> Vec<f64> {
        let mut x = Vec::new();
        for token in tokens {
            self.nearest.set([self.nearest.get()[0], 0.5]);
            x = self.token(*token);
        }
        let x = self.norm(&format!("{}.weight", self.config.architecture.output_norm), &x);
        let output = if self.config.tied_output { "token_embd" } else { "output" };
        let mut logits = self.product(output, &x);
        logits.iter_mut().for_each(|logit| *logit *= f64::from(self.config.logit_scale));
        if let Some(cap) = self.config.logit_cap.map(f64::from) {
            logits.iter_mut().for_each(|logit| *logit = cap * (*logit / cap).tanh());
        }
        logits
    }

    /// Hidden state after one more token: `[width]`.
    fn token(&mut self, token: u32) -> Vec<f64> {
        let d = self.config.width;
        let row = token as usize * d;
        let embedding = &self.weights["token_embd.weight"][row..row + d];
        let row = self.config.architecture;
        let scale = f64::from(self.config.embedding_scale);
        let residual = f64::from(self.config.residual_scale);
        let mut x: Vec<f64> = embedding.iter().map(|v| f64::from(*v) * scale).collect();
        let of_layers = self.of_layers(token, &x);
        for layer in 0..self.config.layers {
            let name = |tensor: &str| format!("blk.{layer}.{tensor}");
            if let Some(seen) = self.seen.get_mut(layer) {
                seen.push(x.iter().map(|v| *v as f32).collect());
            }
            let h = self.operand(&name("attn_norm.weight"), &x);
            let mut a = match self.config.delta_net_of(layer).cloned() {
                Some(net) => self.delta_net(layer, &net, &h),
                None if self.config.short_conv_of(layer).is_some() => self.short_conv(layer, &h),
                None => {
                    let mut a = self.attention(layer, &h);
                    if row.sub_norms {
                        a = self.norm(&name("attn_sub_norm.weight"), &a);
                    }
                    self.product(&name("attn_output"), &a)
                }
            };
            if row.post_norms {
                a = self.norm(&name("post_attention_norm.weight"), &a);
            }
            a.iter_mut().for_each(|a| *a *= residual);
            add(&mut x, &a);
            let h = self.operand(&name(&format!("{}.weight", row.ffn_norm)), &x);
            let mut y = match self.config.experts_of(layer) {
                Some(experts) if experts.is_beside => self.beside_experts(layer, experts, &x, &h),
                Some(experts) => self.mixture(layer, experts, &h),
                None => self.feed_forward(layer, &h),
            };
            if row.post_norms {
                y = self.norm(&name("post_ffw_norm.weight"), &y);
            }
            y.iter_mut().for_each(|y| *y *= residual);
            add(&mut x, &y);
            self.add_of_layer(layer, &mut x, &of_layers);
        }
        x
    }

    /// The output of every head for one more position: `[heads * head_dim]`.
    fn attention(&mut self, layer: usize, h: &[f64]) -> Vec<f64> {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let (hd, kv) = (self.config.head_dim_of(layer), self.config.kv_width_of(layer));
        let shares = self.config.keys_of(layer) != layer;
        let (mut q, mut k, mut v) = if self.config.architecture.merged_qkv {
            let mut q = self.product(&name("attn_qkv"), h);
            let mut k = q.split_off(q.len() - 2 * kv);
            let v = k.split_off(kv);
            (q, k, v)
        } else if shares {
            (self.product(&name("attn_q"), h), Vec::new(), Vec::new())
        } else {
            let [q, k] = ["attn_q", "attn_k"].map(|n| self.product(&name(n), h));
            let is_key = !self.weights.contains_key(&name("attn_v.weight"));
            let v = if is_key { k.clone() } else { self.product(&name("attn_v"), h) };
            (q, k, v)
        };
        if self.config.architecture.unit_values {
            for head in v.chunks_mut(hd) {
                let unit = self.unit(head);
                head.copy_from_slice(&unit);
            }
        }
        // Head by head a query and its gate.
        let mut gate = Vec::new();
        if self.config.architecture.gated_attention {
            gate = q.chunks(2 * hd).flat_map(|both| both[hd..].to_vec()).collect();
            q = q.chunks(2 * hd).flat_map(|both| both[..hd].to_vec()).collect();
        }
        let from = self.config.keys_of(layer);
        let position = self.cache[from][0].len() - usize::from(shares);
        for (heads, norm) in [(&mut q, "attn_q_norm.weight"), (&mut k, "attn_k_norm.weight")] {
            if self.config.architecture.head_norms == HeadNorms::Whole {
                *heads = self.norm(&name(norm), heads);
            }
            for head in heads.chunks_mut(hd) {
                let norm = norm.to_owned();
                let there = self.weights.contains_key(&name(&norm));
                if there && self.config.architecture.head_norms != HeadNorms::Whole {
                    head.copy_from_slice(&self.norm(&name(&norm), head));
                }
                if self.config.rotates(layer) {
                    self.rotate(head, position, self.config.is_local(layer));
                }
            }
        }
        if let Some(temperature) = self.config.temperature {
            let ranges = (position / temperature.length + 1) as f64;
            let factor = 1.0 + f64::from(temperature.scale) * ranges.ln();
            q.iter_mut().for_each(|q| *q *= factor);
        }
        let own = if shares { Vec::new() } else { vec![k, v] };
        for (kept, mut numbers) in self.cache[layer].iter_mut().zip(own) {
            if self.f16_cache {
                numbers.iter_mut().for_each(|v| *v = half::f16::from_f64(*v).to_f64());
            }
            kept.push(numbers);
        }
        let mut out = self.attend(layer, &q);
        out.iter_mut().zip(gate).for_each(|(out, gate)| *out *= sigmoid(gate));
        out
    }

    /// The result of a gated delta net for one more position: `[width]`. Keeps the operands of its
    /// convolution in place of keys, and its state in place of values.
    fn delta_net(&mut self, layer: usize, net: &DeltaNet, h: &[f64]) -> Vec<f64> {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let e = net.head_dim;
        let mixed = self.product(&name("attn_qkv"), h);
        let beta = self.product(&name("ssm_beta"), h);
        let alpha = self.product(&name("ssm_alpha"), h);
        let z = self.product(&name("attn_gate"), h);
        let [taps, states] = &mut self.cache[layer];
        taps.push(mixed);
        let mut state = states.pop().unwrap_or_else(|| vec![0.0; net.heads * e * e]);
        let taps = &taps[taps.len().saturating_sub(net.taps)..];
        let weight = &self.weights[&name("ssm_conv1d.weight")];
        let channel = |c: usize| {
            let of = |(back, x): (usize, &Vec<f64>)| {
                f64::from(weight[(c + 1) * net.taps - 1 - back]) * x[c]
            };
            let sum: f64 = taps.iter().rev().enumerate().map(of).sum();
            sum * sigmoid(sum)
        };
        let mixed: Vec<f64> = (0..net.channels()).map(channel).collect();
        let unit = |x: &[f64]| -> Vec<f64> {
            let length = (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
            x.iter().map(|x| x / length).collect()
        };
        let (dt, a) = (&self.weights[&name("ssm_dt.bias")], &self.weights[&name("ssm_a")]);
        let mut out = Vec::new();
        for head in 0..net.heads {
            let key = head % net.key_heads;
            let q = unit(&mixed[key * e..][..e]);
            let k = unit(&mixed[(net.key_heads + key) * e..][..e]);
            let v = &mixed[(2 * net.key_heads + head) * e..][..e];
            let softplus = (1.0 + (alpha[head] + f64::from(dt[head])).exp()).ln();
            let decay = (softplus * f64::from(a[head])).exp();
            let state = &mut state[head * e * e..][..e * e];
            state.iter_mut().for_each(|s| *s *= decay);
            let mut y = vec![0.0; e];
            for j in 0..e {
                let found: f64 = (0..e).map(|i| k[i] * state[i * e + j]).sum();
                let change = (v[j] - found) * sigmoid(beta[head]);
                (0..e).for_each(|i| state[i * e + j] += k[i] * change);
                y[j] = (0..e).map(|i| q[i] * state[i * e + j]).sum::<f64>() / (e as f64).sqrt();
            }
            let y = self.norm(&name("ssm_norm.weight"), &y);
            out.extend(y.iter().zip(&z[head * e..]).map(|(y, z)| y * z * sigmoid(*z)));
        }
        self.cache[layer][1].push(state);
        self.product(&name("ssm_out"), &out)
    }

    /// The operand of a part of a layer: normalised, if the architecture does so there.
    fn operand(&self, norm: &str, x: &[f64]) -> Vec<f64> {
        match self.config.architecture.pre_norms {
            true => self.norm(norm, x),
            false => x.to_vec(),
        }
    }

    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
        let scale = 1.0 / (mean + f64::from(self.config.norm_epsilon)).sqrt();
        x.iter().zip(&self.weights[name]).map(|(v, w)| v * scale * f64::from(*w)).collect()
    }

    /// As `norm`, without a weight.
    fn unit(&self, x: &[f64]) -> Vec<f64> {
        let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
        let scale = 1.0 / (mean + f64::from(self.config.norm_epsilon)).sqrt();
        x.iter().map(|v| v * scale).collect()
    }

    /// `w` `[n, k]` times `x` `[k]`, with its scale and bias if there are any.
    fn product(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let weight = format!("{name}.weight");
        let w = &self.weights[&weight];
        let rounded = self.mode == ComputeMode::Int8 && self.packed.contains(&weight);
        let codes;
        let x = if rounded {
            let nearest;
            (codes, nearest) = round(x, self.nudge);
            let [all, last] = self.nearest.get();
            let kept = name.contains("attn_") && !name.contains("attn_output");
            let nearest = if kept { [all.min(nearest), last] } else { [all, last.min(nearest)] };
            self.nearest.set(nearest);
            &codes[..]
        } else {
            x
        };
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
        if let Some(scale) = self.weights.get(&format!("{name}.scale")) {
            y.iter_mut().for_each(|y| *y *= f64::from(scale[0]));
        }
        if let Some(bias) = self.weights.get(&format!("{name}.bias")) {
            y.iter_mut().zip(bias).for_each(|(y, b)| *y += f64::from(*b));
        }
        y
    }

    /// The pairs of one head.
    fn rotate(&self, head: &mut [f64], position: usize, local: bool) {
        let frequencies = if local { &self.local_frequencies } else { &self.frequencies };
        for (j, frequency) in frequencies.iter().enumerate() {
            let (first, second) = match self.config.architecture.rope {
                RopePairs::Interleaved => (2 * j, 2 * j + 1),
                RopePairs::Half => (j, j + frequencies.len()),
            };
            let (sin, cos) = (position as f64 * f64::from(*frequency)).sin_cos();
            let [a, b] = [head[first], head[second]];
            head[first] = a * cos - b * sin;
            head[second] = a * sin + b * cos;
        }
    }

    fn attend(&self, layer: usize, q: &[f64]) -> Vec<f64> {
        let hd = self.config.head_dim_of(layer);
        let group = self.config.heads / self.config.kv_heads_of(layer);
        let [keys, values] = &self.cache[self.config.keys_of(layer)];
        let seen = self.config.window(layer).map_or(keys.len(), |n| keys.len().min(n as usize));
        let [keys, values] = [keys, values].map(|all| &all[all.len() - seen..]);
        let scale = f64::from(self.config.scale(layer));
        let sinks = self.weights.get(&format!("blk.{layer}.attn_sinks.weight"));
        let mut out = vec![0.0; q.len()];
        for (head, (q, out)) in q.chunks(hd).zip(out.chunks_mut(hd)).enumerate() {
            let at = head / group * hd;
            let dot = |k: &Vec<f64>| q.iter().zip(&k[at..]).map(|(a, b)| a * b).sum::<f64>();
            let scores: Vec<f64> = keys.iter().map(|k| dot(k) * scale).collect();
            let mut weights = scores;
            if let Some(cap) = self.config.score_cap.map(f64::from) {
                weights.iter_mut().for_each(|score| *score = cap * (*score / cap).tanh());
            }
            // A key without a value.
            weights.extend(sinks.map(|sinks| f64::from(sinks[head])));
            softmax(&mut weights);
            for (weight, value) in weights.iter().zip(values) {
                for (o, v) in out.iter_mut().zip(&value[at..]) {
                    *o += weight * v;
                }
            }
        }
        out
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn softmax(x: &mut [f64]) {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    x.iter_mut().for_each(|x| *x = (*x - max).exp());
    let sum: f64 = x.iter().sum();
    x.iter_mut().for_each(|x| *x /= sum);
}

fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

/// Values rounded to 8 bits in blocks of 32, and the smallest distance to the midpoint of two
/// steps.
fn round(x: &[f64], nudge: u64) -> (Vec<f64>, f64) {
    let mut nearest = 0.5f64;
    // A function of the number's bits, so that a pass is reproducible.
    let moved = |v: f64| {
        let bits = (v.to_bits() ^ nudge).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let bits = (bits ^ bits >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let unit = (bits >> 11) as f64 / (1u64 << 53) as f64;
        if nudge == 0 { 0.0 } else { NUDGE * (2.0 * unit - 1.0) }
    };
    let mut block = |block: &[f64]| {
        let d = block.iter().fold(0.0f64, |most, v| most.max(v.abs())) / 127.0;
        let mut one = |v: &f64| {
            if d == 0.0 {
                return 0.0;
            }
            let code = (v / d + moved(*v)).round_ties_even();
            nearest = nearest.min(0.5 - (v / d - code).abs());
            code * d
        };
        block.iter().map(&mut one).collect::<Vec<_>>()
    };
    let rounded = x.chunks(32).flat_map(&mut block).collect();
    (rounded, nearest)
}
