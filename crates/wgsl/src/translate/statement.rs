//! Prints statements: structured control flow as it is, and loops with an inlined `continuing`
//! block.

use naga::{AddressSpace, TypeInner};
use naga::{Barrier, Block, Expression, Function, Handle, Statement, SwitchCase, SwitchValue};

use super::dialect::Dialect;
use super::function::{Body, Loop};
use super::holes::has_holes;
use super::kernel::blocks;
use super::types::{Pointee, pointee};
use warploom_core::error::Result;

impl<'a> Body<'_, 'a> {
    pub(super) fn block(&mut self, block: &'a Block) -> Result<()> {
        block.iter().try_for_each(|statement| self.statement(statement))
    }

    fn statement(&mut self, statement: &'a Statement) -> Result<()> {
        self.wait_before(statement);
        match *statement {
            Statement::Emit(ref range) => {
                for h in range.clone() {
                    self.wait_before_load(h);
                    if self.is_baked(h) && pointee(self.inner(h)).is_none() {
                        let value = self.fresh(h)?;
                        self.bake(h, &value)?;
                    }
                }
            }
            Statement::Block(ref block) => self.braces("{", block, "}")?,
            Statement::If { condition, ref accept, ref reject } => {
                let condition = self.value(condition)?;
                match (accept.is_empty(), reject.is_empty()) {
                    (true, true) => {}
                    (true, false) => self.braces(&format!("if (!{condition}) {{"), reject, "}")?,
                    (false, true) => self.braces(&format!("if ({condition}) {{"), accept, "}")?,
                    (false, false) => {
                        self.braces(&format!("if ({condition}) {{"), accept, "} else {")?;
                        self.braces_open(reject, "}")?;
                    }
                }
            }
            Statement::Switch { selector, ref cases } => self.switch(selector, cases)?,
            Statement::Loop { ref body, ref continuing, break_if } => {
                self.print_loop(body, continuing, break_if)?;
            }
            Statement::Break => self.line("break;"),
            Statement::Continue => {
                self.end_of_turn()?;
                self.line("continue;");
            }
            Statement::Return { value: None } => self.line("return;"),
            Statement::Return { value: Some(value) } => {
                let value = self.value(value)?;
                self.line(&format!("return {value};"));
            }
            Statement::ControlBarrier(barrier) => self.barrier(barrier)?,
            Statement::MemoryBarrier(_) => self.line(self.w.dialect.pick(
                "__threadfence();",
                "mem_fence(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
            )),
            Statement::Store { pointer, value } => self.store(pointer, value)?,
            Statement::Atomic { pointer, fun, value, result } => {
                self.print_atomic(pointer, fun, value, result)?;
            }
            Statement::WorkGroupUniformLoad { pointer, result } => {
                self.barrier(Barrier::WORK_GROUP)?;
                let place = self.place(pointer)?.text();
                let value = self.loaded(place, self.inner(result))?;
                self.bake(result, &value)?;
                self.barrier(Barrier::WORK_GROUP)?;
            }
            Statement::Call { function, ref arguments, result } => {
                self.call(function, arguments, result)?;
            }
            Statement::SubgroupBallot { result, predicate } => self.ballot(result, predicate)?,
            Statement::SubgroupGather { mode, argument, result } => {
                self.gather(mode, argument, result)?;
            }
            Statement::SubgroupCollectiveOperation { op, collective_op, argument, result } => {
                self.collective(op, collective_op, argument, result)?;
            }
            Statement::CooperativeStore { target, ref data } => {
                self.cooperative_store(target, data)?
            }
            Statement::Kill => self.w.refuse("discard")?,
            Statement::ImageStore { .. } | Statement::ImageAtomic { .. } => {
                self.w.refuse("a texture")?;
            }
            Statement::RayQuery { .. } | Statement::RayPipelineFunction(_) => {
                self.w.refuse("a ray query")?;
            }
        }
        Ok(())
    }

    fn braces(&mut self, open: &str, block: &'a Block, close: &str) -> Result<()> {
        self.open(open);
        self.block(block)?;
        self.close(close);
        Ok(())
    }

    /// Prints the statements of a block whose opening line is already printed.
    fn braces_open(&mut self, block: &'a Block, close: &str) -> Result<()> {
        self.deeper();
        self.block(block)?;
        self.close(close);
        Ok(())
    }

    fn switch(&mut self, selector: Handle<Expression>, cases: &'a [SwitchCase]) -> Result<()> {
        let selector = self.value(selector)?;
        self.open(&format!("switch ({selector}) {{"));
        for case in cases {
            let label = match case.value {
                SwitchValue::I32(i32::MIN) => "case (-2147483647 - 1):".to_string(),
                SwitchValue::I32(value) => format!("case {value}:"),
                SwitchValue::U32(value) => format!("case {value}u:"),
                SwitchValue::Default => "default:".to_string(),
            };
            if case.fall_through && case.body.is_empty() {
                self.line(&label);
                continue;
            }
            self.open(&format!("{label} {{"));
            self.block(&case.body)?;
            if !case.fall_through {
                self.line("break;");
            }
            self.close("}");
        }
        self.close("}");
        Ok(())
    }

    /// Prints a loop. The continuing block is printed at the end of the body and before every
    /// `continue`, so that it sees the body's variables and compilers see a plain loop.
    fn print_loop(
        &mut self,
        body: &'a Block,
        continuing: &'a Block,
        break_if: Option<Handle<Expression>>,
    ) -> Result<()> {
        let again = match break_if {
            Some(_) if has_continue(body) => Some(self.pick("again")),
            _ => None,
        };
        let head = match &again {
            Some(again) => {
                self.line(&format!("bool {again} = true;"));
                format!("while ({again}) {{")
            }
            None => "for (;;) {".to_string(),
        };
        self.loops.push(Loop { continuing, break_if, again });
        self.open(&head);
        self.block(body)?;
        if !ends(body) {
            self.end_of_turn()?;
        }
        self.close("}");
        self.loops.pop();
        Ok(())
    }

    /// Prints the continuing block of the enclosing loop, and the loop's `break if` condition.
    fn end_of_turn(&mut self) -> Result<()> {
        let Some(Loop { continuing, break_if, again }) = self.loops.last() else {
            warploom_core::error::broken_invariant("continue outside of a loop");
        };
        let (continuing, break_if, again) = (*continuing, *break_if, again.clone());
        self.block(continuing)?;
        if let Some(condition) = break_if {
            let condition = self.value(condition)?;
            match again {
                Some(again) => self.line(&format!("{again} = !({condition});")),
                None => self.line(&format!("if ({condition}) break;")),
            }
        }
        Ok(())
    }

    fn store(&mut self, pointer: Handle<Expression>, value: Handle<Expression>) -> Result<()> {
        let module = self.w.module;
        let moved = self.is_moved(value);
        let value = self.value(value)?;
        let place = self.place(pointer)?;
        let inner = match pointee(self.inner(pointer)) {
            Some((Pointee::Type(ty), AddressSpace::Storage { .. })) if has_holes(module, ty) => {
                return self.store_around(&place.text(), value, ty);
            }
            Some((Pointee::Type(ty), _)) => &module.types[ty].inner,
            Some((Pointee::Value(ref inner), _)) => &inner.clone(),
            None => warploom_core::error::broken_invariant("a store without a pointer"),
        };
        let line = match inner {
            TypeInner::Atomic(_) => self.atomic_store(pointer, &value)?,
            _ if moved => format!("{} = {value};", place.text()),
            inner => format!("{} = {};", place.text(), self.stored(value, inner)?),
        };
        self.line(&line);
        Ok(())
    }

    fn call(
        &mut self,
        function: Handle<Function>,
        arguments: &[Handle<Expression>],
        result: Option<Handle<Expression>>,
    ) -> Result<()> {
        let mut texts = Vec::new();
        for argument in arguments {
            texts.push(self.value(*argument)?);
        }
        for global in self.w.used(&self.w.info[function]) {
            texts.push(self.global_address(global));
        }
        texts.extend(self.w.hidden_parameters(false));
        let call = format!("{}({})", self.w.functions[&function], texts.join(", "));
        match result {
            Some(result) => self.bake(result, &call),
            None => {
                self.line(&format!("{call};"));
                Ok(())
            }
        }
    }

    pub(super) fn barrier(&mut self, barrier: Barrier) -> Result<()> {
        if barrier.contains(Barrier::TEXTURE) {
            return self.w.refuse("textureBarrier");
        }
        if barrier == Barrier::SUB_GROUP {
            return self.subgroup_barrier();
        }
        let line = match self.w.dialect {
            // Makes the workgroup's stores visible to the rest of the device after the barrier.
            Dialect::Cuda if barrier.contains(Barrier::STORAGE) => {
                self.line("__threadfence();");
                "__syncthreads();".to_string()
            }
            Dialect::Cuda => "__syncthreads();".to_string(),
            Dialect::OpenCl => {
                let mut fences = Vec::new();
                if barrier.intersects(Barrier::WORK_GROUP | Barrier::SUB_GROUP) {
                    fences.push("CLK_LOCAL_MEM_FENCE");
                }
                if barrier.contains(Barrier::STORAGE) {
                    fences.push("CLK_GLOBAL_MEM_FENCE");
                }
                format!("barrier({});", fences.join(" | "))
            }
        };
        self.line(&line);
        Ok(())
    }
}

/// Returns whether the body has a `continue` of this loop.
fn has_continue(block: &Block) -> bool {
    block.iter().any(|statement| match statement {
        Statement::Continue => true,
        // Statements inside belong to the inner loop.
        Statement::Loop { .. } => false,
        _ => blocks(statement).into_iter().any(has_continue),
    })
}

/// Returns whether the end of a block is unreachable.
fn ends(block: &Block) -> bool {
    matches!(block.last(), Some(Statement::Break | Statement::Continue | Statement::Return { .. }))
}
