//! Finds cuBLASLt on disk and opens it by name; it is never linked.

use std::path::Path;
use std::sync::OnceLock;

use cudarc::cublaslt::sys;
use libloading::Library;

use super::nvrtc::folders;

/// The loaded library.
pub(super) struct Lt {
    /// Version of the library, such as `13.1`.
    pub(super) version: String,
    // Never closed. The bindings open the library again, by their own list of names: `open` checks
    // that they find the same one.
    _library: Library,
}

/// Every symbol that is called: a missing one would panic at its first call.
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

/// File names to try, newest first. The bindings start with the unversioned name.
const NAMES: [&str; 5] = [
    "libcublasLt.so.13",
    "libcublasLt.so.12",
    "libcublasLt.so",
    "cublasLt64_13.dll",
    "cublasLt64_12.dll",
];

/// Returns the library, which is searched for once per process, or the reason for its absence.
pub(super) fn lt() -> Result<&'static Lt, &'static String> {
    static FOUND: OnceLock<Result<Lt, String>> = OnceLock::new();
    let find = || find().inspect_err(|why| tracing::debug!("{why}"));
    FOUND.get_or_init(find).as_ref()
}

fn find() -> Result<Lt, String> {
    let folders = folders();
    let mut tried = Vec::new();
    // A library that exists but is unusable is logged, even if another is usable.
    let mut unusable = |why: String| {
        tracing::warn!("cuBLASLt: {why}");
        tried.push(why);
    };
    let inside = folders.iter().flat_map(|folder| NAMES.map(|name| folder.join(name)));
    for path in inside.filter(|path| path.is_file()) {
        match open(&path) {
            Ok(lt) => return Ok(lt),
            Err(why) => unusable(format!("{}: {why}", path.display())),
        }
    }
    for name in NAMES {
        match open(Path::new(name)) {
            Ok(lt) => return Ok(lt),
            Err(Refusal::Unusable(why)) => unusable(format!("{name}: {why}")),
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

/// Why a file is rejected.
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
    // SAFETY: as above; one of them was found.
    let called = unsafe { sys::culib() };
    for symbol in SYMBOLS {
        // SAFETY: looked up as an address, which is not used.
        let found = unsafe { called.get::<*const ()>(symbol.as_bytes()) };
        found.map_err(|_| Refusal::Unusable(format!("another is called, which lacks {symbol}")))?;
    }
    // SAFETY: both have the symbol, a function of this type in cublasLt.h.
    let [own, called] = unsafe {
        let own = library.get::<unsafe extern "C" fn() -> usize>(b"cublasLtGetVersion");
        let own = own.map_err(|e| Refusal::Unusable(e.to_string()))?;
        [own(), sys::cublasLtGetVersion()]
    };
    Ok(Lt { version: one_version(own, called).map_err(Refusal::Unusable)?, _library: library })
}

/// Returns the version of the opened file. It must equal that of the library that the bindings
/// call, since several may be installed.
fn one_version(own: usize, called: usize) -> Result<String, String> {
    let version_text = |version: usize| format!("{}.{}", version / 10_000, version / 100 % 100);
    match own == called {
        true => Ok(version_text(own)),
        false => Err(format!(
            "it is {} ({own}), but its name resolves to another library, {} ({called})",
            version_text(own),
            version_text(called)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_by_the_same_name_is_refused_with_both() {
        assert_eq!(one_version(130_100, 130_100).unwrap(), "13.1");
        let why = one_version(130_100, 120_904).unwrap_err();
        let want = "it is 13.1 (130100), but its name resolves to another library, 12.9 (120904)";
        assert_eq!(why, want);
        assert!(one_version(130_100, 130_101).is_err());
    }

    #[test]
    fn a_wrong_library_is_an_error_and_not_a_crash() {
        match lt() {
            Ok(lt) => assert!(lt.version.contains('.'), "{}", lt.version),
            Err(why) => assert!(why.starts_with("cuBLASLt was not found"), "{why}"),
        }
        let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
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
