//! Binding interfaces of all kinds of kernels.

use super::catalogue::find;
use super::spec::Access::{Read, ReadWrite};
use super::spec::{Access, Interface, KernelSpec};
use warploom_core::error::{Error, Result};

/// Returns the binding interface of a kernel.
///
/// # Errors
/// Unsupported if its name is not in the catalogue; invalid if its fusion is malformed.
pub fn interface(spec: &KernelSpec) -> Result<Interface> {
    match spec {
        KernelSpec::Asset(asset) => {
            let (entry, _) = find(&asset.name).ok_or_else(|| {
                Error::unsupported(format!("kernel {:?} is not in the catalogue", asset.name))
            })?;
            let mut bindings: Vec<Access> = entry.bindings.iter().map(|(_, a)| *a).collect();
            let mut words = entry.params.len() as u32;
            if let Some(fusion) = &asset.fusion {
                if let Some(fault) = fusion.fault() {
                    return Err(Error::invalid(format!("{spec}: {fault}")));
                }
                words += fusion.words(entry.is_linear());
                let output = bindings.split_off(entry.before_output());
                bindings.extend(std::iter::repeat_n(Read, fusion.reads() as usize));
                match fusion.writes() {
                    0 => bindings.extend(output),
                    writes => bindings.extend(std::iter::repeat_n(ReadWrite, writes as usize)),
                }
            }
            Ok(Interface { param_words: words.next_multiple_of(4), bindings })
        }
        KernelSpec::Fused(expr) => Ok(expr.interface()),
        KernelSpec::Routine(routine) => Ok(routine.interface()),
        KernelSpec::Source(source) => Ok(Interface {
            param_words: source.param_words.next_multiple_of(4),
            bindings: source.bindings.clone(),
        }),
    }
}
