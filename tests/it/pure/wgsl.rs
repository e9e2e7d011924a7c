//! Runs a shader through naga: validation, and output for every target.

use naga::Module;
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};

/// Features of every device; the one bit allows unpacking f16 to f32, which is core WGSL.
pub(crate) const FLOOR: Capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32;

/// Parses, validates, and writes for each target; returns the first error.
pub(crate) fn lowered(
    name: &str,
    wgsl: &str,
    capabilities: Capabilities,
) -> Result<(Module, ModuleInfo), String> {
    let module = naga::front::wgsl::parse_str(wgsl)
        .map_err(|e| format!("{name}: {}\n{wgsl}", e.emit_to_string(wgsl)))?;
    let info = Validator::new(ValidationFlags::all(), capabilities)
        .validate(&module)
        .map_err(|e| format!("{name}: {}\n{wgsl}", e.emit_to_string(wgsl)))?;
    // HLSL has no cooperative matrices.
    lower(name, &module, &info, !capabilities.contains(Capabilities::COOPERATIVE_MATRIX))?;
    Ok((module, info))
}

/// Writes the module for each target.
fn lower(name: &str, module: &Module, info: &ModuleInfo, to_hlsl: bool) -> Result<(), String> {
    use naga::back::{hlsl, msl, spv};
    let written = |target: &str, fine: bool| match fine {
        true => Ok(()),
        false => Err(format!("{name}: its {target} is no kernel")),
    };
    let options = spv::Options { lang_version: (1, 3), ..spv::Options::default() };
    let words = spv::write_vec(module, info, &options, None);
    written("SPIR-V", words.map_err(|e| format!("{name} to SPIR-V: {e}"))?.len() > 5)?;
    let options = msl::Options { lang_version: (2, 4), ..msl::Options::default() };
    let text = msl::write_string(module, info, &options, &msl::PipelineOptions::default());
    let (text, _) = text.map_err(|e| format!("{name} to MSL: {e}"))?;
    written("MSL", text.contains("kernel void"))?;
    if !to_hlsl {
        return Ok(());
    }
    let options = hlsl::Options { shader_model: hlsl::ShaderModel::V6_2, ..Default::default() };
    let mut text = String::new();
    hlsl::Writer::new(&mut text, &options, &hlsl::PipelineOptions::default())
        .write(module, info, None)
        .map_err(|e| format!("{name} to HLSL: {e}"))?;
    written("HLSL", text.contains("numthreads"))
}
