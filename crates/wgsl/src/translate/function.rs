//! Prints one function: names its variables, selects the expressions that become variables, and
//! prints the signature and the body.

use std::collections::{HashMap, HashSet};

use naga::proc::TypeResolution;
use naga::valid::FunctionInfo;
use naga::{AddressSpace, Block, Expression, Function, GlobalVariable, Handle, LocalVariable};
use naga::{MathFunction, Module, Statement, TypeInner};

use super::cooperative;
use super::dialect::Dialect;
use super::names::Names;
use super::types::{is_half, pointee};
use super::writer::Writer;
use warploom_core::error::Result;

/// An enclosing loop of the current statement.
pub(super) struct Loop<'a> {
    pub(super) continuing: &'a Block,
    pub(super) break_if: Option<Handle<Expression>>,
    /// The variable that ends the loop, if it has `continue` and `break if`.
    pub(super) again: Option<String>,
}

/// The nesting depth of a function's own statements.
const OUTERMOST: usize = 1;

/// A function being printed.
pub(super) struct Body<'w, 'a> {
    pub(super) w: &'w mut Writer<'a>,
    pub(super) function: &'a Function,
    pub(super) info: &'a FunctionInfo,
    /// Whether it is the kernel, which declares workgroup and private memory; other functions get
    /// pointers.
    pub(super) entry: bool,
    names: Names,
    pub(super) arguments: Vec<String>,
    pub(super) locals: HashMap<Handle<LocalVariable>, String>,
    /// Variables that hold expression values.
    pub(super) values: HashMap<Handle<Expression>, String>,
    pub(super) loops: Vec<Loop<'a>>,
    baked: HashSet<Handle<Expression>>,
    moved: HashSet<Handle<Expression>>,
    pub(super) text: String,
    /// Whether the wait for the previous kernel is already printed.
    pub(super) waited: bool,
    depth: usize,
}

impl<'w, 'a> Body<'w, 'a> {
    pub(super) fn new(
        w: &'w mut Writer<'a>,
        function: &'a Function,
        info: &'a FunctionInfo,
        entry: bool,
    ) -> Body<'w, 'a> {
        let (mut names, file) = (Names::default(), &mut w.names);
        let mut pick = |name: &Option<String>, other: &str| {
            names.pick_inside(file, name.as_deref().unwrap_or(other))
        };
        let arguments = function.arguments.iter().map(|a| pick(&a.name, "argument")).collect();
        let locals = function.local_variables.iter();
        let locals = locals.map(|(h, l)| (h, pick(&l.name, "local"))).collect();
        let baked = baked(w.module, function, info);
        let moved = moved(w.module, function, info);
        Body {
            w,
            function,
            info,
            entry,
            names,
            arguments,
            locals,
            values: HashMap::new(),
            loops: Vec::new(),
            baked,
            moved,
            text: String::new(),
            waited: false,
            depth: OUTERMOST,
        }
    }

    /// Returns a free identifier in this function, derived from `label`.
    pub(super) fn pick(&mut self, label: &str) -> String {
        self.names.pick_inside(&mut self.w.names, label)
    }

    pub(super) fn line(&mut self, line: &str) {
        for _ in 0..self.depth {
            self.text.push_str("    ");
        }
        self.text.push_str(line);
        self.text.push('\n');
    }

    pub(super) fn open(&mut self, line: &str) {
        self.line(line);
        self.depth += 1;
    }

    pub(super) fn deeper(&mut self) {
        self.depth += 1;
    }

    pub(super) fn close(&mut self, line: &str) {
        self.depth -= 1;
        self.line(line);
    }

    /// Returns whether the position is at the top level of the function, not in a block.
    pub(super) fn is_outermost(&self) -> bool {
        self.depth == OUTERMOST
    }

    pub(super) fn inner(&self, h: Handle<Expression>) -> &'a TypeInner {
        self.info[h].ty.inner_with(&self.w.module.types)
    }

    /// Returns the C type of an expression that is not a pointer.
    pub(super) fn type_name(&mut self, h: Handle<Expression>) -> Result<String> {
        let info = self.info;
        match info[h].ty {
            TypeResolution::Handle(ty) => self.w.type_of(ty),
            TypeResolution::Value(ref inner) => self.w.value_type(inner),
        }
    }

    pub(super) fn is_baked(&self, h: Handle<Expression>) -> bool {
        self.baked.contains(&h)
    }

    /// Returns whether the expression is a load of f16 values that are stored unchanged.
    pub(super) fn is_moved(&self, h: Handle<Expression>) -> bool {
        self.moved.contains(&h)
    }

    /// Declares a variable for the value of an expression.
    pub(super) fn bake(&mut self, h: Handle<Expression>, value: &str) -> Result<()> {
        let ty = match self.is_moved(h) {
            true => self.w.memory_type(self.inner(h))?,
            false => self.type_name(h)?,
        };
        let name = match self.function.named_expressions.get(&h) {
            Some(name) => self.pick(name),
            None => self.pick(&format!("e{}", h.index())),
        };
        self.line(&format!("const {ty} {name} = {value};"));
        self.values.insert(h, name);
        Ok(())
    }

    /// Returns the argument that passes a global to a function: a pointer to it.
    pub(super) fn global_address(&self, h: Handle<GlobalVariable>) -> String {
        let name = &self.w.globals[&h];
        match self.w.module.global_variables[h].space {
            AddressSpace::WorkGroup | AddressSpace::Private | AddressSpace::Immediate
                if self.entry =>
            {
                format!("&{name}")
            }
            _ => name.clone(),
        }
    }

    /// Prints local variables, then the statements.
    pub(super) fn body(&mut self) -> Result<()> {
        let function = self.function;
        for (h, local) in function.local_variables.iter() {
            let ty = self.w.place_type(local.ty)?;
            let value = match local.init {
                Some(init) => {
                    let value = self.value(init)?;
                    self.stored(value, &self.w.module.types[local.ty].inner)?
                }
                None => {
                    let inner = &self.w.module.types[local.ty].inner;
                    self.w.zero_of(inner, &ty)?
                }
            };
            let name = self.locals[&h].clone();
            self.line(&format!("{ty} {name} = {value};"));
        }
        self.block(&function.body)
    }
}

/// Returns the expressions that become variables: loads, since their order matters; expressions
/// that are used more than once or by generated text that repeats its operand; and named ones.
fn baked(module: &Module, function: &Function, info: &FunctionInfo) -> HashSet<Handle<Expression>> {
    let mut baked = HashSet::new();
    for (h, expression) in function.expressions.iter() {
        let is_vector = |h: &&Handle<Expression>| {
            matches!(info[**h].ty.inner_with(&module.types), TypeInner::Vector { .. })
        };
        match *expression {
            Expression::Load { .. } | Expression::CooperativeLoad { .. } => {
                baked.insert(h);
            }
            Expression::Compose { ref components, .. } => {
                baked.extend(components.iter().filter(is_vector));
            }
            Expression::Access { base, .. } => drop(baked.insert(base)),
            Expression::Math { fun: MathFunction::Modf | MathFunction::Frexp, arg, .. } => {
                baked.insert(arg);
            }
            _ => {}
        }
        let is_access =
            matches!(expression, Expression::Access { .. } | Expression::AccessIndex { .. });
        if info[h].ref_count > 1 && !is_access {
            baked.insert(h);
        }
    }
    baked.extend(function.named_expressions.keys());
    baked
}

/// Returns the loads of f16 vectors that are only stored: they are not converted to f32 and back.
fn moved(module: &Module, function: &Function, info: &FunctionInfo) -> HashSet<Handle<Expression>> {
    let mut stores = HashMap::new();
    count_stores(&function.body, &mut stores);
    let is_moved = |(h, count): &(Handle<Expression>, usize)| {
        let inner = info[*h].ty.inner_with(&module.types);
        let halves = matches!(*inner, TypeInner::Vector { scalar, .. } if is_half(scalar));
        let load = matches!(function.expressions[*h], Expression::Load { .. });
        load && halves && info[*h].ref_count == *count
    };
    stores.into_iter().filter(is_moved).map(|(h, _)| h).collect()
}

/// Counts how often a block and the blocks in it store each expression.
fn count_stores(block: &Block, stores: &mut HashMap<Handle<Expression>, usize>) {
    for statement in block {
        match statement {
            Statement::Store { value, .. } => *stores.entry(*value).or_default() += 1,
            Statement::Block(block) => count_stores(block, stores),
            Statement::If { accept, reject, .. } => {
                count_stores(accept, stores);
                count_stores(reject, stores);
            }
            Statement::Loop { body, continuing, .. } => {
                count_stores(body, stores);
                count_stores(continuing, stores);
            }
            Statement::Switch { cases, .. } => {
                cases.iter().for_each(|case| count_stores(&case.body, stores));
            }
            _ => {}
        }
    }
}

impl Writer<'_> {
    /// Returns the globals that a function uses, directly or through its callees.
    pub(super) fn used(&self, info: &FunctionInfo) -> Vec<Handle<GlobalVariable>> {
        let all = self.module.global_variables.iter();
        all.map(|(h, _)| h).filter(|h| !info[*h].is_empty()).collect()
    }

    /// Declares a global as a function parameter.
    pub(super) fn global_parameter(&mut self, h: Handle<GlobalVariable>) -> Result<String> {
        let variable = &self.module.global_variables[h];
        let name = self.globals[&h].clone();
        // CUDA's compiler may move reads of `__restrict__` data before the wait for its producer,
        // if the kernel waits; parameters are written long before.
        let restricted = match variable.space {
            AddressSpace::Uniform => true,
            AddressSpace::Storage { .. } => {
                self.dialect == Dialect::OpenCl || self.options.reads_ahead
            }
            _ => false,
        };
        let name = match restricted {
            true => format!("{} {name}", self.dialect.restrict()),
            false => name,
        };
        self.pointer(variable.ty, variable.space, &name)
    }

    /// Prints a function that is not the entry point.
    pub(super) fn print_function(&mut self, h: Handle<Function>) -> Result<String> {
        let (module, info) = (self.module, self.info);
        let (function, info) = (&module.functions[h], &info[h]);
        let result = match function.result {
            Some(ref result) => self.type_of(result.ty)?,
            None => "void".to_string(),
        };
        let mut body = Body::new(self, function, info, false);
        body.body()?;
        let (text, arguments) = (body.text, body.arguments);
        let mut parameters = Vec::new();
        for (argument, name) in function.arguments.iter().zip(&arguments) {
            parameters.push(match module.types[argument.ty].inner {
                TypeInner::Pointer { base, space } => self.pointer(base, space, name)?,
                _ => format!("const {} {name}", self.type_of(argument.ty)?),
            });
        }
        for global in self.used(info) {
            parameters.push(self.global_parameter(global)?);
        }
        parameters.extend(self.hidden_parameters(true));
        let known = function.name.as_deref().filter(|_| self.multiplies_codes());
        let text = match known.and_then(|name| cooperative::known_function(name, &arguments)) {
            Some(known) => format!("{known}#else\n{text}#endif\n"),
            None => text,
        };
        let name = &self.functions[&h];
        let parameters =
            if parameters.is_empty() { "void".to_string() } else { parameters.join(", ") };
        Ok(format!("WL_FN {result} {name}({parameters}) {{\n{text}}}\n"))
    }

    /// Returns the implicit parameters of every function: their declarations, or the names to pass.
    pub(super) fn hidden_parameters(&self, declare: bool) -> Vec<String> {
        let mut all = Vec::new();
        if !self.lengths.is_empty() {
            all.push(if declare { "const wl_Lengths wl_lengths" } else { "wl_lengths" });
        }
        if self.emulates_subgroups() && self.uses_subgroups {
            all.push(if declare { "__local u32* wl_lanes" } else { "wl_lanes" });
        }
        all.into_iter().map(str::to_string).collect()
    }
}

/// Returns whether a pointer refers to memory private to the thread.
pub(super) fn is_own(inner: &TypeInner) -> bool {
    let space = pointee(inner).map(|(_, space)| space);
    matches!(space, Some(AddressSpace::Function | AddressSpace::Private))
}
