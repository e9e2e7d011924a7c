//! Compiles a kernel's spec to a function of a loaded module.

use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::device::CudaDevice;
use super::driver::{Driver, version_text, words};
use super::gpu::Gpu;
use super::graph::{Turn, WAITING_CAPABILITY};
use super::nvrtc::{Nvrtc, options};
use super::product::Routine;
use crate::{BlobCache, Program, Target};
use warploom_core::base::platform::{BoxFuture, ready};
use warploom_core::error::{Error, Result};
use warploom_hal::DeviceProfile;
use warploom_hal::checked::Callee;
use warploom_hal::parallel_compile;
use warploom_kernels::{Interface, KernelSpec, Specialization};
use warploom_wgsl::translate::CUDA_BEGIN;

/// The function or library routine that a launch calls.
pub(super) enum Kernel {
    /// A function of a loaded module.
    Compiled(Box<Compiled>),
    /// A routine of a vendor's library.
    Routine(Routine),
}

impl Callee for Kernel {
    fn name(&self) -> &str {
        match self {
            Kernel::Compiled(kernel) => kernel.program.name(),
            Kernel::Routine(routine) => routine.name(),
        }
    }

    fn interface(&self) -> &Interface {
        match self {
            Kernel::Compiled(kernel) => kernel.program.interface(),
            Kernel::Routine(routine) => routine.interface(),
        }
    }

    fn least_bytes(&self, binding: usize) -> u64 {
        match self {
            Kernel::Compiled(kernel) => kernel.program.least_bytes(binding),
            Kernel::Routine(routine) => routine.least_bytes(binding),
        }
    }
}

/// A compiled kernel.
pub(super) struct Compiled {
    gpu: Arc<Gpu>,
    pub(super) program: Program,
    pub(super) function: sys::CUfunction,
    /// The kernel's programmatic dependent launch behaviour.
    pub(super) turn: Turn,
    module: sys::CUmodule,
}

// SAFETY: handles of the driver, which locks for itself.
unsafe impl Send for Compiled {}
// SAFETY: as above.
unsafe impl Sync for Compiled {}

impl Drop for Compiled {
    fn drop(&mut self) {
        if let Ok(_current) = self.gpu.enter() {
            // SAFETY: the device drops kernels when no work that uses them is in flight.
            let _ = unsafe { result::module::unload(self.module) };
        }
    }
}

/// The compiler, which runs on background threads.
pub(super) struct Compiler {
    gpu: Arc<Gpu>,
    nvrtc: &'static Nvrtc,
    profile: DeviceProfile,
    architecture: String,
    driver: String,
    cache: BlobCache,
}

impl Compiler {
    pub(super) fn new(
        gpu: &Arc<Gpu>,
        driver: &Driver,
        nvrtc: &'static Nvrtc,
        profile: &DeviceProfile,
    ) -> Result<Compiler> {
        Ok(Compiler {
            gpu: Arc::clone(gpu),
            nvrtc,
            profile: profile.clone(),
            architecture: nvrtc.architecture(super::profile::capability(gpu.device)?),
            driver: version_text(driver.version),
            cache: BlobCache::open("cuda"),
        })
    }

    fn build(&self, spec: &KernelSpec) -> Result<Compiled> {
        let program = Program::translate(spec, &self.profile, Target::Cuda)?;
        let described = program.describe(spec);
        let text = &program.translated.text;
        let flags: Vec<String> = options(&self.architecture).collect();
        let version = self.nvrtc.version();
        let key = BlobCache::key(&[text, &flags.join(" "), &self.driver, &version]);
        let named = |error: Error| error.context(&described);
        if let Some(image) = self.cache.get(&key) {
            match self.load(&image, &program.translated.entry) {
                Ok(loaded) => return Ok(self.kernel(spec, program, loaded)),
                Err(error) if error.is_device_lost() => return Err(named(error)),
                Err(error) => {
                    tracing::debug!("{spec}: compiled again: {error}");
                    self.cache.remove(&key);
                }
            }
        }
        let image = self.nvrtc.compile(text, &self.architecture).map_err(named)?;
        let loaded = self.load(&image, &program.translated.entry).map_err(named)?;
        self.cache.put(&key, &image);
        Ok(self.kernel(spec, program, loaded))
    }

    fn kernel(
        &self,
        spec: &KernelSpec,
        program: Program,
        (module, function): (sys::CUmodule, sys::CUfunction),
    ) -> Compiled {
        // A user's text and kernels that read ahead do not wait, nor do kernels on older
        // architectures.
        let version = self.architecture.rsplit('_').next().and_then(|n| n.parse::<i32>().ok());
        let waits = version.is_some_and(|version| version >= WAITING_CAPABILITY)
            && program.translated.text.contains(CUDA_BEGIN);
        let of = |which: fn(&Specialization) -> bool| spec.known().is_some_and(which);
        let (allows_overlap, overlaps_previous) =
            (of(|known| known.allows_overlap), of(|known| known.overlaps_previous));
        let turn = Turn { waits, allows_overlap, overlaps_previous };
        Compiled { gpu: Arc::clone(&self.gpu), program, function, turn, module }
    }

    fn load(&self, image: &[u8], entry: &str) -> Result<(sys::CUmodule, sys::CUfunction)> {
        let _current = self.gpu.enter()?;
        let name = std::ffi::CString::new(entry).map_err(|e| Error::compile(e.to_string()))?;
        // Text must end in a zero; machine code is unaffected by it.
        let image = [image, &[0]].concat();
        // SAFETY: machine code or text that ends in a zero, in memory that lives.
        let module = unsafe { result::module::load_data(image.as_ptr().cast()) };
        let refused = |error| {
            // A device loss is recorded; any other error is the kernel's.
            match self.gpu.check::<()>("loading a kernel", Err(error)) {
                Err(lost) if lost.is_device_lost() => lost,
                _ => Error::compile(format!("the driver does not load it: {}", words(error))),
            }
        };
        let module = module.map_err(refused)?;
        // SAFETY: a module that was loaded.
        let function = unsafe { result::module::get_function(module, name) };
        function.map(|function| (module, function)).map_err(|error| {
            // SAFETY: no function of the module is used.
            let _ = unsafe { result::module::unload(module) };
            refused(error)
        })
    }
}

impl CudaDevice {
    /// Compiles a kernel. Compilation starts at once, on a background thread, so that kernels
    /// requested together compile in parallel.
    pub(super) fn compile_kernel<'a>(&'a self, spec: &'a KernelSpec) -> BoxFuture<'a, Result<()>> {
        if let Err(error) = self.gpu.check_lost() {
            return ready(Err(error));
        }
        if self.state().kernels.contains_key(spec) {
            return ready(Ok(()));
        }
        if let KernelSpec::Routine(warploom_kernels::Routine::Gemm(gemm)) = spec {
            let routine = self.routine(spec, *gemm);
            return ready(routine.map(|routine| self.keep_kernel(spec, Kernel::Routine(routine))));
        }
        let compiler = Arc::clone(&self.compiler);
        let building = parallel_compile::build(spec, move |spec| compiler.build(spec));
        Box::pin(async move {
            let kernel = building?.wait()?;
            self.keep_kernel(spec, Kernel::Compiled(Box::new(kernel)));
            Ok(())
        })
    }

    fn keep_kernel(&self, spec: &KernelSpec, kernel: Kernel) {
        let mut state = self.state();
        if state.kernels.insert(spec.clone(), Arc::new(kernel)).is_none() {
            state.counters.compiles += 1;
        }
    }
}
