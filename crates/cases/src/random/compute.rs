//! Adds reductions, norms, softmax, products, convolutions and attention to random graphs. Some are
//! added either as one operation or as primitives.

use super::range::{self, Range};
use super::{Known, Maker};
use warploom_core::base::{DType, Dim, Format, Shape};
use warploom_core::ir::{BinaryOp, Conv2d, Op, Pool2d, PoolKind, ReduceOp, RopePairs, UnaryOp};

impl Maker {
    fn reduce(&mut self, op: ReduceOp, x: Known, axes: Vec<usize>, keep: bool) -> Option<Known> {
        let dims = self.dims(x);
        let (mut least, mut most) = (1u64, 1u64);
        for axis in &axes {
            let (low, high) = self.bounds(&dims[*axis]);
            (least, most) = (least.saturating_mul(low), most.saturating_mul(high));
        }
        if op == ReduceOp::Prod && most > 5 {
            return None;
        }
        let range = range::reduce(op, x.range, least as f64, most as f64)?;
        Some(self.add(Op::Reduce { op, axes, keep }, &[x], range))
    }

    /// Adds a random reduction over random axes.
    pub(super) fn any_reduction(&mut self, x: Known) -> Option<Known> {
        let rank = self.dims(x).len();
        if rank == 0 || !self.dtype(x).is_float() {
            return None;
        }
        let mut axes: Vec<usize> = match self.below(4) {
            0 => (0..rank).collect(),
            1 => vec![self.below(rank as u32) as usize],
            2 => (0..rank).filter(|_| self.random.below(2) == 0).collect(),
            _ => vec![rank - 1],
        };
        if axes.is_empty() {
            axes = vec![0];
        }
        use ReduceOp::{Max, Mean, Min, Prod, Sum};
        let op = self.one_of(&[Sum, Sum, Mean, Mean, Max, Max, Min, Prod]);
        let keep = self.chance(60);
        let y = self.reduce(op, x, axes, keep)?;
        if keep && self.chance(60) {
            let op = self.one_of(&[BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Add]);
            return self.binary(op, x, y);
        }
        Some(y)
    }

    fn over_last(&mut self, op: ReduceOp, x: Known) -> Option<Known> {
        let last = self.dims(x).len().checked_sub(1)?;
        self.reduce(op, x, vec![last], true)
    }

    pub(super) fn argmax(&mut self, x: Known) -> Option<Known> {
        self.last_number(x)?;
        if !x.range.is_exact() || self.dtype(x) != DType::F32 {
            return None;
        }
        let n = self.upper(&self.last(x)?);
        // Equal for finite numbers.
        let op = if n.is_multiple_of(2) { Op::ArgMax } else { Op::Greedy };
        Some(self.add(op, &[x], Range::exact(0.0, n as f64 - 1.0, 0)))
    }

    /// Adds a softmax along the last axis, as one operation or as primitives; sometimes of masked
    /// scores.
    pub(super) fn softmax(&mut self, x: Known) -> Option<Known> {
        let last = self.last(x)?;
        if self.bounds(&last).0 == 0 || self.dtype(x) != DType::F32 {
            return None;
        }
        let mut x = x;
        if self.chance(40) {
            let scale = self.one_of(&[0.125, 0.5, 0.3]);
            let scale = self.constant(scale);
            x = self.binary(BinaryOp::Mul, x, scale)?;
        }
        if self.chance(35) {
            return self.masked_softmax(x);
        }
        let result = range::softmax(x.range)?;
        if self.chance(50) {
            return Some(self.add(Op::Softmax, &[x], result));
        }
        let shifted = match self.chance(75) {
            true => {
                let most = self.over_last(ReduceOp::Max, x)?;
                let mut y = self.binary(BinaryOp::Sub, x, most)?;
                // The maximum is subtracted, so no number is above 0.
                y.range.high = y.range.error;
                y
            }
            false => x,
        };
        let powers = self.unary(UnaryOp::Exp, shifted)?;
        let sum = self.over_last(ReduceOp::Sum, powers)?;
        let id = self.b.op(Op::Binary(BinaryOp::Div), &[powers.id, sum.id]);
        let wider = Range { error: result.error * 4.0, ..result };
        Some(self.keep(id, wider))
    }

    /// Adds a softmax of scores of which some are -inf, by an added constant or by a condition.
    fn masked_softmax(&mut self, x: Known) -> Option<Known> {
        let result = range::softmax(x.range)?;
        let dims = self.dims(x);
        let below = match dims.last()?.as_const() {
            Some(n) if self.chance(50) => {
                let words: Vec<f32> =
                    (0..n)
                        .map(|i| {
                            if i > 0 && self.random.below(3) == 0 { f32::NEG_INFINITY } else { 0.0 }
                        })
                        .collect();
                let mask = self.b.constant(&[n as u64], &words);
                self.b.op(Op::Binary(BinaryOp::Add), &[x.id, mask])
            }
            _ => {
                let c = self.new_integers(DType::Bool, &dims, 0, 2);
                let never = self.b.constant(&[], &[f32::NEG_INFINITY]);
                self.b.op(Op::Select, &[c.id, x.id, never])
            }
        };
        let id = self.b.op(Op::Softmax, &[below]);
        Some(self.keep(id, result))
    }

    /// Adds RMSNorm or LayerNorm, as one operation or as primitives.
    pub(super) fn norm(&mut self, x: Known) -> Option<Known> {
        let n = self.last_number(x)?;
        if self.dtype(x) != DType::F32 {
            return None;
        }
        let layer = self.chance(35);
        let eps = if x.range.error == 0.0 && self.chance(50) { 1e-2 } else { 0.25f32 };
        let unit = range::norm(x.range, n as f64, f64::from(eps))?;
        let weight = self.weight(&[n], Format::F32, 1.0);
        let scaled = range::binary(BinaryOp::Mul, unit, weight.range, false)?;
        if self.chance(55) {
            if !layer {
                return Some(self.add(Op::RmsNorm { eps }, &[x, weight], scaled));
            }
            let bias = self.weight(&[n], Format::F32, 1.0);
            let range = range::binary(BinaryOp::Add, scaled, bias.range, false)?;
            return Some(self.add(Op::LayerNorm { eps }, &[x, weight, bias], range));
        }
        let centred = match layer {
            true => {
                let mean = self.over_last(ReduceOp::Mean, x)?;
                self.binary(BinaryOp::Sub, x, mean)?
            }
            false => x,
        };
        let square = match self.chance(70) {
            true => self.binary(BinaryOp::Mul, centred, centred)?,
            false => {
                self.unary(UnaryOp::Abs, centred).and_then(|y| self.binary(BinaryOp::Mul, y, y))?
            }
        };
        let mean = self.over_last(ReduceOp::Mean, square)?;
        let eps = self.constant(eps);
        let sum = match self.chance(70) {
            true => self.binary(BinaryOp::Add, mean, eps)?,
            false => self.binary(BinaryOp::Add, eps, mean)?,
        };
        let mut y = match self.chance(60) {
            true => {
                let scale = self.unary(UnaryOp::Rsqrt, sum)?;
                self.binary(BinaryOp::Mul, centred, scale)?
            }
            false => {
                let root = self.unary(UnaryOp::Sqrt, sum)?;
                self.binary(BinaryOp::Div, centred, root)?
            }
        };
        // Division by the root mean square bounds the magnitude.
        y.range.low = y.range.low.max(-unit.most() - y.range.error);
        y.range.high = y.range.high.min(unit.most() + y.range.error);
        match self.chance(80) {
            true => self.binary(BinaryOp::Mul, y, weight),
            false => Some(y),
        }
    }

    pub(super) fn weight_format(&mut self, k: u64) -> Format {
        let formats =
            [Format::F32, Format::F32, Format::Plain(DType::F16), Format::Q8_0, Format::Q4_0];
        let most = if k.is_multiple_of(32) { 5 } else { 3 };
        formats[self.below(most) as usize]
    }

    pub(super) fn linear(&mut self, x: Known, n: u64) -> Option<Known> {
        let k = self.last_number(x)?;
        let format = self.weight_format(k);
        self.linear_of(x, n, format)
    }

    pub(super) fn linear_of(&mut self, x: Known, n: u64, format: Format) -> Option<Known> {
        let k = self.last_number(x)?;
        let mut dims = self.dims(x);
        *dims.last_mut()? = Dim::from(n);
        if !self.dtype(x).is_float() || !self.fits(&dims) || n * k > 12_000 {
            return None;
        }
        let scale = 1.5 / (k as f32).sqrt();
        let w = self.weight(&[n, k], format, scale);
        let range = range::products(x.range, w.range, k as f64)?;
        Some(self.add(Op::linear(), &[x, w], range))
    }

    /// Adds a matrix product of `x` with its own transpose, with a new input, or with the transpose
    /// of a new input.
    pub(super) fn matmul(&mut self, x: Known) -> Option<Known> {
        let dims = self.dims(x);
        if dims.len() < 2 || self.dtype(x) != DType::F32 {
            return None;
        }
        let (k, rank) = (dims[dims.len() - 1].clone(), dims.len());
        let mut swapped: Vec<usize> = (0..rank).collect();
        swapped.swap(rank - 1, rank - 2);
        let y = match self.below(3) {
            0 => self.transpose(x, swapped)?,
            1 => {
                let n = self.size();
                self.new_float(Some(vec![k.clone(), Dim::from(n)]))
            }
            _ => {
                let n = self.size();
                let batch = dims[..rank - 2].iter().cloned();
                let dims: Vec<Dim> = batch.chain([Dim::from(n), k.clone()]).collect();
                if !self.fits(&dims) {
                    return None;
                }
                let y = self.new_float(Some(dims));
                self.transpose(y, swapped)?
            }
        };
        let mut out = dims;
        out[rank - 1] = self.last(y)?;
        let work: u64 = out.iter().map(|d| self.upper(d)).product::<u64>() * self.upper(&k);
        if !self.fits(&out) || work > 60_000 {
            return None;
        }
        let range = range::products(x.range, y.range, self.upper(&k) as f64)?;
        Some(self.add(Op::MatMul, &[x, y], range))
    }

    fn image(&mut self) -> Known {
        let found = self.pick(|maker, x| {
            let dims = maker.dims(x);
            let sizes = dims.iter().skip(1).all(|d| d.as_const().is_some_and(|n| n > 0));
            dims.len() == 4 && sizes && maker.dtype(x) == DType::F32
        });
        found.unwrap_or_else(|| {
            let side = |maker: &mut Maker| Dim::from(1 + maker.below(9));
            let batch = if self.symbolic { Dim::symbol(super::SEQ.0) } else { Dim::new(1) };
            let channels = self.one_of(&[1, 2, 3, 4]);
            let dims = vec![batch, Dim::new(channels), side(self), side(self)];
            self.new_float(Some(dims))
        })
    }

    pub(super) fn conv(&mut self) -> Option<Known> {
        let x = self.image();
        let dims = self.dims(x);
        let sizes: Vec<u64> = dims.iter().map(|d| self.upper(d)).collect();
        let groups = if self.chance(30) { sizes[1] } else { 1 };
        let out_channels = groups * (1 + u64::from(self.below(3)));
        let kernel = |maker: &mut Maker, size: u64| (1 + u64::from(maker.below(3))).min(size);
        let (kh, kw) = (kernel(self, sizes[2]), kernel(self, sizes[3]));
        let pad = self.below(2);
        let stride = 1 + self.below(2);
        let conv = Conv2d {
            stride: (stride, stride),
            pad_before: (pad, pad),
            pad_after: (pad, self.below(2)),
            dilation: (1, 1),
            groups: groups as u32,
        };
        let k = sizes[1] / groups * kh * kw;
        if out_channels * sizes[2] * sizes[3] * sizes[0] * k > 60_000 || !self.fits(&dims) {
            return None;
        }
        let w = self.weight(&[out_channels, sizes[1] / groups, kh, kw], Format::F32, 1.0);
        let range = range::products(x.range, w.range, k as f64)?;
        Some(self.add(Op::Conv2d(conv), &[x, w], range))
    }

    pub(super) fn pool(&mut self) -> Option<Known> {
        let x = self.image();
        let dims = self.dims(x);
        let (h, w) = (self.upper(&dims[2]), self.upper(&dims[3]));
        let kernel = (1 + self.below(h.min(3) as u32), 1 + self.below(w.min(3) as u32));
        // A window is never entirely padding.
        let pad = (self.below(kernel.0), self.below(kernel.1));
        let kind = self.one_of(&[PoolKind::Max, PoolKind::Mean]);
        let pool = Pool2d {
            kind,
            kernel,
            stride: (1 + self.below(2), 1 + self.below(2)),
            pad_before: pad,
            pad_after: pad,
            dilation: (1, 1),
            count_pad: self.chance(50),
        };
        let range = range::pool(kind, x.range, f64::from(kernel.0 * kernel.1))?;
        Some(self.add(Op::Pool2d(pool), &[x], range))
    }

    /// Adds attention with queries `[tokens, heads, e]` and as many or fewer key and value heads.
    /// Queries and keys are sometimes rotated.
    pub(super) fn attention(&mut self) -> Option<Known> {
        let kv_heads = 1 + u64::from(self.below(2));
        let heads = kv_heads * (1 + u64::from(self.below(3)));
        let e = self.one_of(&[8u64, 16, 32]);
        let tokens = if self.symbolic { Dim::symbol(super::SEQ.0) } else { Dim::new(5) };
        let dims = |heads: u64| vec![tokens.clone(), Dim::from(heads), Dim::from(e)];
        let (mut q, mut k) =
            (self.new_float(Some(dims(heads))), self.new_float(Some(dims(kv_heads))));
        let v = self.new_float(Some(dims(kv_heads)));
        if self.chance(60) {
            let positions = self.new_integers(DType::I32, std::slice::from_ref(&tokens), 0, 15);
            let pairs = self.one_of(&[RopePairs::Half, RopePairs::Interleaved]);
            let rot_dim = self.one_of(&[e as usize, e as usize / 2]);
            let frequencies = self.weight(&[rot_dim as u64 / 2], Format::F32, 1.0);
            for x in [&mut q, &mut k] {
                let range = range::rope(x.range, 16.0)?;
                *x = self.add(Op::Rope { pairs, rot_dim }, &[*x, positions, frequencies], range);
            }
        }
        let scale = 1.0 / (e as f32).sqrt();
        let range = range::attention(q.range, k.range, v.range, e as f64, f64::from(scale))?;
        let op = Op::attention(scale, self.chance(70), None, Dim::new(0));
        let y = self.add(op, &[q, k, v], range);
        let flat = Shape::new([tokens, Dim::from(heads * e)]);
        Some(self.reshape(y, flat))
    }
}
