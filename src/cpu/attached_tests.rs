//! Attachments on every kernel that takes one, against plain loops and `testkit::fused`.

use super::*;
use crate::base::{DType, Format};
use crate::cpu::tests::{POISON, bytes, devices, launch_many, launch_within, numbers};
use crate::ir::scalar::{BinaryOp, UnaryOp};
use crate::kernel::catalogue::{self, family_name};
use crate::kernel::{
    Addressing, AssetSpec, FusedExpr, KernelSpec, Operand, Output, Schedule, Segment, Value,
};
use crate::quant;
use crate::testkit::fused::evaluate;

use Addressing::{Single, Strided};
use Value::{Anchor, Binary, Input, Unary};

/// A body with the words of its operands.
#[derive(Clone)]
struct Given {
    body: FusedExpr,
    words: Vec<usize>,
}

/// Operands are (addressing, binding, words); outputs also a value.
fn given(
    rank: u32,
    inputs: &[(Addressing, u32, &[usize])],
    values: &[Value],
    outputs: &[(u32, u32, &[usize])],
) -> Given {
    let operand = |addressing, binding| Operand { dtype: DType::F32, addressing, binding };
    let output = |(binding, value, _): &(u32, u32, &[usize])| Output {
        operand: operand(Strided, *binding),
        value: *value,
    };
    let words = inputs.iter().map(|i| i.2).chain(outputs.iter().map(|o| o.2));
    Given {
        body: FusedExpr {
            rank,
            inputs: inputs.iter().map(|(a, binding, _)| operand(*a, *binding)).collect(),
            values: values.into(),
            outputs: outputs.iter().map(output).collect(),
            schedule: Schedule::Elements { width: 1 },
        },
        words: words.flatten().copied().collect(),
    }
}

/// What a body makes of its anchors: anchors become inputs, a prologue's result an output.
fn plain(
    of: &Given,
    sizes: &[usize],
    anchors: &[Vec<f64>],
    reads: &[Vec<f32>],
) -> Vec<(u32, Vec<(usize, f64)>)> {
    let (mut e, mut words) = (of.body.clone(), of.words.clone());
    let flat = |binding| Operand { dtype: DType::F32, addressing: Addressing::Flat, binding };
    let inputs = e.inputs.len() as u32;
    let before = FusedExpr { outputs: Vec::new(), ..e.clone() }.operand_words() as usize;
    for value in &mut e.values {
        if let Anchor(j) = *value {
            *value = Input(inputs + j);
        }
    }
    for j in 0..anchors.len() {
        e.inputs.push(flat((reads.len() + j) as u32));
        words.insert(before, 0);
    }
    if e.outputs.is_empty() {
        e.outputs.push(Output { operand: flat(0), value: e.values.len() as u32 - 1 });
        words.push(0);
    }
    let mut params = vec![sizes.iter().product::<usize>()];
    params.extend(sizes);
    params.extend(words);
    let params: Vec<u32> = params.into_iter().map(|w| w as u32).collect();
    let anchors = anchors.iter().map(|a| a.iter().map(|v| (*v as f32).to_bits()).collect());
    let reads = reads.iter().map(|r| r.iter().map(|v| v.to_bits()).collect());
    let written = evaluate(&e, &params, &reads.chain(anchors).collect::<Vec<_>>()).unwrap();
    let outputs = e.outputs.iter().zip(written);
    let pairs = |w: crate::testkit::fused::Written| w.places.into_iter().zip(w.values.floats());
    outputs.map(|(o, w)| (o.operand.binding, pairs(w).collect())).collect()
}

/// A kernel with what is attached to it.
struct Case {
    name: String,
    params: Vec<u32>,
    /// Bytes of the kernel's own operands, then what the attachment reads.
    own: Vec<Vec<u8>>,
    reads: Vec<Vec<f32>>,
    /// Binding, epsilon and offset of the norm's weight.
    norm: Option<(u32, f32, usize)>,
    prologue: Option<Given>,
    /// Anchors, table and body.
    segments: Vec<(u32, [usize; 6], Given)>,
}

impl Case {
    fn spec(&self) -> KernelSpec {
        let segments = self.segments.iter();
        KernelSpec::Asset(
            AssetSpec::new(&self.name).attach(Attachment {
                norm: self.norm.map(|n| n.0),
                prologue: self.prologue.as_ref().map(|p| p.body.clone()),
                segments: segments
                    .map(|(anchors, _, of)| Segment { anchors: *anchors, body: of.body.clone() })
                    .collect(),
            }),
        )
    }

    fn words(&self) -> Vec<u32> {
        let mut words = self.params.clone();
        let linear = self.name.starts_with("mat") && self.name != "matmul_batched";
        if let Some((_, eps, offset)) = self.norm {
            words.extend([eps.to_bits(), offset as u32]);
        }
        let mut add = |list: &[usize]| words.extend(list.iter().map(|w| *w as u32));
        self.prologue.iter().for_each(|p| add(&p.words));
        if linear {
            self.segments.iter().for_each(|(_, table, _)| add(table));
        }
        self.segments.iter().for_each(|(.., of)| add(&of.words));
        words
    }

    /// The rows as prologue and norm change them.
    fn changed(&self, mut x: Vec<f64>, rows: usize, cols: usize) -> Vec<f64> {
        if let Some(prologue) = &self.prologue {
            let written = plain(prologue, &[rows, cols], &[x], &self.reads);
            x = written[0].1.iter().map(|(_, v)| *v).collect();
        }
        if let Some((binding, eps, offset)) = self.norm {
            let w = &self.reads[binding as usize][offset..];
            for row in x.chunks_exact_mut(cols) {
                let square = row.iter().map(|v| v * v).sum::<f64>() / cols as f64;
                let factor = 1.0 / (square + f64::from(eps)).sqrt();
                row.iter_mut().zip(w).for_each(|(v, w)| *v *= factor * f64::from(*w));
            }
        }
        x
    }

    /// Launches on every device; `made` are the anchors and sizes of each segment.
    fn check(&self, made: &[(Vec<Vec<f64>>, [usize; 3])], tolerance: f64) {
        let writes = self.segments.iter().map(|s| s.2.body.writes()).max().unwrap();
        let mut want: Vec<Vec<Option<f64>>> = vec![Vec::new(); writes as usize];
        for ((.., of), (anchors, sizes)) in self.segments.iter().zip(made) {
            for (binding, list) in plain(of, sizes, anchors, &self.reads) {
                let buffer = &mut want[binding as usize];
                for (place, value) in list {
                    buffer.resize(buffer.len().max(place + 3), None);
                    assert!(buffer[place].replace(value).is_none(), "{place} is written twice");
                }
            }
        }
        let (spec, words) = (self.spec(), self.words());
        let bound = catalogue::interface(&spec).unwrap().bindings.len() - writes as usize;
        let reads = self.reads.iter().map(|r| bytes(r));
        let inputs: Vec<Vec<u8>> = self.own.iter().cloned().chain(reads).take(bound).collect();
        let sizes: Vec<usize> = want.iter().map(Vec::len).collect();
        for device in devices() {
            let got = launch_many(&*device, &spec, &words, &inputs, &sizes).unwrap();
            let place = format!("{spec} {} {:?}", device.profile().driver, self.params);
            for (b, (got, want)) in got.iter().zip(&want).enumerate() {
                for (i, (got, want)) in got.iter().zip(want).enumerate() {
                    let Some(want) = want else {
                        assert_eq!(*got, POISON, "{place}: element {i} of {b} was written");
                        continue;
                    };
                    let got = f64::from(f32::from_bits(*got));
                    let close = (got - want).abs() <= tolerance * want.abs().max(1.0);
                    assert!(close, "{place}: element {i} of {b} is {got}, not {want}");
                }
            }
        }
    }
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|v| f64::from(*v)).collect()
}

/// The products of a case of a weight matrix; checks it.
fn check_linear(case: &Case, w: &[f32], x: &[f32], tolerance: f64) {
    let [m, n, k, xo, xs] = [0, 1, 2, 3, 4].map(|i| case.params[i] as usize);
    let rows = (0..m).flat_map(|i| &x[xo + i * xs..][..k]).map(|v| f64::from(*v)).collect();
    let x = case.changed(rows, m, k);
    let product = |i: usize, r: usize| {
        assert!(r < n);
        (0..k).map(|c| f64::from(w[r * k + c]) * x[i * k + c]).sum::<f64>()
    };
    let made = case.segments.iter().map(|(anchors, table, _)| {
        let [first, size0, size1, stride0, stride1, distance] = *table;
        let anchors = (0..*anchors as usize).map(|j| {
            let mut list = Vec::new();
            for i in 0..m {
                for e in 0..size0 * size1 {
                    let row = first + e / size1 * stride0 + e % size1 * stride1;
                    list.push(product(i, row + j * distance));
                }
            }
            list
        });
        (anchors.collect(), [m, size0, size1])
    });
    case.check(&made.collect::<Vec<_>>(), tolerance);
}

/// `silu(anchor) * x + 1`, x read transposed.
fn prologue(binding: u32, rows: usize) -> Given {
    let one = Value::Constant(DType::F32, 1f32.to_bits());
    let values = [
        Anchor(0),
        Unary(UnaryOp::Silu, 0),
        Input(0),
        Binary(BinaryOp::Mul, 1, 2),
        one,
        Binary(BinaryOp::Add, 3, 4),
    ];
    given(2, &[(Strided, binding, &[1, 1, rows])], &values, &[])
}

/// The two rows of a pair rotated by an angle for each row of x and pair: two outputs.
fn rotation(angle: &[usize], first: &[usize], second: &[usize]) -> Given {
    let values = [
        Anchor(0),
        Anchor(1),
        Input(0),
        Unary(UnaryOp::Cos, 2),
        Unary(UnaryOp::Sin, 2),
        Binary(BinaryOp::Mul, 0, 3),
        Binary(BinaryOp::Mul, 1, 4),
        Binary(BinaryOp::Sub, 5, 6),
        Binary(BinaryOp::Mul, 0, 4),
        Binary(BinaryOp::Mul, 1, 3),
        Binary(BinaryOp::Add, 8, 9),
    ];
    given(3, &[(Strided, 0, angle)], &values, &[(0, 7, first), (0, 10, second)])
}

/// q rotated by halves, k rotated by neighbours, and v with a residual, all from one weight.
fn merged(name: &str, format: Format, m: usize, (heads, half): (usize, usize), norm: bool) {
    let k = if format.block_len() == 1 { 35 } else { format.block_len() as usize };
    let (dim, kv) = (2 * half, 2);
    let n = (heads + 2 * kv) * dim;
    let packed = quant::encode(format, &numbers(n * k, 3)).unwrap();
    let mut w = vec![0.0; n * k];
    quant::decode(format, &packed, &mut w).unwrap();
    let (xo, xs) = (3, k + 2);
    let x = numbers(xo + m * xs, 4);
    let row = heads * dim;
    let at = |offset, inner| [offset, row, dim, inner];
    let q = rotation(&[1, half, 0, 1], &at(2, 1), &at(2 + half, 1));
    // k goes into rows of a cache, past the end of q.
    let cache = 2 + m * row + 7;
    let of_k = |j: usize| [cache + j, kv * dim, dim, 2];
    let k_part = rotation(&[1, half, 0, 1], &of_k(0), &of_k(1));
    let values = [Anchor(0), Input(0), Input(1), Binary(BinaryOp::Add, 0, 1)];
    let values = [&values[..], &[Binary(BinaryOp::Mul, 3, 2), Unary(UnaryOp::Abs, 0)]].concat();
    let inputs: [(_, _, &[usize]); 2] = [(Strided, 1, &[0, kv * dim, dim, 1]), (Single, 1, &[5])];
    let v_part =
        given(3, &inputs, &values, &[(1, 4, &[0, 1, m * dim, m]), (2, 5, &[0, n, dim, 1])]);
    let case = Case {
        name: family_name(name, format),
        params: [m, n, k, xo, xs, 0, n].map(|v| v as u32).to_vec(),
        own: vec![packed, bytes(&x)],
        reads: vec![numbers(1 + m * half, 5), numbers(m * kv * dim + 6, 6), numbers(k + 4, 7)],
        norm: norm.then_some((2, 1e-5, 4)),
        prologue: None,
        segments: vec![
            (2, [0, heads, half, dim, 1, half], q),
            (2, [heads * dim, kv, half, dim, 2, 1], k_part),
            (1, [(heads + kv) * dim, kv, dim, dim, 1, 0], v_part),
        ],
    };
    check_linear(&case, &w, &x, 2e-5);
}

#[test]
fn merged_products_of_every_format() {
    for format in Format::ALL {
        for m in [1, 3, 9] {
            merged("matvec_*", format, m, (3, 8), true);
            merged("matvec_*", format, m, (1, 1), false);
        }
        merged("matmul_*", format, 5, (2, 4), false);
        merged("matmul_*", format, 19, (3, 20), false);
    }
    merged("matvec_*", Format::F32, 2, (20, 33), true);
    merged("matvec_*", Format::Q4_1, 8, (40, 32), true);
    merged("matmul_*", Format::Q8_0, 65, (20, 32), false);
}

#[test]
fn gate_and_up_after_a_prologue_and_a_norm() {
    for (name, m, f, normed) in [
        ("matvec_*", 1, 5, true),
        ("matvec_*", 4, 700, true),
        ("matvec_*", 1, 3000, false),
        ("matmul_*", 1, 40, false),
        ("matmul_*", 70, 150, false),
    ] {
        let (k, xo) = (64, 2);
        let w = numbers(2 * f * k, 1);
        let x = numbers(xo + m * k, 2);
        let values = [Anchor(0), Unary(UnaryOp::Silu, 0), Anchor(1), Binary(BinaryOp::Mul, 1, 2)];
        let body = given(3, &[], &values, &[(0, 3, &[1, f + 1, 0, 1])]);
        let case = Case {
            name: family_name(name, Format::F32),
            params: [m, 2 * f, k, xo, k, 0, 0].map(|v| v as u32).to_vec(),
            own: vec![bytes(&w), bytes(&x)],
            reads: vec![numbers(1 + m * k, 3), numbers(k, 4)],
            norm: normed.then_some((1, 1e-6, 0)),
            prologue: Some(prologue(0, m)),
            segments: vec![(2, [0, 1, f, 0, 1, f], body)],
        };
        check_linear(&case, &w, &x, 2e-5);
    }
}

/// `max(anchor, 0) + x`, to places of these strides; x is read from 1 on as if without gaps.
fn after(sizes: [usize; 3], to: &[usize]) -> Given {
    let values = [Anchor(0), Unary(UnaryOp::Relu, 0), Input(0), Binary(BinaryOp::Add, 1, 2)];
    let from = [1, sizes[1] * sizes[2], sizes[2], 1];
    given(3, &[(Strided, 1, &from)], &values, &[(0, 3, to)])
}

#[test]
fn batched_products() {
    for (batch, m, n, k) in [(3, 5, 7, 9), (1, 70, 33, 64), (2, 3, 4, 0)] {
        for transposed in [false, true] {
            let (ar, ac) = if transposed { (1, m) } else { (k + 1, 1) };
            let (ab, bb) = (m * (k + 1), k * n + 1);
            let (a, b) = (numbers(2 + batch * ab, 5), numbers(1 + batch * bb, 6));
            let sizes = [batch, m, n];
            let case = Case {
                name: "matmul_batched".into(),
                params: [batch, m, n, k, 2, ab, ar, ac, 1, bb, n, 1, 3].map(|v| v as u32).to_vec(),
                own: vec![bytes(&a), bytes(&b)],
                reads: vec![numbers(1 + batch * m * k, 7), numbers(1 + batch * m * n, 8)],
                norm: None,
                prologue: Some(prologue(0, batch * m)),
                // y transposed.
                segments: vec![(1, [0; 6], after(sizes, &[3, m * n, 1, m]))],
            };
            let mut rows = Vec::new();
            for row in 0..batch * m {
                let first = 2 + row / m * ab + row % m * ar;
                rows.extend((0..k).map(|c| f64::from(a[first + c * ac])));
            }
            let a = case.changed(rows, batch * m, k);
            let mut y = Vec::new();
            for row in 0..batch * m {
                for j in 0..n {
                    let b = |c: usize| f64::from(b[1 + row / m * bb + c * n + j]);
                    y.push((0..k).map(|c| a[row * k + c] * b(c)).sum());
                }
            }
            case.check(&[(vec![y], sizes)], 1e-5);
        }
    }
}

#[test]
fn convolutions() {
    let (batch, channels, h, w, out_c) = (2, 2, 7, 6, 3);
    let (x, weight) = (numbers(1 + batch * channels * h * w, 1), numbers(out_c * channels * 9, 2));
    let sizes = [batch * out_c, h, w];
    let case = Case {
        name: "conv2d".into(),
        params: [batch, channels, h, w, out_c, h, w, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0]
            .map(|v| v as u32)
            .to_vec(),
        own: vec![bytes(&x), bytes(&weight)],
        reads: vec![
            numbers(1 + batch * channels * h * w, 3),
            numbers(1 + batch * out_c * h * w, 4),
        ],
        norm: None,
        prologue: Some(prologue(0, batch * channels)),
        segments: vec![(1, [0; 6], after(sizes, &[0, h * w, w, 1]))],
    };
    let x = case.changed(wide(&x[1..]), batch * channels, h * w);
    let mut y = Vec::new();
    for at in 0..batch * out_c * h * w {
        let (b, o) = (at / (out_c * h * w), at / (h * w) % out_c);
        let (i, j) = (at / w % h, at % w);
        let mut sum = 0.0;
        for c in 0..channels {
            for (u, v) in (0..9).map(|t| (t / 3, t % 3)) {
                if (1..=h).contains(&(i + u)) && (1..=w).contains(&(j + v)) {
                    let factor = f64::from(weight[(o * channels + c) * 9 + u * 3 + v]);
                    sum += factor * x[((b * channels + c) * h + i + u - 1) * w + j + v - 1];
                }
            }
        }
        y.push(sum);
    }
    case.check(&[(vec![y], sizes)], 1e-5);
}

#[test]
fn attention_of_few_and_many_tokens() {
    for (name, tokens, keys) in [("attn_decode", 1, 40), ("attn_prefill", 12, 150)] {
        let (heads, kv_heads, dim, past) = (4, 2, 16, keys - tokens);
        let row = kv_heads * dim;
        let (q, k, v) =
            (numbers(tokens * heads * dim, 1), numbers(keys * row, 2), numbers(keys * row, 3));
        let sizes = [tokens, heads, dim];
        let numbers_of = [tokens, heads, kv_heads, dim, keys, past, 0, 1, 0, heads * dim, dim];
        let mut params: Vec<u32> = numbers_of.map(|v| v as u32).to_vec();
        params.extend([0, row, dim, 0, row, dim, 0].map(|v| v as u32));
        params.push(0.25f32.to_bits());
        let mut case = Case {
            name: name.into(),
            params,
            own: vec![bytes(&q), bytes(&k), bytes(&v)],
            reads: vec![vec![], numbers(1 + tokens * heads * dim, 4)],
            norm: None,
            prologue: None,
            segments: vec![(1, [0; 6], after(sizes, &[0, dim, tokens * dim, 1]))],
        };
        // No binding is empty.
        case.reads[0] = vec![0.0];
        let mut y = Vec::new();
        for (t, h) in (0..tokens * heads).map(|i| (i / heads, i % heads)) {
            let at = |s: usize| s * row + h / 2 * dim;
            let score = |s: usize| {
                let products = (0..dim)
                    .map(|c| f64::from(q[(t * heads + h) * dim + c]) * f64::from(k[at(s) + c]));
                (products.sum::<f64>() * 0.25).exp()
            };
            let scores: Vec<f64> = (0..=past + t).map(score).collect();
            let total: f64 = scores.iter().sum();
            for c in 0..dim {
                let sum = scores.iter().enumerate().map(|(s, p)| p * f64::from(v[at(s) + c]));
                y.push(sum.sum::<f64>() / total);
            }
        }
        case.check(&[(vec![y], sizes)], 1e-5);
    }
}

#[path = "attached_places_tests.rs"]
mod places;
