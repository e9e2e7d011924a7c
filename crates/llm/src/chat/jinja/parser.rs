//! Parses statements according to Jinja2's grammar.

use std::sync::Arc;

use super::ast::{Ast, Expr, For, Macro, Node, Stmt, Target};
use super::lexer::{SyntaxError, Token, tokens};

/// Maximum nesting of tags: each level uses stack in the parser and the interpreter.
const MAX_TAGS: usize = 60;
/// Maximum nesting of brackets, conditions and operators.
pub(super) const MAX_NESTED: usize = 80;

/// Parses a template.
pub(in crate::chat) fn parse(source: &str) -> Result<Ast, SyntaxErrorText> {
    let parsed = tokens(source).and_then(|tokens| {
        let mut parser = Parser { tokens, at: 0, tags: 0, nested: 0, names: Vec::new() };
        let body = parser.body(&[])?;
        Ok(Ast { body })
    });
    parsed.map_err(|SyntaxError { line, what }| SyntaxErrorText { line, what })
}

/// A syntax error and its line.
#[derive(Debug)]
pub(in crate::chat) struct SyntaxErrorText {
    pub(in crate::chat) line: u32,
    pub(in crate::chat) what: String,
}

pub(super) struct Parser {
    tokens: Vec<(Token, u32)>,
    at: usize,
    tags: usize,
    pub(super) nested: usize,
    /// Which of `caller`, `varargs` and `kwargs` each open macro has read so far.
    names: Vec<[bool; 3]>,
}

pub(super) type Parsed<T> = Result<T, SyntaxError>;

impl Parser {
    pub(super) fn peek(&self) -> &Token {
        self.look(0)
    }

    pub(super) fn look(&self, ahead: usize) -> &Token {
        // The last token is the end.
        let last = self.tokens.len() - 1;
        &self.tokens[(self.at + ahead).min(last)].0
    }

    fn line(&self) -> u32 {
        self.tokens[self.at.min(self.tokens.len() - 1)].1
    }

    pub(super) fn skip(&mut self) {
        self.at += 1;
    }

    pub(super) fn fail<T>(&self, what: impl Into<String>) -> Parsed<T> {
        Err(SyntaxError { line: self.line(), what: what.into() })
    }

    pub(super) fn unexpected<T>(&self) -> Parsed<T> {
        let what = match self.peek() {
            Token::End => "the template ends too early".to_owned(),
            Token::VariableEnd => "unexpected end of the tag, }}".into(),
            Token::BlockEnd => "unexpected end of the tag, %}".into(),
            Token::Name(name) => format!("unexpected {name:.40?}"),
            Token::Text(text) => format!("unexpected text {text:.40?}"),
            Token::Int(number) => format!("unexpected number {number}"),
            Token::Float(number) => format!("unexpected number {number}"),
            Token::Sign(sign) => format!("unexpected {sign:?}"),
            Token::Data(_) | Token::VariableBegin | Token::BlockBegin => "unexpected tag".into(),
        };
        self.fail(what)
    }

    pub(super) fn is_sign(&self, sign: &str) -> bool {
        matches!(self.peek(), Token::Sign(s) if *s == sign)
    }

    pub(super) fn skip_sign(&mut self, sign: &str) -> bool {
        let is = self.is_sign(sign);
        self.at += usize::from(is);
        is
    }

    pub(super) fn expect_sign(&mut self, sign: &str) -> Parsed<()> {
        match self.skip_sign(sign) {
            true => Ok(()),
            false => {
                let Err(error) = self.unexpected::<()>() else { return Ok(()) };
                Err(SyntaxError { what: format!("{}, expected {sign:?}", error.what), ..error })
            }
        }
    }

    pub(super) fn is_name(&self, name: &str) -> bool {
        matches!(self.peek(), Token::Name(n) if **n == *name)
    }

    pub(super) fn skip_name(&mut self, name: &str) -> bool {
        let is = self.is_name(name);
        self.at += usize::from(is);
        is
    }

    pub(super) fn name(&mut self) -> Parsed<Arc<str>> {
        let Token::Name(name) = self.peek() else { return self.unexpected() };
        let name = name.clone();
        self.skip();
        Ok(name)
    }

    fn end_tag(&mut self) -> Parsed<()> {
        match self.peek() {
            Token::BlockEnd => {
                self.skip();
                Ok(())
            }
            _ => self.unexpected(),
        }
    }

    /// Records that the innermost macro reads `name`, if it is `caller`, `varargs` or `kwargs`.
    pub(super) fn reads(&mut self, name: &str) {
        let at = ["caller", "varargs", "kwargs"].iter().position(|known| *known == name);
        if let (Some(at), Some(names)) = (at, self.names.last_mut()) {
            names[at] = true;
        }
    }

    /// Parses statements up to a tag with one of these names; the name is not consumed.
    fn body(&mut self, ends: &[&str]) -> Parsed<Vec<Node>> {
        let mut body = Vec::new();
        loop {
            let line = self.line();
            match self.peek() {
                Token::Data(text) => {
                    body.push(Node { line, stmt: Stmt::Text(text.as_str().into()) });
                    self.skip();
                }
                Token::VariableBegin => {
                    self.skip();
                    let value = self.tuple(true, &[])?;
                    if *self.peek() != Token::VariableEnd {
                        return self.unexpected();
                    }
                    self.skip();
                    body.push(Node { line, stmt: Stmt::Emit(vec![value]) });
                }
                Token::BlockBegin => {
                    self.skip();
                    if ends.iter().any(|end| self.is_name(end)) {
                        return Ok(body);
                    }
                    self.tags += 1;
                    if self.tags > MAX_TAGS {
                        return self.fail(format!("tags nested more than {MAX_TAGS} deep"));
                    }
                    body.push(Node { line, stmt: self.statement(ends)? });
                    self.tags -= 1;
                }
                Token::End if ends.is_empty() => return Ok(body),
                Token::End => {
                    return self.fail(format!("the template ends without {}", ends.join(" or ")));
                }
                _ => return self.unexpected(),
            }
        }
    }

    /// Parses the rest of a tag, its body and the tag that ends the body.
    fn block(&mut self, end: &'static str) -> Parsed<Vec<Node>> {
        self.open()?;
        let body = self.body(&[end])?;
        self.skip();
        self.end_tag()?;
        Ok(body)
    }

    /// Consumes the end of a tag that has a body.
    fn open(&mut self) -> Parsed<()> {
        self.skip_sign(":");
        self.end_tag()
    }

    fn statement(&mut self, ends: &[&str]) -> Parsed<Stmt> {
        let Token::Name(word) = self.peek() else { return self.unexpected() };
        let word = word.clone();
        self.skip();
        match &*word {
            "for" => self.for_loop(),
            "if" => self.condition(),
            "set" => self.set(),
            "with" => self.with(),
            "macro" => {
                let name = self.name()?;
                let made = self.macro_of(name, "endmacro", true)?;
                Ok(Stmt::Macro(Arc::new(made)))
            }
            "call" => self.call_block(),
            "filter" => {
                let filter = self.filters(Expr::Block, true)?;
                Ok(Stmt::FilterBlock(filter, self.block("endfilter")?))
            }
            "generation" => Ok(Stmt::Scope(self.block("endgeneration")?)),
            "print" => {
                let mut values = Vec::new();
                while *self.peek() != Token::BlockEnd {
                    if !values.is_empty() {
                        self.expect_sign(",")?;
                    }
                    values.push(self.expression(true)?);
                }
                self.end_tag()?;
                Ok(Stmt::Emit(values))
            }
            "break" | "continue" => {
                self.end_tag()?;
                Ok(if *word == *"break" { Stmt::Break } else { Stmt::Continue })
            }
            "extends" | "include" | "import" | "from" | "block" => {
                self.fail(format!("{word}: a second template is not supported"))
            }
            "autoescape" => self.fail("autoescape is not supported"),
            _ if ends.is_empty() => self.fail(format!("unknown tag {word:.40?}")),
            _ => {
                let ends = ends.join(" or ");
                self.fail(format!("unknown tag {word:.40?}, expected {ends} before the end"))
            }
        }
    }

    fn for_loop(&mut self) -> Parsed<Stmt> {
        let target = self.target(&["in"], false)?;
        if !self.skip_name("in") {
            return self.unexpected();
        }
        let iter = self.tuple(false, &["recursive"])?;
        let test = match self.skip_name("if") {
            true => Some(self.expression(true)?),
            false => None,
        };
        let recursive = self.skip_name("recursive");
        self.open()?;
        let body = self.body(&["endfor", "else"])?;
        let otherwise = match self.skip_name("else") {
            true => self.block("endfor")?,
            false => {
                self.skip();
                self.end_tag()?;
                Vec::new()
            }
        };
        Ok(Stmt::For(Arc::new(For { target, iter, test, recursive, body, otherwise })))
    }

    fn condition(&mut self) -> Parsed<Stmt> {
        let mut cases = Vec::new();
        loop {
            let test = self.tuple(false, &[])?;
            self.open()?;
            cases.push((test, self.body(&["elif", "else", "endif"])?));
            if self.skip_name("elif") {
                continue;
            }
            if self.skip_name("else") {
                return Ok(Stmt::If(cases, self.block("endif")?));
            }
            self.skip();
            self.end_tag()?;
            return Ok(Stmt::If(cases, Vec::new()));
        }
    }

    fn set(&mut self) -> Parsed<Stmt> {
        let target = self.target(&[], true)?;
        if self.skip_sign("=") {
            let value = self.tuple(true, &[])?;
            self.end_tag()?;
            return Ok(Stmt::Set(target, value));
        }
        let filter = match self.is_sign("|") {
            true => Some(self.filters(Expr::Block, false)?),
            false => None,
        };
        Ok(Stmt::SetBlock(target, filter, self.block("endset")?))
    }

    fn with(&mut self) -> Parsed<Stmt> {
        let mut pairs = Vec::new();
        while *self.peek() != Token::BlockEnd && !self.is_sign(":") {
            if !pairs.is_empty() {
                self.expect_sign(",")?;
            }
            let target = self.target(&[], false)?;
            self.expect_sign("=")?;
            pairs.push((target, self.expression(true)?));
        }
        Ok(Stmt::With(pairs, self.block("endwith")?))
    }

    fn call_block(&mut self) -> Parsed<Stmt> {
        let at = self.at;
        // The signature, if any, comes first, then the call, then the body.
        let params = match self.is_sign("(") {
            true => self.signature()?,
            false => Vec::new(),
        };
        let call = self.expression(true)?;
        if !matches!(call, Expr::Call(..)) {
            self.at = at;
            return self.fail("call: expected a call of a macro");
        }
        let mut made = self.macro_of("caller".into(), "endcall", false)?;
        made.params = params;
        Ok(Stmt::CallBlock(call, Arc::new(made)))
    }

    fn macro_of(&mut self, name: Arc<str>, end: &'static str, signed: bool) -> Parsed<Macro> {
        self.names.push([false; 3]);
        let params = match signed {
            true => self.signature()?,
            false => Vec::new(),
        };
        let body = self.block(end)?;
        let used = self.names.pop().unwrap_or_default();
        // Names read by a nested macro are also read by the outer one.
        if let Some(outer) = self.names.last_mut() {
            outer.iter_mut().zip(used).for_each(|(outer, used)| *outer |= used);
        }
        // A parameter shadows a special name.
        let uses = |at: usize, name: &str| used[at] && !params.iter().any(|(p, _)| **p == *name);
        let (uses_caller, uses_varargs) = (uses(0, "caller"), uses(1, "varargs"));
        let uses_kwargs = uses(2, "kwargs");
        Ok(Macro { name, params, body, uses_caller, uses_varargs, uses_kwargs })
    }

    fn signature(&mut self) -> Parsed<Vec<(Arc<str>, Option<Expr>)>> {
        self.expect_sign("(")?;
        let mut params: Vec<(Arc<str>, Option<Expr>)> = Vec::new();
        while !self.is_sign(")") {
            if !params.is_empty() {
                self.expect_sign(",")?;
                if self.is_sign(")") {
                    break;
                }
            }
            let name = self.name()?;
            let default = match self.skip_sign("=") {
                true => Some(self.expression(true)?),
                false if params.last().is_some_and(|(_, default)| default.is_some()) => {
                    return self.fail("a parameter without a default after one with a default");
                }
                false => None,
            };
            params.push((name, default));
        }
        self.expect_sign(")")?;
        Ok(params)
    }

    fn target(&mut self, ends: &[&str], namespaces: bool) -> Parsed<Target> {
        let mut all = Vec::new();
        let mut several = false;
        loop {
            let at_end =
                ends.iter().any(|end| self.is_name(end)) || self.is_sign("=") || self.is_sign(")");
            if !all.is_empty() && at_end {
                break;
            }
            all.push(match self.skip_sign("(") {
                true => {
                    self.nested += 1;
                    if self.nested > MAX_NESTED {
                        return self.fail(format!("nested more than {MAX_NESTED} deep"));
                    }
                    let inner = self.target(&[], namespaces)?;
                    self.nested -= 1;
                    self.expect_sign(")")?;
                    inner
                }
                false => {
                    let name = self.name()?;
                    if matches!(&*name, "true" | "false" | "none" | "True" | "False" | "None") {
                        return self.fail(format!("cannot assign to {name}"));
                    }
                    match namespaces && self.skip_sign(".") {
                        true => Target::Attr(name, self.name()?),
                        false => Target::Name(name),
                    }
                }
            });
            match self.skip_sign(",") {
                true => several = true,
                false => break,
            }
        }
        match (several, all.pop()) {
            (false, Some(only)) => Ok(only),
            (_, last) => {
                all.extend(last);
                Ok(Target::Several(all))
            }
        }
    }
}
