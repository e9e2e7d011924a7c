//! State shared by all functions of a program: definitions, names and types by handle.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Display;

use naga::valid::ModuleInfo;
use naga::{Constant, Function, GlobalVariable, Handle, Module, Type};

use super::dialect::Dialect;
use super::names::Names;
use super::{Options, Subgroups};
use warploom_core::error::{Error, Result};

/// A program being printed.
pub(super) struct Writer<'a> {
    pub(super) dialect: Dialect,
    pub(super) options: &'a Options,
    pub(super) module: &'a Module,
    pub(super) info: &'a ModuleInfo,
    /// File-scope identifiers.
    pub(super) names: Names,
    pub(super) structs: HashMap<Handle<Type>, String>,
    pub(super) members: HashMap<(Handle<Type>, usize), String>,
    pub(super) arrays: HashMap<String, String>,
    pub(super) constants: HashMap<Handle<Constant>, String>,
    pub(super) functions: HashMap<Handle<Function>, String>,
    pub(super) globals: HashMap<Handle<GlobalVariable>, String>,
    /// Runtime-sized arrays whose lengths are parameters.
    pub(super) lengths: Vec<Handle<GlobalVariable>>,
    /// Number of threads of a workgroup in each dimension.
    pub(super) workgroup_size: [u32; 3],
    /// Whether the program has subgroup operations.
    pub(super) uses_subgroups: bool,
    pub(super) extensions: BTreeSet<&'static str>,
    /// Definitions in dependency order.
    pub(super) definitions: String,
    defined: HashSet<String>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        dialect: Dialect,
        options: &'a Options,
        module: &'a Module,
        info: &'a ModuleInfo,
    ) -> Writer<'a> {
        Writer {
            dialect,
            options,
            module,
            info,
            names: Names::new(),
            structs: HashMap::new(),
            members: HashMap::new(),
            arrays: HashMap::new(),
            constants: HashMap::new(),
            functions: HashMap::new(),
            globals: HashMap::new(),
            lengths: Vec::new(),
            workgroup_size: [1; 3],
            uses_subgroups: false,
            extensions: BTreeSet::new(),
            definitions: String::new(),
            defined: HashSet::new(),
        }
    }

    /// Returns the number of threads per workgroup.
    pub(super) fn threads(&self) -> u32 {
        self.workgroup_size.iter().product()
    }

    /// Adds a definition once, after the definitions that `text` itself adds.
    pub(super) fn define(
        &mut self,
        name: &str,
        text: impl FnOnce(&mut Self) -> Result<String>,
    ) -> Result<()> {
        if self.defined.insert(name.to_string()) {
            let text = text(self)?;
            self.definitions.push_str(&text);
            self.definitions.push('\n');
        }
        Ok(())
    }

    /// Returns an error for an unsupported construct.
    pub(super) fn refuse<T>(&self, what: impl Display) -> Result<T> {
        Err(Error::unsupported(format!("{what} is not translated")))
    }

    /// Requires an OpenCL extension; the program enables it.
    pub(super) fn extension(&mut self, name: &'static str) {
        self.extensions.insert(name);
    }

    /// Returns whether subgroup operations use workgroup memory.
    pub(super) fn emulates_subgroups(&self) -> bool {
        self.dialect == Dialect::OpenCl && self.options.subgroups == Subgroups::WorkgroupMemory
    }
}
