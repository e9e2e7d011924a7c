//! Prints matrix functions, and functions across the components of a vector.

use naga::{BinaryOperator, MathFunction as F, Scalar, ScalarKind, TypeInner, VectorSize};

use super::expression::Operand;
use super::types::{COMPONENTS, is_half};
use super::writer::Writer;
use warploom_core::error::Result;

/// Joins the texts that `part` returns for the components of a vector, with `sign` in between.
fn joined(size: VectorSize, sign: &str, part: impl Fn(&str) -> String) -> String {
    let parts: Vec<String> = COMPONENTS[..size as usize].iter().map(|c| part(c)).collect();
    parts.join(sign)
}

impl<'a> Writer<'a> {
    /// Defines the function `wl_NAME_TYPE` of vectors, and returns a call of it.
    fn vector_function(
        &mut self,
        name: &str,
        result: &str,
        args: &[Operand],
        body: impl FnOnce(&mut Self, &str) -> Result<String>,
    ) -> Result<String> {
        let ty = self.value_type(args[0].inner)?;
        let full = format!("wl_{name}_{ty}");
        let result = if result.is_empty() { ty.clone() } else { result.to_string() };
        self.define(&full, |w| {
            let letters = ["a", "b", "c"];
            let mut parameters = Vec::new();
            for (arg, letter) in args.iter().zip(letters) {
                parameters.push(format!("{} {letter}", w.value_type(arg.inner)?));
            }
            let body = body(w, &ty)?;
            Ok(format!("WL_FN {result} {full}({}) {{ {body} }}", parameters.join(", ")))
        })?;
        let texts: Vec<&str> = args.iter().map(|arg| arg.text.as_str()).collect();
        Ok(format!("{full}({})", texts.join(", ")))
    }

    pub(super) fn geometry(&mut self, fun: F, args: &[Operand<'a>]) -> Result<String> {
        if is_half(args[0].scalar) {
            // f16 is computed in f32 and rounded once, at the end.
            let number = matches!(fun, F::Dot | F::Length | F::Distance);
            let text = self.exact_geometry(fun, args)?;
            return self.rounded_to_half(text, args[0].size.filter(|_| !number));
        }
        self.exact_geometry(fun, args)
    }

    fn exact_geometry(&mut self, fun: F, args: &[Operand<'a>]) -> Result<String> {
        let Some(size) = args[0].size else { return self.scalar_geometry(fun, args) };
        let root = |text: String, w: &Self| w.dialect.math("sqrt", &[text]);
        match fun {
            F::Dot => self.dot(size, args),
            F::Length => self.vector_function("length", "f32", args, |w, _| {
                let squares = joined(size, " + ", |c| format!("a.{c} * a.{c}"));
                Ok(format!("return {};", root(squares, w)))
            }),
            F::Distance => self.vector_function("distance", "f32", args, |w, _| {
                let squares = joined(size, " + ", |c| format!("(a.{c} - b.{c}) * (a.{c} - b.{c})"));
                Ok(format!("return {};", root(squares, w)))
            }),
            F::Normalize => self.vector_function("normalize", "", args, |w, _| {
                let squares = joined(size, " + ", |c| format!("a.{c} * a.{c}"));
                let steps = joined(size, " ", |c| format!("a.{c} /= l;"));
                Ok(format!("const f32 l = {}; {steps} return a;", root(squares, w)))
            }),
            F::Cross => self.vector_function("cross", "", args, |_, ty| {
                let part = |r, p, q| format!("r.{r} = a.{p} * b.{q} - a.{q} * b.{p};");
                let (x, y, z) = (part("x", "y", "z"), part("y", "z", "x"), part("z", "x", "y"));
                Ok(format!("{ty} r; {x} {y} {z} return r;"))
            }),
            F::Reflect => self.vector_function("reflect", "", args, |_, _| {
                let dot = joined(size, " + ", |c| format!("a.{c} * b.{c}"));
                let steps = joined(size, " ", |c| format!("a.{c} -= d * b.{c};"));
                Ok(format!("const f32 d = 2.0f * ({dot}); {steps} return a;"))
            }),
            F::Refract => self.vector_function("refract", "", args, |w, _| {
                let dot = joined(size, " + ", |c| format!("a.{c} * b.{c}"));
                let bend = format!("c * d + {}", root("k".to_string(), w));
                let form =
                    |x: &str| format!("a.{x} = k < 0.0f ? 0.0f : c * a.{x} - ({bend}) * b.{x};");
                let steps = joined(size, " ", form);
                let k = "const f32 k = 1.0f - c * c * (1.0f - d * d);";
                Ok(format!("const f32 d = {dot}; {k} {steps} return a;"))
            }),
            F::FaceForward => self.vector_function("faceforward", "", args, |_, _| {
                let dot = joined(size, " + ", |c| format!("b.{c} * c.{c}"));
                let steps = joined(size, " ", |c| format!("a.{c} = d < 0.0f ? a.{c} : -a.{c};"));
                Ok(format!("const f32 d = {dot}; {steps} return a;"))
            }),
            _ => self.refuse(format!("{fun:?}")),
        }
    }

    fn scalar_geometry(&mut self, fun: F, args: &[Operand]) -> Result<String> {
        let a = args[0].text.clone();
        match fun {
            F::Length => Ok(self.dialect.math("fabs", &[a])),
            F::Distance => Ok(self.dialect.math("fabs", &[format!("{a} - {}", args[1].text)])),
            _ => self.refuse(format!("{fun:?} of scalars")),
        }
    }

    fn dot(&mut self, size: VectorSize, args: &[Operand]) -> Result<String> {
        let scalar = self.scalar(args[0].scalar)?;
        let signed = args[0].scalar.kind == ScalarKind::Sint;
        self.vector_function("dot", scalar, args, |_, _| {
            let sum = joined(size, " + ", |c| match signed {
                true => format!("(u32)a.{c} * (u32)b.{c}"),
                false => format!("a.{c} * b.{c}"),
            });
            Ok(if signed { format!("return (i32)({sum});") } else { format!("return {sum};") })
        })
    }

    /// Prints sums and products with matrices.
    pub(super) fn matrix_binary(
        &mut self,
        op: BinaryOperator,
        a: Operand,
        b: Operand,
    ) -> Result<String> {
        use TypeInner::{Matrix, Scalar as Number, Vector};
        let (left, right) = (self.value_type(a.inner)?, self.value_type(b.inner)?);
        let name = format!("wl_{}_{left}_{right}", format!("{op:?}").to_lowercase());
        let scalar = Scalar::F32;
        let matrix = |columns, rows| Matrix { columns, rows, scalar };
        let vector = |size| Vector { size, scalar };
        let (result, text) = match (op, a.inner, b.inner) {
            (
                BinaryOperator::Add | BinaryOperator::Subtract,
                &Matrix { columns, rows, .. },
                Matrix { .. },
            ) => {
                let sign = if op == BinaryOperator::Add { "+" } else { "-" };
                let form =
                    |c: usize, r| format!("{} {sign} {}", at("a", rows, c, r), at("b", rows, c, r));
                (matrix(columns, rows), cells(columns, rows, form))
            }
            (BinaryOperator::Multiply, &Matrix { columns, rows, .. }, Number(_)) => (
                matrix(columns, rows),
                cells(columns, rows, |c, r| format!("{} * b", at("a", rows, c, r))),
            ),
            (BinaryOperator::Multiply, Number(_), &Matrix { columns, rows, .. }) => (
                matrix(columns, rows),
                cells(columns, rows, |c, r| format!("a * {}", at("b", rows, c, r))),
            ),
            (BinaryOperator::Multiply, &Matrix { columns, rows, .. }, Vector { .. }) => {
                let sum =
                    |r| sum(columns, |c| format!("{} * b.{}", at("a", rows, c, r), COMPONENTS[c]));
                (vector(rows), components(rows, sum))
            }
            (BinaryOperator::Multiply, Vector { .. }, &Matrix { columns, rows, .. }) => {
                let sum =
                    |c| sum(rows, |r| format!("a.{} * {}", COMPONENTS[r], at("b", rows, c, r)));
                (vector(columns), components(columns, sum))
            }
            (
                BinaryOperator::Multiply,
                &Matrix { columns: shared, rows, .. },
                &Matrix { columns, rows: other, .. },
            ) => {
                let cell = |c, r| {
                    sum(shared, |k| format!("{} * {}", at("a", rows, k, r), at("b", other, c, k)))
                };
                (matrix(columns, rows), cells(columns, rows, cell))
            }
            _ => return self.refuse(format!("{op:?} of matrices")),
        };
        let result = self.value_type(&result)?;
        self.define(&name, |_| {
            let head = format!("WL_FN {result} {name}({left} a, {right} b)");
            Ok(format!("{head} {{\n    {result} o;\n{text}    return o;\n}}"))
        })?;
        Ok(format!("{name}({}, {})", a.text, b.text))
    }

    pub(super) fn matrix_math(&mut self, fun: F, a: &Operand) -> Result<String> {
        let TypeInner::Matrix { columns, rows, scalar } = *a.inner else {
            return self.refuse(format!("{fun:?} of a value that is not a matrix"));
        };
        let ty = self.value_type(a.inner)?;
        let (result, text) = match fun {
            F::Transpose => {
                let inner = TypeInner::Matrix { columns: rows, rows: columns, scalar };
                let text = cells(rows, columns, |c, r| at("a", rows, r, c));
                (
                    self.value_type(&inner)?,
                    format!("    {} o;\n{text}    return o;\n", self.value_type(&inner)?),
                )
            }
            F::Determinant => {
                let all: Vec<usize> = (0..columns as usize).collect();
                ("f32".to_string(), format!("    return {};\n", determinant(rows, 0, &all)))
            }
            _ => return self.refuse(format!("{fun:?} of a matrix")),
        };
        let name = format!("wl_{}_{ty}", format!("{fun:?}").to_lowercase());
        self.define(&name, |_| Ok(format!("WL_FN {result} {name}({ty} a) {{\n{text}}}")))?;
        Ok(format!("{name}({})", a.text))
    }
}

/// Returns the text of an element of a matrix, given by column and row; the matrix has `rows` rows.
fn at(matrix: &str, rows: VectorSize, column: usize, row: usize) -> String {
    let gap = if rows == VectorSize::Tri { ".v" } else { "" };
    format!("{matrix}.c[{column}]{gap}.{}", COMPONENTS[row])
}

/// Prints an assignment to each element of the matrix `o`; `form` returns its value.
fn cells(columns: VectorSize, rows: VectorSize, form: impl Fn(usize, usize) -> String) -> String {
    let mut text = String::new();
    for column in 0..columns as usize {
        for row in 0..rows as usize {
            text.push_str(&format!(
                "    {} = {};\n",
                at("o", rows, column, row),
                form(column, row)
            ));
        }
    }
    text
}

/// Prints an assignment to each component of the vector `o`; `form` returns its value.
fn components(size: VectorSize, form: impl Fn(usize) -> String) -> String {
    let steps = (0..size as usize).map(|i| format!("    o.{} = {};\n", COMPONENTS[i], form(i)));
    steps.collect()
}

fn sum(size: VectorSize, part: impl Fn(usize) -> String) -> String {
    let parts: Vec<String> = (0..size as usize).map(part).collect();
    parts.join(" + ")
}

/// Prints the determinant of the submatrix of `a` with the rows from `row` on and these columns.
fn determinant(rows: VectorSize, row: usize, columns: &[usize]) -> String {
    if let [column] = columns {
        return at("a", rows, *column, row);
    }
    let mut text = String::new();
    for (i, column) in columns.iter().enumerate() {
        let others: Vec<usize> = columns.iter().copied().filter(|c| c != column).collect();
        let sign = if i == 0 {
            ""
        } else if i % 2 == 1 {
            " - "
        } else {
            " + "
        };
        let cell = at("a", rows, *column, row);
        text.push_str(&format!("{sign}{cell} * ({})", determinant(rows, row + 1, &others)));
    }
    text
}
