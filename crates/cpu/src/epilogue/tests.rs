//! Tests fusion into every kernel that accepts it, against plain loops and `fused_reference`.

use super::test_case::{Case, Given, check_linear, given};
use super::*;
use crate::prepare::Kernel;
use crate::tests::{bytes, devices, launch_many, launch_within, numbers};
use warploom_core::base::{DType, Format};
use warploom_core::ir::scalar::{BinaryOp, UnaryOp};
use warploom_core::quant;
use warploom_kernels::catalogue::family_name;
use warploom_kernels::{Addressing, AssetSpec, KernelSpec, Segment, Value};

use Addressing::{Single, Strided};
use Value::{Anchor, Binary, Input, Unary};

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|v| f64::from(*v)).collect()
}

/// Builds `silu(anchor) * x + 1`, with x read transposed.
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

/// Builds a rotation of pairs of rows, with an angle for each row of x and each pair, and two
/// outputs.
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

/// Checks q rotated in split-half order, k in interleaved order, and v with a residual, all from
/// one weight matrix.
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

/// Builds `max(anchor, 0) + x`, stored at offset and strides `to`; x is contiguous from element 1
/// on.
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
        params.extend([0.25f32.to_bits(), 0]);
        let mut case = Case {
            name: name.into(),
            params,
            own: vec![bytes(&q), bytes(&k), bytes(&v)],
            reads: vec![vec![], numbers(1 + tokens * heads * dim, 4)],
            norm: None,
            prologue: None,
            segments: vec![(1, [0; 6], after(sizes, &[0, dim, tokens * dim, 1]))],
        };
        // Bindings are not empty.
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

/// Builds a residual `out = anchor + input`; `words` are the offset and strides of both.
fn residual(words: &[usize]) -> Given {
    let values = [Anchor(0), Input(0), Binary(BinaryOp::Add, 0, 1)];
    given(3, &[(Strided, 0, words)], &values, &[(0, 2, words)])
}

#[test]
fn a_residual_in_place_and_neighbouring_inputs() {
    // One buffer: w [n, k], then h [m, n], then x [m, k]; h += x w.
    let (m, n, k) = (3, 600, 8);
    let (h, x) = (n * k, n * k + m * n);
    let data = numbers(x + m * k, 1);
    let case = Case {
        name: "matvec_f32".into(),
        params: [m, n, k, x, k, 0, 0].map(|v| v as u32).to_vec(),
        own: vec![],
        reads: vec![],
        norm: None,
        prologue: None,
        segments: vec![(1, [0, 1, n, 0, 1, 0], residual(&[h, n, 0, 1]))],
    };
    let mut want = data.clone();
    for (i, r) in (0..m * n).map(|e| (e / n, e % n)) {
        want[h + i * n + r] += (0..k).map(|c| data[r * k + c] * data[x + i * k + c]).sum::<f32>();
    }
    for device in devices() {
        let got = launch_within(&*device, &case.spec(), &case.words(), &data);
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            assert!((got - want).abs() <= 1e-5, "element {i} is {got}, not {want}");
        }
        // In place of x itself, which is read before it is written.
        let mut over = case.words();
        let operands = over.len() - 8;
        (over[operands], over[operands + 4]) = (x as u32 - 4, x as u32 - 4);
        over[0] = 1;
        let (table, count) = (operands - 6, 2 * k);
        over[table + 2] = count as u32;
        let got = launch_within(&*device, &case.spec(), &over, &data);
        for r in 0..count {
            let sum: f32 = (0..k).map(|c| data[r * k + c] * data[x + c]).sum();
            let (got, want) = (got[x - 4 + r], data[x - 4 + r] + sum);
            assert!((got - want).abs() <= 1e-5, "element {r} is {got}, not {want}");
        }
    }
}

#[test]
fn what_a_kernel_does_not_take_is_refused_by_name() {
    let refuse = |name: &str, attachment: KernelFusion| {
        let spec = KernelSpec::Asset(AssetSpec::new(name).attach(attachment));
        let error = Kernel::new(&spec).err().unwrap();
        assert!(error.is_unsupported() && error.to_string().contains(name), "{error}");
        error.to_string()
    };
    let norm = KernelFusion { norm: Some(0), ..KernelFusion::default() };
    assert!(refuse("matmul_q4_0", norm.clone()).contains("does not normalise"));
    let before = KernelFusion { prologue: Some(prologue(0, 1).body), ..KernelFusion::default() };
    assert!(refuse("attn_decode", before.clone()).contains("no prologue"));
    assert!(refuse("softmax", before).contains("no prologue"));
    let body = residual(&[0; 4]).body;
    let segments = |count: usize, anchors| KernelFusion {
        segments: vec![Segment { anchors, body: body.clone() }; count],
        ..KernelFusion::default()
    };
    assert!(refuse("norm_rms", segments(1, 1)).contains("no epilogue"));
    assert!(refuse("conv2d", segments(2, 1)).contains("it takes one segment"));
    assert!(refuse("attn_prefill", segments(1, 2)).contains("of one anchor"));
    let wrong = AssetSpec::new("matvec_f32").attach(segments(1, 3));
    let error = Kernel::new(&KernelSpec::Asset(wrong)).err().unwrap();
    assert!(error.is_invalid(), "{error}");
    // A cyclic body is reported without being printed.
    let mut circle = segments(1, 1);
    circle.segments[0].body.values[2] = Binary(BinaryOp::Add, 0, 2);
    let wrong = KernelSpec::Asset(AssetSpec::new("matvec_f32").attach(circle));
    assert!(Kernel::new(&wrong).err().unwrap().is_invalid());
}

#[test]
fn parameters_that_pass_a_binding_are_errors() {
    let linear = |name: &str| Case {
        name: name.into(),
        params: vec![1, 8, 32, 0, 32, 0, 8],
        own: vec![vec![0; 1024], vec![0; 128]],
        reads: vec![vec![0.0; 64]],
        norm: name.starts_with("matvec").then_some((0, 1e-5, 0)),
        prologue: Some(given(2, &[(Strided, 0, &[0, 0, 1])], &[Anchor(0), Input(0)], &[])),
        segments: vec![
            (2, [0, 2, 2, 2, 1, 4], rotation(&[0, 0, 0, 1], &[0, 4, 2, 1], &[4, 4, 2, 1])),
            (1, [0, 2, 4, 4, 1, 0], residual(&[8, 0, 4, 1])),
        ],
    };
    let attention = Case {
        name: "attn_decode".into(),
        params: vec![1, 2, 1, 8, 4, 3, 0, 1, 0, 16, 8, 0, 8, 8, 0, 8, 8, 0, 1, 0],
        own: vec![vec![0; 128]; 3],
        reads: vec![vec![0.0; 64]],
        norm: None,
        prologue: None,
        segments: vec![(1, [0; 6], residual(&[0, 16, 8, 1]))],
    };
    let device = devices().remove(1);
    for case in [linear("matvec_f32"), linear("matmul_f32"), linear("matvec_q4_1"), attention] {
        let inputs: Vec<Vec<u8>> =
            case.own.iter().cloned().chain(case.reads.iter().map(|r| bytes(r))).collect();
        let (spec, words) = (case.spec(), case.words());
        let launch = |words: &[u32]| launch_many(&*device, &spec, words, &inputs, &[16]);
        launch(&words).unwrap();
        let mut errors = 0;
        for place in 0..words.len() {
            for value in [u32::MAX, 1 << 20, 0, 7] {
                let mut words = words.clone();
                words[place] = value;
                // Any parameters return, and no access leaves the bindings.
                if let Err(error) = launch(&words) {
                    assert!(error.is_invalid(), "{spec} {words:?}: {error}");
                    errors += 1;
                }
            }
        }
        assert!(errors > words.len(), "{errors}");
        assert!(launch(&vec![u32::MAX; words.len()]).unwrap_err().is_invalid());
    }
}
