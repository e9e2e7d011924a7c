//! WGSL names of types, address spaces and functions, for messages.

use naga::{
    AddressSpace, ArraySize, Handle, MathFunction, Module, Scalar, ScalarKind, StorageAccess, Type,
    TypeInner,
};

/// Returns the name of the scalar type of this kind and width in bytes.
pub(super) fn kind_name(kind: ScalarKind, width: u8) -> String {
    match (kind, width) {
        (ScalarKind::Bool, _) => "bool".into(),
        (ScalarKind::AbstractInt, _) => "AbstractInt".into(),
        (ScalarKind::AbstractFloat, _) => "AbstractFloat".into(),
        (ScalarKind::Sint, width) => format!("i{}", 8 * u32::from(width)),
        (ScalarKind::Uint, width) => format!("u{}", 8 * u32::from(width)),
        (ScalarKind::Float, width) => format!("f{}", 8 * u32::from(width)),
    }
}

fn scalar(scalar: Scalar) -> String {
    kind_name(scalar.kind, scalar.width)
}

/// Formats a type in WGSL syntax.
pub(super) fn type_name(module: &Module, inner: &TypeInner) -> String {
    let named = |ty: Handle<Type>| match (&module.types[ty].name, &module.types[ty].inner) {
        (Some(name), TypeInner::Struct { .. }) => format!("struct `{name}`"),
        (_, inner) => type_name(module, inner),
    };
    match *inner {
        TypeInner::Scalar(of) => scalar(of),
        TypeInner::Vector { size, scalar: of } => format!("vec{}<{}>", size as u8, scalar(of)),
        TypeInner::Matrix { columns, rows, scalar: of } => {
            format!("mat{}x{}<{}>", columns as u8, rows as u8, scalar(of))
        }
        TypeInner::Atomic(of) => format!("atomic<{}>", scalar(of)),
        TypeInner::Pointer { base, space } => {
            format!("ptr<{}, {}>", space_name(space), named(base))
        }
        TypeInner::ValuePointer { scalar: of, space, .. } => {
            format!("ptr<{}, {}>", space_name(space), scalar(of))
        }
        TypeInner::Array { base, size: ArraySize::Constant(n), .. } => {
            format!("array<{}, {n}>", named(base))
        }
        TypeInner::Array { base, .. } => format!("array<{}>", named(base)),
        TypeInner::Struct { .. } => {
            let own = module.types.iter().find(|(_, ty)| ty.inner == *inner);
            let name = own.and_then(|(_, ty)| ty.name.clone());
            name.map_or("a struct".into(), |name| format!("struct `{name}`"))
        }
        TypeInner::Image { .. } => "a texture".into(),
        TypeInner::Sampler { .. } => "a sampler".into(),
        TypeInner::AccelerationStructure { .. } => "an acceleration structure".into(),
        TypeInner::RayQuery { .. } => "a ray query".into(),
        TypeInner::BindingArray { .. } => "an array of bindings".into(),
        TypeInner::CooperativeMatrix { .. } => "a cooperative matrix".into(),
    }
}

/// Returns an address space in WGSL syntax.
pub(super) fn space_name(space: AddressSpace) -> &'static str {
    match space {
        AddressSpace::Function => "function",
        AddressSpace::Private => "private",
        AddressSpace::WorkGroup => "workgroup",
        AddressSpace::Uniform => "uniform",
        AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => {
            "storage, read_write"
        }
        AddressSpace::Storage { .. } => "storage, read",
        AddressSpace::Handle => "handle",
        AddressSpace::Immediate => "immediate",
        _ => "of another stage",
    }
}

/// Returns the WGSL name of a built-in function.
pub(super) fn math_name(fun: MathFunction) -> String {
    let name = format!("{fun:?}");
    match fun {
        MathFunction::Dot4I8Packed => "dot4I8Packed".into(),
        MathFunction::Dot4U8Packed => "dot4U8Packed".into(),
        MathFunction::SmoothStep => "smoothstep".into(),
        MathFunction::Outer => "outerProduct".into(),
        _ => name[..1].to_lowercase() + &name[1..],
    }
}
