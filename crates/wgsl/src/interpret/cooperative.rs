//! Cooperative matrices. In a subgroup of `w` lanes, element `e` in row-major order is in register
//! `e / w` of lane `e % w`.

use naga::{CooperativeData, Expression, Handle, Scalar, ScalarKind, TypeInner};

use super::body::Body;
use super::bytecode::{Group, Grouped, Op, Root, Slot};
use super::compile::not_valid;
use super::fault::{FaultKind, Trap};
use super::layout::{Cell, Layout, refused, scalar};
use super::machine::Machine;
use super::memory;
use super::number::f;
use super::shadow::How;
use warploom_core::error::Result;

/// Minimum subgroup size, which bounds each lane's share of a matrix.
pub(super) const LEAST_LANES: u64 = 4;

/// A load or store of a matrix.
#[derive(Clone, Debug)]
pub(super) struct Coop {
    /// First register of the lane's share.
    own: Slot,
    region: u32,
    /// Register with the byte offset of the first element.
    at: Slot,
    /// Register with the stride between rows or columns, in units of `each` elements.
    stride: Slot,
    each: u32,
    /// Number of rows, and of columns.
    size: u32,
    by_rows: bool,
    /// Layout of one element.
    layout: Layout,
    store: bool,
}

/// Returns the number of rows (and columns) of a matrix, if the interpreter supports its type.
pub(super) fn size(inner: &TypeInner) -> Result<u32> {
    match *inner {
        TypeInner::CooperativeMatrix { columns, rows, scalar, .. }
            if columns == rows && scalar.kind == ScalarKind::Float && scalar.width <= 4 =>
        {
            Ok(rows as u32)
        }
        ref other => Err(refused(&format!("the type {other:?}"))),
    }
}

impl Body<'_, '_> {
    pub(super) fn cooperative_load(
        &mut self,
        h: Handle<Expression>,
        data: &CooperativeData,
    ) -> Result<Slot> {
        let n = self.size(self.inner(h))?;
        let to = self.c.registers(n)?;
        self.transfer(h, data, to, false)?;
        Ok(to)
    }

    pub(super) fn cooperative_store(
        &mut self,
        target: Handle<Expression>,
        data: &CooperativeData,
    ) -> Result<()> {
        let from = self.value(target)?;
        self.transfer(target, data, from, true)
    }

    fn transfer(
        &mut self,
        matrix: Handle<Expression>,
        data: &CooperativeData,
        own: Slot,
        store: bool,
    ) -> Result<()> {
        let inner = self.inner(matrix);
        let spot = self.place(data.pointer)?;
        let Root::Region(region) = spot.root else {
            return Err(refused("a cooperative matrix in private memory"));
        };
        let of = match *inner {
            TypeInner::CooperativeMatrix { scalar, .. } => scalar,
            _ => return Err(not_valid("a cooperative operation of another type")),
        };
        if scalar(&spot.inner) != Some(of) {
            return Err(refused("a cooperative matrix of other elements than the memory's"));
        }
        let each = match *spot.inner {
            TypeInner::Vector { size: naga::VectorSize::Tri, .. } => {
                return Err(refused("a cooperative matrix in vectors of three"));
            }
            TypeInner::Vector { size, .. } => size as u32,
            _ => 1,
        };
        let cell = if of == Scalar::F16 { Cell::Half } else { Cell::Word };
        let layout = Layout { cells: vec![(0, cell)], plain: cell == Cell::Word, atomic: false };
        let (at, stride) = (self.address(&spot)?, self.value(data.stride)?);
        let (size, by_rows) = (size(inner)?, data.row_major);
        let coop = Coop { own, region, at, stride, each, size, by_rows, layout, store };
        self.c.code.coops.push(coop);
        let table = self.c.code.coops.len() as u32 - 1;
        self.c.push(Op::Coop { table });
        Ok(())
    }

    pub(super) fn cooperative_multiply(&mut self, abc: [Handle<Expression>; 3]) -> Result<Slot> {
        let [a, b, c] = abc;
        let side = size(self.inner(c))?;
        for h in [a, b] {
            if size(self.inner(h))? != side {
                return Err(refused("a product of cooperative matrices of different sizes"));
            }
        }
        let (from, b, c) = (self.value(a)?, self.value(b)?, self.value(c)?);
        let n = self.size(self.inner(abc[2]))?;
        let to = self.c.registers(n)?;
        let what = Grouped::Multiply { b, c, side };
        self.group(Group { what, to, from, n, half: false });
        // Devices round a sum of f16 after each such product, or more often.
        if let TypeInner::CooperativeMatrix { scalar, .. } = *self.inner(abc[2]) {
            self.rounded(scalar, to, n);
        }
        Ok(to)
    }
}

impl Machine<'_> {
    /// Loads or stores the invocation's share of a matrix, one element at a time.
    pub(super) fn transfer(&mut self, r: &mut [u32], table: u32, op: u32) -> Result<(), Box<Trap>> {
        let code = self.code;
        let coop = &code.coops[table as usize];
        let (lane, words) = (self.now.local % self.width, self.regions[coop.region as usize]);
        let (start, stride) = (r[coop.at as usize], r[coop.stride as usize]);
        let element = coop.layout.cells[0].1.bytes();
        let elements = (lane..coop.size * coop.size).step_by(self.width as usize);
        for (i, e) in elements.enumerate() {
            let (row, column) = (e / coop.size, e % coop.size);
            let (outer, inner) = if coop.by_rows { (row, column) } else { (column, row) };
            let further = u64::from(outer) * u64::from(stride) * u64::from(coop.each);
            let byte = u64::from(start) + (further + u64::from(inner)) * u64::from(element);
            let end = words.len() as u64 * 4;
            if byte + u64::from(element) > end {
                if self.bounds {
                    let detail =
                        format!("row {row}, column {column} of a matrix at byte {byte} of {end}");
                    let kind = FaultKind::OutOfBounds;
                    return Err(self.trap(kind, op as usize, Some(coop.region), detail));
                }
                continue;
            }
            let (byte, register) = (byte as u32, coop.own as usize + i);
            let how = if coop.store { How::Write } else { How::Read };
            self.note(coop.region as usize, byte, &coop.layout, how, op)?;
            match coop.store {
                true => memory::store(words, byte, &coop.layout, &r[register..=register]),
                false => memory::load(words, byte, &coop.layout, &mut r[register..=register]),
            }
        }
        Ok(())
    }
}

/// Computes `to = from * b + c` for a subgroup of `width` lanes with `size` registers each; sums
/// are f32, in the order of the inner dimension.
pub(super) fn multiply(
    group: &Group,
    side: u32,
    [b, c]: [Slot; 2],
    r: &mut [u32],
    (size, width): (usize, usize),
) {
    let side = side as usize;
    let at = |slot: Slot, row: usize, column: usize| {
        let e = row * side + column;
        e % width * size + slot as usize + e / width
    };
    let value =
        |r: &[u32], slot, row, column| f(r.get(at(slot, row, column)).copied().unwrap_or(0));
    let mut made = Vec::with_capacity(side * side);
    for row in 0..side {
        for column in 0..side {
            let products = (0..side).map(|k| value(r, group.from, row, k) * value(r, b, k, column));
            made.push(products.fold(value(r, c, row, column), |sum, product| sum + product));
        }
    }
    for (e, sum) in made.into_iter().enumerate() {
        if let Some(register) = r.get_mut(at(group.to, e / side, e % side)) {
            *register = sum.to_bits();
        }
    }
}
