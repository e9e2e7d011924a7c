//! Gated short convolutions.

use super::Forward;

impl Forward {
    /// The result of a short convolution for one more position: `[width]`. Keeps its operands in place of
    /// keys.
    pub(super) fn short_conv(&mut self, layer: usize, h: &[f64]) -> Vec<f64> {
        let name = |tensor: &str| format!("blk.{layer}.shortconv.{tensor}");
        let (d, taps) = (h.len(), self.config.short_conv_of(layer).unwrap());
        let all = self.product(&name("in_proj"), h);
        let x = (0..d).map(|i| all[i] * all[2 * d + i]).collect();
        self.cache[layer][0].push(x);
        let weight = &self.weights[&name("conv.weight")];
        let channel = |c: usize| {
            let last = self.cache[layer][0].iter().rev().take(taps).enumerate();
            let sum: f64 =
                last.map(|(back, x)| f64::from(weight[(c + 1) * taps - 1 - back]) * x[c]).sum();
            sum * all[d + c]
        };
        let y: Vec<f64> = (0..d).map(channel).collect();
        self.product(&name("out_proj"), &y)
    }
}
