//! The blocking twins of an instance's futures.

use super::Runtime;
use super::device_tensors::DeviceTensors;
use super::instance::{Begun, Instance, Workspace};
use crate::base::SymbolValues;
use crate::base::platform::block_on;
use crate::error::Result;
use crate::plan::{Bindings, Plan};

impl Instance {
    /// As [`Instance::new_async`], blocking.
    ///
    /// # Errors
    /// As [`Instance::new_async`].
    pub fn new(runtime: &Runtime, plan: Plan, resident: &mut DeviceTensors) -> Result<Instance> {
        block_on(Instance::new_async(runtime, plan, resident))
    }

    /// As [`Instance::unbound_async`], blocking.
    ///
    /// # Errors
    /// As [`Instance::unbound_async`].
    pub fn unbound(runtime: &Runtime, plan: Plan, workspace: Workspace) -> Result<Instance> {
        block_on(Instance::unbound_async(runtime, plan, workspace))
    }

    /// As [`Instance::read_with_async`], blocking.
    ///
    /// # Errors
    /// As [`Instance::read_with_async`].
    pub fn read_with(&self, bindings: Bindings) -> Result<Vec<Vec<u8>>> {
        block_on(self.read_with_async(bindings))
    }

    /// As [`Instance::read_async`], blocking.
    ///
    /// # Errors
    /// As [`Instance::read_async`].
    pub fn read(&self, symbols: SymbolValues, inputs: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        block_on(self.read_async(symbols, inputs))
    }

    /// As [`Instance::begin_async`], blocking. The CPU provider computes here.
    ///
    /// # Errors
    /// As [`Instance::begin_async`].
    pub fn begin(&self, symbols: SymbolValues, inputs: Vec<Vec<u8>>) -> Result<Begun> {
        block_on(self.begin_async(symbols, inputs))
    }

    /// As [`Instance::end_async`], blocking.
    ///
    /// # Errors
    /// As [`Instance::end_async`].
    pub fn end(&self, begun: Begun) -> Result<Vec<Vec<u8>>> {
        block_on(self.end_async(begun))
    }

    /// As [`Instance::read_all_async`], blocking.
    ///
    /// # Errors
    /// As [`Instance::read_all_async`].
    pub fn read_all(
        &self,
        runs: Vec<(SymbolValues, Vec<Vec<u8>>)>,
        at_once: usize,
    ) -> Result<Vec<Vec<Vec<u8>>>> {
        block_on(self.read_all_async(runs, at_once))
    }
}
