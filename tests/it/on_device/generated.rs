//! Generated kernels on devices against the plain evaluation of their bodies: rows in every
//! schedule, four neighbours at a time, several outputs, shared buffers.

use std::sync::Arc;

use warploom::kernel::{Access, Addressing, FusedExpr, KernelSpec, Schedule};
use warploom::provider::{
    Args, BufferRange, Device, OpenOptions, ParamBlock, Recording, Resource, Usage, Word,
};
use warploom_core::base::platform::block_on;
use warploom_core::base::{DType, Dim};
use warploom_core::reference::Tensor;
use warploom_kernels::codegen::group_work;
use warploom_testkit::{Tolerance, compare, fused};

use crate::fused_exprs::{addressings, rows};
use crate::webgpu_host::{dispatch, download, open, part, whole};

/// A value that no kernel writes.
const POISON: u32 = 0x7fc0_dead;

const CLOSE: Tolerance = Tolerance { atol: 2e-5, rtol: 1e-4, eps_count: 0.0, nmse: 1e-7 };
/// Position of the last digit to which few digits are rounded.
const CLOSE_F16: Tolerance = Tolerance { atol: 1e-4, rtol: 0.008, eps_count: 0.0, nmse: 1e-4 };

/// A body with all data of a dispatch.
struct Launch {
    expr: FusedExpr,
    params: Vec<u32>,
    reads: Vec<Vec<u32>>,
    /// Words of each buffer that is written.
    writes: Vec<usize>,
}

/// Operands in sequence in their buffers, none at the start; strided ones transposed, repeated or
/// with gaps.
fn launch(expr: &FusedExpr, sizes: &[usize]) -> Launch {
    let n: usize = sizes.iter().product();
    let mut params = vec![n];
    params.extend(sizes);
    let mut reads = vec![Vec::new(); expr.reads() as usize];
    let mut writes = vec![4; expr.writes() as usize];
    for (i, operand) in expr.operands().enumerate() {
        let output = i.checked_sub(expr.inputs.len());
        let strides = match (operand.addressing, output) {
            (Addressing::Flat, _) => contiguous(sizes, 0),
            (Addressing::Single, _) => vec![0; sizes.len()],
            (Addressing::Row, _) => by_rows(sizes, 2),
            (Addressing::Strided, Some(output)) if expr.writes_rows(output) => by_rows(sizes, 2),
            (Addressing::Strided, Some(_)) => contiguous(sizes, 3),
            _ if expr.schedule == (Schedule::Elements { width: 4 }) => by_rows(sizes, 1),
            _ => match i % 3 {
                0 => contiguous(&sizes.iter().rev().copied().collect::<Vec<_>>(), 0)
                    .into_iter()
                    .rev()
                    .collect(),
                1 => (1..=sizes.len()).map(|d| usize::from(d == sizes.len())).collect(),
                _ => contiguous(sizes, 3),
            },
        };
        let last = strides.iter().zip(sizes).map(|(stride, size)| stride * size.saturating_sub(1));
        let extent = 1 + last.sum::<usize>();
        // Two 2-byte values share a word; if possible, the first one is the second half.
        let each = 4 / operand.dtype.bytes() as usize;
        let shift = usize::from(each == 2 && operand.addressing != Addressing::Flat);
        let (words, half) = ((extent + shift).div_ceil(each), each == 2);
        let end = match output {
            None => {
                let buffer = &mut reads[operand.binding as usize];
                buffer.resize((buffer.len() + 4).next_multiple_of(4), POISON);
                params.push(buffer.len() * each + shift);
                buffer.extend((0..words).map(|at| match half {
                    false => word(operand.dtype, i, at),
                    true => {
                        let [low, high] = [0, 1].map(|side| word(operand.dtype, i, 2 * at + side));
                        low | (high << 16)
                    }
                }));
                continue_params(&mut params, operand.addressing, &strides);
                continue;
            }
            Some(_) => &mut writes[operand.binding as usize],
        };
        params.push(*end * each + shift);
        *end = (*end + words + 1).next_multiple_of(4);
        continue_params(&mut params, operand.addressing, &strides);
    }
    reads.iter_mut().for_each(|buffer| buffer.resize(buffer.len().next_multiple_of(4), POISON));
    let params = params.into_iter().map(|word| word as u32).collect();
    Launch { expr: expr.clone(), params, reads, writes }
}

fn continue_params(params: &mut Vec<usize>, addressing: Addressing, strides: &[usize]) {
    if matches!(addressing, Addressing::Strided | Addressing::Row) {
        params.extend(strides);
    }
}

/// Row-major strides with a gap after each row.
fn contiguous(sizes: &[usize], gap: usize) -> Vec<usize> {
    let mut strides = vec![1; sizes.len()];
    for d in (1..sizes.len()).rev() {
        let gap = if d == sizes.len() - 1 { gap } else { 0 };
        strides[d - 1] = strides[d] * (sizes[d] + gap);
    }
    strides
}

/// One place for each row, this far apart.
fn by_rows(sizes: &[usize], apart: usize) -> Vec<usize> {
    let Some((_, lead)) = sizes.split_last() else { return Vec::new() };
    contiguous(lead, 0).into_iter().map(|stride| stride * apart).chain([0]).collect()
}

/// Values of magnitude 0.75 to 1.25, every fourth negative, so that products stay in range; small
/// integers; bools.
fn word(dtype: DType, operand: usize, at: usize) -> u32 {
    let hash = ((at * 64 + operand + 1) as u32).wrapping_mul(0x9e37_79b1);
    let hash = (hash ^ (hash >> 15)).wrapping_mul(0x85eb_ca6b) >> 8;
    match dtype {
        DType::F32 => {
            let size = 0.75 + hash as f32 / (1 << 25) as f32;
            (if hash.is_multiple_of(4) { -size } else { size }).to_bits()
        }
        DType::F16 | DType::BF16 => {
            let size = 0.75 + hash as f32 / (1 << 25) as f32;
            let value = if hash.is_multiple_of(4) { -size } else { size };
            match dtype {
                DType::F16 => half::f16::from_f32(value).to_bits().into(),
                _ => half::bf16::from_f32(value).to_bits().into(),
            }
        }
        DType::I32 => (hash % 11).wrapping_sub(5),
        DType::Bool => hash % 2,
        _ => hash % 9,
    }
}

impl Launch {
    /// Runs it and compares everything in the written buffers.
    fn check(&self, device: &dyn Device) {
        if let Err(what) = self.judge(self.run(device)) {
            panic!("{} {:?} {:?}: {what}", self.expr, self.expr.schedule, self.params);
        }
    }

    fn judge(&self, mut got: Vec<Vec<u32>>) -> Result<(), String> {
        let expected = fused::evaluate(&self.expr, &self.params, &self.reads)
            .map_err(|e| format!("the plain evaluation: {e}"))?;
        for (i, written) in expected.iter().enumerate() {
            let operand = self.expr.outputs[i].operand;
            let buffer = &mut got[operand.binding as usize];
            let size = operand.dtype.bytes() as usize;
            let place = |at: &usize| (at * size / 4, at * size % 4);
            let bytes = written.places.iter().flat_map(|at| {
                let (word, byte) = place(at);
                buffer[word].to_le_bytes()[byte..byte + size].to_vec()
            });
            let bytes: Vec<u8> = bytes.collect();
            let shape = written.values.shape.clone();
            let actual = Tensor::from_bytes(shape, operand.dtype, &bytes).unwrap();
            // A mean of no elements is NaN on both sides.
            let nothing = |t: &Tensor| t.floats().iter().all(|v| v.is_nan());
            if !nothing(&written.values) || !nothing(&actual) {
                let close = if operand.dtype.is_half() { &CLOSE_F16 } else { &CLOSE };
                compare(&written.values, &actual, close).map_err(|e| format!("output {i}: {e}"))?;
            }
            for (word, byte) in written.places.iter().map(place) {
                let mut bytes = buffer[word].to_le_bytes();
                bytes[byte..byte + size].copy_from_slice(&POISON.to_le_bytes()[byte..byte + size]);
                buffer[word] = u32::from_le_bytes(bytes);
            }
        }
        for (i, buffer) in got.iter().enumerate() {
            if let Some(at) = buffer.iter().position(|word| *word != POISON) {
                return Err(format!("word {at} of buffer {i} was written by mistake"));
            }
        }
        Ok(())
    }

    /// The buffers that are written, after a run.
    fn run(&self, device: &dyn Device) -> Vec<Vec<u32>> {
        let poisoned = self.writes.iter().map(|words| vec![POISON; *words]);
        let buffers: Vec<Vec<u32>> = self.reads.iter().cloned().chain(poisoned).collect();
        let mut work = Recording { label: "generated".into(), ..Recording::default() };
        let mut slots: Vec<Option<BufferRange>> = Vec::new();
        let mut bound = Vec::new();
        for (i, words) in buffers.iter().enumerate() {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let size = bytes.len() as u64;
            let range = whole(device.alloc(size, Usage::Working).unwrap(), size);
            device.write(range, &bytes).unwrap();
            slots.push(Some(range));
            let access = if i < self.reads.len() { Access::Read } else { Access::ReadWrite };
            bound.push((work.slot(format!("b{i}"), size), access));
        }
        let interface = self.expr.interface();
        let mut block: Vec<Word> = self.params.iter().map(|word| Word::Bits(*word)).collect();
        block.resize(interface.param_words as usize, Word::Bits(0));
        let each = group_work(&self.expr.schedule) as usize;
        let sizes = &self.params[1..=self.expr.rank as usize];
        let count = match self.expr.schedule {
            Schedule::Elements { .. } => self.params[0] as usize,
            Schedule::Rows { .. } => sizes[..sizes.len() - 1].iter().product::<u32>() as usize,
        };
        let groups = Dim::new(count.div_ceil(each) as i64);
        let kernel = KernelSpec::Fused(self.expr.clone());
        dispatch(&mut work, kernel.clone(), ParamBlock(block), &bound, groups);
        for (slot, _) in &bound[self.reads.len()..] {
            let bytes = work.slots[*slot as usize].bytes as i64;
            download(&mut work, part(*slot, 0, bytes));
        }
        block_on(device.compile(&kernel)).unwrap();
        let prepared = device.prepare(&work, &slots).unwrap();
        let ticket = device.submit(&[(prepared, Args::default())]).unwrap();
        let done = block_on(device.wait(ticket)).unwrap();
        device.free(Resource::Prepared(prepared));
        slots.into_iter().flatten().for_each(|range| device.free(Resource::Buffer(range.buffer)));
        let words = |bytes: &Vec<u8>| {
            bytes.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect()
        };
        done.downloads.iter().map(words).collect()
    }
}

/// Row lengths for a split: none, one, odd ones, all that fit registers, and more than one
/// iteration.
fn lengths(schedule: &Schedule) -> Vec<usize> {
    let Schedule::Rows { threads, held, width, .. } = *schedule else { return vec![7] };
    let (all, width) = ((threads * held) as usize, width as usize);
    let mut list = match held {
        0 => vec![
            0,
            width,
            9 * width,
            4 * width * threads as usize,
            5 * width * threads as usize + width,
        ],
        _ => vec![0, width, all / 2, all - width, all],
    };
    list.iter_mut().for_each(|len| *len -= *len % width);
    list.dedup();
    list
}

fn devices() -> Vec<Arc<dyn Device>> {
    let options = [OpenOptions::default(), OpenOptions { floor: true, ..OpenOptions::default() }];
    options.into_iter().filter_map(open).collect()
}

#[test]
fn rows_are_what_their_bodies_say() {
    let devices = devices();
    let subgroups = devices.iter().filter(|d| d.profile().has_subgroups).count();
    crate::tell(&format!("rows: {} devices, {subgroups} with subgroups", devices.len()));
    for expr in rows() {
        let subgroup = matches!(expr.schedule, Schedule::Rows { subgroup: true, .. });
        for device in devices.iter().filter(|d| d.profile().has_subgroups || !subgroup) {
            for len in lengths(&expr.schedule) {
                for lead in [[1, 1], [3, 23], [0, 2]] {
                    let sizes = match expr.rank {
                        1 => vec![len],
                        2 => vec![lead[0] * lead[1], len],
                        _ => vec![lead[0], lead[1], len],
                    };
                    launch(&expr, &sizes).check(&**device);
                }
            }
            device.free(Resource::Kernel(KernelSpec::Fused(expr.clone())));
        }
    }
}

#[test]
fn elements_are_what_their_bodies_say() {
    for device in devices() {
        for expr in addressings() {
            let wide = FusedExpr { schedule: Schedule::Elements { width: 4 }, ..expr.clone() };
            let strided =
                |o: &warploom::kernel::Output| o.operand.addressing == Addressing::Strided;
            for last in [0usize, 4, 68] {
                let mut sizes = [2, 1, 3, 2, 5, last];
                if expr.rank > 0 {
                    sizes[expr.rank as usize - 1] = last;
                }
                let sizes = &sizes[..expr.rank as usize];
                launch(&expr, sizes).check(&*device);
                if expr.rank > 0 && !expr.outputs.iter().any(strided) {
                    launch(&wide, sizes).check(&*device);
                }
            }
        }
    }
}

#[test]
fn planted_faults_are_found() {
    let Some(device) = open(OpenOptions::default()) else { return };
    let launch = launch(&rows()[0], &[1, 3, 5]);
    let got = launch.run(&*device);
    launch.judge(got.clone()).unwrap();
    for (buffer, words) in got.iter().enumerate() {
        for at in 0..words.len() {
            let mut wrong = got.clone();
            wrong[buffer][at] = 0.125f32.to_bits();
            let what = launch.judge(wrong).unwrap_err();
            let stray = words[at] == POISON;
            assert_eq!(what.contains("by mistake"), stray, "{at}: {what}");
        }
    }
}
