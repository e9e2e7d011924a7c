//! From a catalogue spec to WGSL text. (Filled in with the first shaders.)

use super::spec::AssetSpec;
use crate::error::{Error, Result};

/// The WGSL text of an asset: imports resolved, defines applied, constants set.
///
/// # Errors
/// Unsupported, for an asset that does not exist.
pub fn asset_wgsl(spec: &AssetSpec) -> Result<String> {
    Err(Error::unsupported(format!("kernel {:?} has no WGSL asset", spec.name)))
}
