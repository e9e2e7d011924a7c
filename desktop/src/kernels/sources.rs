//! The text of a kernel: its WGSL, and what it becomes for CUDA and OpenCL.

use warploom::Result;
use warploom::kernel::KernelSpec;
use warploom::kernel::codegen::{spec_wgsl, translate_options};
use warploom_wgsl::translate::{self, Options, Subgroups};

/// The language of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Wgsl,
    Cuda,
    OpenCl,
}

impl Language {
    pub(super) const ALL: [Language; 3] = [Language::Wgsl, Language::Cuda, Language::OpenCl];

    /// Returns its name in the window.
    pub(super) fn title(self) -> &'static str {
        match self {
            Language::Wgsl => "WGSL",
            Language::Cuda => "CUDA C",
            Language::OpenCl => "OpenCL C",
        }
    }
}

/// Returns the text of a kernel, or why there is none: a call of a library has no text.
pub(super) fn text(spec: &KernelSpec, language: Language) -> std::result::Result<String, String> {
    let text = || -> Result<String> {
        let wgsl = spec_wgsl(spec)?;
        if language == Language::Wgsl {
            return Ok(wgsl.into_owned());
        }
        let (module, info) = translate::parse(&wgsl)?;
        let options = translate_options(spec);
        let translated = match language {
            Language::OpenCl => {
                let options = Options { subgroups: Subgroups::Extension, ..options };
                translate::opencl(&module, &info, &options)?
            }
            _ => translate::cuda(&module, &info, &options)?,
        };
        Ok(translated.text)
    };
    text().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use warploom::kernel::source::variants;

    #[test]
    fn a_kernel_has_a_text_in_each_language() {
        let softmax = variants().into_iter().find(|spec| spec.name == "softmax").unwrap();
        let spec = KernelSpec::Asset(softmax);
        let texts = Language::ALL.map(|language| text(&spec, language).unwrap());
        for (text, want) in texts.iter().zip(["@compute", "__global__", "__kernel"]) {
            assert!(text.contains(want), "no {want} in {text}");
        }
    }
}
