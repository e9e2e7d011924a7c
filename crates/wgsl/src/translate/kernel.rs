//! Prints the kernel: parameters, builtins, workgroup memory, and the surrounding program.

use std::collections::HashSet;

use naga::{AddressSpace, Binding as Io, Block, BuiltIn, EntryPoint, Function, GlobalVariable};
use naga::{Expression, Handle, MemoryDecorations, Statement, StorageAccess, TypeInner};

use super::dialect::{Dialect, SCALARS};
use super::function::Body;
use super::lvalue::runtime_array;
use super::writer::Writer;
use super::{Access, ArrayLength, Binding, Bounds, Subgroups, Translated};
use warploom_core::error::{Result, broken_invariant};

impl Writer<'_> {
    /// Prints the program of the entry point.
    pub(super) fn kernel(mut self) -> Result<Translated> {
        let module = self.module;
        let found = module.entry_points.iter().enumerate();
        let Some((number, point)) =
            found.into_iter().find(|(_, point)| point.name == self.options.entry)
        else {
            broken_invariant("an entry point that is gone");
        };
        self.workgroup_size = point.workgroup_size;
        let info = self.info.get_entry_point(number);
        let called = called(module, &point.function);
        let label = match self.options.label.as_str() {
            "" => &point.name,
            label => label,
        };
        let entry = self.names.pick(&format!("kernel_{label}"));
        self.name_all(&called);
        let used = self.used(info);
        let bindings = self.check_globals(&used)?;
        let lengths = self.find_lengths(&used, &bindings, point, &called);
        self.uses_subgroups = self.find_subgroups(point, &called)?;

        let mut functions = String::new();
        for h in &called {
            let name = module.functions[*h].name.as_deref().unwrap_or("without a name");
            let text =
                self.print_function(*h).map_err(|e| e.context(format!("function {name}")))?;
            functions.push_str(&text);
            functions.push('\n');
        }
        let (kernel, workgroup_bytes, immediates) = self.print_kernel(point, number, &entry)?;
        let dialect = self.dialect;
        let mut text = format!("{}{SCALARS}", dialect.prelude());
        for extension in &self.extensions {
            text.push_str(&format!("#pragma OPENCL EXTENSION {extension} : enable\n"));
        }
        text.push('\n');
        text.push_str(&self.definitions);
        text.push('\n');
        text.push_str(&functions);
        text.push_str(&kernel);
        Ok(Translated {
            text,
            entry,
            workgroup_size: point.workgroup_size,
            bindings,
            lengths,
            immediates,
            workgroup_bytes,
            extensions: self.extensions.into_iter().collect(),
        })
    }

    fn name_all(&mut self, called: &[Handle<Function>]) {
        let module = self.module;
        for h in called {
            let label = module.functions[*h].name.as_deref().unwrap_or("function");
            // A prefix avoids collisions with the hundreds of built-in functions of both languages.
            let name = self.names.pick(&format!("call_{label}"));
            self.functions.insert(*h, name);
        }
        for (h, variable) in module.global_variables.iter() {
            let name = self.names.pick(variable.name.as_deref().unwrap_or("global"));
            self.globals.insert(h, name);
        }
    }

    /// Returns the buffers among the globals, in ascending order of group and binding.
    fn buffers(&self, used: &[Handle<GlobalVariable>]) -> Vec<Handle<GlobalVariable>> {
        let variables = &self.module.global_variables;
        let mut buffers: Vec<_> =
            used.iter().copied().filter(|h| variables[*h].binding.is_some()).collect();
        buffers.sort_by_key(|h| variables[*h].binding.map(|b| (b.group, b.binding)));
        buffers
    }

    fn check_globals(&self, used: &[Handle<GlobalVariable>]) -> Result<Vec<Binding>> {
        let variables = &self.module.global_variables;
        for h in used {
            let variable = &variables[*h];
            let name = variable.name.as_deref().unwrap_or("without a name");
            if variable.memory_decorations != MemoryDecorations::empty() {
                return self.refuse(format!("@coherent or @volatile of variable {name}"));
            }
            match variable.space {
                AddressSpace::Private | AddressSpace::WorkGroup | AddressSpace::Uniform => {}
                AddressSpace::Storage { .. } | AddressSpace::Immediate => {}
                space => return self.refuse(format!("variable {name} of {space:?}")),
            }
        }
        let mut bindings = Vec::new();
        for h in self.buffers(used) {
            let Some(place) = variables[h].binding else { continue };
            let access = match variables[h].space {
                AddressSpace::Uniform => Access::Uniform,
                AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => {
                    Access::ReadWrite
                }
                _ => Access::Read,
            };
            bindings.push(Binding { group: place.group, binding: place.binding, access });
        }
        Ok(bindings)
    }

    /// Finds the runtime-sized arrays whose lengths the kernel or its bounds checks use.
    fn find_lengths(
        &mut self,
        used: &[Handle<GlobalVariable>],
        bindings: &[Binding],
        point: &EntryPoint,
        called: &[Handle<Function>],
    ) -> Vec<ArrayLength> {
        let module = self.module;
        let functions = called.iter().map(|h| &module.functions[*h]).chain([&point.function]);
        let mut asked = HashSet::new();
        for function in functions {
            for (_, expression) in function.expressions.iter() {
                if let Expression::ArrayLength(array) = *expression {
                    asked.extend(function.originating_global(array));
                }
            }
        }
        let mut lengths = Vec::new();
        for (binding, h) in self.buffers(used).into_iter().enumerate().take(bindings.len()) {
            let Some((offset, stride)) = runtime_array(module, h) else { continue };
            if self.options.bounds == Bounds::Restrict || asked.contains(&h) {
                self.lengths.push(h);
                lengths.push(ArrayLength { binding, offset, stride });
            }
        }
        lengths
    }

    /// Returns whether the program has subgroup operations or builtins; refuses them if the options
    /// do not allow them.
    fn find_subgroups(&mut self, point: &EntryPoint, called: &[Handle<Function>]) -> Result<bool> {
        let module = self.module;
        let mut found = called.iter().any(|h| has_subgroups(&module.functions[*h].body));
        found |= has_subgroups(&point.function.body);
        for argument in &point.function.arguments {
            let is_subgroup = |binding: &Option<Io>| {
                use BuiltIn::{NumSubgroups, SubgroupId, SubgroupInvocationId, SubgroupSize};
                matches!(
                    binding,
                    Some(Io::BuiltIn(
                        NumSubgroups | SubgroupId | SubgroupInvocationId | SubgroupSize
                    ))
                )
            };
            found |= is_subgroup(&argument.binding);
            if let TypeInner::Struct { ref members, .. } = module.types[argument.ty].inner {
                found |= members.iter().any(|member| is_subgroup(&member.binding));
            }
        }
        let threads = self.threads();
        match (found, self.dialect, self.options.subgroups) {
            (true, Dialect::OpenCl, Subgroups::Refused) => {
                self.refuse("a subgroup operation or builtin, without sub-groups,")
            }
            (true, Dialect::OpenCl, Subgroups::WorkgroupMemory) if threads > 128 => self.refuse(
                format!("a subgroup of {threads} threads through workgroup memory, more than 128,"),
            ),
            (true, Dialect::OpenCl, Subgroups::Extension) => {
                self.extension("cl_khr_subgroups");
                Ok(true)
            }
            _ => Ok(found),
        }
    }

    /// Prints the kernel; returns its text, and the sizes in bytes of workgroup memory and of
    /// immediates.
    fn print_kernel(
        &mut self,
        point: &EntryPoint,
        number: usize,
        entry: &str,
    ) -> Result<(String, u32, Option<u32>)> {
        let module = self.module;
        let info = self.info.get_entry_point(number);
        let function = &module.entry_points[number].function;
        let used = self.used(info);
        let mut parameters = Vec::new();
        let buffers = self.buffers(&used);
        for h in &buffers {
            parameters.push(self.global_parameter(*h)?);
            if self.dialect == Dialect::OpenCl {
                parameters.push(format!("const ulong {}", self.start_of(*h)));
            }
        }
        if !self.lengths.is_empty() {
            let fields: Vec<String> =
                self.lengths.iter().map(|h| format!(" u32 {};", self.globals[h])).collect();
            let fields = fields.concat();
            self.define("wl_Lengths", |_| Ok(format!("typedef struct {{{fields} }} wl_Lengths;")))?;
            parameters.push("const wl_Lengths wl_lengths".to_string());
        }
        let mut immediates = None;
        for h in &used {
            let variable = &module.global_variables[*h];
            if variable.space == AddressSpace::Immediate {
                let ty = self.place_type(variable.ty)?;
                parameters.push(format!("const {ty} {}", self.globals[h]));
                immediates = Some(self.size(variable.ty)?);
            }
        }
        let mut body = Body::new(self, function, info, true);
        match body.w.dialect {
            Dialect::Cuda => body.begin()?,
            Dialect::OpenCl => body.start_buffers(&buffers)?,
        }
        let workgroup_bytes = body.memory(&used)?;
        for index in 0..function.arguments.len() {
            body.builtin_argument(index)?;
        }
        body.body()?;
        body.wait_at_end();
        let text = body.text;
        let parameters = parameters.join(", ");
        let [x, y, z] = point.workgroup_size;
        let head = match self.dialect {
            Dialect::Cuda => {
                let room = match self.options.resident {
                    0 => String::new(),
                    groups => format!(", {groups}"),
                };
                let bounds = format!("__launch_bounds__({}{room})", x * y * z);
                format!("extern \"C\" __global__ void {bounds} {entry}({parameters})")
            }
            Dialect::OpenCl => format!(
                "__kernel __attribute__((reqd_work_group_size({x}, {y}, {z})))\nvoid {entry}({parameters})"
            ),
        };
        Ok((format!("{head} {{\n{text}}}\n"), workgroup_bytes, immediates))
    }

    /// Returns the name of the parameter with the byte offset of a buffer's bound range.
    fn start_of(&self, h: Handle<GlobalVariable>) -> String {
        format!("wl_at_{}", self.globals[&h])
    }

    /// Prints a built-in value of a thread.
    fn builtin(&mut self, builtin: BuiltIn) -> Result<String> {
        let dialect = self.dialect;
        let size = self.workgroup_size;
        let vector = |w: &mut Self, axis: &dyn Fn(usize) -> String| {
            let ty = w.vector("u32", naga::VectorSize::Tri)?;
            Ok(dialect.aggregate(&ty, &[axis(0), axis(1), axis(2)].join(", ")))
        };
        match builtin {
            BuiltIn::GlobalInvocationId => vector(self, &|i| {
                format!("{} * {}u + {}", dialect.group_id(i), size[i], dialect.local_id(i))
            }),
            BuiltIn::LocalInvocationId => vector(self, &|i| dialect.local_id(i)),
            BuiltIn::WorkGroupId => vector(self, &|i| dialect.group_id(i)),
            BuiltIn::NumWorkGroups => vector(self, &|i| dialect.num_groups(i)),
            BuiltIn::WorkGroupSize => vector(self, &|i| format!("{}u", size[i])),
            BuiltIn::LocalInvocationIndex => {
                self.index_function()?;
                Ok("wl_index()".to_string())
            }
            _ => self.subgroup_builtin(builtin),
        }
    }

    /// Defines `wl_index()`, the index of a thread in its workgroup.
    pub(super) fn index_function(&mut self) -> Result<()> {
        let [x, y, z] = [0, 1, 2].map(|axis| self.dialect.local_id(axis));
        let [w, h, depth] = self.workgroup_size;
        let mut text = x;
        if h > 1 || depth > 1 {
            text = format!("({y}) * {w}u + {text}");
        }
        if depth > 1 {
            text = format!("({z}) * {}u + {text}", w * h);
        }
        self.define("wl_index", |_| Ok(format!("WL_FN u32 wl_index(void) {{ return {text}; }}")))
    }
}

impl Body<'_, '_> {
    /// Prints statements that advance the pointer of each buffer to its bound range.
    fn start_buffers(&mut self, buffers: &[Handle<GlobalVariable>]) -> Result<()> {
        for h in buffers {
            let variable = &self.w.module.global_variables[*h];
            let (name, start) = (self.w.globals[h].clone(), self.w.start_of(*h));
            let pointer = self.w.pointer(variable.ty, variable.space, "")?;
            let pointer = pointer.trim_end();
            self.line(&format!("{name} = ({pointer})((__global char*){name} + {start});"));
        }
        Ok(())
    }

    /// Declares workgroup and private memory; returns the size in bytes of workgroup memory.
    fn memory(&mut self, used: &[Handle<GlobalVariable>]) -> Result<u32> {
        let module = self.w.module;
        let shared = self.w.dialect.pick("__shared__", "__local");
        let threads = self.w.threads();
        let mut bytes = 0;
        let mut zeroed = Vec::new();
        for h in used {
            let variable = &module.global_variables[*h];
            let name = self.w.globals[h].clone();
            match variable.space {
                AddressSpace::WorkGroup => {
                    let ty = self.w.place_type(variable.ty)?;
                    self.line(&format!("{shared} WL_ALIGN(16) {ty} {name};"));
                    let size = self.w.size(variable.ty)?;
                    bytes += size;
                    zeroed.push((name, size));
                }
                AddressSpace::Private => {
                    let ty = self.w.place_type(variable.ty)?;
                    let inner = &module.types[variable.ty].inner;
                    let value = match variable.init {
                        Some(init) => {
                            let value = self.w.const_value(init)?;
                            self.stored(value, inner)?
                        }
                        None => self.w.zero_of(inner, &ty)?,
                    };
                    self.line(&format!("{ty} {name} = {value};"));
                }
                _ => {}
            }
        }
        if self.w.emulates_subgroups() && self.w.uses_subgroups {
            self.line(&format!("__local u32 wl_lanes[{threads}];"));
            bytes += 4 * threads;
        }
        if self.w.options.zero_workgroup_memory && !zeroed.is_empty() {
            self.zero_memory(&zeroed)?;
        }
        Ok(bytes)
    }

    fn zero_memory(&mut self, variables: &[(String, u32)]) -> Result<()> {
        self.w.index_function()?;
        let threads = self.w.threads();
        let space = self.w.dialect.space(AddressSpace::WorkGroup);
        for (name, bytes) in variables {
            let (unit, count) = if bytes % 4 == 0 { ("u32", bytes / 4) } else { ("char", *bytes) };
            // A plain `i` would hide a variable of that name.
            let store = format!("(({space}{unit}*)&{name})[wl_i] = 0;");
            let each = format!("wl_i < {count}u; wl_i += {threads}u");
            self.line(&format!("for (u32 wl_i = wl_index(); {each}) {store}"));
        }
        self.barrier(naga::Barrier::WORK_GROUP)
    }

    /// Declares an argument of the entry point: a builtin, or a struct of builtins.
    fn builtin_argument(&mut self, index: usize) -> Result<()> {
        let module = self.w.module;
        let argument = &self.function.arguments[index];
        let name = self.arguments[index].clone();
        let ty = self.w.type_of(argument.ty)?;
        let value = match (&argument.binding, &module.types[argument.ty].inner) {
            (Some(Io::BuiltIn(builtin)), _) => self.w.builtin(*builtin)?,
            (None, TypeInner::Struct { members, .. }) => {
                let mut parts = Vec::new();
                for member in members {
                    let Some(Io::BuiltIn(builtin)) = member.binding else {
                        return self.w.refuse("a location of an entry point");
                    };
                    parts.push(self.w.builtin(builtin)?);
                }
                let parts = self.w.struct_parts(members, &parts)?;
                self.w.dialect.aggregate(&ty, &parts)
            }
            _ => return self.w.refuse("a location of an entry point"),
        };
        self.line(&format!("const {ty} {name} = {value};"));
        Ok(())
    }
}

/// Returns the immediate child blocks of a statement.
pub(super) fn blocks(statement: &Statement) -> Vec<&Block> {
    match statement {
        Statement::Block(block) => vec![block],
        Statement::If { accept, reject, .. } => vec![accept, reject],
        Statement::Switch { cases, .. } => cases.iter().map(|case| &case.body).collect(),
        Statement::Loop { body, continuing, .. } => vec![body, continuing],
        _ => Vec::new(),
    }
}

/// Returns the functions that a function calls, transitively, callees first.
fn called(module: &naga::Module, function: &Function) -> Vec<Handle<Function>> {
    fn calls(block: &Block, found: &mut HashSet<Handle<Function>>) {
        for statement in block {
            if let Statement::Call { function, .. } = statement {
                found.insert(*function);
            }
            blocks(statement).into_iter().for_each(|block| calls(block, found));
        }
    }
    let mut found = HashSet::new();
    calls(&function.body, &mut found);
    // A module lists callees before callers.
    let all: Vec<_> = module.functions.iter().collect();
    for (h, function) in all.iter().rev() {
        if found.contains(h) {
            calls(&function.body, &mut found);
        }
    }
    all.into_iter().map(|(h, _)| h).filter(|h| found.contains(h)).collect()
}

fn has_subgroups(block: &Block) -> bool {
    block.iter().any(|statement| match statement {
        Statement::SubgroupBallot { .. }
        | Statement::SubgroupGather { .. }
        | Statement::SubgroupCollectiveOperation { .. } => true,
        Statement::ControlBarrier(barrier) => barrier.contains(naga::Barrier::SUB_GROUP),
        _ => blocks(statement).into_iter().any(has_subgroups),
    })
}
