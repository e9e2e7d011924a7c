//! A kernel with its fusion, for tests: parameter words, reference results and a check.

use crate::tests::{POISON, bytes, devices, launch_many};
use warploom_core::base::DType;
use warploom_kernels::fused_reference::{Written, evaluate};
use warploom_kernels::{
    Addressing, AssetSpec, FusedExpr, KernelFusion, KernelSpec, Operand, Output, Schedule, Segment,
    Value, catalogue,
};

/// A body with the parameter words of its operands.
#[derive(Clone)]
pub(super) struct Given {
    pub(super) body: FusedExpr,
    pub(super) words: Vec<usize>,
}

/// Builds a body. Inputs are (addressing, binding, words); outputs are strided, as (binding, value,
/// words).
pub(super) fn given(
    rank: u32,
    inputs: &[(Addressing, u32, &[usize])],
    values: &[Value],
    outputs: &[(u32, u32, &[usize])],
) -> Given {
    let operand = |addressing, binding| Operand { dtype: DType::F32, addressing, binding };
    let output = |(binding, value, _): &(u32, u32, &[usize])| Output {
        operand: operand(Addressing::Strided, *binding),
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

/// Evaluates a body with the reference: anchors become inputs, and the result of a prologue becomes
/// an output. Returns the binding of each output, and the indices and values of its elements.
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
        if let Value::Anchor(j) = *value {
            *value = Value::Input(inputs + j);
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
    let pairs = |w: Written| w.places.into_iter().zip(w.values.floats());
    outputs.map(|(o, w)| (o.operand.binding, pairs(w).collect())).collect()
}

/// A kernel with its fusion and its operands.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) params: Vec<u32>,
    /// Bytes of the kernel's own operands; the fusion's inputs (`reads`) follow them.
    pub(super) own: Vec<Vec<u8>>,
    pub(super) reads: Vec<Vec<f32>>,
    /// The norm: binding of its weight, epsilon, and offset of the weight.
    pub(super) norm: Option<(u32, f32, usize)>,
    pub(super) prologue: Option<Given>,
    /// Number of anchors, table words and body of each segment.
    pub(super) segments: Vec<(u32, [usize; 6], Given)>,
}

impl Case {
    pub(super) fn spec(&self) -> KernelSpec {
        let segments = self.segments.iter();
        KernelSpec::Asset(
            AssetSpec::new(&self.name).attach(KernelFusion {
                norm: self.norm.map(|n| n.0),
                prologue: self.prologue.as_ref().map(|p| p.body.clone()),
                segments: segments
                    .map(|(anchors, _, of)| Segment { anchors: *anchors, body: of.body.clone() })
                    .collect(),
                quant_epilogue: None,
            }),
        )
    }

    pub(super) fn words(&self) -> Vec<u32> {
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

    /// Returns the rows as changed by prologue and norm.
    pub(super) fn changed(&self, mut x: Vec<f64>, rows: usize, cols: usize) -> Vec<f64> {
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

    /// Launches on every device and compares with the reference; `made` are the anchors and sizes
    /// of each segment.
    pub(super) fn check(&self, made: &[(Vec<Vec<f64>>, [usize; 3])], tolerance: f64) {
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

/// Computes the products of a case with a weight matrix, and checks the case.
pub(super) fn check_linear(case: &Case, w: &[f32], x: &[f32], tolerance: f64) {
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
