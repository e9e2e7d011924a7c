//! Compiles one function: its registers and statements.

use naga::TypeInner;
use naga::valid::FunctionInfo;
use naga::{Block, Expression, Function, Handle, LocalVariable, Span, Statement, SwitchValue};

use super::bytecode::{NONE, Op, Slot, Table};
use super::compile::{Callee, Compiler, not_valid};
use super::layout::{self, refused};
use warploom_core::error::Result;

/// An enclosing loop or switch, with the indices of the `break` and `continue` jumps in it whose
/// targets are still unknown.
enum Scope {
    Loop { breaks: Vec<usize>, continues: Vec<usize> },
    Switch { breaks: Vec<usize> },
}

pub(super) struct Body<'c, 'm> {
    pub(super) c: &'c mut Compiler<'m>,
    pub(super) function: &'m Function,
    pub(super) info: &'m FunctionInfo,
    /// First register of each evaluated expression, by expression index; [`NONE`] for others.
    pub(super) slots: Vec<Slot>,
    locals: Vec<Slot>,
    pub(super) arguments: Vec<Slot>,
    scopes: Vec<Scope>,
    result: Slot,
    /// Register of the return address; `None` for the entry point, which ends instead.
    back: Option<Slot>,
}

impl<'c, 'm> Body<'c, 'm> {
    /// Compiles a function other than the entry point.
    pub(super) fn function(
        c: &'c mut Compiler<'m>,
        function: &'m Function,
        info: &'m FunctionInfo,
    ) -> Result<Callee> {
        let arguments = function.arguments.iter().map(|argument| {
            let n = c.size_of(argument.ty)?;
            c.registers(n)
        });
        let arguments = arguments.collect::<Result<Vec<Slot>>>()?;
        let result = match &function.result {
            Some(result) => {
                let n = c.size_of(result.ty)?;
                c.registers(n)?
            }
            None => NONE,
        };
        let back = c.registers(1)?;
        let start = c.here();
        Body::compile(c, function, info, arguments.clone(), result, Some(back))?;
        Ok(Callee { start, arguments, result, back })
    }

    /// Compiles the entry point.
    pub(super) fn entry(
        c: &'c mut Compiler<'m>,
        function: &'m Function,
        info: &'m FunctionInfo,
        arguments: Vec<Slot>,
    ) -> Result<()> {
        Body::compile(c, function, info, arguments, NONE, None)
    }

    fn compile(
        c: &'c mut Compiler<'m>,
        function: &'m Function,
        info: &'m FunctionInfo,
        arguments: Vec<Slot>,
        result: Slot,
        back: Option<Slot>,
    ) -> Result<()> {
        let slots = vec![NONE; function.expressions.len()];
        let (locals, scopes) = (Vec::new(), Vec::new());
        let mut body = Body { c, function, info, slots, locals, arguments, scopes, result, back };
        for (h, variable) in function.local_variables.iter() {
            body.c.span = function.local_variables.get_span(h);
            body.local(variable)?;
        }
        body.block(&function.body)?;
        body.leave();
        Ok(())
    }

    fn local(&mut self, variable: &LocalVariable) -> Result<()> {
        let n = self.c.size_of(variable.ty)?;
        let to = self.c.registers(n)?;
        self.locals.push(to);
        let op = match variable.init {
            Some(init) => {
                let words = self.c.constant(&self.function.expressions, init)?;
                let from = self.c.fixed(words)?;
                Op::Copy { to, from, n }
            }
            None => Op::Zero { to, n },
        };
        self.c.push(op);
        Ok(())
    }

    /// Returns the first register of a local variable.
    pub(super) fn local_slot(&self, h: Handle<LocalVariable>) -> Result<Slot> {
        self.locals.get(h.index()).copied().ok_or_else(|| not_valid("an unknown local variable"))
    }

    pub(super) fn inner(&self, h: Handle<Expression>) -> &'m TypeInner {
        self.info[h].ty.inner_with(&self.c.module.types)
    }

    /// Returns the number of registers of a value of this type.
    pub(super) fn size(&self, inner: &TypeInner) -> Result<u32> {
        layout::registers(self.c.module, inner)
    }

    fn leave(&mut self) {
        let op = match self.back {
            Some(back) => Op::Return { back },
            None => Op::End,
        };
        self.c.push(op);
    }

    fn block(&mut self, block: &'m Block) -> Result<()> {
        for (statement, span) in block.span_iter() {
            self.c.span = *span;
            self.statement(statement, *span)?;
        }
        Ok(())
    }

    fn statement(&mut self, statement: &'m Statement, span: Span) -> Result<()> {
        match statement {
            Statement::Emit(range) => {
                for h in range.clone() {
                    self.emit(h)?;
                }
            }
            Statement::Block(block) => self.block(block)?,
            Statement::If { condition, accept, reject } => {
                let condition = self.value(*condition)?;
                let skip = self.c.push(Op::Unless { condition, to: 0 });
                self.block(accept)?;
                let mut end = None;
                if !reject.is_empty() {
                    end = Some(self.c.push(Op::Jump { to: 0 }));
                }
                self.land(&[skip]);
                self.block(reject)?;
                self.land(end.as_slice());
            }
            Statement::Switch { selector, cases } => self.switch(*selector, cases)?,
            Statement::Loop { body, continuing, break_if } => {
                self.repeat(body, continuing, *break_if, span)?;
            }
            Statement::Break => {
                let jump = self.c.push(Op::Jump { to: 0 });
                match self.scopes.last_mut() {
                    Some(Scope::Loop { breaks, .. } | Scope::Switch { breaks }) => {
                        breaks.push(jump);
                    }
                    None => return Err(not_valid("a break outside of a loop")),
                }
            }
            Statement::Continue => {
                let jump = self.c.push(Op::Jump { to: 0 });
                let mut loops = self.scopes.iter_mut().rev().filter_map(|scope| match scope {
                    Scope::Loop { continues, .. } => Some(continues),
                    Scope::Switch { .. } => None,
                });
                match loops.next() {
                    Some(continues) => continues.push(jump),
                    None => return Err(not_valid("a continue outside of a loop")),
                }
            }
            Statement::Return { value } => {
                if let Some(value) = *value {
                    let (from, n) = (self.value(value)?, self.size(self.inner(value))?);
                    self.c.push(Op::Copy { to: self.result, from, n });
                }
                self.leave();
            }
            Statement::Store { pointer, value } => {
                let from = self.value(*value)?;
                self.store(*pointer, from)?;
            }
            Statement::Call { function, arguments, result } => {
                self.call(*function, arguments, *result)?;
            }
            _ => self.together(statement)?,
        }
        Ok(())
    }

    /// Patches the jumps at these instruction indices to target the next instruction.
    fn land(&mut self, jumps: &[usize]) {
        let here = self.c.here();
        for jump in jumps {
            self.aim(*jump, here);
        }
    }

    fn aim(&mut self, jump: usize, goal: u32) {
        if let Op::Jump { to } | Op::Unless { to, .. } = &mut self.c.code.ops[jump] {
            *to = goal;
        }
    }

    fn repeat(
        &mut self,
        body: &'m Block,
        continuing: &'m Block,
        break_if: Option<Handle<Expression>>,
        span: Span,
    ) -> Result<()> {
        let start = self.c.here();
        self.scopes.push(Scope::Loop { breaks: Vec::new(), continues: Vec::new() });
        self.block(body)?;
        let Some(Scope::Loop { mut breaks, continues }) = self.scopes.pop() else {
            return Err(not_valid("a loop that is gone"));
        };
        self.land(&continues);
        self.block(continuing)?;
        self.c.span = span;
        if let Some(condition) = break_if {
            let condition = self.value(condition)?;
            let again = self.c.push(Op::Unless { condition, to: 0 });
            breaks.push(self.c.push(Op::Jump { to: 0 }));
            self.land(&[again]);
        }
        self.c.push(Op::Back { to: start });
        self.land(&breaks);
        Ok(())
    }

    fn switch(
        &mut self,
        selector: Handle<Expression>,
        cases: &'m [naga::SwitchCase],
    ) -> Result<()> {
        let selector = self.value(selector)?;
        let table = self.c.code.tables.len();
        self.c.code.tables.push(Table::default());
        self.c.push(Op::Switch { selector, table: table as u32 });
        self.scopes.push(Scope::Switch { breaks: Vec::new() });
        let (mut made, mut ends) = (Table::default(), Vec::new());
        for case in cases {
            let here = self.c.here();
            match case.value {
                SwitchValue::I32(value) => made.cases.push((value as u32, here)),
                SwitchValue::U32(value) => made.cases.push((value, here)),
                SwitchValue::Default => made.default = here,
            }
            self.block(&case.body)?;
            if !case.fall_through {
                ends.push(self.c.push(Op::Jump { to: 0 }));
            }
        }
        self.c.code.tables[table] = made;
        if let Some(Scope::Switch { breaks }) = self.scopes.pop() {
            ends.extend(breaks);
        }
        self.land(&ends);
        Ok(())
    }

    fn call(
        &mut self,
        function: Handle<Function>,
        arguments: &[Handle<Expression>],
        result: Option<Handle<Expression>>,
    ) -> Result<()> {
        let Some(callee) = self.c.functions.get(&function).cloned() else {
            return Err(refused("a function that calls one declared later"));
        };
        for (argument, to) in arguments.iter().zip(&callee.arguments) {
            let inner = self.inner(*argument);
            let (from, n) = (self.value(*argument)?, self.size(inner)?);
            self.c.push(Op::Copy { to: *to, from, n });
        }
        self.c.push(Op::Call { to: callee.start, back: callee.back });
        if let Some(result) = result {
            let n = self.size(self.inner(result))?;
            let to = self.c.registers(n)?;
            self.slots[result.index()] = to;
            self.c.push(Op::Copy { to, from: callee.result, n });
        }
        Ok(())
    }

    /// Allocates the registers of a statement's result, and returns the first.
    pub(super) fn result_of(&mut self, h: Handle<Expression>) -> Result<Slot> {
        let n = self.size(self.inner(h))?;
        let to = self.c.registers(n)?;
        self.slots[h.index()] = to;
        Ok(to)
    }
}
