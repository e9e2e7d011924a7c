//! Prints expressions. The printed text has no side effects and does not depend on when it is
//! evaluated: loads are already variables.

use naga::{BinaryOperator, Expression, Handle, SwizzleComponent, Type, TypeInner, VectorSize};

use super::function::{Body, is_own};
use super::literal::spaced;
use super::lvalue::Index;
use super::operator::Arg;
use super::types::{COMPONENTS, Pointee, has_gap, numeric, pointee};
use super::writer::Writer;
use warploom_core::error::{Result, broken_invariant};

impl<'a> Body<'_, 'a> {
    /// Returns the text of an expression's value: the name of its variable, if it has one; for an
    /// expression of pointer type, a C pointer.
    pub(super) fn value(&mut self, h: Handle<Expression>) -> Result<String> {
        match self.values.get(&h) {
            Some(name) => Ok(name.clone()),
            None => self.fresh(h),
        }
    }

    /// Prints an expression that has no variable.
    pub(super) fn fresh(&mut self, h: Handle<Expression>) -> Result<String> {
        if pointee(self.inner(h)).is_some() {
            return Ok(self.place(h)?.address());
        }
        let function = self.function;
        match function.expressions[h] {
            Expression::Literal(ref literal) => self.w.literal(literal),
            Expression::Constant(constant) => self.w.constant(constant),
            Expression::ZeroValue(ty) => self.w.zero(ty),
            Expression::Compose { ty, ref components } => {
                let mut parts = Vec::new();
                for component in components {
                    parts.push((self.value(*component)?, self.inner(*component)));
                }
                self.w.compose(ty, parts)
            }
            Expression::Access { base, index } => self.element(base, Index::Value(index)),
            Expression::AccessIndex { base, index } => self.element(base, Index::Known(index)),
            Expression::Splat { size, value } => {
                let arg = self.arg(value)?;
                self.w.lift("splat", Some(size), arg.ty, &[arg], &mut |_, a| Ok(a[0].clone()))
            }
            Expression::Swizzle { size, vector, pattern } => self.swizzle(size, vector, pattern),
            Expression::FunctionArgument(index) => Ok(self.arguments[index as usize].clone()),
            Expression::Load { pointer } if self.is_moved(h) => Ok(self.place(pointer)?.text()),
            Expression::Load { pointer } => self.load(pointer),
            Expression::Unary { op, expr } => {
                let arg = self.operand(expr)?;
                self.w.unary(op, arg)
            }
            Expression::Binary { op: BinaryOperator::Add, left, right }
                if self.is_packed_product(right) =>
            {
                self.packed_product(right, Some(left))
            }
            Expression::Binary { op, left, right } => {
                let (left, right) = (self.operand(left)?, self.operand(right)?);
                self.w.binary(op, left, right)
            }
            Expression::Select { condition, accept, reject } => {
                let condition = self.operand(condition)?;
                let (accept, reject) = (self.operand(accept)?, self.operand(reject)?);
                self.w.select(condition, accept, reject)
            }
            Expression::Relational { fun, argument } => {
                let argument = self.operand(argument)?;
                self.w.relational(fun, argument)
            }
            Expression::As { expr, kind, convert } => {
                let arg = self.operand(expr)?;
                self.w.cast(arg, kind, convert)
            }
            Expression::Math { fun, arg, arg1, arg2, arg3 } => {
                let mut args = vec![self.operand(arg)?];
                for more in [arg1, arg2, arg3].into_iter().flatten() {
                    args.push(self.operand(more)?);
                }
                self.math(fun, args, h)
            }
            Expression::ArrayLength(array) => self.length(array),
            Expression::CooperativeLoad { ref data, .. } => self.cooperative_load(h, data),
            Expression::CooperativeMultiplyAdd { a, b, c } => self.cooperative_multiply([a, b, c]),
            Expression::Derivative { .. } => self.w.refuse("a derivative"),
            ref other => self.w.refuse(format!("the expression {other:?}")),
        }
    }

    /// Prints a component of a value that is not a pointer.
    fn element(&mut self, base: Handle<Expression>, index: Index) -> Result<String> {
        let module = self.w.module;
        let value = self.value(base)?;
        let (text, inner) = match *self.inner(base) {
            TypeInner::Vector { size, scalar } => {
                return match index {
                    Index::Known(index) => Ok(format!("{value}.{}", COMPONENTS[index as usize])),
                    Index::Value(index) => {
                        let index = self.value(index)?;
                        let scalar = self.w.scalar(scalar)?;
                        self.w.component(&value, size, scalar, &index)
                    }
                };
            }
            TypeInner::Matrix { columns, rows, .. } => {
                let index = self.index(index, columns as u32)?;
                let gap = if rows == VectorSize::Tri { ".v" } else { "" };
                return Ok(format!("{value}.c[{index}]{gap}"));
            }
            TypeInner::Array { base: element, size: naga::ArraySize::Constant(count), .. } => {
                let inner = &module.types[element].inner;
                let gap = if has_gap(inner) { ".v" } else { "" };
                let index = self.index(index, count.get())?;
                (format!("{value}.e[{index}]{gap}"), inner)
            }
            TypeInner::Struct { ref members, .. } => {
                let (Index::Known(index), Some(ty)) = (index, self.info[base].ty.handle()) else {
                    broken_invariant("a struct indexed by a value");
                };
                let inner = &module.types[members[index as usize].ty].inner;
                self.w.type_of(ty)?;
                let field = &self.w.members[&(ty, index as usize)];
                (format!("{value}.{field}"), inner)
            }
            ref other => return self.w.refuse(format!("an index into {other:?}")),
        };
        self.loaded(text, inner)
    }

    fn swizzle(
        &mut self,
        size: VectorSize,
        vector: Handle<Expression>,
        pattern: [SwizzleComponent; 4],
    ) -> Result<String> {
        let arg = self.operand(vector)?;
        let (n, scalar) = (size as usize, self.w.scalar(arg.scalar)?);
        let from = self.w.value_type(arg.inner)?;
        let to = self.w.vector(scalar, size)?;
        let fields: Vec<&str> = pattern[..n].iter().map(|c| COMPONENTS[*c as usize]).collect();
        let name = format!("wl_{}_{from}", fields.concat());
        self.w.define(&name, |_| {
            let steps: Vec<String> = fields
                .iter()
                .zip(COMPONENTS)
                .map(|(from, to)| format!("r.{to} = v.{from};"))
                .collect();
            let steps = steps.join(" ");
            Ok(format!("WL_FN {to} {name}({from} v) {{ {to} r; {steps} return r; }}"))
        })?;
        Ok(format!("{name}({})", arg.text))
    }

    fn load(&mut self, pointer: Handle<Expression>) -> Result<String> {
        let module = self.w.module;
        // A dynamically indexed component of a vector that may be in registers: indexing its
        // address would spill it to memory.
        if let Expression::Access { base, index } = self.function.expressions[pointer]
            && is_own(self.inner(base))
            && let Some((Pointee::Type(ty), _)) = pointee(self.inner(base))
            && let TypeInner::Vector { size, scalar } = module.types[ty].inner
        {
            let place = self.place(base)?.text();
            let vector = self.loaded(place, &module.types[ty].inner)?;
            let index = self.value(index)?;
            let scalar = self.w.scalar(scalar)?;
            return self.w.component(&vector, size, scalar, &index);
        }
        let place = self.place(pointer)?;
        match pointee(self.inner(pointer)) {
            Some((Pointee::Type(ty), space)) => match module.types[ty].inner {
                TypeInner::Atomic(scalar) => {
                    let scalar = self.w.scalar(scalar)?;
                    let space = self.w.dialect.space(space);
                    Ok(format!("(*(volatile {space}{scalar}*){})", place.address()))
                }
                ref inner => self.loaded(place.text(), inner),
            },
            Some((Pointee::Value(inner), _)) => self.loaded(place.text(), &inner),
            None => broken_invariant("a load from a value that is not a pointer"),
        }
    }

    /// Prints an expression as an operand, with its type.
    pub(super) fn operand(&mut self, h: Handle<Expression>) -> Result<Operand<'a>> {
        let inner = self.inner(h);
        let text = self.value(h)?;
        match numeric(inner) {
            Some((size, scalar)) => Ok(Operand { text, inner, size, scalar }),
            None => match *inner {
                TypeInner::Matrix { scalar, .. } => Ok(Operand { text, inner, size: None, scalar }),
                _ => self.w.refuse(format!("an operation on {inner:?}")),
            },
        }
    }

    fn arg(&mut self, h: Handle<Expression>) -> Result<Arg> {
        let operand = self.operand(h)?;
        self.w.arg(&operand)
    }
}

/// An operand of an operation: scalar, vector or matrix.
pub(super) struct Operand<'a> {
    pub(super) text: String,
    pub(super) inner: &'a TypeInner,
    /// Number of components of a vector; `None` for scalars and matrices.
    pub(super) size: Option<VectorSize>,
    pub(super) scalar: naga::Scalar,
}

impl Operand<'_> {
    pub(super) fn is_matrix(&self) -> bool {
        matches!(self.inner, TypeInner::Matrix { .. })
    }
}

impl Writer<'_> {
    /// Prints a dynamically indexed vector component; an index out of bounds selects the last.
    pub(super) fn component(
        &mut self,
        vector: &str,
        size: VectorSize,
        scalar: &str,
        index: &str,
    ) -> Result<String> {
        let ty = self.vector(scalar, size)?;
        let name = format!("wl_at_{ty}");
        self.define(&name, |_| {
            let n = size as usize;
            let mut choice = String::new();
            for (i, component) in COMPONENTS[..n - 1].iter().enumerate() {
                choice.push_str(&format!("i == {i}u ? v.{component} : "));
            }
            choice.push_str(&format!("v.{}", COMPONENTS[n - 1]));
            Ok(format!("WL_FN {scalar} {name}({ty} v, u32 i) {{ return {choice}; }}"))
        })?;
        Ok(format!("{name}({vector}, (u32)({index}))"))
    }

    /// Prints a vector, matrix, array or struct of these parts.
    pub(super) fn compose(
        &mut self,
        ty: Handle<Type>,
        parts: Vec<(String, &TypeInner)>,
    ) -> Result<String> {
        let module = self.module;
        let name = self.type_of(ty)?;
        let parts = match module.types[ty].inner {
            TypeInner::Vector { .. } => {
                let flat = parts.iter().flat_map(|(text, inner)| match inner {
                    TypeInner::Vector { size, .. } => COMPONENTS[..*size as usize]
                        .iter()
                        .map(|component| format!("{text}.{component}"))
                        .collect(),
                    _ => vec![text.clone()],
                });
                flat.collect::<Vec<_>>().join(", ")
            }
            TypeInner::Matrix { columns, rows, scalar } => {
                let columns_given = parts.len() == columns as usize;
                let parts: Vec<String> = if columns_given {
                    parts.into_iter().map(|(text, _)| text).collect()
                } else {
                    let column = self.value_type(&TypeInner::Vector { size: rows, scalar })?;
                    let texts: Vec<String> = parts.into_iter().map(|(text, _)| text).collect();
                    let chunks = texts.chunks(rows as usize);
                    chunks.map(|c| self.dialect.aggregate(&column, &c.join(", "))).collect()
                };
                format!("{{{}}}", spaced(parts, rows == VectorSize::Tri))
            }
            TypeInner::Array { base, .. } => {
                let inner = &module.types[base].inner;
                let parts = self.as_memory(parts, |_| inner)?;
                format!("{{{}}}", spaced(parts, has_gap(inner)))
            }
            TypeInner::Struct { ref members, .. } => {
                let parts = self.as_memory(parts, |i| &module.types[members[i].ty].inner)?;
                self.struct_parts(members, &parts)?
            }
            _ => return self.refuse("a composition of this type"),
        };
        Ok(self.dialect.aggregate(&name, &parts))
    }

    fn as_memory<'t>(
        &mut self,
        parts: Vec<(String, &TypeInner)>,
        inner: impl Fn(usize) -> &'t TypeInner,
    ) -> Result<Vec<String>> {
        let mut stored = Vec::new();
        for (i, (text, _)) in parts.into_iter().enumerate() {
            stored.push(match numeric(inner(i)) {
                Some((size, scalar)) if scalar == naga::Scalar::F16 => {
                    self.value_to_half(text, size)?
                }
                _ => text,
            });
        }
        Ok(stored)
    }

    /// Prints a constant: its name if it is an array or a struct, else its value.
    pub(super) fn constant(&mut self, h: Handle<naga::Constant>) -> Result<String> {
        if let Some(name) = self.constants.get(&h) {
            return Ok(name.clone());
        }
        let module = self.module;
        let constant = &module.constants[h];
        if matches!(
            module.types[constant.ty].inner,
            TypeInner::Array { .. } | TypeInner::Struct { .. }
        ) {
            let ty = self.type_of(constant.ty)?;
            let label = constant.name.as_deref().unwrap_or("constant");
            let name = self.names.pick(&format!("const_{label}"));
            self.constants.insert(h, name.clone());
            let value = self.initializer(constant.init)?;
            let space = self.dialect.pick("static __device__ const", "__constant");
            self.define(&name, |_| Ok(format!("{space} {ty} {name} = {value};")))?;
            return Ok(name);
        }
        self.const_value(constant.init)
    }

    /// Prints a constant expression as a value.
    pub(super) fn const_value(&mut self, h: Handle<Expression>) -> Result<String> {
        let module = self.module;
        match module.global_expressions[h] {
            Expression::Literal(ref literal) => self.literal(literal),
            Expression::Constant(constant) => self.constant(constant),
            Expression::ZeroValue(ty) => self.zero(ty),
            Expression::Splat { size, value } => {
                let scalar = self.info[value].inner_with(&module.types);
                let Some((None, scalar)) = numeric(scalar) else {
                    return self.refuse("a constant vector of vectors");
                };
                let value = self.const_value(value)?;
                let ty = self.value_type(&TypeInner::Vector { size, scalar })?;
                let parts = vec![value; size as usize].join(", ");
                Ok(self.dialect.aggregate(&ty, &parts))
            }
            Expression::Compose { ty, ref components } => {
                let mut parts = Vec::new();
                for component in components {
                    let inner = self.info[*component].inner_with(&module.types);
                    parts.push((self.const_value(*component)?, inner));
                }
                self.compose(ty, parts)
            }
            ref other => self.refuse(format!("the constant expression {other:?}")),
        }
    }
}
