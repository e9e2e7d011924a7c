//! Translates a kernel's spec to source for a driver's compiler, and lists the launch arguments.

use smallvec::SmallVec;

use super::native_source;
use warploom_core::error::{Error, Result};
use warploom_hal::checked::{Callee, Launch};
use warploom_hal::{DeviceProfile, Support, support};
use warploom_kernels::codegen::{spec_wgsl, translate_options};
use warploom_kernels::{Access, Interface, KernelSpec, catalogue};
use warploom_wgsl::translate::{self, Translated, naga};
#[cfg(feature = "opencl")]
use warploom_wgsl::translate::{Options, Subgroups};

/// The target language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// CUDA C++ for NVRTC.
    #[cfg(feature = "cuda")]
    Cuda,
    /// OpenCL C, with subgroup operations in this form.
    #[cfg(feature = "opencl")]
    OpenCl(Subgroups),
}

/// A translated kernel with its interface.
pub(crate) struct Program {
    /// Name for messages.
    pub(crate) name: String,
    /// Parameters and storage buffers of a dispatch.
    pub(crate) interface: Interface,
    /// The translated text, its workgroup size, and the features that it requires.
    pub(crate) translated: Translated,
    /// The kernel's buffers, in order: pointers, each followed by a byte offset in OpenCL. The
    /// struct of [`Program::lengths`] comes after them.
    pub(crate) arguments: SmallVec<[Argument; 8]>,
    /// File name of the native source that replaces the translation, if there is one.
    pub(crate) twin: Option<String>,
    /// Minimum size of each storage buffer in bytes, from the kernel's declarations.
    least: SmallVec<[u64; 8]>,
}

/// A buffer argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Argument {
    /// The dispatch's parameter block.
    Params,
    /// A storage buffer of the dispatch, by its index in [`Launch::bindings`].
    Storage(usize),
}

impl Program {
    /// Translates a kernel for a device, with the options of [`translate_options`].
    ///
    /// # Errors
    /// Unsupported, with the reason, if the device does not support the kernel. Compile for invalid
    /// WGSL, with naga's message, and for WGSL that violates its declared interface or the device's
    /// limits.
    pub(crate) fn translate(
        spec: &KernelSpec,
        profile: &DeviceProfile,
        target: Target,
    ) -> Result<Program> {
        if let Support::No(reason) = support(profile, spec) {
            return Err(Error::unsupported(reason));
        }
        let interface = catalogue::interface(spec)?;
        let text = spec_wgsl(spec)?;
        tracing::trace!("{spec}:\n{text}");
        let translate = || {
            let (module, info) = translate::parse(&text)?;
            let options = translate_options(spec);
            let translated = match target {
                #[cfg(feature = "cuda")]
                Target::Cuda => translate::cuda(&module, &info, &options)?,
                #[cfg(feature = "opencl")]
                Target::OpenCl(subgroups) => {
                    let options = Options { subgroups, ..options };
                    translate::opencl(&module, &info, &options)?
                }
            };
            check_limits(&translated, profile)?;
            let arguments = arguments(&translated, &interface)?;
            let least = least_bytes(&module, &interface)?;
            let name = spec.name().to_owned();
            let program = Program { name, interface, translated, arguments, twin: None, least };
            match spec {
                KernelSpec::Source(source) => native_source::in_place(program, source, target),
                KernelSpec::Asset(_) | KernelSpec::Fused(_) | KernelSpec::Routine(_) => Ok(program),
            }
        };
        translate().map_err(|error: Error| {
            // For the device's caller, a wrong entry point is a kernel that does not compile.
            let error = if error.is_invalid() { Error::compile(error.to_string()) } else { error };
            error.context(format!("kernel {spec}"))
        })
    }

    /// Returns the kernel's name for compiler errors.
    pub(crate) fn describe(&self, spec: &KernelSpec) -> String {
        match &self.twin {
            Some(file) => format!("kernel {spec}: {file}"),
            None => format!("kernel {spec}"),
        }
    }

    /// Returns the words of the struct after the buffers: the lengths of runtime-sized arrays.
    /// Empty if the kernel takes no struct.
    pub(crate) fn lengths(&self, launch: &Launch) -> SmallVec<[u32; 8]> {
        let bytes = |argument: usize| match self.arguments.get(argument) {
            Some(Argument::Storage(i)) => launch.bindings.get(*i).map_or(0, |b| b.bytes),
            _ => u64::from(self.interface.param_words) * 4,
        };
        self.translated.lengths.iter().map(|l| l.elements(bytes(l.binding))).collect()
    }
}

impl Callee for Program {
    fn name(&self) -> &str {
        &self.name
    }

    fn interface(&self) -> &Interface {
        &self.interface
    }

    fn least_bytes(&self, binding: usize) -> u64 {
        self.least.get(binding).copied().unwrap_or(0)
    }
}

fn check_limits(translated: &Translated, profile: &DeviceProfile) -> Result<()> {
    let [x, y, z] = translated.workgroup_size;
    let threads = u64::from(x) * u64::from(y) * u64::from(z);
    if threads > u64::from(profile.max_threads_per_workgroup) {
        let have = profile.max_threads_per_workgroup;
        return Err(Error::compile(format!("{threads} threads, the device has {have}")));
    }
    let need = translated.workgroup_bytes;
    if need > profile.workgroup_memory_bytes {
        let have = profile.workgroup_memory_bytes;
        return Err(Error::compile(format!(
            "{need} bytes of workgroup memory, the device has {have}"
        )));
    }
    match translated.immediates {
        Some(_) => Err(Error::compile("immediates: parameters are a uniform block")),
        None => Ok(()),
    }
}

fn arguments(translated: &Translated, interface: &Interface) -> Result<SmallVec<[Argument; 8]>> {
    let argument = |binding: &translate::Binding| {
        let translate::Binding { group, binding: number, access } = *binding;
        let declared = match number.checked_sub(1) {
            _ if group != 0 => None,
            None => {
                let params = access == translate::Access::Uniform && interface.param_words > 0;
                params.then_some(Argument::Params)
            }
            Some(i) => match (interface.bindings.get(i as usize), access) {
                (Some(_), translate::Access::Read)
                | (Some(Access::ReadWrite), translate::Access::ReadWrite) => {
                    Some(Argument::Storage(i as usize))
                }
                _ => None,
            },
        };
        declared.ok_or_else(|| {
            Error::compile(format!(
                "@group({group}) @binding({number}) is {access:?}, and the kernel is declared with \
                 {} words of parameters at binding 0 and {:?} from binding 1",
                interface.param_words, interface.bindings
            ))
        })
    };
    translated.bindings.iter().map(argument).collect()
}

/// Checks the size of the uniform block; returns the minimum size of each storage buffer in bytes.
fn least_bytes(module: &naga::Module, interface: &Interface) -> Result<SmallVec<[u64; 8]>> {
    let mut least = SmallVec::from_elem(0, interface.bindings.len());
    for (_, variable) in module.global_variables.iter() {
        let Some(place) = &variable.binding else { continue };
        let bytes = u64::from(module.types[variable.ty].inner.size(module.to_ctx()));
        match place.binding.checked_sub(1) {
            None if bytes > u64::from(interface.param_words) * 4 => {
                let have = interface.param_words * 4;
                return Err(Error::compile(format!(
                    "the uniform block has {bytes} bytes, the kernel is declared with {have}"
                )));
            }
            None => {}
            Some(i) => {
                if let Some(least) = least.get_mut(i as usize) {
                    *least = bytes;
                }
            }
        }
    }
    Ok(least)
}
