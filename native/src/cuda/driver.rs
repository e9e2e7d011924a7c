//! CUDA's driver: its detection, and the meaning of its errors.

use std::sync::OnceLock;

use cudarc::driver::{DriverError, result, sys};

use warploom_core::error::{Error, Result};

/// The driver that was found.
#[derive(Debug)]
pub(super) struct Driver {
    /// CUDA version of the driver: 1000 * major + 10 * minor.
    pub(super) version: i32,
    /// Number of devices.
    pub(super) devices: usize,
}

/// Minimum CUDA version of a driver. Drivers from CUDA 12.8 on have every symbol that is called; a
/// missing one would panic.
const LEAST: i32 = 12_080;

/// Returns the driver, initialised once, or the reason for its absence.
pub(super) fn driver() -> Result<&'static Driver, &'static String> {
    static DRIVER: OnceLock<Result<Driver, String>> = OnceLock::new();
    DRIVER.get_or_init(probe).as_ref()
}

fn probe() -> Result<Driver, String> {
    // SAFETY: opens libraries by their names, whose initialisers only set up themselves.
    if !unsafe { sys::is_culib_present() } {
        return Err("no NVIDIA driver: libcuda (nvcuda.dll on Windows) was not found".into());
    }
    let failed = |what: &str, error| format!("the NVIDIA driver fails: {what}: {}", words(error));
    let mut version = 0;
    // SAFETY: writes one integer.
    let asked = unsafe { sys::cuDriverGetVersion(&mut version) }.result();
    asked.map_err(|error| failed("cuDriverGetVersion", error))?;
    if version < LEAST {
        return Err(format!(
            "the NVIDIA driver is of CUDA {}, {} is the least",
            version_text(version),
            version_text(LEAST)
        ));
    }
    result::init().map_err(|error| failed("cuInit", error))?;
    let devices = result::device::get_count().map_err(|e| failed("cuDeviceGetCount", e))?;
    match usize::try_from(devices) {
        Ok(devices) if devices > 0 => Ok(Driver { version, devices }),
        _ => Err("the NVIDIA driver finds no device".into()),
    }
}

/// Formats a version, as in `13.0`.
pub(super) fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// Formats an error, as in `CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)`.
pub(super) fn words(error: DriverError) -> String {
    let text = |name: Result<&std::ffi::CStr, DriverError>| {
        name.map_or_else(|_| "?".into(), |name| name.to_string_lossy().into_owned())
    };
    format!("{} ({})", text(error.error_name()), text(error.error_string()))
}

/// Converts a driver error. An out-of-memory error has no sizes; callers that know the sizes create
/// their own.
pub(super) fn convert(what: &str, error: DriverError) -> Error {
    match error.0 {
        sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Error::out_of_memory(what, 0, 0),
        _ => Error::device(format!("{what}: {}", words(error))),
    }
}

/// Returns whether CUDA returns this error for every later call of the process.
pub(super) fn is_loss(error: DriverError) -> bool {
    use sys::CUresult::*;
    matches!(
        error.0,
        CUDA_ERROR_DEINITIALIZED
            | CUDA_ERROR_DEVICE_UNAVAILABLE
            | CUDA_ERROR_ECC_UNCORRECTABLE
            | CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_LAUNCH_TIMEOUT
            | CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUDA_ERROR_ASSERT
            | CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUDA_ERROR_MISALIGNED_ADDRESS
            | CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUDA_ERROR_INVALID_PC
            | CUDA_ERROR_LAUNCH_FAILED
            | CUDA_ERROR_EXTERNAL_DEVICE
            | CUDA_ERROR_UNKNOWN
    )
}
