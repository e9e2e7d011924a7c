//! A template whose every growing step is checked.
//!
//! minijinja counts instructions, not bytes, and twenty doublings of a string are few instructions.
//! So a template is parsed, and written out again from its syntax tree with the filter `_w`
//! ([`super::sandbox`]) behind whatever makes a value grow and before whatever walks through one:
//! `a ~ b` becomes `((a|_w) ~ (b|_w))|_w`. Text between tags becomes `{{"..."}}`, so that all that is
//! written passes the formatter. What the rewritten template does is otherwise the same.

use std::fmt::Write;

use minijinja::Value;
use minijinja::machinery::ast::{BinOpKind, CallArg, CompareOpKind, Expr, Macro, Stmt};
use minijinja::machinery::ast::{Call, Filter, Spanned, UnaryOpKind};
use minijinja::machinery::parse;
use minijinja::value::ValueKind;

use super::tags::{bad_syntax, check_tags, syntax, without_generation_tags};
use warploom::error::{Error, Result};

/// Tests that look at a value's kind alone.
const SHALLOW_TESTS: [&str; 14] = [
    "boolean",
    "defined",
    "false",
    "float",
    "integer",
    "iterable",
    "mapping",
    "none",
    "number",
    "sequence",
    "string",
    "true",
    "undefined",
    "callable",
];

/// The guarded form of a template.
///
/// # Errors
/// Bad file with the line, where it is no template or too deep; unsupported, naming the statement.
pub(super) fn guarded(source: &str) -> Result<String> {
    let source = without_generation_tags(source);
    check_tags(&source)?;
    let tree = parse(&source, "chat template", syntax()?).map_err(bad_syntax)?;
    let mut out = Writer { text: String::with_capacity(source.len() * 2) };
    out.stmt(&tree)?;
    Ok(out.text)
}

fn unsupported(what: &str) -> Error {
    Error::unsupported(format!("chat template: {what} is not supported"))
}

/// How a piece of text may go on.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// Anything may follow: a name, a literal, brackets.
    Atom,
    /// Filters: another filter may follow, all else needs brackets.
    Piped,
    /// Everything else needs brackets.
    Loose,
}

/// An expression as text.
struct Piece {
    text: String,
    form: Form,
}

impl Piece {
    fn new(text: impl Into<String>, form: Form) -> Piece {
        Piece { text: text.into(), form }
    }

    fn atom(self) -> String {
        match self.form {
            Form::Atom => self.text,
            _ => format!("({})", self.text),
        }
    }

    /// With a filter behind.
    fn piped(self, filter: &str) -> Piece {
        let text = match self.form {
            Form::Loose => format!("({})|{filter}", self.text),
            _ => format!("{}|{filter}", self.text),
        };
        Piece::new(text, Form::Piped)
    }

    fn checked(self) -> Piece {
        match self.text.ends_with("|_w") && self.form == Form::Piped {
            true => self,
            false => self.piped("_w"),
        }
    }
}

/// Writes statements.
struct Writer {
    text: String,
}

impl Writer {
    fn tag(&mut self, inside: &str) {
        self.text.push_str("{% ");
        self.text.push_str(inside);
        self.text.push_str(" %}");
    }

    fn body(&mut self, body: &[Stmt<'_>]) -> Result<()> {
        body.iter().try_for_each(|stmt| self.stmt(stmt))
    }

    fn stmt(&mut self, stmt: &Stmt<'_>) -> Result<()> {
        match stmt {
            Stmt::Template(t) => self.body(&t.children)?,
            Stmt::EmitRaw(raw) => {
                let _ = write!(self.text, "{{{{{}}}}}", quoted(raw.raw));
            }
            Stmt::EmitExpr(emit) => {
                let _ = write!(self.text, "{{{{ {} }}}}", expr(&emit.expr)?.atom());
            }
            Stmt::ForLoop(l) => {
                let mut head = format!("for {} in {}", target(&l.target)?, expr(&l.iter)?.atom());
                if let Some(filter) = &l.filter_expr {
                    let _ = write!(head, " if {}", expr(filter)?.atom());
                }
                if l.recursive {
                    head.push_str(" recursive");
                }
                self.tag(&head);
                self.body(&l.body)?;
                if !l.else_body.is_empty() {
                    self.tag("else");
                    self.body(&l.else_body)?;
                }
                self.tag("endfor");
            }
            Stmt::IfCond(_) => self.condition(stmt)?,
            Stmt::WithBlock(with) => {
                let pairs: Vec<String> = with
                    .assignments
                    .iter()
                    .map(|(to, value)| Ok(format!("{}={}", target(to)?, expr(value)?.atom())))
                    .collect::<Result<_>>()?;
                self.tag(&format!("with {}", pairs.join(", ")));
                self.body(&with.body)?;
                self.tag("endwith");
            }
            Stmt::Set(set) => {
                self.tag(&format!("set {} = {}", target(&set.target)?, expr(&set.expr)?.atom()));
            }
            Stmt::SetBlock(set) if set.filter.is_none() => {
                self.tag(&format!("set {}", target(&set.target)?));
                self.body(&set.body)?;
                self.tag("endset");
            }
            Stmt::Macro(m) => {
                self.tag(&format!("macro {}({})", m.name, parameters(m)?));
                self.body(&m.body)?;
                self.tag("endmacro");
            }
            Stmt::CallBlock(block) => {
                let parameters = parameters(&block.macro_decl)?;
                self.tag(&format!("call({parameters}) {}", call(&block.call)?));
                self.body(&block.macro_decl.body)?;
                self.tag("endcall");
            }
            Stmt::Do(d) => self.tag(&format!("do {}", call(&d.call)?)),
            Stmt::Continue(_) => self.tag("continue"),
            Stmt::Break(_) => self.tag("break"),
            Stmt::SetBlock(_) => return Err(unsupported("a filter on a block that is set")),
            Stmt::AutoEscape(_) => return Err(unsupported("autoescape")),
            Stmt::FilterBlock(_) => return Err(unsupported("a filter block")),
            Stmt::Block(_)
            | Stmt::Import(_)
            | Stmt::FromImport(_)
            | Stmt::Extends(_)
            | Stmt::Include(_) => return Err(unsupported("a second template")),
        }
        Ok(())
    }

    /// `if`, its `elif`s as such, so that they do not nest, and `else`.
    fn condition(&mut self, first: &Stmt<'_>) -> Result<()> {
        let mut word = "if";
        let mut next = first;
        while let Stmt::IfCond(cond) = next {
            self.tag(&format!("{word} {}", expr(&cond.expr)?.atom()));
            self.body(&cond.true_body)?;
            match cond.false_body.as_slice() {
                [] => break,
                [only @ Stmt::IfCond(_)] => (word, next) = ("elif", only),
                body => {
                    self.tag("else");
                    self.body(body)?;
                    break;
                }
            }
        }
        self.tag("endif");
        Ok(())
    }
}

/// What is assigned to: a name, `a.b`, or several.
fn target(to: &Expr<'_>) -> Result<String> {
    match to {
        Expr::Var(var) => Ok(var.id.to_owned()),
        Expr::GetAttr(attr) => Ok(format!("{}.{}", target(&attr.expr)?, attr.name)),
        Expr::List(list) => {
            let items: Vec<String> = list.items.iter().map(target).collect::<Result<_>>()?;
            Ok(format!("({},)", items.join(", ")))
        }
        _ => Err(unsupported("an assignment to an expression")),
    }
}

/// The parameters of a macro, the last of which may have defaults.
fn parameters(m: &Macro<'_>) -> Result<String> {
    let plain = m.args.len().saturating_sub(m.defaults.len());
    let mut all = Vec::with_capacity(m.args.len());
    for (index, arg) in m.args.iter().enumerate() {
        let name = target(arg)?;
        all.push(match index.checked_sub(plain).and_then(|i| m.defaults.get(i)) {
            Some(default) => format!("{name}={}", expr(default)?.atom()),
            None => name,
        });
    }
    Ok(all.join(", "))
}

/// An expression that something walks through: checked, unless it is a literal.
fn operand(e: &Expr<'_>) -> Result<Piece> {
    Ok(match e {
        Expr::Const(_) => expr(e)?,
        _ => expr(e)?.checked(),
    })
}

fn operands(items: &[Expr<'_>]) -> Result<String> {
    let items: Vec<String> =
        items.iter().map(|item| Ok(operand(item)?.atom())).collect::<Result<_>>()?;
    Ok(items.join(", "))
}

fn expr(e: &Expr<'_>) -> Result<Piece> {
    let piece = match e {
        Expr::Var(var) => Piece::new(var.id, Form::Atom),
        Expr::Const(constant) => literal(&constant.value)?,
        Expr::UnaryOp(unary) => {
            let op = match unary.op {
                UnaryOpKind::Not => "not ",
                UnaryOpKind::Neg => "-",
            };
            Piece::new(format!("{op}{}", expr(&unary.expr)?.atom()), Form::Loose)
        }
        Expr::BinOp(_) => binary(e)?,
        Expr::Compare(compare) => {
            let mut text = operand(&compare.expr)?.atom();
            for op in &compare.ops {
                let sign = match op.op {
                    CompareOpKind::Eq => "==",
                    CompareOpKind::Ne => "!=",
                    CompareOpKind::Lt => "<",
                    CompareOpKind::Lte => "<=",
                    CompareOpKind::Gt => ">",
                    CompareOpKind::Gte => ">=",
                    CompareOpKind::In => "in",
                    CompareOpKind::NotIn => "not in",
                };
                let _ = write!(text, " {sign} {}", operand(&op.expr)?.atom());
            }
            Piece::new(text, Form::Loose)
        }
        Expr::IfExpr(choice) => {
            let (test, yes) = (expr(&choice.test_expr)?.atom(), expr(&choice.true_expr)?.atom());
            let text = match &choice.false_expr {
                Some(no) => format!("{yes} if {test} else {}", expr(no)?.atom()),
                None => format!("{yes} if {test}"),
            };
            Piece::new(text, Form::Loose)
        }
        Expr::Filter(filter) => filtered(filter)?,
        Expr::Test(test) => {
            let word = test.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !word {
                return Err(unsupported(&format!("the test {:?}", test.name)));
            }
            let value = match SHALLOW_TESTS.contains(&test.name) {
                true => expr(&test.expr)?,
                false => operand(&test.expr)?,
            };
            let args = arguments(&test.args)?;
            let args = if args.is_empty() { args } else { format!("({args})") };
            Piece::new(format!("{} is {}{args}", value.atom(), test.name), Form::Loose)
        }
        Expr::GetAttr(attr) => {
            Piece::new(format!("{}.{}", expr(&attr.expr)?.atom(), attr.name), Form::Atom)
        }
        Expr::GetItem(item) => {
            let at = operand(&item.subscript_expr)?.text;
            Piece::new(format!("{}[{at}]", expr(&item.expr)?.atom()), Form::Atom)
        }
        Expr::Slice(slice) => {
            let part = |part: &Option<Expr<'_>>| match part {
                Some(part) => Ok(expr(part)?.atom()),
                None => Ok(String::new()),
            };
            let parts = [part(&slice.start)?, part(&slice.stop)?, part(&slice.step)?];
            let value = operand(&slice.expr)?.atom();
            let step = if parts[2].is_empty() { "" } else { ":" };
            let text = format!("{value}[{}:{}{step}{}]", parts[0], parts[1], parts[2]);
            Piece::new(text, Form::Atom).checked()
        }
        Expr::Call(c) => Piece::new(call(c)?, Form::Atom).checked(),
        Expr::List(list) => {
            Piece::new(format!("[{}]", operands(&list.items)?), Form::Atom).checked()
        }
        Expr::Tuple(tuple) => {
            let comma = if tuple.items.is_empty() { "" } else { "," };
            Piece::new(format!("({}{comma})", operands(&tuple.items)?), Form::Atom).checked()
        }
        Expr::Map(map) => {
            let pairs = map.keys.iter().zip(&map.values);
            let pairs: Vec<String> = pairs
                .map(|(key, value)| {
                    Ok(format!("{}: {}", operand(key)?.atom(), operand(value)?.atom()))
                })
                .collect::<Result<_>>()?;
            Piece::new(format!("{{{}}}", pairs.join(", ")), Form::Atom).checked()
        }
    };
    Ok(piece)
}

/// An operation of two; one that joins with what is joined on its left, so that brackets do not
/// nest, and is checked once.
fn binary(e: &Expr<'_>) -> Result<Piece> {
    let Expr::BinOp(op) = e else { return expr(e) };
    let sign = match op.op {
        BinOpKind::Mul => {
            let factor = operand(&op.right)?;
            return Ok(operand(&op.left)?.piped(&format!("_mul({})", factor.text)));
        }
        BinOpKind::Add => "+",
        BinOpKind::Concat => "~",
        BinOpKind::ScAnd => "and",
        BinOpKind::ScOr => "or",
        BinOpKind::Eq => "==",
        BinOpKind::Ne => "!=",
        BinOpKind::Lt => "<",
        BinOpKind::Lte => "<=",
        BinOpKind::Gt => ">",
        BinOpKind::Gte => ">=",
        BinOpKind::In => "in",
        BinOpKind::Sub => "-",
        BinOpKind::Div => "/",
        BinOpKind::FloorDiv => "//",
        BinOpKind::Rem => "%",
        BinOpKind::Pow => "**",
    };
    let (joins, walks) = match op.op {
        BinOpKind::Add | BinOpKind::Concat => (true, true),
        BinOpKind::ScAnd | BinOpKind::ScOr => (true, false),
        BinOpKind::Sub | BinOpKind::Div | BinOpKind::FloorDiv | BinOpKind::Rem | BinOpKind::Pow => {
            (false, false)
        }
        _ => (false, true),
    };
    // From the right: what stands left of a joining operation is of the same kind, or the first.
    let mut parts = Vec::new();
    let mut left = e;
    while let Expr::BinOp(inner) = left {
        if std::mem::discriminant(&inner.op) != std::mem::discriminant(&op.op)
            || !(joins || parts.is_empty())
        {
            break;
        }
        parts.push(&inner.right);
        left = &inner.left;
    }
    parts.push(left);
    let part = |part: &Expr<'_>| if walks { operand(part) } else { expr(part) };
    let parts: Vec<String> =
        parts.iter().rev().map(|e| Ok(part(e)?.atom())).collect::<Result<_>>()?;
    let piece = Piece::new(parts.join(&format!(" {sign} ")), Form::Loose);
    Ok(if joins && walks { piece.checked() } else { piece })
}

fn filtered(filter: &Spanned<Filter<'_>>) -> Result<Piece> {
    let Some(value) = &filter.expr else { return Err(unsupported("a filter without a value")) };
    let args = arguments(&filter.args)?;
    let args = if args.is_empty() { args } else { format!("({args})") };
    Ok(operand(value)?.piped(&format!("{}{args}", filter.name)).checked())
}

fn call(c: &Spanned<Call<'_>>) -> Result<String> {
    let called = match &c.expr {
        Expr::GetAttr(attr) => format!("{}.{}", operand(&attr.expr)?.atom(), attr.name),
        other => expr(other)?.atom(),
    };
    Ok(format!("{called}({})", arguments(&c.args)?))
}

fn arguments(args: &[CallArg<'_>]) -> Result<String> {
    let args: Vec<String> = args
        .iter()
        .map(|arg| match arg {
            CallArg::Pos(value) => Ok(operand(value)?.atom()),
            CallArg::Kwarg(name, value) => Ok(format!("{name}={}", operand(value)?.atom())),
            CallArg::PosSplat(_) | CallArg::KwargSplat(_) => Err(unsupported("a splat argument")),
        })
        .collect::<Result<_>>()?;
    Ok(args.join(", "))
}

fn literal(value: &Value) -> Result<Piece> {
    let text = match value.kind() {
        ValueKind::String => quoted(value.as_str().unwrap_or_default()),
        ValueKind::None => "none".to_owned(),
        ValueKind::Bool => if value.is_true() { "true" } else { "false" }.to_owned(),
        // A float always prints a point; one that is not finite has no literal.
        ValueKind::Number if value.to_string().contains(['i', 'N']) => {
            return Err(unsupported("a number beyond the range of f64"));
        }
        ValueKind::Number => value.to_string(),
        kind => return Err(unsupported(&format!("a literal of kind {kind}"))),
    };
    Ok(Piece::new(text, Form::Atom))
}

/// A string literal.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}
