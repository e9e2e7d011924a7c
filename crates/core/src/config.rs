//! All environment variables of warploom, in one table.
//!
//! Code reads them only through [`var`], passing a row of [`ALL`], and the variables of other
//! programs, such as `CUDA_PATH`, only through [`system`]. A test checks that the README lists all
//! rows. Builders and command-line options take precedence over variables.

/// An environment variable that warploom reads.
#[derive(Debug)]
pub struct Var {
    /// Name of the variable.
    pub name: &'static str,
    /// Accepted values and effect, in one line.
    pub help: &'static str,
}

/// Device to use, such as `cpu` or `webgpu:0`.
pub static DEVICE: Var = Var {
    name: "WARPLOOM_DEVICE",
    help: "device to use: `cpu`, `cuda`, `webgpu:1`, or `auto` (the default)",
};
/// When work is submitted and waited for: `adaptive` (the default), `lazy` or `eager`.
pub static SYNC: Var = Var {
    name: "WARPLOOM_SYNC",
    help: "`eager` waits after every dispatch, so errors name the dispatch; `lazy` submits at reads; `adaptive`, the default, also submits realized tensors when the device is idle",
};
/// Log verbosity of the command-line tool, 0 to 5.
pub static DEBUG: Var = Var {
    name: "WARPLOOM_DEBUG",
    help: "log verbosity: 0 nothing, 1 devices, 2 to 4 also plans, 5 also graphs and kernel sources (default: warnings)",
};
/// Number of dispatches to record before a submit.
pub static DISPATCHES_PER_SUBMIT: Var = Var {
    name: "WARPLOOM_DISPATCHES_PER_SUBMIT",
    help: "dispatches recorded before a submit (default: 1024)",
};
/// Limit on device memory in bytes, in the form that [`parse_bytes`] accepts.
pub static MEMORY_BUDGET: Var = Var {
    name: "WARPLOOM_MEMORY_BUDGET",
    help: "limit of device memory in bytes, with K, M or G (default: what the device has)",
};
/// Number of threads of the CPU provider.
pub static THREADS: Var =
    Var { name: "WARPLOOM_THREADS", help: "threads of the CPU provider (default: one per core)" };
/// Whether the bits of a result must depend only on its inputs.
pub static DETERMINISTIC: Var = Var {
    name: "WARPLOOM_DETERMINISTIC",
    help: "`1`: results have the same bits on the same device for any batch, thread count and run; an operation without a deterministic engine is an error (default: `0`)",
};
/// Whether products of f16 matrices may accumulate in f16.
pub static F16_ACCUMULATE: Var = Var {
    name: "WARPLOOM_F16_ACCUMULATE",
    help: "`1`: products of `f16` matrices with an `f16` result may accumulate in `f16`, which is faster and less exact (default: `0`)",
};
/// Engines to prefer or to block.
pub static ENGINE: Var = Var {
    name: "WARPLOOM_ENGINE",
    help: "engine ids to prefer if they apply, separated by commas; `-ID` blocks an engine; `NAME*` matches every built-in engine whose id starts with NAME",
};
/// Folders of kernel packs to register as engines.
pub static PACKS: Var = Var {
    name: "WARPLOOM_PACKS",
    help: "folders of kernel packs with `implements` to register as engines, separated as in `PATH`",
};
/// Home folder of Hugging Face's tools.
pub static HF_HOME: Var = Var {
    name: "HF_HOME",
    help: "folder of Hugging Face's clients (default: `huggingface` in the cache folder)",
};
/// Cache folder for models from the Hugging Face hub.
pub static HF_HUB_CACHE: Var = Var {
    name: "HF_HUB_CACHE",
    help: "folder of downloaded models, shared with those clients (default: `hub` in `HF_HOME`)",
};
/// Whether network access to the hub is disabled.
pub static HF_HUB_OFFLINE: Var = Var {
    name: "HF_HUB_OFFLINE",
    help: "`1`: models come from the cache only; no request to a server",
};
/// Access token for private and gated models.
pub static HF_TOKEN: Var =
    Var { name: "HF_TOKEN", help: "token for private and gated models; sent only to the hub" };
/// Base URL of the Hugging Face hub.
pub static HF_ENDPOINT: Var =
    Var { name: "HF_ENDPOINT", help: "address of the hub (default: `https://huggingface.co`)" };
/// The user's cache folder.
pub static XDG_CACHE_HOME: Var =
    Var { name: "XDG_CACHE_HOME", help: "the cache folder (default: `.cache` in the home folder)" };
/// Warploom's own cache folder: compiled kernels, and results of `doctor` and `tune`.
pub static CACHE: Var = Var {
    name: "WARPLOOM_CACHE",
    help: "folder for compiled kernels and the results of `doctor` and `tune`, or `off` (default: `warploom` in the user's cache folder)",
};
/// Whether plans avoid engines that `doctor` or the errata list as wrong.
pub static DOCTOR: Var = Var {
    name: "WARPLOOM_DOCTOR",
    help: "`off`: plans may use engines that `doctor` or the errata list as wrong (default: `on`)",
};
/// Whether plans use measured timings, and whether a session measures missing ones.
pub static TUNE: Var = Var {
    name: "WARPLOOM_TUNE",
    help: "`off`: plans use estimates only; `cached` (the default): plans use the measurements of `tune`; `search`: a session first measures what it needs",
};
/// Files of timings to read in addition to the cache, such as those shipped with an application.
pub static TUNE_CACHE: Var = Var {
    name: "WARPLOOM_TUNE_CACHE",
    help: "files of `warploom tune --output` to read in addition to the cache, separated as in `PATH`",
};
/// Folder of NVRTC, NVIDIA's run-time compiler.
pub static NVRTC: Var = Var {
    name: "WARPLOOM_NVRTC",
    help: "folder of NVIDIA's run-time compiler, searched before CUDA's own folders",
};
/// Bearer token that clients of `warploom serve` must send.
pub static API_KEY: Var = Var {
    name: "WARPLOOM_API_KEY",
    help: "bearer token that clients of `warploom serve` must send",
};
/// All variables, in the order of the README.
pub static ALL: &[&Var] = &[
    &DEVICE,
    &SYNC,
    &DEBUG,
    &DISPATCHES_PER_SUBMIT,
    &MEMORY_BUDGET,
    &THREADS,
    &DETERMINISTIC,
    &F16_ACCUMULATE,
    &ENGINE,
    &PACKS,
    &HF_HOME,
    &HF_HUB_CACHE,
    &HF_HUB_OFFLINE,
    &HF_TOKEN,
    &HF_ENDPOINT,
    &XDG_CACHE_HOME,
    &CACHE,
    &DOCTOR,
    &TUNE,
    &TUNE_CACHE,
    &NVRTC,
    &API_KEY,
];

/// Returns the value of a variable, or `None` if it is unset, empty or not valid Unicode.
pub fn var(var: &Var) -> Option<String> {
    std::env::var(var.name).ok().filter(|value| !value.is_empty())
}

/// Returns the value of a variable by which another program locates its files (`CUDA_PATH`,
/// `CUDA_HOME`, `VIRTUAL_ENV`), or `None` if it is unset, empty or not valid Unicode.
pub fn system(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Parses a number of bytes with an optional suffix K, M or G (powers of 1,024), such as `512M` or
/// `1.5G`. Returns `None` if the text is malformed, or if the number is negative or at least 10^18.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, unit) = match text.to_ascii_uppercase().chars().last()? {
        'K' => (&text[..text.len() - 1], 1u64 << 10),
        'M' => (&text[..text.len() - 1], 1 << 20),
        'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let number: f64 = digits.trim().parse().ok()?;
    let bytes = number * unit as f64;
    (bytes.is_finite() && (0.0..1e18).contains(&bytes)).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_with_units() {
        assert_eq!(parse_bytes("512M"), Some(512 << 20));
        assert_eq!(parse_bytes("1.5g"), Some(3 << 29));
        assert_eq!(parse_bytes("7"), Some(7));
        assert_eq!(parse_bytes("-1"), None);
        assert_eq!(parse_bytes("lots"), None);
    }
}
