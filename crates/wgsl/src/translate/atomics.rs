//! Prints atomic operations, which have relaxed ordering as in WGSL.

use naga::{AddressSpace, AtomicFunction, Expression, Handle, Scalar, ScalarKind, TypeInner};

use super::dialect::Dialect;
use super::function::Body;
use super::types::{Pointee, pointee};
use warploom_core::error::{Result, broken_invariant};

impl Body<'_, '_> {
    /// Returns the scalar type and address space of a pointer to an atomic.
    fn atomic(&self, pointer: Handle<Expression>) -> (Scalar, AddressSpace) {
        let module = self.w.module;
        match pointee(self.inner(pointer)) {
            Some((Pointee::Type(ty), space)) => match module.types[ty].inner {
                TypeInner::Atomic(scalar) => (scalar, space),
                _ => broken_invariant("an atomic operation on a value that is not atomic"),
            },
            _ => broken_invariant("an atomic operation without a pointer"),
        }
    }

    pub(super) fn print_atomic(
        &mut self,
        pointer: Handle<Expression>,
        fun: AtomicFunction,
        value: Handle<Expression>,
        result: Option<Handle<Expression>>,
    ) -> Result<()> {
        let (scalar, _) = self.atomic(pointer);
        let ty = self.w.scalar(scalar)?;
        let address = self.place(pointer)?.address();
        let value = self.value(value)?;
        if let AtomicFunction::Exchange { compare: Some(compare) } = fun {
            let compare = self.value(compare)?;
            let (cuda, opencl) = ("atomicCAS", "atomic_cmpxchg");
            let name = self.w.dialect.pick(cuda, opencl);
            let old = self.pick("old");
            self.line(&format!("const {ty} {old} = {name}({address}, {compare}, {value});"));
            let Some(result) = result else { return Ok(()) };
            let made = self.type_name(result)?;
            let TypeInner::Struct { ref members, .. } = *self.inner(result) else {
                broken_invariant("a comparison without a result");
            };
            let parts = [old.clone(), format!("({old} == {compare})")];
            let parts = self.w.struct_parts(members, &parts)?;
            let text = self.w.dialect.aggregate(&made, &parts);
            return self.bake(result, &text);
        }
        let (name, value) = self.atomic_name(fun, scalar, value)?;
        let call = format!("{name}({address}, {value})");
        match result {
            Some(result) => self.bake(result, &call),
            None => {
                self.line(&format!("{call};"));
                Ok(())
            }
        }
    }

    fn atomic_name(
        &self,
        fun: AtomicFunction,
        scalar: Scalar,
        value: String,
    ) -> Result<(&'static str, String)> {
        use AtomicFunction as A;
        let float = scalar.kind == ScalarKind::Float;
        let names = match fun {
            A::Exchange { .. } => ("atomicExch", "atomic_xchg"),
            A::Add | A::Subtract if float && self.w.dialect == Dialect::OpenCl => {
                return self.w.refuse("an atomic sum of f32");
            }
            A::Subtract if float => return Ok(("atomicAdd", format!("(-{value})"))),
            A::Add => ("atomicAdd", "atomic_add"),
            _ if float => return self.w.refuse(format!("an atomic {fun:?} of f32")),
            A::Subtract => ("atomicSub", "atomic_sub"),
            A::And => ("atomicAnd", "atomic_and"),
            A::InclusiveOr => ("atomicOr", "atomic_or"),
            A::ExclusiveOr => ("atomicXor", "atomic_xor"),
            A::Min => ("atomicMin", "atomic_min"),
            A::Max => ("atomicMax", "atomic_max"),
        };
        Ok((self.w.dialect.pick(names.0, names.1), value))
    }

    /// Returns the statement for `atomicStore`.
    pub(super) fn atomic_store(
        &mut self,
        pointer: Handle<Expression>,
        value: &str,
    ) -> Result<String> {
        let (scalar, space) = self.atomic(pointer);
        let (ty, space) = (self.w.scalar(scalar)?, self.w.dialect.space(space));
        let address = self.place(pointer)?.address();
        Ok(format!("*(volatile {space}{ty}*){address} = {value};"))
    }
}
