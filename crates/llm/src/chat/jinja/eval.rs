//! Evaluates expressions.

use std::rc::Rc;
use std::time::SystemTime;

use super::ast::{Args, Binary, Expr};
use super::attributes::{attribute, item, slice};
use super::call::Given;
use super::meter::{Fault, Meter, Result, error, fault};
use super::ops;
use super::print::str_into;
use super::scope::Scope;
use super::text::Builder;
use super::value::{Function, Names, Object, Value};

/// The state of a render.
pub(super) struct Run<'a> {
    pub(super) meter: &'a Meter,
    pub(super) now: Option<SystemTime>,
    pub(super) scope: Rc<Scope>,
    pub(super) out: Builder,
    /// Outputs of the enclosing blocks to which a filter is being applied, innermost last.
    pub(super) blocks: Vec<Value>,
    /// Namespaces, which may form reference cycles; emptied at the end, as are the scopes of
    /// macros.
    pub(super) namespaces: Vec<Names>,
    pub(super) scopes: Vec<Rc<Scope>>,
}

impl Run<'_> {
    pub(super) fn eval(&mut self, expr: &Expr) -> Result<Value> {
        self.meter.enter()?;
        let value = self.eval_here(expr);
        self.meter.leave();
        value
    }

    fn eval_here(&mut self, expr: &Expr) -> Result<Value> {
        match expr {
            Expr::None => Ok(Value::None),
            Expr::Bool(is) => Ok(Value::Bool(*is)),
            Expr::Int(number) => Ok(Value::Int(*number)),
            Expr::Float(number) => Ok(Value::Float(*number)),
            Expr::Text(text) => self.literal(text),
            Expr::Name(name) => self.name(name),
            Expr::Block => self.blocks.last().cloned().ok_or_else(|| error("no block")),
            Expr::Tuple(items) => {
                let items = self.all(items)?;
                Value::tuple(items, self.meter)
            }
            Expr::List(items) => {
                let items = self.all(items)?;
                Value::list(items, self.meter)
            }
            Expr::Dict(pairs) => self.dict(pairs),
            Expr::Not(value) => Ok(Value::Bool(!self.eval(value)?.is_true())),
            Expr::Neg(value) => ops::negative(&self.eval(value)?),
            Expr::Pos(value) => ops::positive(&self.eval(value)?),
            Expr::Binary(..) => self.binary(expr),
            Expr::And(..) | Expr::Or(..) => self.choice(expr),
            Expr::Concat(parts) => self.concat(parts),
            Expr::Compare(..) => self.compare(expr),
            Expr::Cond(test, yes, no) => match (self.eval(test)?.is_true(), no) {
                (true, _) => self.eval(yes),
                (false, Some(no)) => self.eval(no),
                (false, None) => Ok(Value::undefined(
                    "the inline if-expression evaluated to false and no else section was defined",
                )),
            },
            Expr::Filter(value, name, args) => self.filtered(value, name, args),
            Expr::Test(value, name, args) => self.tested(value, name, args),
            Expr::Attr(value, name) => {
                let value = self.eval(value)?;
                attribute(&value, name, self.meter)
            }
            Expr::Item(value, key) => {
                let value = self.eval(value)?;
                let key = self.eval(key)?;
                item(&value, &key, self.meter)
            }
            Expr::Slice(value, parts) => self.slice(value, parts),
            Expr::Call(callee, args) => self.call_of(callee, args),
        }
    }

    fn literal(&self, text: &str) -> Result<Value> {
        self.meter.fits(Some(text.len()))?;
        Ok(Value::own(text))
    }

    fn name(&self, name: &str) -> Result<Value> {
        if let Some(value) = self.scope.find(name, self.meter)? {
            return Ok(value);
        }
        let function = match name {
            "range" => Function::Range,
            "dict" => Function::Dict,
            "namespace" => Function::Namespace,
            "cycler" => Function::Cycler,
            "joiner" => Function::Joiner,
            "lipsum" => Function::Lipsum,
            "raise_exception" => Function::RaiseException,
            "strftime_now" => Function::StrftimeNow,
            "self" => return fault("self is not supported: there are no blocks"),
            _ => return Ok(Value::undefined(format!("'{name:.60}' is undefined"))),
        };
        Ok(Value::Object(Object::Function(function)))
    }

    pub(super) fn all(&mut self, items: &[Expr]) -> Result<Vec<Value>> {
        items.iter().map(|item| self.eval(item)).collect()
    }

    fn dict(&mut self, pairs: &[(Expr, Expr)]) -> Result<Value> {
        let mut made = Vec::new();
        for (key, value) in pairs {
            let (key, value) = (self.eval(key)?, self.eval(value)?);
            ops::put(&mut made, key, value, self.meter)?;
        }
        Value::dict(made, self.meter)
    }

    /// Evaluates a chain of binary operators. Left operands may nest deeply, so a loop avoids
    /// recursion.
    fn binary(&mut self, expr: &Expr) -> Result<Value> {
        let mut rest: Vec<(Binary, &Expr)> = Vec::new();
        let mut first = expr;
        while let Expr::Binary(op, left, right) = first {
            rest.push((*op, right));
            first = left;
        }
        let mut value = self.eval(first)?;
        for (op, right) in rest.into_iter().rev() {
            let right = self.eval(right)?;
            value = ops::binary(op, &value, &right, self.meter)?;
        }
        Ok(value)
    }

    fn choice(&mut self, expr: &Expr) -> Result<Value> {
        let mut rest: Vec<(bool, &Expr)> = Vec::new();
        let mut first = expr;
        loop {
            match first {
                Expr::And(left, right) => {
                    rest.push((false, right));
                    first = left;
                }
                Expr::Or(left, right) => {
                    rest.push((true, right));
                    first = left;
                }
                _ => break,
            }
        }
        let mut value = self.eval(first)?;
        for (ends_at, right) in rest.into_iter().rev() {
            if value.is_true() != ends_at {
                value = self.eval(right)?;
            }
        }
        Ok(value)
    }

    fn concat(&mut self, parts: &[Expr]) -> Result<Value> {
        let mut out = Builder::default();
        for part in parts {
            let part = self.eval(part)?;
            str_into(&mut out, &part, self.meter)?;
        }
        Ok(Value::Str(out.finish(self.meter)?))
    }

    fn compare(&mut self, expr: &Expr) -> Result<Value> {
        let Expr::Compare(first, rest) = expr else { return Ok(Value::None) };
        let mut left = self.eval(first)?;
        for (op, right) in rest {
            let right = self.eval(right)?;
            if !ops::compare(*op, &left, &right, self.meter)? {
                return Ok(Value::Bool(false));
            }
            left = right;
        }
        Ok(Value::Bool(true))
    }

    fn slice(&mut self, value: &Expr, parts: &[Option<Expr>; 3]) -> Result<Value> {
        let value = self.eval(value)?;
        let mut bounds = [None, None, None];
        for (bound, part) in bounds.iter_mut().zip(parts) {
            *bound = part.as_ref().map(|part| self.eval(part)).transpose()?;
        }
        slice(&value, &bounds, self.meter)
    }

    pub(super) fn given(&mut self, args: &Args) -> Result<Given> {
        let mut given = Given { positional: self.all(&args.positional)?, named: Vec::new() };
        for (name, value) in &args.named {
            given.named.push((Rc::from(&**name), self.eval(value)?));
        }
        if let Some(star) = &args.star {
            let more = self.eval(star)?;
            ops::defined(&more)?;
            given.positional.extend(more.iterate(self.meter)?);
        }
        if let Some(stars) = &args.stars {
            let more = self.eval(stars)?;
            let Value::Dict(dict) = &more else {
                return fault(format!(
                    "argument after ** must be a mapping, not {}",
                    more.type_name()
                ));
            };
            self.meter.items(dict.pairs.len())?;
            for (key, value) in &dict.pairs {
                let Value::Str(name) = key else { return fault("keywords must be strings") };
                if given.named.iter().any(|(known, _)| **known == *name.as_str()) {
                    return fault(format!(
                        "multiple values for keyword argument {:.40?}",
                        name.as_str()
                    ));
                }
                given.named.push((name.as_str().into(), value.clone()));
            }
        }
        Ok(given)
    }

    fn filtered(&mut self, value: &Expr, name: &str, args: &Args) -> Result<Value> {
        let value = self.eval(value)?;
        let given = self.given(args)?;
        self.filter(name, &value, &given)
    }

    fn tested(&mut self, value: &Expr, name: &str, args: &Args) -> Result<Value> {
        let value = self.eval(value)?;
        let given = self.given(args)?;
        Ok(Value::Bool(self.test(name, &value, &given)?))
    }

    fn call_of(&mut self, callee: &Expr, args: &Args) -> Result<Value> {
        let called = self.eval(callee)?;
        let given = self.given(args)?;
        self.call(&called, given).map_err(|e| match (e, callee) {
            // The value has no name, but the expression has one.
            (Fault::Failed(what, line), Expr::Name(name)) if !what.contains(&**name) => {
                Fault::Failed(format!("{name:.40}: {what}"), line)
            }
            (e, _) => e,
        })
    }

    /// Calls a macro, function, method, loop or joiner.
    pub(super) fn call(&mut self, called: &Value, given: Given) -> Result<Value> {
        self.meter.enter()?;
        let value = match called {
            Value::Object(Object::Macro(made)) => self.call_macro(made, given),
            Value::Object(Object::Function(function)) => self.function(*function, &given),
            Value::Object(Object::Method(method)) => self.method(&method.0, &method.1, &given),
            Value::Object(Object::Loop(state)) => self.call_loop(state, &given),
            Value::Object(Object::Joiner(state)) => Ok(match state.1.replace(true) {
                true => state.0.clone(),
                false => Value::from(""),
            }),
            Value::Undefined(what) => fault(&**what),
            other => fault(format!("'{}' object is not callable", other.type_name())),
        };
        self.meter.leave();
        value
    }
}
