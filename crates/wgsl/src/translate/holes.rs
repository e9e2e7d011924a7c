//! Prints stores of values that contain padding: between members of structs and after vec3. A store
//! in WGSL leaves padding in shared memory unchanged; a C assignment does not.

use naga::{ArraySize, Handle, Module, Type, TypeInner, VectorSize};

use super::function::Body;
use super::types::has_gap;
use warploom_core::error::Result;

/// Returns whether values of a type have padding bytes.
pub(super) fn has_holes(module: &Module, ty: Handle<Type>) -> bool {
    match module.types[ty].inner {
        TypeInner::Matrix { rows, .. } => rows == VectorSize::Tri,
        TypeInner::Array { base, .. } => {
            has_gap(&module.types[base].inner) || has_holes(module, base)
        }
        TypeInner::Struct { ref members, span } => {
            let mut end = 0;
            for member in members {
                let bytes = module.types[member.ty].inner.size(module.to_ctx());
                if member.offset > end || has_holes(module, member.ty) {
                    return true;
                }
                end = member.offset + bytes;
            }
            end < span
        }
        _ => false,
    }
}

impl Body<'_, '_> {
    /// Prints a store to a storage buffer that leaves padding unchanged.
    pub(super) fn store_around(&mut self, to: &str, value: String, ty: Handle<Type>) -> Result<()> {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if value.chars().all(word) {
            return self.store_parts(to, &value, ty);
        }
        let (from, c) = (self.pick("stored"), self.w.place_type(ty)?);
        self.line(&format!("const {c} {from} = {value};"));
        self.store_parts(to, &from, ty)
    }

    /// Prints assignments of the scalars of `from` to `to`, without the padding.
    fn store_parts(&mut self, to: &str, from: &str, ty: Handle<Type>) -> Result<()> {
        let module = self.w.module;
        if !has_holes(module, ty) {
            self.line(&format!("{to} = {from};"));
            return Ok(());
        }
        match module.types[ty].inner {
            TypeInner::Matrix { columns, .. } => {
                for i in 0..columns as u32 {
                    self.line(&format!("{to}.c[{i}].v = {from}.c[{i}].v;"));
                }
            }
            TypeInner::Array { base, size: ArraySize::Constant(n), .. } => {
                let i = self.pick("at");
                self.open(&format!("for (u32 {i} = 0u; {i} < {n}u; {i} += 1u) {{"));
                match has_gap(&module.types[base].inner) {
                    true => self.line(&format!("{to}.e[{i}].v = {from}.e[{i}].v;")),
                    false => {
                        self.store_parts(&format!("{to}.e[{i}]"), &format!("{from}.e[{i}]"), base)?;
                    }
                }
                self.close("}");
            }
            TypeInner::Struct { ref members, .. } => {
                self.w.place_type(ty)?;
                for (index, member) in members.iter().enumerate() {
                    let field = self.w.members[&(ty, index)].clone();
                    self.store_parts(
                        &format!("{to}.{field}"),
                        &format!("{from}.{field}"),
                        member.ty,
                    )?;
                }
            }
            _ => return self.w.refuse("a store of this type"),
        }
        Ok(())
    }
}
