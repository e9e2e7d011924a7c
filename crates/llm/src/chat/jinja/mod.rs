//! Jinja2 for chat templates: a parser, and an interpreter with Python's values.
//!
//! A template produces the output of Jinja2 in the sandbox of `transformers`, or an error that
//! names the unsupported feature. So values are Python's (`value`, `text`, `ops`, `print`,
//! `attributes`), with Python's formatting (`printf`, `format`) and methods (`methods`,
//! `methods_find`). Filters and tests are Jinja2's (`filters`, `filters_list`, `filters_text`,
//! `checks`), and so are the grammar (`lexer`, `parser`, `expression`) and the semantics (`exec`,
//! `eval`, `call`).
//!
//! Templates are untrusted. `meter` limits steps, bytes and nesting; an operation whose result may
//! be larger than its inputs is checked against the limits first. No file and no other template is
//! read, and lists and dictionaries are immutable. Text from outside the template stays marked byte
//! by byte (`text`), so that the tokenizer never parses a control token in it.

mod ast;
mod attributes;
mod call;
mod checks;
mod escape;
mod eval;
mod exec;
mod expression;
mod filters;
mod filters_list;
mod filters_text;
mod format;
mod json;
mod lexer;
mod meter;
mod methods;
mod methods_find;
mod numbers;
mod ops;
mod outside;
mod parser;
mod print;
mod printf;
mod scope;
mod text;
mod value;

use std::ops::Range;
use std::rc::Rc;
use std::time::SystemTime;

pub(super) use ast::Ast;
pub(super) use meter::Fault;
pub(super) use parser::parse;
pub(super) use value::Value;

use eval::Run;
use meter::Meter;
use scope::Scope;

/// The output of a template.
#[derive(Debug)]
pub(super) struct Rendered {
    pub(super) text: String,
    /// Byte ranges of `text` that came from outside the template: ascending, not adjacent.
    pub(super) outside: Vec<Range<usize>>,
}

/// The inputs of a render.
pub(super) struct Input<'a> {
    /// The variables of the template, with their values.
    pub(super) names: Vec<(&'a str, Value)>,
    /// Number of messages, which scales the limits, as `bytes` does.
    pub(super) messages: usize,
    /// Size of the messages, in bytes.
    pub(super) bytes: usize,
    /// The time that `strftime_now` formats; without it, calls of that function fail.
    pub(super) now: Option<SystemTime>,
}

/// Renders a template.
///
/// # Errors
/// [`Fault::Raised`] if the template raises an exception; [`Fault::Failed`] if it fails or exceeds
/// a limit.
pub(super) fn render(ast: &Ast, input: Input<'_>) -> Result<Rendered, Fault> {
    let meter = Meter::new(input.messages, input.bytes);
    let names = Scope::within(&Rc::new(Scope::default()));
    for (name, value) in input.names {
        names.set(name, value);
    }
    let mut run = Run {
        meter: &meter,
        now: input.now,
        scope: Scope::within(&names),
        out: text::Builder::default(),
        blocks: Vec::new(),
        namespaces: Vec::new(),
        scopes: Vec::new(),
    };
    let flow = run.body(&ast.body);
    // Namespaces and scopes of macros may form reference cycles.
    run.namespaces.iter().for_each(|names| drop(names.take()));
    run.scopes.iter().for_each(|scope| scope.clear());
    if flow? != exec::Flow::Next {
        return Err(Fault::Failed("break or continue outside of a loop".into(), None));
    }
    let (text, outside) = run.out.parts();
    Ok(Rendered { text, outside })
}
