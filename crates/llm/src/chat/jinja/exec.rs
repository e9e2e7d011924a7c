//! Runs statements.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::ast::{Expr, For, Macro, Node, Stmt, Target};
use super::call::{Given, check_name};
use super::eval::Run;
use super::meter::{Fault, NODE, Result, error, fault};
use super::print::str_into;
use super::scope::Scope;
use super::text::Builder;
use super::value::{Loop, MacroValue, Object, Value};

/// How a body ended.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Flow {
    Next,
    Break,
    Continue,
}

impl Run<'_> {
    pub(super) fn body(&mut self, body: &[Node]) -> Result<Flow> {
        for node in body {
            self.meter.enter()?;
            let flow = self.statement(&node.stmt);
            self.meter.leave();
            let flow = flow.map_err(|e| match e {
                Fault::Failed(what, None) => Fault::Failed(what, Some(node.line)),
                other => other,
            })?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn statement(&mut self, stmt: &Stmt) -> Result<Flow> {
        match stmt {
            Stmt::Text(text) => {
                self.meter.write(text.len())?;
                self.out.own(text);
            }
            Stmt::Emit(values) => self.emit(values)?,
            Stmt::For(made) => return self.for_loop(made).map(|()| Flow::Next),
            Stmt::If(cases, otherwise) => {
                for (test, body) in cases {
                    if self.eval(test)?.is_true() {
                        return self.body(body);
                    }
                }
                return self.body(otherwise);
            }
            Stmt::Set(target, value) => {
                let value = self.eval(value)?;
                self.assign(target, value)?;
            }
            Stmt::SetBlock(target, filter, body) => {
                let value = self.captured(filter.as_ref(), body)?;
                self.assign(target, value)?;
            }
            Stmt::FilterBlock(filter, body) => {
                let value = self.captured(Some(filter), body)?;
                self.write(&value)?;
            }
            Stmt::With(pairs, body) => self.with(pairs, body)?,
            Stmt::Macro(made) => {
                let value = self.macro_here(made)?;
                self.scope.set(&made.name, value);
            }
            Stmt::CallBlock(call, made) => self.call_block(call, made)?,
            Stmt::Scope(body) => {
                let inner = Scope::within(&self.scope);
                self.within(inner, |run| run.whole(body))?;
            }
            Stmt::Break => return Ok(Flow::Break),
            Stmt::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    /// Runs a body that no `break` or `continue` may leave.
    fn whole(&mut self, body: &[Node]) -> Result<()> {
        match self.body(body)? {
            Flow::Next => Ok(()),
            _ => fault("break or continue outside of a loop"),
        }
    }

    fn within<T>(
        &mut self,
        scope: Rc<Scope>,
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let outer = std::mem::replace(&mut self.scope, scope);
        let done = work(self);
        self.scope = outer;
        done
    }

    fn emit(&mut self, values: &[Expr]) -> Result<()> {
        for value in values {
            let value = self.eval(value)?;
            self.write(&value)?;
        }
        Ok(())
    }

    fn write(&mut self, value: &Value) -> Result<()> {
        if let Value::Str(text) = value {
            self.meter.write(text.as_str().len() + 16 * text.outside_ranges().len())?;
            self.out.text(text);
            return Ok(());
        }
        let mut out = Builder::default();
        str_into(&mut out, value, self.meter)?;
        let text = out.finish(self.meter)?;
        self.meter.write(text.as_str().len())?;
        self.out.text(&text);
        Ok(())
    }

    /// Runs `work` and returns its output as a value.
    fn written(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<Value> {
        let outer = std::mem::take(&mut self.out);
        let done = work(self);
        let out = std::mem::replace(&mut self.out, outer);
        done?;
        Ok(Value::Str(out.finish(self.meter)?))
    }

    fn captured(&mut self, filter: Option<&Expr>, body: &[Node]) -> Result<Value> {
        let inner = Scope::within(&self.scope);
        let text = self.written(|run| run.within(inner, |run| run.whole(body)))?;
        let Some(filter) = filter else { return Ok(text) };
        self.blocks.push(text);
        let value = self.eval(filter);
        self.blocks.pop();
        value
    }

    fn with(&mut self, pairs: &[(Target, Expr)], body: &[Node]) -> Result<()> {
        let inner = Scope::within(&self.scope);
        for (target, value) in pairs {
            // Values see the names outside the block, not those of each other.
            let value = self.eval(value)?;
            self.within(inner.clone(), |run| run.assign(target, value))?;
        }
        self.within(inner, |run| run.whole(body))
    }

    fn assign(&mut self, target: &Target, value: Value) -> Result<()> {
        match target {
            Target::Name(name) => {
                self.meter.spend(NODE)?;
                self.scope.set(name, value);
                Ok(())
            }
            Target::Attr(name, attr) => {
                let Some(Value::Object(Object::Namespace(names))) =
                    self.scope.find(name, self.meter)?
                else {
                    return fault("cannot assign attribute on non-namespace object");
                };
                check_name(attr)?;
                self.meter.spend(NODE)?;
                let mut names = names.borrow_mut();
                self.meter.step(1 + names.len() as u64 / 8)?;
                match names.iter_mut().find(|(known, _)| **known == **attr) {
                    Some((_, place)) => *place = value,
                    None => names.push((Rc::from(&**attr), value)),
                }
                Ok(())
            }
            Target::Several(targets) => {
                super::ops::defined(&value)?;
                let values = value.iterate(self.meter)?;
                if values.len() != targets.len() {
                    let (count, wanted) = (values.len(), targets.len());
                    return fault(format!("{count} values to unpack, expected {wanted}"));
                }
                for (target, value) in targets.iter().zip(values) {
                    self.assign(target, value)?;
                }
                Ok(())
            }
        }
    }

    fn for_loop(&mut self, made: &Arc<For>) -> Result<()> {
        let iter = self.eval(&made.iter)?;
        let around = self.scope.clone();
        self.turns(made, &around, &iter, 0)
    }

    /// Runs the body of a loop for each item, or `else` if there are none.
    fn turns(
        &mut self,
        made: &Arc<For>,
        around: &Rc<Scope>,
        iter: &Value,
        depth: usize,
    ) -> Result<()> {
        let mut items = iter.iterate(self.meter)?;
        if let Some(test) = &made.test {
            let mut kept = Vec::new();
            for item in items {
                let inner = Scope::within(around);
                let keeps = self.within(inner, |run| {
                    run.assign(&made.target, item.clone())?;
                    Ok(run.eval(test)?.is_true())
                })?;
                if keeps {
                    kept.push(item);
                }
            }
            items = kept;
        }
        if items.is_empty() {
            return self.within(Scope::within(around), |run| run.whole(&made.otherwise));
        }
        let again = made.recursive.then(|| (made.clone(), around.clone()));
        let (index, last) = (Cell::new(0), RefCell::new(None));
        let state = Rc::new(Loop { items, index, depth, last, again });
        for at in 0..state.items.len() {
            state.index.set(at);
            self.meter.spend(2 * NODE)?;
            let inner = Scope::within(around);
            inner.set("loop", Value::Object(Object::Loop(state.clone())));
            let flow = self.within(inner, |run| {
                run.assign(&made.target, state.items[at].clone())?;
                run.body(&made.body)
            })?;
            if flow == Flow::Break {
                break;
            }
        }
        Ok(())
    }

    /// Runs `loop(items)`: repeats a recursive loop for these items and returns its output.
    pub(super) fn call_loop(&mut self, state: &Loop, given: &Given) -> Result<Value> {
        let Some((made, around)) = &state.again else {
            return fault("the loop must have the 'recursive' marker to be called recursively");
        };
        let [items] = given.bind("loop", ["iterable"])?;
        let items = items.ok_or_else(|| error("loop: an argument is missing"))?;
        self.written(|run| run.turns(made, around, &items, state.depth + 1))
    }

    fn macro_here(&mut self, made: &Arc<Macro>) -> Result<Value> {
        self.meter.spend(4 * NODE)?;
        let scope = self.scope.clone();
        self.scopes.push(scope.clone());
        Ok(Value::Object(Object::Macro(Rc::new(MacroValue { made: made.clone(), scope }))))
    }

    fn call_block(&mut self, call: &Expr, made: &Arc<Macro>) -> Result<()> {
        let Expr::Call(callee, args) = call else { return fault("call: not a call") };
        let caller = self.macro_here(made)?;
        let called = self.eval(callee)?;
        let mut given = self.given(args)?;
        given.named.push(("caller".into(), caller));
        let value = self.call(&called, given)?;
        self.write(&value)
    }

    pub(super) fn call_macro(&mut self, called: &MacroValue, given: Given) -> Result<Value> {
        let made = &called.made;
        let name = &made.name;
        let inner = Scope::within(&called.scope);
        let mut named = given.named;
        let mut positional = given.positional.into_iter();
        if made.uses_caller {
            let at = named.iter().position(|(known, _)| **known == *"caller");
            let caller = at.map(|at| named.remove(at).1);
            inner.set("caller", caller.unwrap_or_else(|| Value::undefined("No caller defined")));
        }
        self.meter.spend(NODE * (4 + made.params.len() as u64))?;
        for (param, default) in &made.params {
            let by_name = named.iter().position(|(known, _)| **known == **param);
            let value = match (positional.next(), by_name) {
                (Some(_), Some(_)) => {
                    return fault(format!("macro {name:.40?} got two values for {param:.40?}"));
                }
                (Some(value), None) => value,
                (None, Some(at)) => named.remove(at).1,
                (None, None) => match default {
                    Some(default) => self.within(inner.clone(), |run| run.eval(default))?,
                    None => Value::undefined(format!("parameter '{param:.60}' was not provided")),
                },
            };
            inner.set(param, value);
        }
        let more: Vec<Value> = positional.collect();
        if made.uses_varargs {
            inner.set("varargs", Value::tuple(more, self.meter)?);
        } else if !more.is_empty() {
            let count = made.params.len();
            return fault(format!("macro {name:.40?} takes not more than {count} argument(s)"));
        }
        if made.uses_kwargs {
            let pairs = named.into_iter().map(|(name, value)| (Value::from(&*name), value));
            inner.set("kwargs", Value::dict(pairs.collect(), self.meter)?);
        } else if let Some((known, _)) = named.first() {
            return fault(format!("macro {name:.40?} takes no keyword argument {known:.40?}"));
        }
        self.written(|run| run.within(inner, |run| run.whole(&made.body)))
    }
}
