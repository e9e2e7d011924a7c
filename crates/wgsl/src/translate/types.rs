//! WGSL types in C: plain structs that reproduce WGSL's layouts with explicit padding.
//!
//! Values and memory differ only for f16: a value is an `f32` that f16 can represent; memory holds
//! the 16 bits. Structs and arrays use the memory layout as values too.

use naga::{AddressSpace, ArraySize, Handle, Scalar, ScalarKind, StorageAccess, Type, TypeInner};
use naga::{StructMember, VectorSize};

use super::writer::Writer;
use warploom_core::error::Result;

/// The components of a vector.
pub(super) const COMPONENTS: [&str; 4] = ["x", "y", "z", "w"];

/// Returns the size and scalar type of a vector; for a scalar or atomic, the size is `None`.
pub(super) fn numeric(inner: &TypeInner) -> Option<(Option<VectorSize>, Scalar)> {
    match *inner {
        TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => Some((None, scalar)),
        TypeInner::Vector { size, scalar } => Some((Some(size), scalar)),
        _ => None,
    }
}

pub(super) fn is_half(scalar: Scalar) -> bool {
    scalar == Scalar::F16
}

/// Returns whether arrays and matrices have gaps between elements of this type, so that each
/// element is wrapped in a struct.
pub(super) fn has_gap(inner: &TypeInner) -> bool {
    matches!(inner, TypeInner::Vector { size: VectorSize::Tri, scalar } if scalar.width > 1)
}

/// The type that a pointer refers to.
pub(super) enum Pointee {
    Type(Handle<Type>),
    Value(TypeInner),
}

/// Returns the type and address space that a pointer expression refers to.
pub(super) fn pointee(inner: &TypeInner) -> Option<(Pointee, AddressSpace)> {
    match *inner {
        TypeInner::Pointer { base, space } => Some((Pointee::Type(base), space)),
        TypeInner::ValuePointer { size: None, scalar, space } => {
            Some((Pointee::Value(TypeInner::Scalar(scalar)), space))
        }
        TypeInner::ValuePointer { size: Some(size), scalar, space } => {
            Some((Pointee::Value(TypeInner::Vector { size, scalar }), space))
        }
        _ => None,
    }
}

impl Writer<'_> {
    /// Returns the C type of a scalar as a value.
    pub(super) fn scalar(&self, scalar: Scalar) -> Result<&'static str> {
        Ok(match (scalar.kind, scalar.width) {
            (ScalarKind::Bool, _) => "bool",
            (ScalarKind::Sint, 4) => "i32",
            (ScalarKind::Uint, 4) => "u32",
            (ScalarKind::Float, 4 | 2) => "f32",
            (kind, width) => return self.refuse(format!("type {kind:?} of {width} bytes")),
        })
    }

    fn memory_scalar(&self, scalar: Scalar) -> Result<&'static str> {
        if is_half(scalar) { Ok("f16") } else { self.scalar(scalar) }
    }

    /// Returns the C type of a value.
    pub(super) fn value_type(&mut self, inner: &TypeInner) -> Result<String> {
        match *inner {
            TypeInner::Vector { size, scalar } => {
                let scalar = self.scalar(scalar)?;
                self.vector(scalar, size)
            }
            TypeInner::Scalar(scalar) => Ok(self.scalar(scalar)?.to_string()),
            _ => self.memory_type(inner),
        }
    }

    /// Returns the C type of a place in memory.
    pub(super) fn memory_type(&mut self, inner: &TypeInner) -> Result<String> {
        match *inner {
            TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => {
                Ok(self.memory_scalar(scalar)?.to_string())
            }
            TypeInner::Vector { size, scalar } => {
                let scalar = self.memory_scalar(scalar)?;
                self.vector(scalar, size)
            }
            TypeInner::Matrix { columns, rows, scalar } => {
                if scalar != Scalar::F32 {
                    return self.refuse("a matrix of other elements than f32");
                }
                let column = self.spaced_type(&TypeInner::Vector { size: rows, scalar })?;
                let (columns, rows) = (columns as u8, rows as u8);
                let name = format!("f32m{columns}x{rows}");
                self.define(&name, |_| {
                    Ok(format!("typedef struct {{ {column} c[{columns}]; }} {name};"))
                })?;
                Ok(name)
            }
            TypeInner::Array { base, size, .. } => {
                let ArraySize::Constant(count) = size else {
                    return self.refuse("a runtime-sized array as a value");
                };
                let element = self.element_type(base)?;
                let key = format!("{element}_{count}");
                if let Some(name) = self.arrays.get(&key) {
                    return Ok(name.clone());
                }
                let name = self.names.pick(&key);
                self.arrays.insert(key, name.clone());
                self.define(&name, |_| {
                    Ok(format!("typedef struct {{ {element} e[{count}]; }} {name};"))
                })?;
                Ok(name)
            }
            TypeInner::CooperativeMatrix { .. } => self.cooperative_type(inner),
            TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. } => {
                self.refuse("a pointer as a value")
            }
            TypeInner::BindingArray { .. } => self.refuse("an array of bindings"),
            _ => self.refuse("a texture, sampler or ray query"),
        }
    }

    /// Returns the C type of a module's type as a value.
    pub(super) fn type_of(&mut self, ty: Handle<Type>) -> Result<String> {
        match self.module.types[ty].inner {
            TypeInner::Struct { .. } => self.struct_type(ty),
            ref inner => self.value_type(inner),
        }
    }

    /// Returns the C type of a module's type in memory.
    pub(super) fn place_type(&mut self, ty: Handle<Type>) -> Result<String> {
        match self.module.types[ty].inner {
            TypeInner::Struct { .. } => self.struct_type(ty),
            ref inner => self.memory_type(inner),
        }
    }

    /// Returns the C type of an array's elements.
    pub(super) fn element_type(&mut self, base: Handle<Type>) -> Result<String> {
        match self.module.types[base].inner {
            TypeInner::Struct { .. } => self.struct_type(base),
            ref inner => self.spaced_type(inner),
        }
    }

    /// Returns the C type of an element of an array or matrix: for a vec3, a struct that adds the
    /// padding after it.
    fn spaced_type(&mut self, inner: &TypeInner) -> Result<String> {
        let plain = self.memory_type(inner)?;
        let (true, TypeInner::Vector { scalar, .. }) = (has_gap(inner), inner) else {
            return Ok(plain);
        };
        let (scalar, align) = (self.memory_scalar(*scalar)?, 4 * scalar.width);
        let name = format!("{plain}s");
        self.define(&name, |_| {
            let fields = format!("{plain} v; {scalar} gap;");
            Ok(format!("typedef struct WL_ALIGN({align}) {{ {fields} }} {name};"))
        })?;
        Ok(name)
    }

    /// Returns the C type of vectors of this scalar type and size.
    pub(super) fn vector(&mut self, scalar: &str, size: VectorSize) -> Result<String> {
        let n = size as usize;
        let name = format!("{scalar}x{n}");
        let bytes = n * match scalar {
            "bool" => 1,
            "f16" => 2,
            _ => 4,
        };
        self.define(&name, |_| {
            // Aligned vectors are loaded at once; a vec3 has the size of its components.
            let align = match size {
                VectorSize::Tri => String::new(),
                _ => format!("WL_ALIGN({bytes}) "),
            };
            let fields = COMPONENTS[..n].join(", ");
            Ok(format!("typedef struct {align}{{ {scalar} {fields}; }} {name};"))
        })?;
        Ok(name)
    }

    fn struct_type(&mut self, ty: Handle<Type>) -> Result<String> {
        if let Some(name) = self.structs.get(&ty) {
            return Ok(name.clone());
        }
        let module = self.module;
        let TypeInner::Struct { ref members, span } = module.types[ty].inner else {
            return self.refuse("a struct of another kind");
        };
        let label = module.types[ty].name.as_deref().unwrap_or("Struct");
        let name = self.names.pick(label);
        self.structs.insert(ty, name.clone());
        let mut fields = String::new();
        let mut taken = super::names::Names::new();
        // In C++ a member hides a type of its name from the members behind it.
        let sized = |member: &&StructMember| {
            !module.types[member.ty].inner.is_dynamically_sized(&module.types)
        };
        for member in members.iter().filter(sized) {
            taken.reserve(&self.place_type(member.ty)?);
        }
        let mut end = 0;
        let mut pads = 0;
        let mut pad = |fields: &mut String, bytes: u32| {
            if bytes > 0 {
                fields.push_str(&format!(" char wl_pad{pads}[{bytes}];"));
                pads += 1;
            }
        };
        for (index, member) in members.iter().enumerate() {
            let inner = &module.types[member.ty].inner;
            let field = taken.pick(member.name.as_deref().unwrap_or("member"));
            self.members.insert((ty, index), field.clone());
            pad(&mut fields, member.offset - end);
            if inner.is_dynamically_sized(&module.types) {
                // Accessed by its offset.
                break;
            }
            fields.push_str(&format!(" {} {field};", self.place_type(member.ty)?));
            end = member.offset + self.size(member.ty)?;
        }
        let dynamic = module.types[ty].inner.is_dynamically_sized(&module.types);
        let mut check = String::new();
        if dynamic && end == 0 {
            // C has no empty structs; this member is never read.
            fields.push_str(" char wl_none;");
        }
        if !dynamic {
            pad(&mut fields, span - end);
            // Compilation fails here if the compiler chooses another layout.
            check = format!("\ntypedef char wl_size_of_{name}[sizeof({name}) == {span} ? 1 : -1];");
        }
        self.define(&name, |_| Ok(format!("typedef struct {{{fields} }} {name};{check}")))?;
        Ok(name)
    }

    /// Returns the size in bytes of a fixed-size type.
    pub(super) fn size(&self, ty: Handle<Type>) -> Result<u32> {
        match self.module.types[ty].inner.try_size(self.module.to_ctx()) {
            Some(bytes) => Ok(bytes),
            None => self.refuse("the size of a runtime-sized type"),
        }
    }

    /// Returns the parts of an aggregate of a struct: the values of its members, given in memory
    /// form, and those of its padding.
    pub(super) fn struct_parts(
        &self,
        members: &[StructMember],
        values: &[String],
    ) -> Result<String> {
        let mut parts = Vec::new();
        let mut end = 0;
        for (member, value) in members.iter().zip(values) {
            if member.offset > end {
                parts.push("{0}".to_string());
            }
            parts.push(value.clone());
            end = member.offset + self.size(member.ty)?;
        }
        Ok(parts.join(", "))
    }

    /// Returns the declaration of a pointer parameter: `const __global f32x4* name`.
    pub(super) fn pointer(
        &mut self,
        base: Handle<Type>,
        space: AddressSpace,
        name: &str,
    ) -> Result<String> {
        let constant = match space {
            AddressSpace::Storage { access } if !access.contains(StorageAccess::STORE) => "const ",
            AddressSpace::Uniform | AddressSpace::Immediate => "const ",
            _ => "",
        };
        let element = match self.module.types[base].inner {
            TypeInner::Array { base, size: ArraySize::Dynamic, .. } => self.element_type(base)?,
            _ => self.place_type(base)?,
        };
        Ok(format!("{constant}{}{element}* {name}", self.dialect.space(space)))
    }
}
