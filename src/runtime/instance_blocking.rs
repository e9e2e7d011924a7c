//! Blocking versions of the async methods of [`Instance`].

use super::Runtime;
use super::device_tensors::DeviceTensors;
use super::instance::{Begun, Instance, Workspace};
use crate::base::SymbolValues;
use crate::base::platform::block_on;
use crate::error::Result;
use crate::plan::{Bindings, Plan};

impl Instance {
    /// Blocking version of [`Instance::new_async`].
    ///
    /// # Errors
    /// Same as [`Instance::new_async`].
    pub fn new(runtime: &Runtime, plan: Plan, resident: &mut DeviceTensors) -> Result<Instance> {
        block_on(Instance::new_async(runtime, plan, resident))
    }

    /// Blocking version of [`Instance::unbound_async`].
    ///
    /// # Errors
    /// Same as [`Instance::unbound_async`].
    pub fn unbound(runtime: &Runtime, plan: Plan, workspace: Workspace) -> Result<Instance> {
        block_on(Instance::unbound_async(runtime, plan, workspace))
    }

    /// Blocking version of [`Instance::read_with_async`].
    ///
    /// # Errors
    /// Same as [`Instance::read_with_async`].
    pub fn read_with(&self, bindings: Bindings) -> Result<Vec<Vec<u8>>> {
        block_on(self.read_with_async(bindings))
    }

    /// Blocking version of [`Instance::read_async`].
    ///
    /// # Errors
    /// Same as [`Instance::read_async`].
    pub fn read(&self, symbols: SymbolValues, inputs: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        block_on(self.read_async(symbols, inputs))
    }

    /// Blocking version of [`Instance::begin_async`]. The CPU provider computes in this call.
    ///
    /// # Errors
    /// Same as [`Instance::begin_async`].
    pub fn begin(&self, symbols: SymbolValues, inputs: Vec<Vec<u8>>) -> Result<Begun> {
        block_on(self.begin_async(symbols, inputs))
    }

    /// Blocking version of [`Instance::end_async`].
    ///
    /// # Errors
    /// Same as [`Instance::end_async`].
    pub fn end(&self, begun: Begun) -> Result<Vec<Vec<u8>>> {
        block_on(self.end_async(begun))
    }

    /// Blocking version of [`Instance::read_all_async`].
    ///
    /// # Errors
    /// Same as [`Instance::read_all_async`].
    pub fn read_all(
        &self,
        runs: Vec<(SymbolValues, Vec<Vec<u8>>)>,
        at_once: usize,
    ) -> Result<Vec<Vec<Vec<u8>>>> {
        block_on(self.read_all_async(runs, at_once))
    }
}
