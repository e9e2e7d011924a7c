//! Jinja2 for chat templates: a parser and an interpreter with Python's values.
//!
//! A template gives the output of Jinja2 in the sandbox of `transformers`, or an error that names
//! the unsupported feature. So values are Python's (`value`, `text`, `ops`, `print`, `attributes`),
//! with its formatting (`printf`, `format`) and methods (`methods`, `methods_find`); filters and
//! tests are Jinja2's (`filters`, `filters_list`, `filters_text`, `checks`), and so are its grammar
//! (`lexer`, `parser`, `expression`) and its statements (`exec`, `eval`, `call`).
//!
//! Templates are untrusted. `meter` limits steps, bytes and nesting; every operation whose result
//! is larger than its inputs asks it first. No file and no other template is read, and no value but
//! a namespace is mutable. Text from outside of the template stays marked byte by byte (`text`), so
//! that the tokenizer never parses a control token in it.

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
    /// Bytes that came from outside of the template: ascending, not adjacent.
    pub(super) outside: Vec<Range<usize>>,
}

/// The inputs of a render.
pub(super) struct Input<'a> {
    /// Variables and their values.
    pub(super) names: Vec<(&'a str, Value)>,
    /// Messages and their bytes, which scale the limits.
    pub(super) messages: usize,
    pub(super) bytes: usize,
    /// The time of `strftime_now`.
    pub(super) now: Option<SystemTime>,
}

/// Runs a template.
///
/// # Errors
/// Errors raised by the template, and errors of running it.
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
