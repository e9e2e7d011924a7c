//! The WGSL texts that a browser's device can get.

use std::collections::{BTreeMap, HashSet};

use serde_json::json;
use warploom::graph::{Graph, computing_in};
use warploom::kernel::KernelSpec;
use warploom::kernel::codegen::{spec_wgsl, with_subgroups_enabled};
use warploom::kernel::source::variants;
use warploom::plan::{Options, Plan};
use warploom::provider::{DeviceKind, DeviceProfile};
use warploom::{ComputeMode, DType, Result, Symbol, SymbolValues};
use warploom_core::base::ShapeClass;
use warploom_llm::{CacheShape, DecoderInput, DecoderOutput, classes};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::engine::open_model;
use crate::error::to_js;
use crate::source::Source;

/// Positions of the cache for which the embedded model is planned.
const CONTEXT: usize = 512;

/// Returns JSON: `[{name, wgsl}]`, every different text once: the variants of the catalogue, and
/// the kernels in plans of the conformance table and of the embedded model, at WebGPU's guaranteed
/// limits and at those of large GPUs, without subgroups and with subgroups of one and of several
/// sizes. Not listed: kernels on cooperative matrices, which no browser's device gets, and those
/// that need 16-bit floats, which only some have. `model` is the file of the embedded model.
///
/// # Errors
/// Errors of the model, and of a kernel that cannot be printed.
#[wasm_bindgen]
pub fn shaders(model: Source) -> Result<String, JsValue> {
    all(model).map_err(to_js)
}

fn all(model: Source) -> Result<String> {
    let mut texts = Texts::default();
    for spec in variants() {
        texts.add(&KernelSpec::Asset(spec))?;
    }
    let profiles = [
        DeviceProfile::webgpu_floor("floor"),
        large(None),
        large(Some((32, 32))),
        large(Some((8, 32))),
    ];
    for case in warploom_testkit::cases() {
        let exact = ShapeClass::exact(&case.symbols);
        for class in [Some(exact), ranges(&case.symbols)].into_iter().flatten() {
            for profile in profiles.iter().filter(|profile| case.is_for(profile.kind)) {
                texts.add_plan(&case.graph, &class, profile)?;
            }
        }
    }
    let model = open_model(model)?;
    for mode in [ComputeMode::F32, ComputeMode::Int8] {
        let dtype = if mode == ComputeMode::F32 { DType::F32 } else { DType::F16 };
        let cache = CacheShape::new(1, CONTEXT, dtype);
        for (input, output) in runs() {
            let graph = model.graph_on(DeviceKind::Discrete, cache, input, output)?;
            let graph = computing_in(&graph, mode)?;
            for class in classes_of(input) {
                for profile in &profiles {
                    texts.add_plan(&graph, &class, profile)?;
                }
            }
        }
    }
    let list: Vec<_> =
        texts.by_text.iter().map(|(wgsl, name)| json!({ "name": name, "wgsl": wgsl })).collect();
    Ok(json!(list).to_string())
}

/// The runs of a session.
fn runs() -> impl Iterator<Item = (DecoderInput, DecoderOutput)> {
    use DecoderOutput::{AllLogits, Greedy, Logits, Nothing, Sample};
    let tokens = [Nothing, Logits, AllLogits, Greedy, Sample];
    let tokens = tokens.map(|output| (DecoderInput::Tokens, output));
    tokens.into_iter().chain([Greedy, Sample].map(|output| (DecoderInput::RunAhead, output)))
}

/// The shape buckets for which a session plans such a run.
fn classes_of(input: DecoderInput) -> Vec<ShapeClass> {
    match input {
        DecoderInput::RunAhead => {
            vec![ShapeClass::new().with(warploom_llm::PAST, 0, CONTEXT as u64)]
        }
        _ => classes(CONTEXT).to_vec(),
    }
}

/// Ranges of each symbol that include larger values than a case has, as in a session's plans.
fn ranges(symbols: &SymbolValues) -> Option<ShapeClass> {
    symbols.iter().fold(None, |class: Option<ShapeClass>, (symbol, value): (Symbol, u64)| {
        Some(class.unwrap_or_default().with(symbol, value.min(1), value * 2 + 3))
    })
}

/// The profile of a large GPU in a browser, with subgroups of these sizes.
fn large(subgroups: Option<(u32, u32)>) -> DeviceProfile {
    DeviceProfile::webgpu_floor("large").with(|p| {
        if let Some((min, max)) = subgroups {
            (p.has_subgroups, p.subgroup_min, p.subgroup_max) = (true, min, max);
        }
        p.max_threads_per_workgroup = 1024;
        p.workgroup_memory_bytes = 32 << 10;
        p.max_storage_buffers = 16;
        p.max_binding_bytes = (2 << 30) - 4;
        p.max_buffer_bytes = 4 << 30;
    })
}

/// Texts and the name of the first kernel that has each.
#[derive(Default)]
struct Texts {
    by_text: BTreeMap<String, String>,
    seen: HashSet<KernelSpec>,
}

impl Texts {
    /// Adds the kernels of a plan. A graph that has no plan for a profile has no kernels there.
    fn add_plan(
        &mut self,
        graph: &Graph,
        class: &ShapeClass,
        profile: &DeviceProfile,
    ) -> Result<()> {
        let registry = warploom::runtime::registry()?;
        match Plan::new(graph, class, profile, &Options::new(&registry)) {
            Ok(plan) => plan.recording.kernels.iter().try_for_each(|spec| self.add(spec)),
            Err(error) if error.is_unsupported() => Ok(()),
            Err(error) => Err(error.context(&graph.name)),
        }
    }

    fn add(&mut self, spec: &KernelSpec) -> Result<()> {
        if !self.seen.insert(spec.clone()) {
            return Ok(());
        }
        let text = with_subgroups_enabled(spec_wgsl(spec)?);
        if !text.contains("enable f16") {
            self.by_text.entry(text.into_owned()).or_insert_with(|| spec.to_string());
        }
        Ok(())
    }
}
