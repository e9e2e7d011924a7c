//! A user's kernel in a provider's own language, which replaces the translation of its shader.
//!
//! The kernel is called `kernel_main` (see `docs/kernels.md`). It takes a pointer to the uniform
//! block, if there is one, and one to each buffer, in the order of the shader's bindings. In
//! OpenCL, each pointer is to a whole buffer and is followed by the byte offset of the range, as in
//! translated kernels: a sub-buffer would hide the offset, but crashes a widely used driver. The
//! constants of the launch are defined as in the shader: `WORKGROUP_X`, `WORKGROUP_Y`,
//! `WORKGROUP_Z`, and `override` constants under their names.

use std::fmt::Write;

use super::program::{Argument, Program, Target};
use warploom_core::error::Result;
use warploom_core::ir::TwinLanguage;
use warploom_kernels::SourceSpec;
use warploom_wgsl::translate;
use warploom_wgsl::translate::naga::{self, Module};

/// The name of the kernel function.
const ENTRY: &str = "kernel_main";

/// C++ template that counts the arguments of a kernel, which CUDA's driver does not check.
#[cfg(feature = "cuda")]
const COUNT: &str = "\
template <class> struct warploom_pointers { static constexpr int count = -1; };
template <class R, class... A> struct warploom_pointers<R(A*...)> {
    static constexpr int count = sizeof...(A);
};
";

impl Target {
    fn language(self) -> TwinLanguage {
        match self {
            #[cfg(feature = "cuda")]
            Target::Cuda => TwinLanguage::Cuda,
            #[cfg(feature = "opencl")]
            Target::OpenCl(_) => TwinLanguage::OpenCl,
        }
    }

    /// Describes the expected arguments, for messages.
    pub(super) fn wanted(self, arguments: &[Argument]) -> String {
        let count = arguments.len();
        let params = match arguments.first() {
            Some(Argument::Params) => "one to the uniform block, then ",
            _ => "",
        };
        let pointers = format!("{params}one to each buffer in the order of the shader's bindings");
        match self {
            #[cfg(feature = "cuda")]
            Target::Cuda => format!("{count} pointers: {pointers}"),
            #[cfg(feature = "opencl")]
            Target::OpenCl(_) => {
                let all = 2 * count;
                format!("{all}: {count} pointers, each with a ulong behind it: {pointers}")
            }
        }
    }
}

/// Replaces the translation in a program with the native source for this target, if the kernel has
/// one.
pub(super) fn in_place(
    mut program: Program,
    source: &SourceSpec,
    target: Target,
) -> Result<Program> {
    let Some(twin) = source.twins.iter().find(|twin| twin.language == target.language()) else {
        return Ok(program);
    };
    // The translated text has no overrides left.
    let (module, _) = translate::parse(&source.wgsl)?;
    let params = (program.interface.param_words > 0).then_some(Argument::Params);
    let storage = (0..program.interface.bindings.len()).map(Argument::Storage);
    program.arguments = params.into_iter().chain(storage).collect();
    let translated = &mut program.translated;
    let mut text = String::new();
    for (axis, size) in ["X", "Y", "Z"].iter().zip(translated.workgroup_size) {
        let _ = writeln!(text, "#define WORKGROUP_{axis} {size}");
    }
    for (name, value) in &source.constants {
        let _ = writeln!(text, "{}", constant(&module, name, value.value()));
    }
    let (file, own) = (&twin.file, &twin.text);
    let _ = write!(text, "#line 1 \"{file}\"\n{own}\n");
    match target {
        #[cfg(feature = "cuda")]
        Target::Cuda => {
            let count = program.arguments.len();
            let _ = write!(
                text,
                "#line 1 \"end of {file}\"\n{COUNT}static_assert(\
                 warploom_pointers<decltype({ENTRY})>::count == {count}, \
                 \"{ENTRY} takes {}\");\n",
                target.wanted(&program.arguments)
            );
        }
        #[cfg(feature = "opencl")]
        Target::OpenCl(_) => {}
    }
    translated.text = text;
    translated.entry = ENTRY.into();
    // Sizes come with the parameters, and only the text itself enables extensions.
    translated.lengths.clear();
    translated.extensions.clear();
    program.twin = Some(file.clone());
    Ok(program)
}

/// Extracts the user's text, whose file name is `file`, from a program's text.
#[cfg(feature = "opencl")]
pub(super) fn own_text<'a>(text: &'a str, file: &str) -> &'a str {
    let line = format!("#line 1 \"{file}\"\n");
    text.split_once(&line).map_or(text, |(_, own)| own)
}

/// Formats the definition of a constant, such as `#define TILE 16u`, typed as the `override`.
fn constant(module: &Module, name: &str, value: f64) -> String {
    let by_number = |id: u16| name.parse() == Ok(id);
    let found = module
        .overrides
        .iter()
        .map(|(_, found)| found)
        .find(|found| found.name.as_deref() == Some(name) || found.id.is_some_and(by_number));
    let kind = found.and_then(|found| module.types[found.ty].inner.scalar_kind());
    let label = found.and_then(|found| found.name.as_deref()).unwrap_or(name);
    match kind {
        Some(naga::ScalarKind::Float) => format!("#define {label} {value:?}f"),
        Some(naga::ScalarKind::Uint) => format!("#define {label} {value}u"),
        _ => format!("#define {label} ({value})"),
    }
}
