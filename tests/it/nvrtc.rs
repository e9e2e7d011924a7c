//! NVRTC for tests of translated text: it needs no GPU and no toolkit.

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::{Library, Symbol};
use warploom::translate::CUDA_FLAGS;

/// The library.
pub(crate) struct Nvrtc {
    library: Library,
    // NVRTC opens it by its name, which finds it where it is open already.
    _builtins: Library,
}

type Program = *mut std::ffi::c_void;
type Get = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
type GetSize = unsafe extern "C" fn(Program, *mut usize) -> c_int;

/// The files in a folder whose names begin like this, ascending.
fn beginning(folder: &Path, with: &str) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|file| file.path());
    let fits = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(with))
    };
    let mut found: Vec<PathBuf> = files.filter(fits).collect();
    found.sort();
    found
}

impl Nvrtc {
    /// The library in the folder that `WARPLOOM_NVRTC` names; why there is none otherwise.
    pub(crate) fn open() -> Result<Nvrtc, String> {
        let folder = std::env::var_os("WARPLOOM_NVRTC").ok_or("WARPLOOM_NVRTC is not set")?;
        let load = |with: &str| {
            let found = beginning(Path::new(&folder), with);
            let path = found.first().ok_or(format!("no {with}* in {}", folder.display()))?;
            // SAFETY: NVIDIA's compiler, whose initialisers only set up itself.
            unsafe { Library::new(path) }.map_err(|e| format!("{}: {e}", path.display()))
        };
        let builtins = load("libnvrtc-builtins.so")?;
        Ok(Nvrtc { library: load("libnvrtc.so")?, _builtins: builtins })
    }

    fn symbol<T>(&self, name: &CStr) -> Result<Symbol<'_, T>, String> {
        // SAFETY: callers give the type of nvrtc.h.
        unsafe { self.library.get(name.to_bytes_with_nul()) }.map_err(|e| e.to_string())
    }

    /// The binary for an architecture such as `sm_90a`; the compiler's log otherwise.
    pub(crate) fn compile(&self, text: &str, architecture: &str) -> Result<Vec<u8>, String> {
        type Create = unsafe extern "C" fn(
            *mut Program,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> c_int;
        type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
        type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;
        let create: Symbol<'_, Create> = self.symbol(c"nvrtcCreateProgram")?;
        let compile: Symbol<'_, Compile> = self.symbol(c"nvrtcCompileProgram")?;
        let destroy: Symbol<'_, Destroy> = self.symbol(c"nvrtcDestroyProgram")?;
        let text = CString::new(text).map_err(|e| e.to_string())?;
        let mut flags: Vec<String> = CUDA_FLAGS.iter().map(|flag| flag.to_string()).collect();
        flags.push(format!("--gpu-architecture={architecture}"));
        let flags: Vec<CString> =
            flags.into_iter().map(|flag| CString::new(flag).unwrap_or_default()).collect();
        let pointers: Vec<*const c_char> = flags.iter().map(|flag| flag.as_ptr()).collect();
        let mut program: Program = ptr::null_mut();
        let none = ptr::null();
        // SAFETY: the strings live until the call is over; NVRTC copies them.
        let made =
            unsafe { create(&mut program, text.as_ptr(), none, 0, none.cast(), none.cast()) };
        if made != 0 {
            return Err(format!("nvrtcCreateProgram gives {made}"));
        }
        // SAFETY: a program that was made, and flags that live.
        let rc = unsafe { compile(program, pointers.len() as c_int, pointers.as_ptr()) };
        let result = if rc == 0 {
            self.bytes(program, c"nvrtcGetCUBINSize", c"nvrtcGetCUBIN")
        } else {
            let log = self.bytes(program, c"nvrtcGetProgramLogSize", c"nvrtcGetProgramLog");
            Err(log.map_or_else(|e| e, |log| String::from_utf8_lossy(&log).into_owned()))
        };
        // SAFETY: a program that was made and is not used any more.
        unsafe { destroy(&mut program) };
        result
    }

    fn bytes(&self, program: Program, size: &CStr, get: &CStr) -> Result<Vec<u8>, String> {
        let (size, get): (Symbol<'_, GetSize>, Symbol<'_, Get>) =
            (self.symbol(size)?, self.symbol(get)?);
        let mut count = 0;
        // SAFETY: a program that was made; the buffer is as large as was asked for.
        let rc = unsafe { size(program, &mut count) };
        let mut bytes = vec![0u8; count];
        // SAFETY: as above.
        let rc = if rc == 0 { unsafe { get(program, bytes.as_mut_ptr().cast()) } } else { rc };
        if rc == 0 { Ok(bytes) } else { Err(format!("NVRTC gives {rc}")) }
    }
}
