//! Compiles a validated module to [`Code`]: globals, constants and functions.

use std::collections::HashMap;

use naga::valid::ModuleInfo;
use naga::{AddressSpace, Arena, Binding, Expression, Function, GlobalVariable, Handle, Literal};
use naga::{MemoryDecorations, Module, Span, StorageAccess, Type, TypeInner};

use super::body::Body;
use super::bytecode::{BuiltIn, Code, NONE, Op, Place, Region, Root, Slot};
use super::layout::{self, Layout, MAX_REGISTERS, refused};
use warploom_core::error::{Error, Result};

/// A compiled function, as its callers see it.
#[derive(Clone, Debug)]
pub(super) struct Callee {
    pub(super) start: u32,
    pub(super) arguments: Vec<Slot>,
    pub(super) result: Slot,
    /// Register of the return address.
    pub(super) back: Slot,
}

/// The location of a global variable.
#[derive(Clone, Copy, Debug)]
pub(super) enum Global {
    Region(u32),
    Private(Slot),
}

pub(super) struct Compiler<'m> {
    pub(super) module: &'m Module,
    pub(super) info: &'m ModuleInfo,
    pub(super) code: Code,
    pub(super) globals: HashMap<Handle<GlobalVariable>, Global>,
    pub(super) functions: HashMap<Handle<Function>, Callee>,
    constants: HashMap<Vec<u32>, Slot>,
    layouts: HashMap<Layout, u32>,
    /// Span of the expression or statement being compiled.
    pub(super) span: Span,
}

/// Compiles the entry point with this index.
///
/// # Errors
/// Unsupported, with the name and location of the construct, if the interpreter does not run it.
pub(super) fn compile(
    module: &Module,
    info: &ModuleInfo,
    entry: usize,
) -> Result<Code, (Error, Span)> {
    let mut compiler = Compiler {
        module,
        info,
        code: Code::default(),
        globals: HashMap::new(),
        functions: HashMap::new(),
        constants: HashMap::new(),
        layouts: HashMap::new(),
        span: Span::UNDEFINED,
    };
    match compiler.program(entry) {
        Ok(()) => Ok(compiler.code),
        Err(error) => Err((error, compiler.span)),
    }
}

/// Returns the functions that a function calls, transitively.
fn called(module: &Module, function: &Function) -> Vec<Handle<Function>> {
    let mut found = Vec::new();
    let mut open = vec![&function.body];
    while let Some(block) = open.pop() {
        for statement in block.iter() {
            match statement {
                naga::Statement::Block(block) => open.push(block),
                naga::Statement::If { accept, reject, .. } => open.extend([accept, reject]),
                naga::Statement::Switch { cases, .. } => {
                    open.extend(cases.iter().map(|case| &case.body));
                }
                naga::Statement::Loop { body, continuing, .. } => open.extend([body, continuing]),
                naga::Statement::Call { function, .. } if !found.contains(function) => {
                    found.push(*function);
                    open.push(&module.functions[*function].body);
                }
                _ => {}
            }
        }
    }
    found
}

impl<'m> Compiler<'m> {
    fn program(&mut self, entry: usize) -> Result<()> {
        let (module, info, compiler) = (self.module, self.info, self);
        let point = &module.entry_points[entry];
        compiler.code.workgroup_size = point.workgroup_size;
        compiler.place_globals(entry)?;
        // An invocation begins at instruction 0.
        compiler.push(Op::Jump { to: 0 });
        let called = called(module, &point.function);
        for (h, function) in module.functions.iter().filter(|(h, _)| called.contains(h)) {
            let callee = Body::function(compiler, function, &info[h]).map_err(|error| {
                error.context(format!("function {}", function.name.as_deref().unwrap_or("?")))
            })?;
            compiler.functions.insert(h, callee);
        }
        let start = compiler.code.ops.len() as u32;
        compiler.code.ops[0] = Op::Jump { to: start };
        let arguments = compiler.builtins(&point.function)?;
        Body::entry(compiler, &point.function, info.get_entry_point(entry), arguments)
    }

    pub(super) fn push(&mut self, op: Op) -> usize {
        self.code.ops.push(op);
        self.code.spans.push(self.span);
        self.code.ops.len() - 1
    }

    /// Returns the index of the next instruction.
    pub(super) fn here(&self) -> u32 {
        self.code.ops.len() as u32
    }

    /// Allocates `n` registers, and returns the first.
    pub(super) fn registers(&mut self, n: u32) -> Result<Slot> {
        let at = self.code.registers.len();
        if at as u64 + u64::from(n) > MAX_REGISTERS {
            return Err(refused(&format!(
                "an invocation of {} numbers, more than {MAX_REGISTERS}",
                at as u64 + u64::from(n)
            )));
        }
        self.code.registers.resize(at + n as usize, 0);
        Ok(at as Slot)
    }

    /// Returns the first of the registers that hold these constant words, allocated if necessary.
    pub(super) fn fixed(&mut self, words: Vec<u32>) -> Result<Slot> {
        if let Some(slot) = self.constants.get(&words) {
            return Ok(*slot);
        }
        let slot = self.registers(words.len() as u32)?;
        self.code.registers[slot as usize..].copy_from_slice(&words);
        self.constants.insert(words, slot);
        Ok(slot)
    }

    pub(super) fn layout(&mut self, inner: &TypeInner) -> Result<u32> {
        let layout = layout::layout(self.module, inner)?;
        let next = self.layouts.len() as u32;
        let index = *self.layouts.entry(layout.clone()).or_insert(next);
        if index == next {
            self.code.layouts.push(layout);
        }
        Ok(index)
    }

    pub(super) fn size_of(&self, ty: Handle<Type>) -> Result<u32> {
        layout::registers(self.module, &self.module.types[ty].inner)
    }

    /// Evaluates a constant expression to the words that its registers would hold.
    pub(super) fn constant(
        &self,
        arena: &Arena<Expression>,
        h: Handle<Expression>,
    ) -> Result<Vec<u32>> {
        match arena[h] {
            Expression::Literal(literal) => Ok(vec![word(literal)?]),
            Expression::Constant(constant) => {
                self.constant(&self.module.global_expressions, self.module.constants[constant].init)
            }
            Expression::ZeroValue(ty) => Ok(vec![0; self.size_of(ty)? as usize]),
            Expression::Compose { ty, ref components } => {
                let size = self.size_of(ty)? as usize;
                let mut words = Vec::with_capacity(size);
                for component in components {
                    words.extend(self.constant(arena, *component)?);
                }
                Ok(words)
            }
            Expression::Splat { size, value } => {
                Ok(self.constant(arena, value)?.repeat(size as usize))
            }
            ref other => Err(refused(&format!("the constant expression {other:?}"))),
        }
    }

    fn place_globals(&mut self, entry: usize) -> Result<()> {
        let (module, uses) = (self.module, self.info.get_entry_point(entry));
        for (h, variable) in module.global_variables.iter() {
            if uses[h].is_empty() {
                continue;
            }
            let name = variable.name.as_deref().unwrap_or("without a name");
            self.span = module.global_variables.get_span(h);
            let global = self
                .place_global(variable, name)
                .map_err(|e| e.context(format!("variable {name}")))?;
            self.globals.insert(h, global);
        }
        Ok(())
    }

    fn place_global(&mut self, variable: &GlobalVariable, name: &str) -> Result<Global> {
        let module = self.module;
        if variable.memory_decorations != MemoryDecorations::empty() {
            return Err(refused("@coherent or @volatile"));
        }
        let place = match (variable.space, variable.binding) {
            (AddressSpace::Private, _) => {
                let slot = self.registers(self.size_of(variable.ty)?)?;
                if let Some(init) = variable.init {
                    let words = self.constant(&module.global_expressions, init)?;
                    self.code.registers[slot as usize..].copy_from_slice(&words);
                }
                return Ok(Global::Private(slot));
            }
            (AddressSpace::WorkGroup, _) => Place::Workgroup,
            (AddressSpace::Uniform, Some(at)) => Place::Bound {
                group: at.group,
                binding: at.binding,
                uniform: true,
                writable: false,
            },
            (AddressSpace::Storage { access }, Some(at)) => Place::Bound {
                group: at.group,
                binding: at.binding,
                uniform: false,
                writable: access.contains(StorageAccess::STORE),
            },
            (space, _) => return Err(refused(&format!("memory of {space:?}"))),
        };
        self.code.regions.push(Region {
            name: name.to_owned(),
            place,
            bytes: module.types[variable.ty].inner.size(module.to_ctx()),
            runtime: layout::runtime_array(module, variable.ty),
            grain: layout::grain(module, variable.ty)?,
        });
        Ok(Global::Region(self.code.regions.len() as u32 - 1))
    }

    /// Allocates the registers of the entry point's arguments, which hold built-in values.
    fn builtins(&mut self, function: &Function) -> Result<Vec<Slot>> {
        let mut slots = Vec::new();
        for argument in &function.arguments {
            let slot = self.registers(self.size_of(argument.ty)?)?;
            slots.push(slot);
            if let Some(binding) = &argument.binding {
                self.builtin(binding, slot)?;
            } else if let TypeInner::Struct { ref members, .. } =
                self.module.types[argument.ty].inner
            {
                let mut at = slot;
                for member in members {
                    if let Some(binding) = &member.binding {
                        self.builtin(binding, at)?;
                    }
                    at += self.size_of(member.ty)?;
                }
            }
        }
        Ok(slots)
    }

    fn builtin(&mut self, binding: &Binding, slot: Slot) -> Result<()> {
        use naga::BuiltIn as B;
        let builtin = match binding {
            Binding::BuiltIn(B::GlobalInvocationId) => BuiltIn::GlobalId,
            Binding::BuiltIn(B::LocalInvocationId) => BuiltIn::LocalId,
            Binding::BuiltIn(B::LocalInvocationIndex) => BuiltIn::LocalIndex,
            Binding::BuiltIn(B::WorkGroupId) => BuiltIn::WorkgroupId,
            Binding::BuiltIn(B::NumWorkGroups) => BuiltIn::Workgroups,
            Binding::BuiltIn(B::WorkGroupSize) => BuiltIn::WorkgroupSize,
            Binding::BuiltIn(B::NumSubgroups) => BuiltIn::Subgroups,
            Binding::BuiltIn(B::SubgroupId) => BuiltIn::SubgroupId,
            Binding::BuiltIn(B::SubgroupSize) => BuiltIn::SubgroupSize,
            Binding::BuiltIn(B::SubgroupInvocationId) => BuiltIn::SubgroupInvocation,
            other => return Err(refused(&format!("the input {other:?}"))),
        };
        self.code.builtins.push((builtin, slot));
        Ok(())
    }
}

/// Returns the register value of a literal.
fn word(literal: Literal) -> Result<u32> {
    Ok(match literal {
        Literal::F32(value) => value.to_bits(),
        Literal::F16(value) => value.to_f32().to_bits(),
        Literal::U32(value) => value,
        Literal::I32(value) => value as u32,
        Literal::Bool(value) => u32::from(value),
        other => return Err(refused(&format!("the number {other:?}"))),
    })
}

impl Global {
    /// Returns the variable's memory and its offset there: in bytes for a region, in registers for
    /// a private variable.
    pub(super) fn root(self) -> (Root, u32) {
        match self {
            Global::Region(region) => (Root::Region(region), 0),
            Global::Private(slot) => (Root::Own, slot),
        }
    }
}

/// Returns an error that a validated module cannot cause.
pub(super) fn not_valid(what: &str) -> Error {
    Error::compile(format!("the module is not valid: {what}"))
}

/// Pads the slots of up to four arguments with [`NONE`].
pub(super) fn four(slots: &[Slot]) -> [Slot; 4] {
    let mut all = [NONE; 4];
    for (to, from) in all.iter_mut().zip(slots) {
        *to = *from;
    }
    all
}
