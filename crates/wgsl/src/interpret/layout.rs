//! Layout of types in registers and in memory.

use naga::{ArraySize, Handle, Module, Scalar, ScalarKind, Type, TypeInner, VectorSize};

use super::cooperative;
use warploom_core::error::{Error, Result};

/// Maximum number of registers of one invocation: bounds what a hostile array may allocate.
pub(super) const MAX_REGISTERS: u64 = 1 << 20;

/// A scalar's representation in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cell {
    Word,
    /// An f16, in two bytes.
    Half,
    /// A bool, in one byte.
    Byte,
}

impl Cell {
    pub(super) fn bytes(self) -> u32 {
        match self {
            Cell::Word => 4,
            Cell::Half => 2,
            Cell::Byte => 1,
        }
    }

    fn of(scalar: Scalar) -> Result<Cell> {
        match (scalar.kind, scalar.width) {
            (ScalarKind::Bool, _) => Ok(Cell::Byte),
            (ScalarKind::Sint | ScalarKind::Uint | ScalarKind::Float, 4) => Ok(Cell::Word),
            (ScalarKind::Float, 2) => Ok(Cell::Half),
            (kind, width) => Err(refused(&format!("the type {kind:?} of {width} bytes"))),
        }
    }
}

/// Returns an error for an unsupported construct.
pub(super) fn refused(what: &str) -> Error {
    Error::unsupported(format!("the interpreter does not run {what}"))
}

/// A value's layout in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Layout {
    /// Every scalar with its offset in bytes, in the order of registers.
    pub(super) cells: Vec<(u32, Cell)>,
    /// Whether the cells are contiguous words.
    pub(super) plain: bool,
    pub(super) atomic: bool,
}

/// Returns the scalar of a scalar, vector, matrix or atomic.
pub(super) fn scalar(inner: &TypeInner) -> Option<Scalar> {
    match *inner {
        TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => Some(scalar),
        TypeInner::Vector { scalar, .. } | TypeInner::Matrix { scalar, .. } => Some(scalar),
        _ => None,
    }
}

/// Returns the number of registers of a value of this type; a pointer has one.
pub(super) fn registers(module: &Module, inner: &TypeInner) -> Result<u32> {
    let count = count(module, inner)?;
    match u32::try_from(count) {
        Ok(small) if count <= MAX_REGISTERS => Ok(small),
        _ => Err(refused(&format!("a value of {count} numbers, more than {MAX_REGISTERS}"))),
    }
}

fn count(module: &Module, inner: &TypeInner) -> Result<u64> {
    Ok(match *inner {
        TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => Cell::of(scalar).map(|_| 1)?,
        TypeInner::Vector { size, scalar } => Cell::of(scalar).map(|_| size as u64)?,
        TypeInner::Matrix { columns, rows, scalar } => {
            Cell::of(scalar).map(|_| columns as u64 * rows as u64)?
        }
        TypeInner::Array { base, size: ArraySize::Constant(n), .. } => {
            u64::from(n.get()).saturating_mul(count(module, &module.types[base].inner)?)
        }
        TypeInner::Array { .. } => return Err(refused("a runtime-sized array as a value")),
        TypeInner::Struct { ref members, .. } => {
            let mut sum = 0u64;
            for member in members {
                sum = sum.saturating_add(count(module, &module.types[member.ty].inner)?);
            }
            sum
        }
        TypeInner::CooperativeMatrix { .. } => {
            u64::from(cooperative::size(inner)?.pow(2)) / cooperative::LEAST_LANES
        }
        TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. } => 1,
        ref other => return Err(refused(&format!("the type {other:?}"))),
    })
}

/// Returns the stride in bytes of a matrix's columns.
pub(super) fn column_stride(rows: VectorSize, scalar: Scalar) -> u32 {
    let rows = if rows == VectorSize::Tri { 4 } else { rows as u32 };
    rows * u32::from(scalar.width)
}

/// Returns the layout of a loaded or stored value.
pub(super) fn layout(module: &Module, inner: &TypeInner) -> Result<Layout> {
    registers(module, inner)?;
    let mut cells = Vec::new();
    push_cells(module, inner, 0, &mut cells)?;
    let plain = cells.iter().enumerate().all(|(i, cell)| *cell == (4 * i as u32, Cell::Word));
    Ok(Layout { cells, plain, atomic: matches!(inner, TypeInner::Atomic(_)) })
}

fn push_cells(
    module: &Module,
    inner: &TypeInner,
    at: u32,
    cells: &mut Vec<(u32, Cell)>,
) -> Result<()> {
    match *inner {
        TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => {
            cells.push((at, Cell::of(scalar)?));
        }
        TypeInner::Vector { size, scalar } => {
            let cell = Cell::of(scalar)?;
            cells.extend((0..size as u32).map(|i| (at + i * cell.bytes(), cell)));
        }
        TypeInner::Matrix { columns, rows, scalar } => {
            let column = TypeInner::Vector { size: rows, scalar };
            for i in 0..columns as u32 {
                push_cells(module, &column, at + i * column_stride(rows, scalar), cells)?;
            }
        }
        TypeInner::Array { base, size: ArraySize::Constant(n), stride } => {
            for i in 0..n.get() {
                push_cells(module, &module.types[base].inner, at + i * stride, cells)?;
            }
        }
        TypeInner::Struct { ref members, .. } => {
            for member in members {
                push_cells(module, &module.types[member.ty].inner, at + member.offset, cells)?;
            }
        }
        ref other => return Err(refused(&format!("a load or store of {other:?}"))),
    }
    Ok(())
}

/// Returns the size in bytes of the smallest scalar in a type.
pub(super) fn grain(module: &Module, ty: Handle<Type>) -> Result<u32> {
    match module.types[ty].inner {
        TypeInner::Array { base, .. } => grain(module, base),
        TypeInner::Struct { ref members, .. } => {
            members.iter().try_fold(4, |least, member| Ok(grain(module, member.ty)?.min(least)))
        }
        ref inner => match scalar(inner) {
            Some(scalar) => Ok(Cell::of(scalar)?.bytes()),
            None => Err(refused(&format!("a variable of {inner:?}"))),
        },
    }
}

/// Returns the offset and stride, in bytes, of the runtime-sized array that is the type or its last
/// member.
pub(super) fn runtime_array(module: &Module, ty: Handle<Type>) -> Option<(u32, u32)> {
    match module.types[ty].inner {
        TypeInner::Array { size: ArraySize::Dynamic, stride, .. } => Some((0, stride)),
        TypeInner::Struct { ref members, .. } => {
            let last = members.last()?;
            let (offset, stride) = runtime_array(module, last.ty)?;
            Some((last.offset + offset, stride))
        }
        _ => None,
    }
}
