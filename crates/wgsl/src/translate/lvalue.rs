//! Prints pointers as C lvalues, and indices with their bounds checks.

use naga::{AddressSpace, ArraySize, Expression, GlobalVariable, Handle, Literal, Type, TypeInner};
use naga::{StorageAccess, VectorSize};

use super::Bounds;
use super::function::Body;
use super::types::{COMPONENTS, Pointee, has_gap, is_half, numeric, pointee};
use warploom_core::error::{Result, broken_invariant};

/// A place in memory, as a pointer to it or as an lvalue. The place of a runtime-sized array is a
/// pointer to its first element.
pub(super) enum Place {
    Pointer(String),
    Object(String),
}

impl Place {
    pub(super) fn text(&self) -> String {
        match self {
            Place::Pointer(pointer) => format!("(*{pointer})"),
            Place::Object(object) => object.clone(),
        }
    }

    pub(super) fn address(&self) -> String {
        match self {
            Place::Pointer(pointer) => pointer.clone(),
            Place::Object(object) => format!("(&{object})"),
        }
    }

    fn field(&self, name: &str) -> String {
        match self {
            Place::Pointer(pointer) => format!("{pointer}->{name}"),
            Place::Object(object) => format!("{object}.{name}"),
        }
    }
}

/// A constant or computed index.
#[derive(Clone, Copy)]
pub(super) enum Index {
    Known(u32),
    Value(Handle<Expression>),
}

impl Body<'_, '_> {
    /// Returns the place that a pointer expression refers to.
    pub(super) fn place(&mut self, h: Handle<Expression>) -> Result<Place> {
        match self.function.expressions[h] {
            Expression::GlobalVariable(global) => {
                let name = self.w.globals[&global].clone();
                Ok(match self.w.module.global_variables[global].space {
                    AddressSpace::WorkGroup | AddressSpace::Private | AddressSpace::Immediate
                        if self.entry =>
                    {
                        Place::Object(name)
                    }
                    _ => Place::Pointer(name),
                })
            }
            Expression::LocalVariable(local) => Ok(Place::Object(self.locals[&local].clone())),
            Expression::FunctionArgument(index) => {
                Ok(Place::Pointer(self.arguments[index as usize].clone()))
            }
            Expression::AccessIndex { base, index } => self.step(base, Index::Known(index)),
            Expression::Access { base, index } => self.step(base, Index::Value(index)),
            ref other => self.w.refuse(format!("a pointer made by {other:?}")),
        }
    }

    /// Returns the place of a component of what the pointer `base` refers to.
    fn step(&mut self, base: Handle<Expression>, index: Index) -> Result<Place> {
        let module = self.w.module;
        let Some((to, space)) = pointee(self.inner(base)) else {
            broken_invariant("an index into a value that is not a pointer");
        };
        let inner = match to {
            Pointee::Type(ty) => match module.types[ty].inner {
                TypeInner::Struct { .. } => return self.member(base, ty, space, index),
                ref inner => inner,
            },
            Pointee::Value(ref inner) => inner,
        };
        let place = self.place(base)?;
        Ok(Place::Object(match *inner {
            TypeInner::Array { base: element, size, .. } => {
                let gap = if has_gap(&module.types[element].inner) { ".v" } else { "" };
                match size {
                    ArraySize::Constant(count) => {
                        let index = self.index(index, count.get())?;
                        format!("{}[{index}]{gap}", place.field("e"))
                    }
                    _ => {
                        let index = self.dynamic_index(base, index)?;
                        format!("{}[{index}]{gap}", place.address())
                    }
                }
            }
            TypeInner::Matrix { columns, rows, .. } => {
                let index = self.index(index, columns as u32)?;
                let gap = if rows == VectorSize::Tri { ".v" } else { "" };
                format!("{}[{index}]{gap}", place.field("c"))
            }
            TypeInner::Vector { size, scalar } => match index {
                Index::Known(index) => place.field(COMPONENTS[index as usize]),
                _ => {
                    let index = self.index(index, size as u32)?;
                    let scalar = self.w.memory_type(&TypeInner::Scalar(scalar))?;
                    let space = self.w.dialect.space(space);
                    format!("(({space}{scalar}*){})[{index}]", place.address())
                }
            },
            _ => return self.w.refuse("an index into a pointer of this type"),
        }))
    }

    fn member(
        &mut self,
        base: Handle<Expression>,
        ty: Handle<Type>,
        space: AddressSpace,
        index: Index,
    ) -> Result<Place> {
        let module = self.w.module;
        let (TypeInner::Struct { members, .. }, Index::Known(index)) =
            (&module.types[ty].inner, index)
        else {
            broken_invariant("a struct indexed by a value");
        };
        let member = &members[index as usize];
        self.w.place_type(ty)?;
        let place = self.place(base)?;
        if module.types[member.ty].inner.is_dynamically_sized(&module.types) {
            let pointer = self.w.pointer(member.ty, space, "")?;
            let read = matches!(space, AddressSpace::Storage { access }
                if !access.contains(StorageAccess::STORE));
            let bytes =
                format!("{}{}char*", if read { "const " } else { "" }, self.w.dialect.space(space));
            let (address, offset) = (place.address(), member.offset);
            let pointer = pointer.trim_end();
            return Ok(Place::Pointer(format!("(({pointer})(({bytes}){address} + {offset}))")));
        }
        let field = &self.w.members[&(ty, index as usize)];
        Ok(Place::Object(place.field(field)))
    }

    /// Prints an index, clamped below `count` if bounds are restricted.
    pub(super) fn index(&mut self, index: Index, count: u32) -> Result<String> {
        match index {
            Index::Known(index) => Ok(index.to_string()),
            Index::Value(h) => {
                let text = self.value(h)?;
                if self.w.options.bounds == Bounds::Unchecked
                    || self.known(h).is_some_and(|i| i < count)
                {
                    return Ok(text);
                }
                self.restricted(&text, &format!("{}u", count - 1))
            }
        }
    }

    /// Prints an index into the runtime-sized array behind a pointer, clamped below its length if
    /// bounds are restricted.
    fn dynamic_index(&mut self, array: Handle<Expression>, index: Index) -> Result<String> {
        let text = match index {
            Index::Known(index) => format!("{index}u"),
            Index::Value(h) => self.value(h)?,
        };
        if self.w.options.bounds == Bounds::Unchecked {
            return Ok(text);
        }
        let length = self.length(array)?;
        self.restricted(&text, &format!("{length} - 1u"))
    }

    fn restricted(&mut self, index: &str, last: &str) -> Result<String> {
        self.w.helper("wl_min_u32")?;
        Ok(format!("wl_min_u32((u32)({index}), {last})"))
    }

    /// Prints the length of the runtime-sized array behind a pointer.
    pub(super) fn length(&mut self, array: Handle<Expression>) -> Result<String> {
        match self.function.originating_global(array) {
            Some(global) => Ok(format!("wl_lengths.{}", self.w.globals[&global])),
            None => self.w.refuse("the length of a runtime-sized array behind a pointer parameter"),
        }
    }

    /// Returns the value of an index, if it is constant.
    fn known(&self, h: Handle<Expression>) -> Option<u32> {
        match self.function.expressions[h] {
            Expression::Literal(Literal::U32(value)) => Some(value),
            Expression::Literal(Literal::I32(value)) => u32::try_from(value).ok(),
            _ => None,
        }
    }

    /// Prints the conversion of a place's content to a value.
    pub(super) fn loaded(&mut self, text: String, inner: &TypeInner) -> Result<String> {
        match numeric(inner) {
            Some((size, scalar)) if is_half(scalar) => self.w.half_to_value(text, size),
            _ => Ok(text),
        }
    }

    /// Prints the conversion of a value to a place's content.
    pub(super) fn stored(&mut self, text: String, inner: &TypeInner) -> Result<String> {
        match numeric(inner) {
            Some((size, scalar)) if is_half(scalar) => self.w.value_to_half(text, size),
            _ => Ok(text),
        }
    }
}

/// Returns the offset and stride, in bytes, of a global's runtime-sized array, if it has one.
pub(super) fn runtime_array(
    module: &naga::Module,
    global: Handle<GlobalVariable>,
) -> Option<(u32, u32)> {
    let of = |ty: Handle<Type>| match module.types[ty].inner {
        TypeInner::Array { size: ArraySize::Dynamic, stride, .. } => Some(stride),
        _ => None,
    };
    let ty = module.global_variables[global].ty;
    match module.types[ty].inner {
        TypeInner::Struct { ref members, .. } => {
            let last = members.last()?;
            Some((last.offset, of(last.ty)?))
        }
        _ => Some((0, of(ty)?)),
    }
}
