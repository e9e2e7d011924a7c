//! Tests every kernel against plain loops in f64, on every instruction set, at odd sizes and
//! offsets.

use crate::tests::{bytes, check, devices, launch, numbers, words};
use warploom_core::base::Format;
use warploom_core::quant;
use warploom_kernels::catalogue::family_name;
use warploom_kernels::{AssetSpec, KernelSpec};

/// Returns an expected output: `before` untouched elements, these values, and 5 untouched elements.
fn framed(before: usize, values: impl IntoIterator<Item = f64>) -> Vec<Option<f64>> {
    let mut want = vec![None; before];
    want.extend(values.into_iter().map(Some));
    want.extend([None; 5]);
    want
}

/// Returns pseudo-random weights in a format: their bytes, and the decoded values.
fn weights(format: Format, count: usize, seed: u64) -> (Vec<u8>, Vec<f32>) {
    let bytes = quant::encode(format, &numbers(count, seed)).unwrap();
    let mut values = vec![0.0; count];
    quant::decode(format, &bytes, &mut values).unwrap();
    (bytes, values)
}

fn linear(family: &str, m: usize, n: usize, blocks: usize) {
    for format in Format::ALL {
        let plain = format.block_len() == 1;
        let k = if plain { 37 * blocks } else { format.block_len() as usize * blocks };
        let (packed, w) = weights(format, n * k, 3);
        let (xo, xs, yo, ys) = (3, k + 2, 4, n + 3);
        let x = numbers(xo + m * xs, 4);
        let mut want = vec![None; yo + m * ys + 2];
        for i in 0..m {
            for r in 0..n {
                let products =
                    (0..k).map(|c| f64::from(w[r * k + c]) * f64::from(x[xo + i * xs + c]));
                want[yo + i * ys + r] = Some(products.sum::<f64>());
            }
        }
        let params = [m, n, k, xo, xs, yo, ys].map(|v| v as u32);
        let name = family_name(family, format);
        check(&name, &params, &[packed, bytes(&x)], &want, 1e-6 * k as f64);
    }
}

#[test]
fn matvec_every_format() {
    for (m, n, blocks) in
        [(1, 1, 1), (1, 37, 3), (2, 5, 2), (7, 66, 1), (13, 9, 2), (0, 4, 1), (1, 400, 8)]
    {
        linear("matvec_*", m, n, blocks);
    }
}

#[test]
fn matmul_every_format() {
    for (m, n, blocks) in [(1, 5, 1), (9, 130, 2), (33, 67, 3), (8, 0, 1)] {
        linear("matmul_*", m, n, blocks);
    }
}

#[test]
fn matmul_batched_with_free_strides() {
    for (batch, m, n, k) in
        [(1, 1, 1, 1), (3, 5, 7, 9), (1, 70, 33, 64), (2, 40, 50, 30), (2, 3, 4, 0), (0, 3, 3, 3)]
    {
        for transposed in [false, true] {
            let (ar, ac) = if transposed { (1, m) } else { (k, 1) };
            let (br, bc) = if transposed { (1, k + 1) } else { (n, 1) };
            let (ab, bb) = (m * k + 1, (k + 1) * (n + 1));
            let (a, b) = (numbers(2 + batch * ab, 5), numbers(1 + batch * bb, 6));
            let mut want = Vec::new();
            for z in 0..batch {
                for i in 0..m {
                    for j in 0..n {
                        want.push(
                            (0..k)
                                .map(|c| {
                                    f64::from(a[2 + z * ab + i * ar + c * ac])
                                        * f64::from(b[1 + z * bb + c * br + j * bc])
                                })
                                .sum(),
                        );
                    }
                }
            }
            let params = [batch, m, n, k, 2, ab, ar, ac, 1, bb, br, bc, 3].map(|v| v as u32);
            check("matmul_batched", &params, &[bytes(&a), bytes(&b)], &framed(3, want), 1e-5);
        }
    }
}

#[test]
fn gathers() {
    for format in Format::ALL {
        let cols = if format.block_len() == 1 { 19 } else { format.block_len() as usize * 2 };
        let (packed, table) = weights(format, 5 * cols, 7);
        let ids = [9, 4, 0, 5, u32::MAX, 2];
        let row = |id: &u32| {
            (0..cols)
                .map(|c| match *id as usize {
                    id if id < 5 => f64::from(table[id * cols + c]),
                    _ => 0.0,
                })
                .collect::<Vec<_>>()
        };
        let want = framed(2, ids[1..].iter().flat_map(row));
        let params = [5, 5, cols as u32, 1, 2];
        check(&family_name("gather_rows_*", format), &params, &[packed, words(&ids)], &want, 1e-6);
    }
    let (outer, axis, inner) = (3, 4, 5);
    let x = numbers(1 + outer * axis * inner, 8);
    let ids = [1, 3, 3, 77];
    let want = (0..outer)
        .flat_map(|o| ids.iter().flat_map(move |id| (0..inner).map(move |i| (o, *id as usize, i))));
    let want =
        want.map(
            |(o, id, i)| {
                if id < axis { f64::from(x[1 + (o * axis + id) * inner + i]) } else { 0.0 }
            },
        );
    let params = [3, 4, 5, 4, 1, 0, 6];
    check("gather", &params, &[bytes(&x), words(&ids)], &framed(6, want), 0.0);
}

#[test]
fn norms() {
    for (rows, cols) in [(1, 1), (3, 129), (40, 576), (2, 0)] {
        let (stride, eps) = (cols + 3, 1e-5f32);
        let (x, w, b) = (numbers(2 + rows * stride, 1), numbers(cols + 1, 2), numbers(cols, 3));
        let (mut rms, mut layer) = (Vec::new(), Vec::new());
        for r in 0..rows {
            let row: Vec<f64> = x[2 + r * stride..][..cols].iter().map(|v| f64::from(*v)).collect();
            let mean = row.iter().sum::<f64>() / cols as f64;
            let square = row.iter().map(|v| v * v).sum::<f64>() / cols as f64;
            let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / cols as f64;
            for c in 0..cols {
                let (w, b) = (f64::from(w[1 + c]), f64::from(b[c]));
                rms.push(row[c] / (square + f64::from(eps)).sqrt() * w);
                layer.push((row[c] - mean) / (variance + f64::from(eps)).sqrt() * w + b);
            }
        }
        let p = [rows, cols, 2, stride, 1].map(|v| v as u32);
        let params = [p[0], p[1], p[2], p[3], p[4], 4, eps.to_bits()];
        check("norm_rms", &params, &[bytes(&x), bytes(&w)], &framed(4, rms), 1e-5);
        let params = [p[0], p[1], p[2], p[3], p[4], 0, 4, eps.to_bits()];
        check("norm_layer", &params, &[bytes(&x), bytes(&w), bytes(&b)], &framed(4, layer), 1e-5);
    }
}

#[test]
fn softmax_and_argmax() {
    let inf = f32::INFINITY;
    for (rows, cols) in [(1, 1), (4, 131), (30, 700)] {
        let stride = cols + 1;
        let mut x: Vec<f32> = numbers(rows * stride + 1, 9).iter().map(|v| v * 20.0).collect();
        if rows == 4 {
            x[1..1 + cols].fill(-inf);
            x[1 + stride..][..3].fill(-inf);
            // Two equal maxima.
            x[1 + 2 * stride + 5] = 99.0;
            x[1 + 2 * stride + 17] = 99.0;
        }
        let (mut soft, mut best) = (Vec::new(), Vec::new());
        for r in 0..rows {
            let row: Vec<f64> = x[1 + r * stride..][..cols].iter().map(|v| f64::from(*v)).collect();
            let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = row.iter().map(|v| (v - max).exp()).sum();
            soft.extend(
                row.iter().map(|v| if max.is_finite() { (v - max).exp() / sum } else { 0.0 }),
            );
            let index = row.iter().position(|v| *v == max).unwrap() as u32;
            best.push(f64::from(f32::from_bits(index)));
        }
        let params = [rows, cols, 1, stride, 3].map(|v| v as u32);
        check("softmax", &params, &[bytes(&x)], &framed(3, soft), 1e-6);
        check("argmax", &params, &[bytes(&x)], &framed(3, best), 0.0);
    }
    let x = [3.0, 1.0, f32::NAN, 2.0, 2.0, f32::NAN, f32::NAN, f32::NAN];
    let bits = |i: u32| f64::from(f32::from_bits(i));
    check("argmax", &[2, 5, 0, 3, 0], &[bytes(&x)], &framed(0, [bits(2), bits(2)]), 0.0);
    check("argmax", &[1, 2, 0, 3, 0], &[bytes(&x)], &framed(0, [bits(0)]), 0.0);
}

#[test]
fn reductions() {
    type Fold = fn(&[f64]) -> f64;
    let all: [(&str, Fold); 5] = [
        ("reduce_sum", |v| v.iter().sum()),
        ("reduce_mean", |v| v.iter().sum::<f64>() / v.len() as f64),
        ("reduce_prod", |v| v.iter().product()),
        ("reduce_max", |v| v.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
        ("reduce_min", |v| v.iter().copied().fold(f64::INFINITY, f64::min)),
    ];
    for (outer, len, inner) in [(1, 1, 1), (3, 77, 1), (2, 9, 70), (5, 300, 33), (2, 0, 3)] {
        let x = numbers(2 + outer * len * inner, 11);
        for (name, fold) in all {
            let mut want = Vec::new();
            for o in 0..outer {
                for i in 0..inner {
                    let column: Vec<f64> =
                        (0..len).map(|j| f64::from(x[2 + (o * len + j) * inner + i])).collect();
                    want.push(fold(&column));
                }
            }
            if len == 0 && name == "reduce_mean" {
                continue;
            }
            let params = [outer, len, inner, 2, 1].map(|v| v as u32);
            check(name, &params, &[bytes(&x)], &framed(1, want), 1e-5);
        }
    }
}

#[test]
fn rope_pairs() {
    for (tokens, heads, dim, rot) in [(1, 1, 2, 2), (3, 2, 10, 6), (20, 9, 64, 64), (2, 1, 5, 0)] {
        let (hs, ts) = (dim + 1, heads * (dim + 1) + 2);
        let x = numbers(3 + tokens * ts, 12);
        let positions: Vec<u32> = (0..tokens as u32).map(|t| t * 400).collect();
        let freqs: Vec<f32> =
            (0..rot / 2).map(|j| 10_000f32.powf(-2.0 * j as f32 / rot as f32)).collect();
        for (name, half) in [("rope_interleaved", false), ("rope_half", true)] {
            let mut want = vec![0.0; tokens * heads * dim];
            for t in 0..tokens {
                for h in 0..heads {
                    let x = |d: usize| f64::from(x[3 + t * ts + h * hs + d]);
                    let y = &mut want[(t * heads + h) * dim..][..dim];
                    (0..dim).for_each(|d| y[d] = x(d));
                    for (j, freq) in freqs.iter().enumerate() {
                        let (a, b) = if half { (j, j + rot / 2) } else { (2 * j, 2 * j + 1) };
                        let (sin, cos) = (f64::from(positions[t]) * f64::from(*freq)).sin_cos();
                        y[a] = x(a) * cos - x(b) * sin;
                        y[b] = x(a) * sin + x(b) * cos;
                    }
                }
            }
            let params = [tokens, heads, dim, rot, 3, ts, hs, 0, 0, 2].map(|v| v as u32);
            let inputs = [bytes(&x), words(&positions), bytes(&freqs)];
            check(name, &params, &inputs, &framed(2, want), 1e-6);
        }
    }
}

/// Checks attention for these sizes: tokens, heads, kv_heads, head_dim, kv_len, past, window,
/// causal.
fn attention([tokens, heads, kv_heads, dim, kv_len, past, window, causal]: [usize; 8]) {
    let (qh, kh, vh) = (dim + 1, dim + 2, dim);
    let (qt, kt, vt) = (heads * qh + 3, kv_heads * kh + 1, kv_heads * vh);
    let (q, k) = (numbers(1 + tokens * qt, 21), numbers(2 + kv_len * kt, 22));
    let v = numbers(3 + kv_len * vt, 23);
    let scale = 2.0f32;
    let mut want = vec![0f64; tokens * heads * dim];
    for t in 0..tokens {
        for h in 0..heads {
            let g = h / (heads / kv_heads);
            let seen: Vec<usize> = (0..kv_len)
                .filter(|s| causal == 0 || *s <= past + t)
                .filter(|s| window == 0 || s + window > past + t)
                .collect();
            let score = |s: &usize| {
                let dot = |d: usize| {
                    f64::from(q[1 + t * qt + h * qh + d]) * f64::from(k[2 + s * kt + g * kh + d])
                };
                f64::from(scale) * (0..dim).map(dot).sum::<f64>()
            };
            let scores: Vec<f64> = seen.iter().map(score).collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = scores.iter().map(|s| (s - max).exp()).sum();
            for d in 0..dim {
                let terms = seen.iter().zip(&scores).map(|(s, score)| {
                    (score - max).exp() / total * f64::from(v[3 + s * vt + g * vh + d])
                });
                want[(t * heads + h) * dim + d] = terms.sum();
            }
        }
    }
    let mut params = [
        tokens, heads, kv_heads, dim, kv_len, past, window, causal, 1, qt, qh, 2, kt, kh, 3, vt,
        vh, 4,
    ]
    .map(|v| v as u32)
    .to_vec();
    params.extend([scale.to_bits(), 0]);
    for name in ["attn_decode", "attn_prefill"] {
        check(name, &params, &[bytes(&q), bytes(&k), bytes(&v)], &framed(4, want.clone()), 2e-6);
    }
    for (splits, granule) in [(1, 8), (3, 16), (64, 1)] {
        let mut split = [&params[..8], &[splits, granule], &params[8..17]].concat();
        split.push(scale.to_bits());
        let words = tokens * heads * splits as usize * (dim + 2);
        let spec = KernelSpec::Asset(AssetSpec::new("attn_split_kv"));
        for device in devices() {
            let inputs = [bytes(&q), bytes(&k), bytes(&v)];
            let part = launch(&*device, &spec, &split, &inputs, words).unwrap();
            let mut combine = [&params[..2], &params[3..8], &[splits, granule, 4]].concat();
            combine.resize(12, 0);
            let part: Vec<u8> = part.iter().flat_map(|word| word.to_le_bytes()).collect();
            check("attn_split_kv_reduce", &combine, &[part], &framed(4, want.clone()), 2e-6);
        }
    }
}

#[test]
fn attention_of_all_kinds() {
    for case in [
        [1, 1, 1, 1, 1, 0, 0, 1],
        [1, 9, 3, 64, 300, 299, 0, 1],
        [1, 6, 1, 33, 150, 149, 20, 1],
        [2, 22, 2, 16, 40, 38, 0, 1],
        [21, 4, 2, 20, 21, 0, 0, 1],
        [13, 2, 2, 64, 290, 277, 0, 1],
        [19, 2, 1, 24, 300, 281, 7, 1],
        [5, 2, 1, 8, 40, 0, 0, 0],
        [9, 1, 1, 8, 30, 21, 4, 0],
        // Windows that have passed every key, and no keys at all.
        [4, 1, 1, 8, 5, 100, 3, 1],
        [2, 1, 1, 8, 0, 0, 0, 1],
    ] {
        attention(case);
    }
}

#[test]
fn convolutions_and_pools() {
    // batch, in_c, in_h, in_w, out_c, kh, kw, sh, sw, pt, pl, dh, dw, groups
    for [batch, in_c, ih, iw, out_c, kh, kw, sh, sw, pt, pl, dh, dw, groups] in [
        [1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1],
        [2, 4, 7, 9, 6, 3, 3, 1, 1, 1, 1, 1, 1, 2],
        [1, 3, 11, 8, 5, 3, 2, 2, 3, 2, 1, 2, 1, 1],
        [1, 2, 3, 3, 2, 5, 5, 1, 1, 4, 4, 1, 1, 2],
    ] {
        let oh = (ih + 2 * pt - dh * (kh - 1) - 1) / sh + 1;
        let ow = (iw + 2 * pl - dw * (kw - 1) - 1) / sw + 1;
        let x = numbers(1 + batch * in_c * ih * iw, 31);
        let w = numbers(2 + out_c * in_c / groups * kh * kw, 32);
        let tap = |b: usize, c: usize, i: usize, j: usize, u: usize, v: usize| {
            let (r, s) = ((i * sh + u * dh).checked_sub(pt)?, (j * sw + v * dw).checked_sub(pl)?);
            (r < ih && s < iw).then(|| f64::from(x[1 + ((b * in_c + c) * ih + r) * iw + s]))
        };
        let (mut conv, mut max, mut mean, mut mean_pad) = (vec![], vec![], vec![], vec![]);
        let taps: Vec<(usize, usize)> =
            (0..kh).flat_map(|u| (0..kw).map(move |v| (u, v))).collect();
        for b in 0..batch {
            for o in 0..out_c {
                for (i, j) in (0..oh).flat_map(|i| (0..ow).map(move |j| (i, j))) {
                    let gc = in_c / groups;
                    let mut sum = 0.0;
                    for c in 0..gc {
                        for (u, v) in &taps {
                            let x = tap(b, o / (out_c / groups) * gc + c, i, j, *u, *v);
                            let w = w[2 + ((o * gc + c) * kh + u) * kw + v];
                            sum += x.unwrap_or(0.0) * f64::from(w);
                        }
                    }
                    conv.push(sum);
                }
            }
            for c in 0..in_c {
                for (i, j) in (0..oh).flat_map(|i| (0..ow).map(move |j| (i, j))) {
                    let seen: Vec<f64> =
                        taps.iter().filter_map(|(u, v)| tap(b, c, i, j, *u, *v)).collect();
                    max.push(seen.iter().copied().fold(f64::from(f32::MIN), f64::max));
                    mean.push(seen.iter().sum::<f64>() / seen.len() as f64);
                    mean_pad.push(seen.iter().sum::<f64>() / taps.len() as f64);
                }
            }
        }
        let params =
            [batch, in_c, ih, iw, out_c, oh, ow, kh, kw, sh, sw, pt, pl, dh, dw, groups, 1, 2, 3];
        check("conv2d", &params.map(|v| v as u32), &[bytes(&x), bytes(&w)], &framed(3, conv), 1e-5);
        let pool = |count| {
            [batch, in_c, ih, iw, oh, ow, kh, kw, sh, sw, pt, pl, dh, dw, count, 1, 2]
                .map(|v| v as u32)
        };
        check("pool2d_max", &pool(0), &[bytes(&x)], &framed(2, max), 0.0);
        check("pool2d_avg", &pool(1), &[bytes(&x)], &framed(2, mean_pad), 1e-6);
        if mean.iter().all(|m| !m.is_nan()) {
            check("pool2d_avg", &pool(0), &[bytes(&x)], &framed(2, mean), 1e-6);
        }
    }
}
