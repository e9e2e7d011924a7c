//! Jinja2, as chat templates need it: a parser and an interpreter with Python's values.
//!
//! The rule is that of all readers here: a template gives what Jinja2 gives in the sandbox that
//! `transformers` sets up for it, or an error that names what is not supported. So values are
//! Python's (`value`, `text`, `ops`, `print`, `attributes`), with its formatting (`printf`, `format`)
//! and methods (`methods`, `methods_find`); filters and tests are Jinja2's (`filters`, `filters_list`,
//! `filters_text`, `checks`), and so are its grammar (`lexer`, `parser`, `expression`) and its
//! statements (`exec`, `eval`, `call`).
//!
//! A template is not trusted. `meter` bounds steps, bytes and nesting; whatever makes something
//! larger than what it was made of asks it before it does. No file and no other template is read,
//! and no value but a namespace changes. What comes from outside of the template stays known as
//! such, byte by byte (`text`), so that the tokenizer takes no control token from it.

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

/// What a template has written.
#[derive(Debug)]
pub(super) struct Rendered {
    pub(super) text: String,
    /// Bytes of it that came from outside of the template: in order, apart.
    pub(super) outside: Vec<Range<usize>>,
}

/// What a template is rendered with.
pub(super) struct Input<'a> {
    /// Names and what they stand for.
    pub(super) names: Vec<(&'a str, Value)>,
    /// Messages and their bytes: the bounds grow with them.
    pub(super) messages: usize,
    pub(super) bytes: usize,
    /// What `strftime_now` says.
    pub(super) now: Option<SystemTime>,
}

/// Runs a template.
///
/// # Errors
/// What it raises itself, and apart from that what goes wrong in it.
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
    // Namespaces and scopes of macros may hold themselves alive.
    run.namespaces.iter().for_each(|names| drop(names.take()));
    run.scopes.iter().for_each(|scope| scope.clear());
    if flow? != exec::Flow::Next {
        return Err(Fault::Failed("break or continue outside of a loop".into(), None));
    }
    let (text, outside) = run.out.parts();
    Ok(Rendered { text, outside })
}
