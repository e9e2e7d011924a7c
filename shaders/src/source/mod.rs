//! Turns catalogue specs into WGSL text.
//!
//! Assets are the files of `shaders/`, embedded; `shaders/README.md` documents their syntax. Equal
//! specs give equal text.

mod assets;
mod preprocess;
mod specialize;
mod variants;

pub use assets::ASSETS;
use assets::asset;
use preprocess::{Source, assemble};
use std::collections::BTreeMap;
pub use variants::{cooperative_variants, variants};

use super::catalogue::{self, Entry};
use super::entry::{SUFFIXES, plain_name};
use super::spec::{AssetSpec, Constant};
use warploom_core::base::Format;
use warploom_core::error::{Error, Result};

/// Families whose kernels share a skeleton file; it imports the file with the kernel's own name.
const SKELETONS: [&str; 3] = ["reduce", "rope", "pool2d"];

/// Returns the name of a kernel's file, and what `*` stands for in it.
fn file_of(entry: &Entry, format: Option<Format>) -> (&'static str, &'static str) {
    match format {
        Some(format) => (entry.name.trim_end_matches("_*"), format.name()),
        None => SKELETONS
            .iter()
            .find_map(|s| Some((*s, entry.name.strip_prefix(s)?.strip_prefix('_')?)))
            .unwrap_or((entry.name.trim_end_matches("_*"), "")),
    }
}

/// Returns the text of a shared file of functions, for generated kernels.
///
/// # Errors
/// Compile if the file does not exist or has an error.
pub fn shared_wgsl(name: &str) -> Result<String> {
    let (defines, constants) = (Vec::new(), BTreeMap::new());
    let files = |name: &str| asset(name);
    let source = Source { star: "", defines: &defines, constants: &constants, files: &files };
    assemble(name, "", &source)
}

/// Text that a fusion inserts into an asset; `codegen` prints it.
#[derive(Debug, Default)]
pub struct Splice {
    /// Text that replaces files, by file name.
    pub files: BTreeMap<&'static str, String>,
    /// Lines to append to the asset.
    pub tail: String,
    /// Defines in addition to the spec's, which the catalogue does not list.
    pub defines: Vec<&'static str>,
    /// Constants in addition to the spec's.
    pub constants: Vec<(&'static str, u32)>,
}

/// Returns the WGSL text of an asset: imports resolved, defines applied and constants set.
///
/// # Errors
/// Unsupported if the kernel is not in the catalogue; invalid if it lacks a define or a constant of
/// the spec, or if the spec has a fusion, which only `codegen` prints; compile if the asset has an
/// error. Invalid and compile errors name the asset, and the line if there is one.
pub fn asset_wgsl(spec: &AssetSpec) -> Result<String> {
    if spec.fusion.is_some() {
        return Err(Error::invalid(format!("kernel {}: the attachment is not printed", spec.name)));
    }
    spliced_wgsl(spec, &Splice::default())
}

/// Same as [`asset_wgsl`], with the text of a fusion.
///
/// # Errors
/// Same as [`asset_wgsl`], except that the spec may have a fusion.
pub fn spliced_wgsl(spec: &AssetSpec, splice: &Splice) -> Result<String> {
    let (entry, format) = catalogue::find(&spec.name).ok_or_else(|| {
        Error::unsupported(format!("kernel {:?} is not in the catalogue", spec.name))
    })?;
    if let Some(define) = spec.defines.iter().find(|d| !entry.defines.contains(&d.as_str())) {
        return Err(Error::invalid(format!(
            "kernel {}: there is no variant {define:?}, only {:?}",
            spec.name, entry.defines
        )));
    }
    let (file, star) = file_of(entry, format);
    let mut defines = spec.defines.clone();
    let added = SUFFIXES.iter().filter(|(suffix, _)| file.contains(suffix));
    defines.extend(added.map(|(_, define)| define.to_string()));
    let file = plain_name(file);
    defines.extend(splice.defines.iter().map(|define| define.to_string()));
    let mut constants = spec.constants.clone();
    let more = splice.constants.iter();
    constants.extend(more.map(|(name, value)| (name.to_string(), Constant::U32(*value))));
    let files = |name: &str| splice.files.get(name).map(String::as_str).or_else(|| asset(name));
    let source = Source { star, defines: &defines, constants: &constants, files: &files };
    let text = assemble(file, &splice.tail, &source)?;
    Ok(match &spec.known {
        Some(known) => specialize::settle(&text, &known.words),
        None => text,
    })
}

/// Formats a finite float as a WGSL literal with the same bits.
pub fn f32_literal(value: f32) -> String {
    if value.abs() < 1e38 {
        // The shortest digits that give the same bits.
        format!("{value:?}f")
    } else {
        // Rounded digits may exceed the largest f32, which compilers reject.
        format!("{:?}f", f64::from(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KernelFusion;

    #[test]
    fn specs_outside_the_catalogue_are_refused() {
        assert!(asset_wgsl(&AssetSpec::new("matvec_q9_9")).unwrap_err().is_unsupported());
        assert!(asset_wgsl(&AssetSpec::new("gather").define("f16")).unwrap_err().is_invalid());
        let error = asset_wgsl(&AssetSpec::new("softmax").constant("ROWS", 1)).unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains("ROWS"), "{error}");
        let attachment = KernelFusion { norm: Some(0), ..Default::default() };
        let error = asset_wgsl(&AssetSpec::new("matvec_f32").attach(attachment)).unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains("attachment"), "{error}");
    }
}
