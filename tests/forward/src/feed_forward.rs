//! Feed-forward networks and mixtures of experts.

use super::{Forward, round, sigmoid, softmax};
use warploom::ComputeMode;
use warploom_llm::config::{Activation, Experts, Gate};

impl Forward {
    /// `down(activation(gate(h)) * up(h))`: `[width]`.
    pub(super) fn feed_forward(&self, layer: usize, h: &[f64]) -> Vec<f64> {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let mut up = self.product(&name("ffn_up"), h);
        let gate = if self.config.architecture.merged_gate {
            let half = up.split_off(up.len() / 2);
            std::mem::replace(&mut up, half)
        } else {
            self.product(&name("ffn_gate"), h)
        };
        let mut y = self.gated(&gate, &up);
        if self.config.architecture.sub_norms {
            y = self.norm(&name("ffn_sub_norm.weight"), &y);
        }
        self.product(&name("ffn_down"), &y)
    }

    /// `activation(gate) * up`: `[feed_forward]`.
    pub(super) fn gated(&self, gate: &[f64], up: &[f64]) -> Vec<f64> {
        if self.config.architecture.activation == Activation::ClampedSwiglu {
            let of = |(gate, up): (&f64, &f64)| {
                let gate = gate.min(7.0);
                gate * sigmoid(1.702 * gate) * (up.clamp(-7.0, 7.0) + 1.0)
            };
            return gate.iter().zip(up).map(of).collect();
        }
        let activation = |x: f64| match self.config.architecture.activation {
            Activation::Silu => x * sigmoid(x),
            Activation::GeluTanh => {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
                0.5 * x * (1.0 + inner.tanh())
            }
            Activation::ReluSquared => x.max(0.0).powi(2),
            other => panic!("{other:?} has no formula here"),
        };
        gate.iter().zip(up).map(|(gate, up)| activation(*gate) * up).collect()
    }

    /// The sum of the feed-forward network of `h` and of experts of `x`, each with norms of its own:
    /// `[width]`.
    pub(super) fn beside_experts(
        &self,
        layer: usize,
        experts: &Experts,
        x: &[f64],
        h: &[f64],
    ) -> Vec<f64> {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let mut y = self.norm(&name("post_ffw_norm_1.weight"), &self.feed_forward(layer, h));
        let by = 1.0 / (x.len() as f64).sqrt();
        let r = self.norm(&name("ffn_gate_inp.scale"), x);
        let r: Vec<f64> = r.iter().map(|v| v * by).collect();
        let router = &self.weights[&name("ffn_gate_inp.weight")];
        let of = |row: &[f32]| row.iter().zip(&r).map(|(w, r)| f64::from(*w) * r).sum::<f64>();
        let mut weights: Vec<f64> = router.chunks(x.len()).map(of).collect();
        softmax(&mut weights);
        let mut chosen: Vec<usize> = (0..weights.len()).collect();
        chosen.sort_by(|a, b| weights[*b].total_cmp(&weights[*a]));
        chosen.truncate(experts.active);
        let sum: f64 = chosen.iter().map(|expert| weights[*expert]).sum();
        let h = self.norm(&name("pre_ffw_norm_2.weight"), x);
        let mut all = vec![0.0; x.len()];
        for expert in chosen {
            let both = self.of_expert(&name("ffn_gate_up_exps"), expert, &h);
            let (gate, up) = both.split_at(both.len() / 2);
            let out = self.of_expert(&name("ffn_down_exps"), expert, &self.gated(gate, up));
            let own = f64::from(self.weights[&name("ffn_down_exps.scale")][expert]);
            let factor = weights[expert] / sum * own;
            all.iter_mut().zip(out).for_each(|(y, out)| *y += factor * out);
        }
        let all = self.norm(&name("post_ffw_norm_2.weight"), &all);
        y.iter_mut().zip(all).for_each(|(y, all)| *y += all);
        y
    }

    /// The weighted sum of the networks of the chosen experts: `[width]`.
    pub(super) fn mixture(&self, layer: usize, experts: &Experts, h: &[f64]) -> Vec<f64> {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let mut weights = self.product(&name("ffn_gate_inp"), h);
        match experts.gate {
            Gate::Softmax => softmax(&mut weights),
            Gate::Sigmoid => weights.iter_mut().for_each(|w| *w = sigmoid(*w)),
            other => panic!("{other:?} has no formula here"),
        }
        let bias = self.weights.get(&name("exp_probs_b.bias"));
        let key = |expert: usize| weights[expert] + bias.map_or(0.0, |b| f64::from(b[expert]));
        let mut chosen: Vec<usize> = (0..weights.len()).collect();
        chosen.sort_by(|a, b| key(*b).total_cmp(&key(*a)));
        chosen.truncate(experts.active);
        let sum: f64 = match experts.normalised {
            true => chosen.iter().map(|expert| weights[*expert]).sum(),
            false => 1.0,
        };
        let mut y = vec![0.0; self.config.width];
        for expert in chosen {
            let of = |tensor: &str, x: &[f64]| self.of_expert(&name(tensor), expert, x);
            let gated = self.gated(&of("ffn_gate_exps", h), &of("ffn_up_exps", h));
            let factor = weights[expert] / sum * f64::from(experts.scale);
            let out = of("ffn_down_exps", &gated);
            y.iter_mut().zip(out).for_each(|(y, out)| *y += factor * out);
        }
        if let Some(shared) = &experts.shared {
            let of = |tensor: &str, x: &[f64]| self.product(&name(tensor), x);
            let gated = self.gated(&of("ffn_gate_shexp", h), &of("ffn_up_shexp", h));
            let mut factor = 1.0;
            if shared.gated {
                let gate = &self.weights[&name("ffn_gate_inp_shexp.weight")];
                factor = sigmoid(gate.iter().zip(h).map(|(w, h)| f64::from(*w) * h).sum());
            }
            let out = of("ffn_down_shexp", &gated);
            y.iter_mut().zip(out).for_each(|(y, out)| *y += factor * out);
        }
        y
    }

    /// The matrix of one expert times `x` `[k]`, with its bias if there is one.
    fn of_expert(&self, name: &str, expert: usize, x: &[f64]) -> Vec<f64> {
        let weight = format!("{name}.weight");
        let (w, count) = (&self.weights[&weight], self.config.experts.as_ref().unwrap().count);
        let rounded = self.mode == ComputeMode::Int8 && self.packed.contains(&weight);
        let codes = if rounded { round(x, self.nudge).0 } else { x.to_vec() };
        let rows = w.len() / count / x.len();
        let of_row = |row: &[f32]| row.iter().zip(&codes).map(|(w, x)| f64::from(*w) * x).sum();
        let w = &w[expert * rows * x.len()..][..rows * x.len()];
        let mut y: Vec<f64> = w.chunks(x.len()).map(of_row).collect();
        if let Some(bias) = self.weights.get(&format!("{name}.bias")) {
            y.iter_mut().zip(&bias[expert * rows..]).for_each(|(y, b)| *y += f64::from(*b));
        }
        y
    }
}
