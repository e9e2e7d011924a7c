//! Resolves pointer expressions, which are chains of indices into a variable, to addresses.

use std::borrow::Cow;

use naga::{ArraySize, Expression, Handle, ScalarKind, TypeInner};

use super::body::Body;
use super::bytecode::{Op, Root, Slot};
use super::compile::not_valid;
use super::layout::{column_stride, refused, scalar};
use super::number::Binary;
use warploom_core::error::Result;

/// What a pointer expression refers to: the memory, the offset in it, and the type of the value.
pub(super) struct Spot<'m> {
    pub(super) root: Root,
    /// Constant part of the offset: in registers if `root` is [`Root::Own`], else in bytes.
    fixed: u32,
    /// Register with the variable part of the offset, if there is one.
    base: Option<Slot>,
    pub(super) inner: Cow<'m, TypeInner>,
}

/// A constant or computed index.
enum Index {
    Known(u32),
    Value(Handle<Expression>),
}

/// Returns the type that a pointer refers to.
fn pointee(module: &naga::Module, inner: &TypeInner) -> Option<TypeInner> {
    match *inner {
        TypeInner::Pointer { base, .. } => Some(module.types[base].inner.clone()),
        TypeInner::ValuePointer { size: None, scalar, .. } => Some(TypeInner::Scalar(scalar)),
        TypeInner::ValuePointer { size: Some(size), scalar, .. } => {
            Some(TypeInner::Vector { size, scalar })
        }
        _ => None,
    }
}

pub(super) fn is_pointer(inner: &TypeInner) -> bool {
    matches!(inner, TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. })
}

impl<'m> Body<'_, 'm> {
    /// Resolves a pointer expression to a place.
    pub(super) fn place(&mut self, h: Handle<Expression>) -> Result<Spot<'m>> {
        let module = self.c.module;
        match self.function.expressions[h] {
            Expression::GlobalVariable(global) => {
                let found = self.c.globals.get(&global).copied();
                let (root, fixed) = found.ok_or_else(|| not_valid("an unused variable"))?.root();
                let inner = &module.types[module.global_variables[global].ty].inner;
                Ok(Spot { root, fixed, base: None, inner: Cow::Borrowed(inner) })
            }
            Expression::LocalVariable(local) => {
                let fixed = self.local_slot(local)?;
                let inner = &module.types[self.function.local_variables[local].ty].inner;
                Ok(Spot { root: Root::Own, fixed, base: None, inner: Cow::Borrowed(inner) })
            }
            Expression::FunctionArgument(index) => {
                let Some(inner) = pointee(module, self.inner(h)) else {
                    return Err(not_valid("a place that is not a pointer"));
                };
                let base = Some(self.arguments[index as usize]);
                Ok(Spot { root: Root::Own, fixed: 0, base, inner: Cow::Owned(inner) })
            }
            Expression::Access { base, index } => self.element(base, Index::Value(index)),
            Expression::AccessIndex { base, index } => self.element(base, Index::Known(index)),
            ref other => Err(refused(&format!("the pointer {other:?}"))),
        }
    }

    fn element(&mut self, base: Handle<Expression>, index: Index) -> Result<Spot<'m>> {
        let module = self.c.module;
        let spot = self.place(base)?;
        let own = spot.root == Root::Own;
        let unit = |registers: u32, bytes: u32| if own { registers } else { bytes };
        // Number of elements (0 if only the buffer determines it), stride, and element type.
        let (count, stride, inner) = match *spot.inner {
            TypeInner::Vector { size, scalar } => {
                let stride = unit(1, u32::from(scalar.width));
                (size as u32, stride, Cow::Owned(TypeInner::Scalar(scalar)))
            }
            TypeInner::Matrix { columns, rows, scalar } => {
                let stride = unit(rows as u32, column_stride(rows, scalar));
                (columns as u32, stride, Cow::Owned(TypeInner::Vector { size: rows, scalar }))
            }
            TypeInner::Array { base, size, stride } => {
                let count = match size {
                    ArraySize::Constant(count) => count.get(),
                    ArraySize::Dynamic => 0,
                    ArraySize::Pending(_) => return Err(not_valid("an unknown size")),
                };
                let stride = if own { self.c.size_of(base)? } else { stride };
                (count, stride, Cow::Borrowed(&module.types[base].inner))
            }
            TypeInner::Struct { ref members, .. } => {
                let Index::Known(index) = index else {
                    return Err(not_valid("a struct indexed by a value"));
                };
                let mut offset = members[index as usize].offset;
                if own {
                    offset = 0;
                    for member in &members[..index as usize] {
                        offset += self.c.size_of(member.ty)?;
                    }
                }
                let inner = Cow::Borrowed(&module.types[members[index as usize].ty].inner);
                return Ok(Spot { fixed: spot.fixed + offset, inner, ..spot });
            }
            ref other => return Err(refused(&format!("an index into {other:?}"))),
        };
        match index {
            // Constant indices into fixed-size arrays were validated with the module.
            Index::Known(index) if count > 0 => {
                Ok(Spot { fixed: spot.fixed + index * stride, inner, ..spot })
            }
            Index::Known(index) => {
                let index = self.c.fixed(vec![index])?;
                self.indexed(spot, index, (count, stride), false, inner)
            }
            Index::Value(h) => {
                let signed = scalar(self.inner(h)).is_some_and(|s| s.kind == ScalarKind::Sint);
                let index = self.value(h)?;
                self.indexed(spot, index, (count, stride), signed, inner)
            }
        }
    }

    fn indexed(
        &mut self,
        spot: Spot<'m>,
        index: Slot,
        (count, stride): (u32, u32),
        signed: bool,
        inner: Cow<'m, TypeInner>,
    ) -> Result<Spot<'m>> {
        let (root, to) = (spot.root, self.c.registers(1)?);
        let (base, fixed) = match spot.base {
            Some(base) => (base, spot.fixed),
            None => (self.c.fixed(vec![spot.fixed])?, 0),
        };
        self.c.push(Op::Index { to, base, index, stride, count, root, signed });
        Ok(Spot { root, fixed, base: Some(to), inner })
    }

    /// Returns a register that holds the place's complete offset.
    pub(super) fn address(&mut self, spot: &Spot) -> Result<Slot> {
        let fixed = self.c.fixed(vec![spot.fixed])?;
        match spot.base {
            None => Ok(fixed),
            Some(base) if spot.fixed == 0 => Ok(base),
            Some(base) => {
                let to = self.c.registers(1)?;
                self.c.push(Op::Binary { op: Binary::Add, to, a: base, b: fixed, n: 1, steps: 0 });
                Ok(to)
            }
        }
    }

    /// Returns the register that passes a pointer as a function argument.
    pub(super) fn pointer(&mut self, h: Handle<Expression>) -> Result<Slot> {
        let spot = self.place(h)?;
        match spot.root {
            Root::Own => self.address(&spot),
            Root::Region(_) => Err(refused("a pointer into shared memory as an argument")),
        }
    }

    pub(super) fn load(&mut self, pointer: Handle<Expression>) -> Result<Slot> {
        let spot = self.place(pointer)?;
        let n = self.size(&spot.inner)?;
        let to = self.c.registers(n)?;
        let op = match (spot.root, spot.base) {
            (Root::Own, None) => Op::Copy { to, from: spot.fixed, n },
            (Root::Own, _) => Op::LoadOwn { to, at: self.address(&spot)?, n },
            (Root::Region(region), _) => {
                let layout = self.c.layout(&spot.inner)?;
                Op::Load { to, region, at: self.address(&spot)?, layout }
            }
        };
        self.c.push(op);
        Ok(to)
    }

    pub(super) fn store(&mut self, pointer: Handle<Expression>, from: Slot) -> Result<()> {
        let spot = self.place(pointer)?;
        let n = self.size(&spot.inner)?;
        let op = match (spot.root, spot.base) {
            (Root::Own, None) => Op::Copy { to: spot.fixed, from, n },
            (Root::Own, _) => Op::StoreOwn { at: self.address(&spot)?, from, n },
            (Root::Region(region), _) => {
                let layout = self.c.layout(&spot.inner)?;
                Op::Store { region, at: self.address(&spot)?, from, layout }
            }
        };
        self.c.push(op);
        Ok(())
    }
}
