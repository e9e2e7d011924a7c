//! Prints operators with WGSL's semantics: integers wrap, shift amounts are modulo 32, and division
//! by zero yields the dividend. Vector operations are componentwise functions.

use naga::{BinaryOperator, RelationalFunction, Scalar, ScalarKind, UnaryOperator, VectorSize};

use super::expression::Operand;
use super::types::{COMPONENTS, is_half};
use super::writer::Writer;
use warploom_core::error::Result;

/// An argument of a componentwise function.
pub(super) struct Arg {
    pub(super) text: String,
    /// The C scalar type.
    pub(super) ty: &'static str,
    /// Whether it is a vector, rather than one scalar for all components.
    pub(super) vector: bool,
}

/// Produces the text for one component from the texts of the arguments' components.
pub(super) type Form<'f, 'a> = &'f mut dyn FnMut(&mut Writer<'a>, &[String]) -> Result<String>;

/// Returns the name of a scalar type for use in function names.
pub(super) fn tag(scalar: Scalar) -> &'static str {
    match scalar.kind {
        ScalarKind::Bool => "bool",
        ScalarKind::Sint => "i32",
        ScalarKind::Uint => "u32",
        _ if is_half(scalar) => "f16",
        _ => "f32",
    }
}

impl<'a> Writer<'a> {
    pub(super) fn arg(&self, operand: &Operand) -> Result<Arg> {
        let ty = self.scalar(operand.scalar)?;
        Ok(Arg { text: operand.text.clone(), ty, vector: operand.size.is_some() })
    }

    pub(super) fn args(&self, operands: &[Operand]) -> Result<Vec<Arg>> {
        operands.iter().map(|operand| self.arg(operand)).collect()
    }

    /// Prints a componentwise operation: inline text for scalars, a call of a defined function for
    /// vectors. `name` must identify everything that `form` depends on, including the result type,
    /// except for the size and the argument types.
    pub(super) fn lift(
        &mut self,
        name: &str,
        size: Option<VectorSize>,
        result: &str,
        args: &[Arg],
        form: Form<'_, 'a>,
    ) -> Result<String> {
        let Some(size) = size else {
            let texts: Vec<String> = args.iter().map(|arg| arg.text.clone()).collect();
            return form(self, &texts);
        };
        let shapes: String = if args.iter().all(|arg| arg.vector) {
            String::new()
        } else {
            args.iter().map(|arg| if arg.vector { 'v' } else { 's' }).collect()
        };
        let result_type = self.vector(result, size)?;
        let mut types: Vec<&str> = args.iter().map(|arg| arg.ty).collect();
        types.dedup();
        let n = size as usize;
        let full = format!("wl_{name}_{}x{n}{shapes}", types.join("_"));
        self.define(&full, |w| {
            let letters = ["a", "b", "c", "d"];
            let mut parameters = Vec::new();
            for (arg, letter) in args.iter().zip(letters) {
                let ty = if arg.vector { w.vector(arg.ty, size)? } else { arg.ty.to_string() };
                parameters.push(format!("{ty} {letter}"));
            }
            let mut steps = String::new();
            for component in &COMPONENTS[..n] {
                let texts: Vec<String> = args
                    .iter()
                    .zip(letters)
                    .map(|(arg, letter)| match arg.vector {
                        true => format!("{letter}.{component}"),
                        false => letter.to_string(),
                    })
                    .collect();
                steps.push_str(&format!("    r.{component} = {};\n", form(w, &texts)?));
            }
            let parameters = parameters.join(", ");
            let head = format!("WL_FN {result_type} {full}({parameters})");
            Ok(format!("{head} {{\n    {result_type} r;\n{steps}    return r;\n}}"))
        })?;
        let texts: Vec<&str> = args.iter().map(|arg| arg.text.as_str()).collect();
        Ok(format!("{full}({})", texts.join(", ")))
    }

    /// Same as [`Writer::lift`], with f16 computed in `f32` and rounded.
    pub(super) fn lift_rounded(
        &mut self,
        name: &str,
        size: Option<VectorSize>,
        result: Scalar,
        args: &[Arg],
        form: Form<'_, 'a>,
    ) -> Result<String> {
        let ty = self.scalar(result)?;
        if !is_half(result) {
            return self.lift(name, size, ty, args, form);
        }
        self.lift(&format!("f16_{name}"), size, ty, args, &mut |w, texts| {
            let text = form(w, texts)?;
            w.helper("wl_round_f16")?;
            Ok(format!("wl_round_f16({text})"))
        })
    }

    pub(super) fn unary(&mut self, op: UnaryOperator, a: Operand) -> Result<String> {
        if a.is_matrix() {
            return self.refuse("the negative of a matrix");
        }
        let arg = [self.arg(&a)?];
        let signed = a.scalar.kind == ScalarKind::Sint;
        let name = match op {
            UnaryOperator::Negate => "neg",
            UnaryOperator::LogicalNot => "not",
            UnaryOperator::BitwiseNot => "complement",
        };
        self.lift(name, a.size, arg[0].ty, &arg, &mut |_, a| {
            let a = &a[0];
            Ok(match op {
                UnaryOperator::Negate if signed => format!("(i32)(0u - (u32){a})"),
                UnaryOperator::Negate => format!("(-{a})"),
                UnaryOperator::LogicalNot => format!("(!{a})"),
                UnaryOperator::BitwiseNot => format!("(~{a})"),
            })
        })
    }

    pub(super) fn binary(
        &mut self,
        op: BinaryOperator,
        a: Operand<'a>,
        b: Operand<'a>,
    ) -> Result<String> {
        use BinaryOperator as Op;
        if a.is_matrix() || b.is_matrix() {
            return self.matrix_binary(op, a, b);
        }
        let scalar = a.scalar;
        let result = match op {
            Op::Equal
            | Op::NotEqual
            | Op::Less
            | Op::LessEqual
            | Op::Greater
            | Op::GreaterEqual
            | Op::LogicalAnd
            | Op::LogicalOr => Scalar::BOOL,
            _ => scalar,
        };
        let args = [self.arg(&a)?, self.arg(&b)?];
        let size = a.size.or(b.size);
        let name = format!("{op:?}").to_lowercase();
        self.lift_rounded(&name, size, result, &args, &mut |w, texts| {
            w.binary_form(op, scalar, &texts[0], &texts[1])
        })
    }

    pub(super) fn binary_form(
        &mut self,
        op: BinaryOperator,
        of: Scalar,
        a: &str,
        b: &str,
    ) -> Result<String> {
        use BinaryOperator as Op;
        let kind = of.kind;
        let signed = kind == ScalarKind::Sint;
        let sign = match op {
            Op::Add => "+",
            Op::Subtract => "-",
            Op::Multiply => "*",
            Op::Divide | Op::Modulo if kind != ScalarKind::Float => {
                let helper = match (op, signed) {
                    (Op::Divide, true) => "wl_div_i32",
                    (Op::Divide, false) => "wl_div_u32",
                    (_, true) => "wl_rem_i32",
                    (_, false) => "wl_rem_u32",
                };
                self.helper(helper)?;
                return Ok(format!("{helper}({a}, {b})"));
            }
            Op::Divide => "/",
            Op::Modulo => {
                return Ok(self.dialect.math("fmod", &[a.to_string(), b.to_string()]));
            }
            Op::ShiftLeft if signed => return Ok(format!("(i32)((u32){a} << ({b} & 31u))")),
            Op::ShiftLeft => return Ok(format!("({a} << ({b} & 31u))")),
            Op::ShiftRight => return Ok(format!("({a} >> ({b} & 31u))")),
            Op::Equal => "==",
            Op::NotEqual => "!=",
            Op::Less => "<",
            Op::LessEqual => "<=",
            Op::Greater => ">",
            Op::GreaterEqual => ">=",
            // In C, bitwise operations on bools give ints.
            Op::And if kind == ScalarKind::Bool => "&&",
            Op::InclusiveOr if kind == ScalarKind::Bool => "||",
            Op::ExclusiveOr if kind == ScalarKind::Bool => "!=",
            Op::And => "&",
            Op::InclusiveOr => "|",
            Op::ExclusiveOr => "^",
            Op::LogicalAnd => "&&",
            Op::LogicalOr => "||",
        };
        // Signed overflow is undefined in C.
        let wraps = signed && matches!(op, Op::Add | Op::Subtract | Op::Multiply);
        Ok(match wraps {
            true => format!("(i32)((u32){a} {sign} (u32){b})"),
            false => format!("({a} {sign} {b})"),
        })
    }

    pub(super) fn select(&mut self, c: Operand, yes: Operand, no: Operand) -> Result<String> {
        if c.size.is_none() {
            return Ok(format!("({} ? {} : {})", c.text, yes.text, no.text));
        }
        let args = [self.arg(&c)?, self.arg(&yes)?, self.arg(&no)?];
        self.lift("select", c.size, args[1].ty, &args, &mut |_, t| {
            Ok(format!("({} ? {} : {})", t[0], t[1], t[2]))
        })
    }

    pub(super) fn relational(&mut self, fun: RelationalFunction, a: Operand) -> Result<String> {
        let (joint, name) = match fun {
            RelationalFunction::All => ("&&", "wl_all"),
            RelationalFunction::Any => ("||", "wl_any"),
            RelationalFunction::IsNan => {
                let arg = [self.arg(&a)?];
                return self.lift("isnan", a.size, "bool", &arg, &mut |w, t| {
                    w.helper("wl_isnan")?;
                    Ok(format!("wl_isnan({})", t[0]))
                });
            }
            RelationalFunction::IsInf => {
                let arg = [self.arg(&a)?];
                return self.lift("isinf", a.size, "bool", &arg, &mut |w, t| {
                    w.helper("wl_isinf")?;
                    Ok(format!("wl_isinf({})", t[0]))
                });
            }
        };
        let Some(size) = a.size else { return Ok(a.text) };
        let ty = self.vector("bool", size)?;
        let name = format!("{name}_{ty}");
        self.define(&name, |_| {
            let parts: Vec<String> =
                COMPONENTS[..size as usize].iter().map(|c| format!("v.{c}")).collect();
            let test = parts.join(&format!(" {joint} "));
            Ok(format!("WL_FN bool {name}({ty} v) {{ return {test}; }}"))
        })?;
        Ok(format!("{name}({})", a.text))
    }
}
