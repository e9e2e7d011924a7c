//! cuBLASLt: found on disk, opened by name, never linked.

use std::path::Path;
use std::sync::OnceLock;

use cudarc::cublaslt::sys;
use libloading::Library;

use super::nvrtc::folders;

/// The library that was found.
pub(super) struct Lt {
    /// Its version, such as `13.1`.
    pub(super) version: String,
    // The bindings find it by its name, since it is open already. Never closed.
    _library: Library,
}

/// All that is called of it: a symbol that is missing would panic at its first call.
const SYMBOLS: [&str; 14] = [
    "cublasLtCreate",
    "cublasLtDestroy",
    "cublasLtGetVersion",
    "cublasLtMatmul",
    "cublasLtMatmulAlgoGetHeuristic",
    "cublasLtMatmulDescCreate",
    "cublasLtMatmulDescDestroy",
    "cublasLtMatmulDescSetAttribute",
    "cublasLtMatmulPreferenceCreate",
    "cublasLtMatmulPreferenceDestroy",
    "cublasLtMatmulPreferenceSetAttribute",
    "cublasLtMatrixLayoutCreate",
    "cublasLtMatrixLayoutDestroy",
    "cublasLtMatrixLayoutSetAttribute",
];

/// The names that the bindings look for, newest first.
const NAMES: [&str; 5] = [
    "libcublasLt.so.13",
    "libcublasLt.so.12",
    "libcublasLt.so",
    "cublasLt64_13.dll",
    "cublasLt64_12.dll",
];

/// The library, which is looked for once in a process; else why there is none, in words.
pub(super) fn lt() -> Result<&'static Lt, &'static String> {
    static FOUND: OnceLock<Result<Lt, String>> = OnceLock::new();
    let find = || find().inspect_err(|why| tracing::debug!("{why}"));
    FOUND.get_or_init(find).as_ref()
}

fn find() -> Result<Lt, String> {
    let folders = folders();
    let mut tried = Vec::new();
    let inside = folders.iter().flat_map(|folder| NAMES.map(|name| folder.join(name)));
    for path in inside.filter(|path| path.is_file()) {
        match open(&path) {
            Ok(lt) => return Ok(lt),
            Err(why) => tried.push(format!("{}: {why}", path.display())),
        }
    }
    for name in NAMES {
        match open(Path::new(name)) {
            Ok(lt) => return Ok(lt),
            // What is there and cannot be used is worth a word.
            Err(Refusal::Unusable(why)) => tried.push(format!("{name}: {why}")),
            Err(Refusal::Absent(_)) => {}
        }
    }
    let folders: Vec<String> = folders.iter().map(|f| f.display().to_string()).collect();
    let mut text = "cuBLASLt was not found: not among the system's libraries".to_owned();
    if !folders.is_empty() {
        text.push_str(&format!(", nor in {}", folders.join(", ")));
    }
    tried.iter().for_each(|why| text.push_str(&format!("; {why}")));
    Err(text)
}

/// Why a file is not the library.
enum Refusal {
    Absent(String),
    Unusable(String),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Refusal::Absent(why) | Refusal::Unusable(why)) = self;
        f.write_str(why)
    }
}

fn open(path: &Path) -> Result<Lt, Refusal> {
    // SAFETY: NVIDIA's library, whose initialisers only set up itself.
    let library = unsafe { Library::new(path) }.map_err(|e| Refusal::Absent(e.to_string()))?;
    for symbol in SYMBOLS {
        // SAFETY: looked up as an address, which is not used.
        let found = unsafe { library.get::<*const ()>(symbol.as_bytes()) };
        found.map_err(|_| Refusal::Unusable(format!("it lacks {symbol}")))?;
    }
    // SAFETY: opens libraries by their names, of which one is open.
    if !unsafe { sys::is_culib_present() } {
        return Err(Refusal::Unusable("it is not found by its name".into()));
    }
    // SAFETY: the library is there and has the symbol.
    let version = unsafe { sys::cublasLtGetVersion() };
    let version = format!("{}.{}", version / 10_000, version / 100 % 100);
    Ok(Lt { version, _library: library })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_such_library_is_told_and_nothing_dies() {
        match lt() {
            Ok(lt) => assert!(lt.version.contains('.'), "{}", lt.version),
            Err(why) => assert!(why.starts_with("cuBLASLt was not found"), "{why}"),
        }
        let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        for path in [text.as_path(), Path::new("libcublasLt.so.no-such")] {
            assert!(matches!(open(path), Err(Refusal::Absent(_))), "{}", path.display());
        }
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        match open(Path::new("libc.so.6")) {
            Err(Refusal::Unusable(why)) => assert_eq!(why, "it lacks cublasLtCreate"),
            Err(Refusal::Absent(why)) => panic!("{why}"),
            Ok(_) => panic!("libc has products"),
        }
    }
}
