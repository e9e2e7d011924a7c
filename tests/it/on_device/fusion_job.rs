//! A kernel with a fusion against the kernel without it and a plain evaluation of the bodies.

use std::sync::Arc;

use warploom::kernel::fusion::supports;
use warploom::kernel::{
    Access, Addressing, AssetSpec, FusedExpr, KernelFusion, KernelSpec, Operand, Output, Value,
    catalogue,
};
use warploom::provider::{
    Args, Command, Device, Dispatch, ParamBlock, Recording, Support, Usage, Word, support,
};
use warploom_core::base::platform::block_on;
use warploom_core::base::{DType, Dim};
use warploom_core::reference::Data;
use warploom_testkit::fused::evaluate;

use crate::webgpu_host::{bindings, compile, download, part, whole};

/// Words that no kernel writes: a NaN.
const POISON: u32 = 0x7fc0_dead;

pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn unit(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 40) as f32 / (1 << 24) as f32
    }

    pub(crate) fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|i| self.unit() * 1.6 - 0.7 + (i % 7) as f32 * 0.05).collect()
    }
}

/// A kernel, its inputs and its fusion.
pub(crate) struct Job {
    pub(crate) name: String,
    /// Without the fusion.
    pub(crate) plain: AssetSpec,
    pub(crate) params: Vec<u32>,
    pub(crate) grid: [u32; 3],
    /// Buffers that the kernel itself reads, as words.
    pub(crate) operands: Vec<Vec<u32>>,
    /// Which of them a prologue is for; its rows, columns, first element and row stride.
    pub(crate) x: (usize, [usize; 2], [usize; 2]),
    /// The three dimensions of its result.
    pub(crate) made: [usize; 3],
    pub(crate) attachment: KernelFusion,
    /// First row, sizes, strides and distance of each segment; none for kernels without rows.
    pub(crate) tables: Vec<[u32; 6]>,
    pub(crate) fusion_grid: [u32; 3],
}

/// Inputs of a fusion.
#[derive(Default)]
struct PreparedOperand {
    words: Vec<u32>,
    reads: Vec<Vec<u32>>,
    writes: Vec<Vec<u32>>,
    norm: Option<(Vec<f32>, f32)>,
    /// Words of the operands of the prologue, then of the segments.
    operands: Vec<Vec<u32>>,
}

impl Job {
    /// The index space of a segment.
    fn sizes(&self, segment: usize) -> [usize; 3] {
        match self.tables.get(segment) {
            Some(table) => [self.made[0], table[1] as usize, table[2] as usize],
            None => self.made,
        }
    }

    /// Memory for every operand, with gaps, and its words.
    fn given(&self, random: &mut Random) -> PreparedOperand {
        let fusion = &self.attachment;
        let mut given = PreparedOperand {
            reads: vec![vec![]; fusion.reads() as usize],
            writes: vec![vec![]; fusion.writes() as usize],
            ..PreparedOperand::default()
        };
        if let Some(binding) = fusion.norm {
            let weight = random.floats(self.x.1[1]);
            let buffer = &mut given.reads[binding as usize];
            buffer.extend([POISON; 4]);
            buffer.extend(weight.iter().map(|v| v.to_bits()));
            given.words.extend([1e-5f32.to_bits(), 4]);
            given.norm = Some((weight, 1e-5));
        }
        if let Some(body) = &fusion.prologue {
            let words = operands(body, &self.x.1, &mut given, random);
            given.words.extend(&words);
            given.operands.push(words);
        }
        given.words.extend(self.tables.iter().take(fusion.segments.len()).flatten());
        for (i, segment) in fusion.segments.iter().enumerate() {
            let words = operands(&segment.body, &self.sizes(i), &mut given, random);
            given.words.extend(&words);
            given.operands.push(words);
        }
        for buffer in given.reads.iter_mut().chain(&mut given.writes) {
            buffer.resize(buffer.len().next_multiple_of(4) + 4, POISON);
        }
        given
    }

    /// The operands with the prologue of the first one.
    fn prepared(&self, given: &PreparedOperand) -> Vec<Vec<u32>> {
        let (which, [rows, columns], [first, stride]) = self.x;
        let mut all = self.operands.clone();
        let x = &mut all[which];
        if let Some(body) = &self.attachment.prologue {
            let mut body = body.clone();
            let operand = Operand { dtype: DType::F32, addressing: Addressing::Flat, binding: 0 };
            body.outputs.push(Output { operand, value: body.values.len() as u32 - 1 });
            let elements = (0..rows * columns)
                .map(|e| x[first + e / columns * stride + e % columns])
                .collect();
            let mut words = given.operands[0].clone();
            words.push(0);
            let made = values_of(&body, &words, &[rows, columns], &given.reads, vec![elements]);
            for (e, value) in made[0].1.iter().enumerate() {
                x[first + e / columns * stride + e % columns] = (*value as f32).to_bits();
            }
        }
        if let Some((weight, eps)) = &given.norm {
            for row in x[first..].chunks_mut(stride).take(rows) {
                let square = |v: &u32| f64::from(f32::from_bits(*v)).powi(2);
                let sum: f64 = row[..columns].iter().map(square).sum();
                let factor = (sum / columns as f64 + f64::from(*eps)).powf(-0.5);
                for (v, g) in row.iter_mut().zip(weight) {
                    *v = (f32::from_bits(*v) * g * factor as f32).to_bits();
                }
            }
        }
        all
    }

    /// Computes the expected outputs of the segments from the plain kernel's result; returns the
    /// types of the written words.
    fn expect(&self, made: &[f32], given: &mut PreparedOperand) -> Vec<Vec<Option<DType>>> {
        let mut types: Vec<_> = given.writes.iter().map(|b| vec![None; b.len()]).collect();
        for (i, segment) in self.attachment.segments.iter().enumerate() {
            let sizes = self.sizes(i);
            let anchor = |j: usize| -> Vec<u32> {
                let count = sizes.iter().product::<usize>();
                let place = |e: usize| {
                    let (c0, rest) = (e / (sizes[1] * sizes[2]), e % (sizes[1] * sizes[2]));
                    let (c1, c2) = (rest / sizes[2], rest % sizes[2]);
                    let Some(t) = self.tables.get(i) else { return e };
                    let t = t.map(|word| word as usize);
                    c0 * self.made[1] + t[0] + c1 * t[3] + c2 * t[4] + j * t[5]
                };
                (0..count).map(|e| made[place(e)].to_bits()).collect()
            };
            let anchors = (0..segment.anchors as usize).map(anchor).collect();
            let before = usize::from(self.attachment.prologue.is_some());
            let words = &given.operands[before + i];
            let written = values_of(&segment.body, words, &sizes, &given.reads, anchors);
            for (output, (places, values)) in segment.body.outputs.iter().zip(written) {
                let binding = output.operand.binding as usize;
                for (place, value) in places.into_iter().zip(values) {
                    assert!(types[binding][place].is_none(), "{}: written twice", self.name);
                    types[binding][place] = Some(output.operand.dtype);
                    given.writes[binding][place] = match output.operand.dtype {
                        DType::F32 => (value as f32).to_bits(),
                        _ => value as u32,
                    };
                }
            }
        }
        types
    }

    /// Runs both and compares; returns the reason if the device refuses the kernel.
    pub(crate) fn check(&self, device: &Arc<dyn Device>) -> Result<(), String> {
        let spec = self.plain.clone().attach(self.attachment.clone());
        supports(&spec.name, &self.attachment).unwrap();
        if let Support::No(reason) = support(device.profile(), &KernelSpec::Asset(spec.clone())) {
            return Err(reason);
        }
        let mut given = self.given(&mut Random(7));
        let poison = vec![POISON; self.made.iter().product::<usize>().next_multiple_of(4)];
        let plain = launch(
            &**device,
            self.plain.clone(),
            &self.params,
            &self.prepared(&given),
            std::slice::from_ref(&poison),
            self.grid,
        );
        let made: Vec<f32> = plain[0].iter().map(|word| f32::from_bits(*word)).collect();
        let mut params = self.params.clone();
        params.extend(&given.words);
        let reads: Vec<_> = self.operands.iter().chain(&given.reads).cloned().collect();
        let (empty, types) = if self.attachment.segments.is_empty() {
            given.writes = plain;
            let kinds = made.iter().map(|v| (v.to_bits() != POISON).then_some(DType::F32));
            (vec![poison], vec![kinds.collect()])
        } else {
            (given.writes.clone(), self.expect(&made, &mut given))
        };
        let got = launch(&**device, spec.clone(), &params, &reads, &empty, self.fusion_grid);
        let name =
            format!("{} {} on {}", self.name, KernelSpec::Asset(spec), device.profile().id());
        let mut written = 0;
        for (b, (got, want)) in got.iter().zip(&given.writes).enumerate() {
            for (i, (got, want)) in got.iter().zip(want).enumerate() {
                written += usize::from(types[b][i].is_some());
                let (g, w) = (f32::from_bits(*got), f32::from_bits(*want));
                let fine = match types[b][i] {
                    Some(DType::F32) => g == w || (g - w).abs() <= 2e-4 * (1.0 + w.abs()),
                    _ => got == want,
                };
                assert!(fine, "{name}: output {b}, word {i}: {g} ({got:#x}), not {w} ({want:#x})");
            }
        }
        assert!(written > 0, "{name}: nothing was compared");
        Ok(())
    }
}

/// Appends a region for each operand of a body; returns its words.
fn operands(
    body: &FusedExpr,
    sizes: &[usize],
    given: &mut PreparedOperand,
    random: &mut Random,
) -> Vec<u32> {
    let mut words = Vec::new();
    let inputs = body.inputs.len();
    for (i, operand) in body.operands().enumerate() {
        let buffers = if i < inputs { &mut given.reads } else { &mut given.writes };
        let buffer = &mut buffers[operand.binding as usize];
        buffer.extend([POISON; 3]);
        words.push(buffer.len() as u32);
        let mut strides: Vec<usize> =
            (0..sizes.len()).map(|d| sizes[d + 1..].iter().product()).collect();
        // A gap between rows; positions depend only on rows, the second input on the last place.
        strides[0] += 1;
        match (i < inputs, operand.dtype, i) {
            (true, DType::I32, _) => strides[1..].fill(0),
            (true, DType::F32, 1) => strides[..sizes.len() - 1].fill(0),
            _ => {}
        }
        let count = match operand.addressing {
            Addressing::Strided => {
                words.extend(strides.iter().map(|s| *s as u32));
                1 + sizes.iter().zip(&strides).map(|(n, s)| (n - 1) * s).sum::<usize>()
            }
            _ => 1,
        };
        let values = random.floats(count).into_iter().map(|v| match operand.dtype {
            _ if i >= inputs => POISON,
            DType::F32 => v.to_bits(),
            DType::Bool => u32::from(v > 0.0),
            _ => (v * 20.0) as i32 as u32,
        });
        buffer.extend(values);
    }
    words
}

/// The outputs of a body for these anchor values.
fn values_of(
    body: &FusedExpr,
    words: &[u32],
    sizes: &[usize],
    reads: &[Vec<u32>],
    anchors: Vec<Vec<u32>>,
) -> Vec<(Vec<usize>, Vec<f64>)> {
    let (mut body, mut reads) = (body.clone(), reads.to_vec());
    let inputs = body.inputs.len() as u32;
    let before: usize = body.inputs.iter().map(|o| words_of(o, body.rank)).sum();
    let mut params = vec![sizes.iter().product::<usize>() as u32];
    params.extend(sizes.iter().map(|size| *size as u32));
    params.extend(&words[..before]);
    params.extend(anchors.iter().map(|_| 0));
    params.extend(&words[before..]);
    for value in &mut body.values {
        if let Value::Anchor(j) = *value {
            *value = Value::Input(inputs + j);
        }
    }
    for anchor in anchors {
        let binding = reads.len() as u32;
        body.inputs.push(Operand { dtype: DType::F32, addressing: Addressing::Flat, binding });
        reads.push(anchor);
    }
    let written = evaluate(&body, &params, &reads).unwrap();
    let numbers = |data: &Data| match data {
        Data::Bool(values) => values.iter().map(|v| f64::from(u8::from(*v))).collect(),
        Data::F32(values) => values.iter().map(|v| f64::from(*v)).collect(),
        Data::F64(values) => values.clone(),
        other => panic!("outputs of {other:?}"),
    };
    written.into_iter().map(|w| (w.places, numbers(&w.values.data))).collect()
}

fn words_of(operand: &Operand, rank: u32) -> usize {
    if operand.addressing == Addressing::Strided { 1 + rank as usize } else { 1 }
}

/// Launches a kernel once; returns the written buffers.
fn launch(
    device: &dyn Device,
    spec: AssetSpec,
    params: &[u32],
    reads: &[Vec<u32>],
    writes: &[Vec<u32>],
    grid: [u32; 3],
) -> Vec<Vec<u32>> {
    let spec = KernelSpec::Asset(spec);
    let interface = catalogue::interface(&spec).unwrap();
    assert_eq!(params.len().next_multiple_of(4) as u32, interface.param_words, "{spec}");
    assert_eq!(reads.len() + writes.len(), interface.bindings.len(), "{spec}");
    let mut work = Recording { label: spec.to_string(), ..Default::default() };
    let mut slots = Vec::new();
    for (i, words) in reads.iter().chain(writes).enumerate() {
        let bytes = 4 * words.len() as u64;
        work.slot(format!("{i}"), bytes);
        let buffer = whole(device.alloc(bytes, Usage::Working).unwrap(), bytes);
        let raw: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        device.write(buffer, &raw).unwrap();
        slots.push(Some(buffer));
    }
    let accesses: Vec<(u32, Access)> = (0..).zip(interface.bindings).collect();
    let bindings = bindings(&work, &accesses);
    let kernel = work.kernel(spec);
    let mut words: Vec<Word> = params.iter().map(|word| Word::Bits(*word)).collect();
    words.resize(words.len().next_multiple_of(4), Word::Bits(0));
    let params = work.param_block(ParamBlock(words));
    let grid = grid.map(|groups| Dim::new(i64::from(groups)));
    let label = "launch".into();
    work.commands.push(Command::Dispatch(Dispatch { kernel, params, bindings, grid, label }));
    for (i, words) in writes.iter().enumerate() {
        download(&mut work, part((reads.len() + i) as u32, 0, 4 * words.len() as i64));
    }
    compile(device, &work);
    let prepared = device.prepare(&work, &slots).unwrap();
    let ticket = device.submit(&[(prepared, Args::default())]).unwrap();
    let done = block_on(device.wait(ticket)).unwrap();
    let words = |bytes: &Vec<u8>| {
        let (words, _) = bytes.as_chunks::<4>();
        words.iter().map(|word| u32::from_le_bytes(*word)).collect()
    };
    done.downloads.iter().map(words).collect()
}
