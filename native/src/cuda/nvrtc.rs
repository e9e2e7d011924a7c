//! NVRTC, NVIDIA's run-time compiler: found on disk, opened by name, never linked.

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

use libloading::Library;

use warploom_core::config;
use warploom_core::error::{Error, Result};
use warploom_wgsl::translate::CUDA_FLAGS;

type Program = *mut c_void;
type Strings = *const *const c_char;
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    Strings,
    Strings,
) -> c_int;
type Compile = unsafe extern "C" fn(Program, c_int, Strings) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;
type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Get = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
type ArchCount = unsafe extern "C" fn(*mut c_int) -> c_int;

/// NVIDIA's run-time compiler. It needs no GPU.
#[derive(Debug)]
pub struct Nvrtc {
    version: (c_int, c_int),
    architectures: Vec<c_int>,
    create: Create,
    compile: Compile,
    destroy: Destroy,
    cubin: (Size, Get),
    ptx: (Size, Get),
    log: (Size, Get),
    // Symbols above point into it. NVRTC opens the builtins by their name, which finds them where
    // they are open already.
    _libraries: Vec<Library>,
}

impl Nvrtc {
    /// The compiler, which is looked for once in a process.
    ///
    /// # Errors
    /// Unsupported, with every place that was looked into.
    pub fn open() -> Result<&'static Nvrtc> {
        static FOUND: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
        let found = FOUND.get_or_init(find).as_ref();
        found.map_err(|why| Error::unsupported(why.clone()))
    }

    /// Its version, such as `13.0`.
    pub fn version(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }

    /// Compiles a program that `translate::cuda` made, for an architecture such as `sm_90`; for
    /// `compute_90` the result is text that the driver compiles further.
    ///
    /// # Errors
    /// Compile, with the compiler's messages, which show the lines that they name.
    pub fn compile(&self, text: &str, architecture: &str) -> Result<Vec<u8>> {
        self.run(text, options(architecture), |program| {
            let text = architecture.starts_with("compute");
            self.bytes(program, if text { self.ptx } else { self.cubin })
        })
    }

    /// Syntax and types of a program alone, which takes a tenth of the time of [`Nvrtc::compile`]; what is within `asm` is
    /// not looked at.
    ///
    /// # Errors
    /// As [`Nvrtc::compile`]; also where this compiler does not know `--fdevice-syntax-only` yet.
    pub fn check(&self, text: &str, architecture: &str) -> Result<()> {
        let flags = options(architecture).chain(["--fdevice-syntax-only".to_string()]);
        self.run(text, flags, |_| Ok(()))
    }

    /// Compiles, and takes what is wanted of the program.
    fn run<T>(
        &self,
        text: &str,
        flags: impl Iterator<Item = String>,
        take: impl FnOnce(Program) -> Result<T>,
    ) -> Result<T> {
        let nul = |_| Error::compile("the text holds a zero byte");
        let source = CString::new(text).map_err(nul)?;
        let flags: Vec<CString> =
            flags.map(CString::new).collect::<std::result::Result<_, _>>().map_err(nul)?;
        let flags: Vec<*const c_char> = flags.iter().map(|flag| flag.as_ptr()).collect();
        let (mut program, none) = (ptr::null_mut(), ptr::null());
        // SAFETY: strings that live until the call is over; NVRTC copies them.
        let rc = unsafe {
            (self.create)(&mut program, source.as_ptr(), none, 0, none.cast(), none.cast())
        };
        if rc != 0 {
            return Err(Error::compile(format!("nvrtcCreateProgram gives {rc}")));
        }
        // SAFETY: a program that was made, and flags that live.
        let rc = unsafe { (self.compile)(program, flags.len() as c_int, flags.as_ptr()) };
        let made = match rc {
            0 => take(program),
            rc => {
                let log = self.bytes(program, self.log);
                let log = log.map(|log| String::from_utf8_lossy(&log).into_owned());
                let log = log.unwrap_or_else(|_| format!("nvrtcCompileProgram gives {rc}"));
                Err(Error::compile(log.trim_end_matches('\0').trim()))
            }
        };
        // SAFETY: a program that was made and is not used any more.
        unsafe { (self.destroy)(&mut program) };
        made
    }

    /// The architecture to compile for on a GPU of this compute capability: its own, for machine
    /// code, or the newest that this compiler knows, for text that the driver compiles.
    pub(super) fn architecture(&self, capability: i32) -> String {
        let older = self.architectures.iter().filter(|a| **a <= capability).max();
        match older {
            Some(newest) if *newest < capability => format!("compute_{newest}"),
            _ => format!("sm_{capability}"),
        }
    }

    fn bytes(&self, program: Program, (size, get): (Size, Get)) -> Result<Vec<u8>> {
        let failed = |rc| Error::compile(format!("NVRTC gives {rc} for what it made"));
        let mut count = 0;
        // SAFETY: a program that was made.
        match unsafe { size(program, &mut count) } {
            0 => {}
            rc => return Err(failed(rc)),
        }
        let mut bytes = vec![0u8; count];
        // SAFETY: the buffer is as large as was asked for.
        match unsafe { get(program, bytes.as_mut_ptr().cast()) } {
            0 => Ok(bytes),
            rc => Err(failed(rc)),
        }
    }
}

/// What the text is compiled with.
pub(super) fn options(architecture: &str) -> impl Iterator<Item = String> + use<> {
    let own = format!("--gpu-architecture={architecture}");
    CUDA_FLAGS.iter().map(|flag| flag.to_string()).chain([own])
}

fn find() -> std::result::Result<Nvrtc, String> {
    let folders = folders();
    let mut tried = Vec::new();
    for folder in &folders {
        match load_from(folder) {
            Ok(Some(nvrtc)) => return Ok(nvrtc),
            Ok(None) => {}
            Err(why) => tried.push(why),
        }
    }
    for name in ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]
        .iter()
        .chain(&["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"])
    {
        // SAFETY: NVIDIA's compiler, whose initialisers only set up itself.
        if let Ok(library) = unsafe { Library::new(*name) } {
            return load(library, Vec::new()).map_err(|why| format!("{name}: {why}"));
        }
    }
    let folders: Vec<String> = folders.iter().map(|f| f.display().to_string()).collect();
    let mut text = format!(
        "NVRTC was not found: not among the system's libraries, nor in {}; {} names its folder",
        folders.join(", "),
        config::NVRTC.name
    );
    tried.iter().for_each(|why| text.push_str(&format!("; {why}")));
    Err(text)
}

/// Where NVIDIA's libraries may be, in the order of preference.
pub(super) fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        config::var(&config::NVRTC).map(PathBuf::from).into_iter().collect();
    let own = ["CUDA_PATH", "CUDA_HOME"].into_iter().filter_map(config::system);
    for root in own.chain(["/usr/local/cuda".to_owned()]) {
        for part in
            ["lib64", "lib", "bin", "bin/x64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"]
        {
            folders.push(Path::new(&root).join(part));
        }
    }
    if let Some(root) = config::system("VIRTUAL_ENV") {
        let pythons =
            std::fs::read_dir(Path::new(&root).join("lib")).into_iter().flatten().flatten();
        for python in pythons {
            for part in ["cu13/lib", "cuda_nvrtc/lib", "cublas/lib"] {
                folders.push(python.path().join("site-packages/nvidia").join(part));
            }
        }
    }
    folders.retain(|folder| folder.is_dir());
    folders
}

/// The library in a folder, if there is one. The builtins are opened first: NVRTC finds them only
/// by their name.
fn load_from(folder: &Path) -> std::result::Result<Option<Nvrtc>, String> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|file| file.path());
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    let find = |heads: [&str; 2]| {
        files.iter().find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            heads.iter().any(|head| name.starts_with(head)) && !name.contains(".alt.")
        })
    };
    let Some(main) = find(["libnvrtc.so", "nvrtc64_"]) else { return Ok(None) };
    let open = |path: &PathBuf| {
        // SAFETY: NVIDIA's compiler, whose initialisers only set up itself.
        unsafe { Library::new(path) }.map_err(|e| format!("{}: {e}", path.display()))
    };
    let builtins = match find(["libnvrtc-builtins.so", "nvrtc-builtins64_"]) {
        Some(path) => vec![open(path)?],
        None => Vec::new(),
    };
    load(open(main)?, builtins).map(Some).map_err(|why| format!("{}: {why}", main.display()))
}

fn load(library: Library, mut builtins: Vec<Library>) -> std::result::Result<Nvrtc, String> {
    /// Looks a symbol up.
    ///
    /// # Safety
    /// The type is that of nvrtc.h.
    unsafe fn symbol<T: Copy>(library: &Library, name: &str) -> std::result::Result<T, String> {
        // SAFETY: the caller's word.
        let found = unsafe { library.get::<T>(name) };
        found.map(|symbol| *symbol).map_err(|e| e.to_string())
    }
    // SAFETY: the types are those of nvrtc.h.
    let mut nvrtc = unsafe {
        let pair = |size, get| Ok::<_, String>((symbol(&library, size)?, symbol(&library, get)?));
        Nvrtc {
            version: (0, 0),
            architectures: Vec::new(),
            create: symbol(&library, "nvrtcCreateProgram")?,
            compile: symbol(&library, "nvrtcCompileProgram")?,
            destroy: symbol(&library, "nvrtcDestroyProgram")?,
            cubin: pair("nvrtcGetCUBINSize", "nvrtcGetCUBIN")?,
            ptx: pair("nvrtcGetPTXSize", "nvrtcGetPTX")?,
            log: pair("nvrtcGetProgramLogSize", "nvrtcGetProgramLog")?,
            _libraries: Vec::new(),
        }
    };
    let (major, minor) = (&mut nvrtc.version.0, &mut nvrtc.version.1);
    // SAFETY: as above; the second call is given room for as many as the first one counts.
    let rc = unsafe {
        let version: Version = symbol(&library, "nvrtcVersion")?;
        let count: ArchCount = symbol(&library, "nvrtcGetNumSupportedArchs")?;
        let list: ArchCount = symbol(&library, "nvrtcGetSupportedArchs")?;
        let mut number = 0;
        let rc = version(major, minor) | count(&mut number);
        nvrtc.architectures = vec![0; usize::try_from(number).unwrap_or(0)];
        if nvrtc.architectures.is_empty() {
            rc
        } else {
            rc | list(nvrtc.architectures.as_mut_ptr())
        }
    };
    if rc != 0 {
        return Err(format!("asking for its version gives {rc}"));
    }
    builtins.push(library);
    nvrtc._libraries = builtins;
    Ok(nvrtc)
}
