//! Norms along the last axis of tensors `[rows, n]`.

use super::Call;
use super::tensor::Tensor;
use crate::error::Result;

/// Computes `y = x / sqrt(mean(x^2) + eps) * weight` for each row.
pub(super) fn rms_norm(call: &Call<'_>, eps: f32) -> Result<Tensor> {
    let (mut x, weight) = (call.operands[0].floats(), call.operands[1].floats());
    for row in x.chunks_exact_mut(weight.len().max(1)) {
        let mean = row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64;
        let scale = 1.0 / (mean + f64::from(eps)).sqrt();
        row.iter_mut().zip(&weight).for_each(|(v, w)| *v *= scale * w);
    }
    call.floats(x)
}

/// Computes `y = (x - mean) / sqrt(variance + eps) * weight + bias` for each row, with the
/// population variance of the row.
pub(super) fn layer_norm(call: &Call<'_>, eps: f32) -> Result<Tensor> {
    let (mut x, weight) = (call.operands[0].floats(), call.operands[1].floats());
    let bias = call.operands[2].floats();
    for row in x.chunks_exact_mut(weight.len().max(1)) {
        let n = row.len() as f64;
        let mean = row.iter().sum::<f64>() / n;
        let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
        let scale = 1.0 / (variance + f64::from(eps)).sqrt();
        for (v, (w, b)) in row.iter_mut().zip(weight.iter().zip(&bias)) {
            *v = (*v - mean) * scale * w + b;
        }
    }
    call.floats(x)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::base::{DType, Shape, SymbolValues};
    use crate::ir::{Graph, Op};
    use crate::reference::{Data, Tensor, eval};

    #[test]
    fn norms_by_hand() {
        let mut g = Graph::new("g");
        let x = g.input("x", Shape::new([1, 2]), DType::F32);
        let w = g.constant_f32(Shape::new([2]), &[1.0, 2.0]);
        let b = g.constant_f32(Shape::new([2]), &[0.5, -0.5]);
        let rms = g.add(Op::RmsNorm { eps: 11.5 }, &[x, w]).unwrap();
        let layer = g.add(Op::LayerNorm { eps: 0.0 }, &[x, w, b]).unwrap();
        let x = Tensor::new(vec![1, 2], Data::F32(vec![3.0, 4.0])).unwrap();
        let bindings = BTreeMap::from([("x".to_string(), x)]);
        let run = eval(&g, &SymbolValues::new(), &bindings).unwrap();
        // mean(9, 16) + 11.5 = 24; mean 3.5, variance 0.25.
        let root = 24f64.sqrt();
        let want = vec![(3.0 / root) as f32, (8.0 / root) as f32];
        assert_eq!(run.value(rms).data, Data::F32(want));
        assert_eq!(run.value(layer).data, Data::F32(vec![-0.5, 1.5]));
    }
}
