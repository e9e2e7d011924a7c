//! Adds views, and operations that move data, to random graphs.

use super::super::build::halves;
use super::range::{self, Range};
use super::{Known, Maker, PAST, SEQ};
use warploom_core::base::{DType, Dim, Shape};
use warploom_core::ir::{BinaryOp, Op};

impl Maker {
    pub(super) fn reshape(&mut self, x: Known, shape: Shape) -> Known {
        self.add(Op::Reshape(shape), &[x], x.range)
    }

    pub(super) fn transpose(&mut self, x: Known, perm: Vec<usize>) -> Option<Known> {
        Some(self.add(Op::Transpose(perm), &[x], x.range))
    }

    /// Adds a random view.
    pub(super) fn any_view(&mut self, x: Known) -> Option<Known> {
        match self.below(6) {
            0 | 1 => self.any_slice(x),
            2 | 3 => {
                let rank = self.dims(x).len();
                let mut perm: Vec<usize> = (0..rank).collect();
                for i in (1..rank).rev() {
                    perm.swap(i, self.below(i as u32 + 1) as usize);
                }
                self.transpose(x, perm)
            }
            4 => self.any_reshape(x),
            _ => {
                let mut dims = self.dims(x);
                for dim in &mut dims {
                    if dim.is(1) && self.chance(60) {
                        *dim = Dim::from(self.small_size());
                    }
                }
                if self.chance(50) {
                    dims.insert(0, Dim::from(self.small_size()));
                }
                let fits = self.fits(&dims);
                fits.then(|| self.add(Op::Expand(Shape::new(dims)), &[x], x.range))
            }
        }
    }

    fn any_slice(&mut self, x: Known) -> Option<Known> {
        let dims = self.dims(x);
        let axis = self.below(dims.len().max(1) as u32) as usize;
        let size = dims.get(axis)?.clone();
        let (start, len, step) = match size.as_const() {
            Some(0) => return None,
            Some(n) => {
                let n = n as u64;
                let step = self.one_of(&[1, 1, 1, 2, 3]);
                let start = u64::from(self.below(n as u32));
                let most = (n - start).div_ceil(step);
                let len = 1 + u64::from(self.below(most as u32));
                (Dim::from(start), Dim::from(len), step)
            }
            // The last index, for any size.
            None if self.bounds(&size).0 > 0 => (size - Dim::new(1), Dim::new(1), 1),
            None => return None,
        };
        Some(self.add(Op::Slice { axis, start, len, step }, &[x], x.range))
    }

    /// Adds slices for the two halves of the last axis.
    pub(super) fn halves(&mut self, x: Known) -> Option<(Known, Known)> {
        let n = self.last_number(x)?;
        let axis = self.dims(x).len() - 1;
        if n < 2 {
            return None;
        }
        let len = Dim::from(n / 2);
        let slice = |start: u64| Op::Slice { axis, start: start.into(), len: len.clone(), step: 1 };
        let first = self.add(slice(0), &[x], x.range);
        Some((first, self.add(slice(n / 2), &[x], x.range)))
    }

    fn any_reshape(&mut self, x: Known) -> Option<Known> {
        let mut dims = self.dims(x);
        match self.below(4) {
            0 if dims.len() >= 2 => {
                let at = self.below(dims.len() as u32 - 1) as usize;
                let next = dims.remove(at + 1);
                dims[at] = dims[at].clone() * next;
            }
            1 if dims.len() < 5 => {
                let at = self.below(dims.len() as u32 + 1) as usize;
                dims.insert(at, Dim::new(1));
            }
            2 => dims = vec![self.b.shape(x.id).elements()],
            _ => {
                // Splits one axis into two.
                let divides =
                    |d: &Dim| (2..=8).find(|n| d.as_const().is_some_and(|d| d > 0 && d % n == 0));
                let at = dims.iter().position(|d| divides(d).is_some())?;
                let n = divides(&dims[at])?;
                let rest = dims[at].floor_div(&Dim::new(n));
                dims[at] = Dim::new(n);
                dims.insert(at + 1, rest);
                if dims.len() > 5 {
                    return None;
                }
            }
        }
        Some(self.reshape(x, Shape::new(dims)))
    }

    pub(super) fn gather(&mut self, x: Known) -> Option<Known> {
        let dims = self.dims(x);
        if dims.is_empty() || dims.len() > 4 {
            return None;
        }
        let axis = if self.chance(60) { 0 } else { self.below(dims.len() as u32) as usize };
        let n = dims[axis].as_const().filter(|n| *n > 0)?;
        let count = match self.symbolic && self.chance(50) {
            true => Dim::symbol(SEQ.0),
            false => Dim::from(self.small_size()),
        };
        let out: Vec<Dim> =
            dims[..axis].iter().chain([&count]).chain(&dims[axis + 1..]).cloned().collect();
        if !self.fits(&out) {
            return None;
        }
        let dtype = self.one_of(&[DType::I32, DType::U32]);
        let outside = i32::from(self.chance(20));
        let low = if dtype == DType::I32 { -outside } else { 0 };
        let ids = self.new_integers(dtype, &[count], low, n as i32 - 1 + outside);
        let zero = Range::exact(0.0, 0.0, 0);
        Some(self.add(Op::Gather { axis }, &[x, ids], x.range.union(zero)))
    }

    pub(super) fn index_add(&mut self, x: Known) -> Option<Known> {
        let dims = self.dims(x);
        if dims.is_empty() || dims.len() > 4 || self.dtype(x) != DType::F32 {
            return None;
        }
        let n = dims[0].as_const().filter(|n| *n > 0)?;
        let count = self.small_size();
        let mut source = dims.clone();
        source[0] = Dim::from(count);
        if !self.fits(&source) {
            return None;
        }
        let source = self.new_float(Some(source));
        let ids = self.new_integers(DType::I32, &[Dim::from(count)], -1, n as i32);
        // At worst every row of the source is added to one, or none.
        let range = (0..count).try_fold(x.range, |sum, _| {
            range::binary(BinaryOp::Add, sum, source.range, false).map(|next| next.union(sum))
        })?;
        Some(self.add(Op::IndexAdd, &[x, source, ids], range))
    }

    pub(super) fn concat(&mut self, x: Known) -> Option<Known> {
        let dims = self.dims(x);
        if dims.is_empty() {
            return None;
        }
        let axis = self.below(dims.len() as u32) as usize;
        let dtype = self.dtype(x);
        let other = self.pick(|maker, y| {
            let other = maker.dims(y);
            let same = other.iter().zip(&dims).enumerate().all(|(i, (a, b))| i == axis || a == b);
            maker.dtype(y) == dtype && other.len() == dims.len() && same
        })?;
        let mut all = vec![x, other];
        if self.chance(20) {
            all.push(x);
        }
        let mut out = dims;
        out[axis] = all.iter().map(|y| self.dims(*y)[axis].clone()).fold(Dim::new(0), |a, b| a + b);
        if !self.fits(&out) {
            return None;
        }
        let range = all.iter().fold(x.range, |range, y| range.union(y.range));
        Some(self.add(Op::Concat { axis }, &all, range))
    }

    pub(super) fn pad(&mut self, x: Known) -> Option<Known> {
        let dims = self.dims(x);
        let amounts: Vec<(u64, u64)> = dims
            .iter()
            .map(|_| (u64::from(self.random.below(3)), u64::from(self.random.below(2))))
            .collect();
        let out: Vec<Dim> =
            dims.iter().zip(&amounts).map(|(d, (a, b))| d.clone() + Dim::from(a + b)).collect();
        if !self.fits(&out) {
            return None;
        }
        let (word, value) = match self.dtype(x) {
            DType::F32 => (0.5f32.to_bits(), 0.5),
            DType::F16 => (0x3800, 0.5),
            DType::BF16 => (0x3f00, 0.5),
            _ => (1, 1.0),
        };
        let range = x.range.union(Range::exact(value, value, 1));
        Some(self.add(Op::Pad { amounts, word }, &[x], range))
    }

    /// Adds a write of `x` to rows of a state, and sometimes a read of its first rows.
    pub(super) fn update(&mut self, x: Known) -> Option<Known> {
        let dims = self.dims(x);
        let sizes: Option<Vec<u64>> = dims
            .iter()
            .skip(1)
            .map(|d| d.as_const().filter(|n| *n > 0).map(|n| n as u64))
            .collect();
        let (rows, sizes) = (dims.first()?.clone(), sizes?);
        let high = self.upper(&rows);
        let dtype = self.dtype(x);
        if !dtype.is_float() || rows.is(0) {
            return None;
        }
        let at = match self.symbolic {
            true => Dim::symbol(PAST.0),
            false => Dim::from(self.below(3)),
        };
        let count = high + self.upper(&at) + u64::from(self.below(3));
        let all: Vec<u64> = [count].into_iter().chain(sizes).collect();
        if all.iter().product::<u64>() > super::MOST_ELEMENTS {
            return None;
        }
        let name = self.name("s");
        let (state, old) = match self.chance(40) {
            true => (self.b.zero_state_of(dtype, &name, &all), Range::exact(0.0, 0.0, 0)),
            false => {
                let mut random = self.b.random(&name);
                let count = all.iter().product::<u64>() as usize;
                let values: Vec<f32> =
                    (0..count).map(|_| random.below(9) as f32 / 4.0 - 1.0).collect();
                let state = self.b.state_with(&name, &all, halves(dtype, &values));
                (state, Range::exact(-1.0, 1.0, 2))
            }
        };
        let range = old.union(x.range);
        let id = self.b.op(Op::Update { at: at.clone() }, &[state, x.id]);
        self.state_error = self.state_error.max(x.range.error);
        self.updates = true;
        let new = Known { id, range };
        if self.chance(50) {
            let len = match self.symbolic {
                true => at + rows,
                false => Dim::from(count),
            };
            let slice = Op::Slice { axis: 0, start: Dim::new(0), len, step: 1 };
            return Some(self.add(slice, &[new], range));
        }
        Some(self.keep(id, range))
    }
}
