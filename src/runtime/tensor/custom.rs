//! Runs the operations of kernel packs on tensors.

use super::Tensor;
use super::place::here;
use crate::base::{DType, Shape};
use crate::error::{Error, Result};
use crate::ir::{Custom, Op};
use crate::kernel::pack::Pack;
use crate::provider::DeviceProfile;

impl Tensor {
    /// Applies a pack's operation to tensors; returns its results in the order of the pack's
    /// outputs.
    ///
    /// `values` holds, by name, the sizes that operands do not determine and the values of the
    /// uniform block. A kernel with several results is launched once if they are computed together
    /// ([`Tensor::eval`]), else once per result read.
    ///
    /// ```no_run
    /// # use warploom::{Runtime, Tensor, kernel::pack::Pack};
    /// # fn main() -> warploom::Result<()> {
    /// let blur = Pack::load("examples/packs/blur")?;
    /// let image = Tensor::rand(&Runtime::auto()?, [480, 640], 1);
    /// let [soft] = &Tensor::custom(&blur, &[&image], &[("radius", 3.0)])[..] else { return Ok(()) };
    /// println!("{}", soft.max(..).item::<f32>()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// As with every operation, errors are returned by the read: an operand that does not fit, or a
    /// value that is missing or unknown.
    ///
    /// # Panics
    /// Panics if there are no operands, since the device is then unknown. [`Pack::add_to`] accepts
    /// packs without operands.
    #[track_caller]
    pub fn custom(pack: &Pack, operands: &[&Tensor], values: &[(&str, f64)]) -> Vec<Tensor> {
        let at = here();
        assert!(!operands.is_empty(), "pack {} is called without operands", pack.name());
        let count = pack.outputs().count();
        if let Some(failed) = operands.iter().find(|operand| operand.node.is_failed()) {
            return vec![Tensor::clone(failed); count];
        }
        let shapes: Vec<(Shape, DType)> =
            operands.iter().map(|operand| (operand.dims().clone(), operand.dtype())).collect();
        let record = |custom: Result<Custom, Error>| match custom {
            Ok(custom) => Tensor::record("custom", at, Op::Custom(Box::new(custom)), operands),
            Err(error) => Tensor::failed(operands[0].runtime(), "custom", at, error),
        };
        let device = operands[0].runtime().device().profile();
        let custom = pack.call_on(&tuned_name(device), &shapes, values);
        (0..count as u32)
            .map(|output| {
                let custom = custom.as_ref().map_err(Error::duplicate);
                record(custom.map(|custom| Custom { output, ..custom.clone() }))
            })
            .collect()
    }
}

/// Returns the name under which a pack's manifest lists tuned constants for a device.
pub fn tuned_name(profile: &DeviceProfile) -> String {
    profile.tuned_name()
}
