//! Compiles a kernel spec to a pipeline with an explicit layout.

use std::borrow::Cow;
use std::num::NonZeroU64;
#[cfg(not(target_arch = "wasm32"))]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::device::WebGpuDevice;
#[cfg(not(target_arch = "wasm32"))]
use super::faults::panic_text;
use super::faults::{Faults, Scopes, tidy};
#[cfg(target_arch = "wasm32")]
use super::parallel_request::Request;
#[cfg(not(target_arch = "wasm32"))]
use crate::base::platform::block_on;
use crate::base::platform::{BROWSER, BoxFuture, ready};
use crate::codegen::{spec_wgsl, with_subgroups_enabled};
use crate::error::{Error, Result};
use crate::kernel::{Access, Interface, KernelSpec, catalogue};
#[cfg(not(target_arch = "wasm32"))]
use crate::provider::parallel_compile;
use crate::provider::{DeviceProfile, Support, support};

/// A compiled kernel.
pub(super) struct Kernel {
    pub(super) name: String,
    pub(super) pipeline: wgpu::ComputePipeline,
    pub(super) layout: Arc<Layout>,
}

/// Bind group layout of one kernel interface; kernels with equal interfaces share bind groups.
pub(super) struct Layout {
    /// Index of this layout on its device.
    pub(super) id: usize,
    pub(super) interface: Interface,
    pub(super) group: wgpu::BindGroupLayout,
    pipeline: wgpu::PipelineLayout,
}

/// Words of the parameter block, and for each storage buffer whether it is written.
pub(super) type LayoutKey = (u32, Vec<bool>);

/// Returns the WGSL text of a kernel for this device's compiler.
pub(super) fn wgsl_of<'a>(spec: &'a KernelSpec, profile: &DeviceProfile) -> Result<Cow<'a, str>> {
    let text = spec_wgsl(spec)?;
    Ok(if BROWSER && profile.has_subgroups { with_subgroups_enabled(text) } else { text })
}

/// State needed to create a pipeline on any thread.
struct Compiler {
    gpu: wgpu::Device,
    faults: Arc<Faults>,
    profile: DeviceProfile,
}

impl Compiler {
    /// Creates the pipeline of a kernel and returns its errors.
    #[cfg(not(target_arch = "wasm32"))]
    fn compile(&self, spec: &KernelSpec, layout: &Layout) -> Result<wgpu::ComputePipeline> {
        let text = self.text(spec)?;
        let scopes = Scopes::open(&self.gpu);
        let build = AssertUnwindSafe(|| self.pipeline(spec, &self.module(spec, &text), layout));
        let pipeline = catch_unwind(build).map_err(|panic| {
            let text = panic_text(&*panic);
            Error::compile(format!("kernel {spec}: the compiler panicked: {text}"))
        })?;
        self.checked(spec, block_on(scopes.close()))?;
        Ok(pipeline)
    }

    /// Requests the pipeline of a kernel, so that the browser compiles it while others are
    /// requested.
    #[cfg(target_arch = "wasm32")]
    fn request<'a>(
        self,
        spec: &'a KernelSpec,
        layout: Arc<Layout>,
    ) -> Result<impl Future<Output = Result<wgpu::ComputePipeline>> + 'a> {
        let text = self.text(spec)?;
        let scopes = Scopes::open(&self.gpu);
        let module = self.module(spec, &text);
        let requested = Request::begin(&self.gpu, || self.pipeline(spec, &module, &layout));
        let errors = scopes.close();
        Ok(async move {
            let made = requested.end().await;
            // The error of the text, before that of its pipeline, which is only that the text is
            // invalid.
            self.checked(spec, errors.await)?;
            let made = made.map_err(|why| Error::compile(format!("kernel {spec}: {why}")))?;
            Ok(made.instead(&self.gpu, || self.pipeline(spec, &module, &layout)))
        })
    }

    /// Returns the text of a kernel that may run on this device.
    fn text<'a>(&self, spec: &'a KernelSpec) -> Result<Cow<'a, str>> {
        let text = wgsl_of(spec, &self.profile)?;
        // wgpu does not bounds-check cooperative matrix loads and stores.
        if matches!(spec, KernelSpec::Source(_)) && text.contains("wgpu_cooperative_matrix") {
            return Err(Error::unsupported(format!(
                "kernel {spec}: cooperative matrices are only for built-in kernels"
            )));
        }
        tracing::trace!("{spec}:\n{text}");
        Ok(text)
    }

    /// Returns the error of a kernel, and that of a lost device.
    fn checked(&self, spec: &KernelSpec, error: Option<wgpu::Error>) -> Result<()> {
        #[cfg(not(target_arch = "wasm32"))]
        {
            // A destroyed device reports it when polled, and until then its calls are invalid.
            let polled = self.faults.guard("polling", || self.gpu.poll(wgpu::PollType::Poll));
            polled.map(|_| ()).and_then(|()| self.faults.check_lost())?;
        }
        match error {
            Some(wgpu::Error::OutOfMemory { .. }) => {
                return Err(Error::compile(format!("kernel {spec}: the driver ran out of memory")));
            }
            Some(
                wgpu::Error::Validation { description, .. }
                | wgpu::Error::Internal { description, .. },
            ) => {
                return Err(Error::compile(format!("kernel {spec}: {}", tidy(&description))));
            }
            None => {}
        }
        // Some drivers report a failure only as a lost device, with empty error scopes.
        let lost = self.faults.check_lost();
        lost.map_err(|e| e.context(format!("kernel {spec}, or one compiled concurrently")))
    }

    fn module(&self, spec: &KernelSpec, text: &str) -> wgpu::ShaderModule {
        let descriptor = wgpu::ShaderModuleDescriptor {
            label: Some(spec.name()),
            source: wgpu::ShaderSource::Wgsl(Cow::Borrowed(text)),
        };
        if matches!(spec, KernelSpec::Source(_)) {
            return self.gpu.create_shader_module(descriptor);
        }
        // SAFETY: kernels of the catalogue and of codegen compare every index with their
        // parameters, end their loops and never divide by zero; their tests run them this way.
        unsafe {
            self.gpu
                .create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked())
        }
    }

    fn pipeline(
        &self,
        spec: &KernelSpec,
        module: &wgpu::ShaderModule,
        layout: &Layout,
    ) -> wgpu::ComputePipeline {
        let constants: Vec<(&str, f64)> = match spec {
            // Without a parser, the constants are set on the pipeline.
            KernelSpec::Source(source) if cfg!(not(feature = "translate")) => {
                source.constants.iter().map(|(name, value)| (&**name, value.value())).collect()
            }
            // With a parser, the constants are substituted in the text, as in catalogue kernels.
            KernelSpec::Source(_) => Vec::new(),
            KernelSpec::Asset(_) | KernelSpec::Fused(_) | KernelSpec::Routine(_) => Vec::new(),
        };
        self.gpu.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(spec.name()),
            layout: Some(&layout.pipeline),
            module,
            entry_point: Some(spec.entry()),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: &constants,
                // Built-in kernels write workgroup memory before they read it.
                zero_initialize_workgroup_memory: matches!(spec, KernelSpec::Source(_)),
            },
            cache: None,
        })
    }
}

impl WebGpuDevice {
    /// Compiles a kernel. Compilation starts at once, on a background thread or on those of the
    /// browser, so kernels requested together compile in parallel.
    pub(super) fn compile_kernel<'a>(&'a self, spec: &'a KernelSpec) -> BoxFuture<'a, Result<()>> {
        let layout = match self.asked(spec) {
            Ok(Some(layout)) => layout,
            Ok(None) => return ready(Ok(())),
            Err(error) => return ready(Err(error)),
        };
        let (gpu, faults) = (self.gpu.clone(), Arc::clone(&self.faults));
        let compiler = Compiler { gpu, faults, profile: self.profile.clone() };
        let bound = Arc::clone(&layout);
        #[cfg(not(target_arch = "wasm32"))]
        let pipeline = {
            let building =
                parallel_compile::build(spec, move |spec| compiler.compile(spec, &bound));
            async move { building?.wait() }
        };
        #[cfg(target_arch = "wasm32")]
        let pipeline = {
            let requested = compiler.request(spec, bound);
            async move { requested?.await }
        };
        Box::pin(async move {
            let pipeline = pipeline.await?;
            let kernel = Kernel { name: spec.name().to_owned(), pipeline, layout };
            let mut state = self.state();
            if state.kernels.insert(spec.clone(), Arc::new(kernel)).is_none() {
                state.counters.compiles += 1;
            }
            Ok(())
        })
    }

    /// Returns the layout for a kernel that must be compiled, or `None` if it already is.
    fn asked(&self, spec: &KernelSpec) -> Result<Option<Arc<Layout>>> {
        if self.state().kernels.contains_key(spec) {
            return Ok(None);
        }
        self.faults.check_lost()?;
        if let Support::No(reason) = support(&self.profile, spec) {
            return Err(Error::unsupported(reason));
        }
        let interface = catalogue::interface(spec)?;
        let need = u64::from(interface.param_words) * 4;
        if need > self.max_uniform_bytes {
            let have = self.max_uniform_bytes;
            return Err(Error::unsupported(format!(
                "{spec} takes {need} bytes of parameters, the device has {have}"
            )));
        }
        Ok(Some(self.layout(interface)))
    }

    fn layout(&self, interface: Interface) -> Arc<Layout> {
        let writes = interface.bindings.iter().map(|access| *access == Access::ReadWrite);
        let key: LayoutKey = (interface.param_words, writes.collect());
        let mut state = self.state();
        if let Some(layout) = state.layouts.get(&key) {
            return Arc::clone(layout);
        }
        let entry = |binding: u32, ty, min_binding_size| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size },
            count: None,
        };
        let params = NonZeroU64::new(u64::from(interface.param_words) * 4);
        let mut entries = Vec::new();
        if params.is_some() {
            entries.push(entry(0, wgpu::BufferBindingType::Uniform, params));
        }
        for (i, access) in interface.bindings.iter().enumerate() {
            let read_only = *access == Access::Read;
            let ty = wgpu::BufferBindingType::Storage { read_only };
            entries.push(entry(i as u32 + 1, ty, None));
        }
        let group = self.gpu.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: None,
            entries: &entries,
        });
        let pipeline = self.gpu.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&group)],
            immediate_size: 0,
        });
        let id = state.layouts.len();
        let layout = Arc::new(Layout { id, interface, group, pipeline });
        state.layouts.insert(key, Arc::clone(&layout));
        layout
    }
}
