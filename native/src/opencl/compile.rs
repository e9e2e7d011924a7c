//! Builds a program from a kernel's spec, through the on-disk cache.

use std::ffi::CString;
use std::sync::Arc;

use super::build;
use super::cl::{Cl, Context, DeviceId, Kernel as Handle, Program as Built};
use super::device::OpenClDevice;
use super::profile::has_extension;
use crate::{BlobCache, Program, Target};
use warploom_core::base::platform::{BoxFuture, ready};
use warploom_core::error::{Error, Result};
use warploom_hal::DeviceProfile;
use warploom_hal::parallel_compile;
use warploom_kernels::KernelSpec;
use warploom_wgsl::translate::{OPENCL_FLAGS, OPENCL_SUBGROUP_FLAGS, Subgroups, Translated};

/// Driver errata: a substring of the driver's version, and the build options it needs.
///
/// PoCL drops the bounds check of the last of four unrolled rows in `attn_prefill`, which then
/// stores past its buffer (3.1 with LLVM 15 and 6.0 with LLVM 19), and 6.0 aborts at an assertion
/// on phi nodes. Neither happens without PoCL's own optimisation passes.
const QUIRKS: [(&str, &str); 1] = [("PoCL", "-cl-opt-disable")];

/// A built kernel.
pub(super) struct Kernel {
    pub(super) program: Program,
    built: Built,
    entry: CString,
}

impl Kernel {
    /// Creates an instance with its own arguments.
    pub(super) fn instance(&self) -> Cl<Handle> {
        self.built.kernel(&self.entry)
    }
}

/// The compiler, which runs on background threads.
pub(super) struct Compiler {
    pub(super) context: Context,
    pub(super) device: DeviceId,
    pub(super) profile: DeviceProfile,
    pub(super) extensions: String,
    pub(super) cache: BlobCache,
}

impl OpenClDevice {
    /// Compiles a kernel. Compilation starts at once, on a background thread, so that kernels
    /// requested together compile in parallel.
    pub(super) fn compile_kernel<'a>(&'a self, spec: &'a KernelSpec) -> BoxFuture<'a, Result<()>> {
        if let Err(error) = self.faults.check_lost() {
            return ready(Err(error));
        }
        if self.state().kernels.contains_key(spec) {
            return ready(Ok(()));
        }
        let compiler = Arc::clone(&self.compiler);
        let building = parallel_compile::build(spec, move |spec| compiler.compile(spec));
        Box::pin(async move {
            let kernel = building?.wait()?;
            let mut state = self.state();
            if state.kernels.insert(spec.clone(), Arc::new(kernel)).is_none() {
                state.counters.compiles += 1;
            }
            Ok(())
        })
    }
}

impl Compiler {
    fn compile(&self, spec: &KernelSpec) -> Result<Kernel> {
        let subgroups = match self.profile.has_subgroups {
            true => Subgroups::Extension,
            false => Subgroups::Refused,
        };
        let target = Target::OpenCl(subgroups);
        let program = Program::translate(spec, &self.profile, target)?;
        let described = program.describe(spec);
        self.build(program, target).map_err(|e| e.context(described))
    }

    fn build(&self, program: Program, target: Target) -> Result<Kernel> {
        let translated = &program.translated;
        let has = |name: &&&'static str| has_extension(&self.extensions, name);
        if let Some(missing) = translated.extensions.iter().find(|name| !has(name)) {
            return Err(Error::unsupported(format!("the device lacks {missing}")));
        }
        let built = self.built(&program)?;
        let entry = CString::new(translated.entry.as_str());
        let entry = entry.map_err(|e| Error::compile(format!("the entry point's name: {e}")))?;
        let need: u64 = translated.workgroup_size.iter().map(|n| u64::from(*n)).product();
        let kernel = Kernel { program, built, entry };
        let have = kernel.instance().and_then(|kernel| kernel.max_threads(self.device));
        let have = have.map_err(|code| Error::compile(format!("the built program: {code}")))?;
        if kernel.program.twin.is_some() {
            let count = kernel.instance().and_then(|kernel| kernel.arguments());
            let count = count.map_err(|code| Error::compile(code.to_string()))?;
            // Each buffer has an offset argument.
            if count != 2 * kernel.program.arguments.len() {
                let wanted = target.wanted(&kernel.program.arguments);
                return Err(Error::compile(format!("kernel_main takes {count}, not {wanted}")));
            }
        }
        if need > have {
            return Err(Error::compile(format!(
                "{need} threads in a workgroup; the device runs {have} of this kernel"
            )));
        }
        Ok(kernel)
    }

    /// Builds the program, or loads it from the cache if the driver accepts the binary.
    fn built(&self, program: &Program) -> Result<Built> {
        let translated = &program.translated;
        let DeviceProfile { vendor, name, driver, .. } = &self.profile;
        let (text, options) = (&translated.text, flags(translated, driver));
        let key = BlobCache::key(&[text, &options, vendor, name, driver]);
        if let Some(binary) = self.cache.get(&key) {
            match build::from_binary(&self.context, self.device, &binary, &options) {
                Some(built) => return Ok(built),
                None => self.cache.remove(&key),
            }
        }
        let twin = program.twin.as_deref();
        let built = build::from_text(&self.context, self.device, text, &options, twin);
        let built = built.map_err(Error::compile)?;
        if let Some(binary) = built.binary() {
            self.cache.put(&key, &binary);
        }
        Ok(built)
    }
}

fn flags(translated: &Translated, driver: &str) -> String {
    let language = match translated.extensions.is_empty() {
        true => OPENCL_FLAGS,
        false => OPENCL_SUBGROUP_FLAGS,
    };
    let mut flags = language.join(" ");
    for (part, more) in QUIRKS {
        if driver.contains(part) {
            flags += " ";
            flags += more;
        }
    }
    flags
}

/// A test kernel with the sub-group functions that the translation uses.
const PROBE: &str = "\
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void probe(__global float* x) {
    const float v = x[get_local_id(0)];
    x[get_local_id(0)] = sub_group_reduce_add(v) + sub_group_reduce_max(v)
        + sub_group_reduce_min(v) + (float)get_sub_group_local_id() + (float)get_sub_group_id()
        + (float)get_num_sub_groups() + (float)get_max_sub_group_size();
}
";

/// Checks that the compiler accepts sub-groups, with a size within the profile's range; the error
/// is the reason if it does not.
pub(super) fn probe_subgroups(
    context: &Context,
    device: DeviceId,
    profile: &DeviceProfile,
) -> std::result::Result<(), String> {
    let options = OPENCL_SUBGROUP_FLAGS.join(" ");
    let built = build::from_text(context, device, PROBE, &options, None)?;
    let kernel = built.kernel(c"probe").map_err(|code| code.to_string())?;
    let size = kernel.subgroup_size(device, 64).map_err(|code| code.to_string())?;
    let (least, most) = (u64::from(profile.subgroup_min), u64::from(profile.subgroup_max));
    match (least..=most).contains(&size) {
        true => Ok(()),
        false => Err(format!("the compiler uses sub-groups of {size}, not {least} to {most}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::profile;
    use super::*;
    use warploom_wgsl::translate;

    /// Returns the first device, if this machine has one.
    fn first() -> Option<(Context, DeviceId)> {
        let found = profile::find().ok()?;
        let id = found.first()?.id;
        Some((Context::new(id).unwrap(), id))
    }

    #[test]
    fn a_driver_with_a_quirk_gets_its_options_and_no_other() {
        let (module, info) = translate::parse("@compute @workgroup_size(1) fn main() {}").unwrap();
        let text = translate::opencl(&module, &info, &translate::Options::default()).unwrap();
        for pocl in
            ["3.0 PoCL HSTR: pthread-x86_64, 3.1+debian", "3.0 PoCL HSTR: cpu-x86_64, 6.0+debian"]
        {
            let pocl = format!("OpenCL {pocl}");
            assert_eq!(flags(&text, &pocl), "-cl-std=CL1.2 -cl-opt-disable");
        }
        assert_eq!(flags(&text, "OpenCL 3.0 CUDA, 580.95"), "-cl-std=CL1.2");
    }

    #[test]
    fn a_program_that_is_refused_says_which_line_and_a_kept_one_comes_back() {
        let Some((context, device)) = first() else { return };
        let bad = "__kernel void f(__global float* x) {\n    x[0] = wrong;\n}\n";
        let said = build::from_text(&context, device, bad, "", None).err().unwrap();
        assert!(said.contains("line 2 of the translation: x[0] = wrong;"), "{said}");
        let good = bad.replace("wrong", "1.0f");
        let built = build::from_text(&context, device, &good, "", None).unwrap();
        let binary = built.binary().unwrap();
        let again = build::from_binary(&context, device, &binary, "").unwrap();
        assert!(again.kernel(c"f").is_ok() && again.kernel(c"g").is_err());
        assert!(build::from_binary(&context, device, b"not a program", "").is_none());
    }
}
